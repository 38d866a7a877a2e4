"""Families whose modelling code came with their checkpoints instead of with transformers.

Source: vLLM ``model_executor/models/<module>.py``, named beside each function where there is one,
and the keys of the published ``config.json`` files.
"""

from __future__ import annotations

from kvplan.errors import UnsupportedArchitecture
from kvplan.model.caches import FullAttention
from kvplan.model.tensors import (
    EMBEDDING,
    Tensor,
    attention,
    embedding,
    gated_mlp,
    head,
    norm,
)
from kvplan.sources.huggingface.architecture import Architecture, Weights, alike
from kvplan.sources.huggingface.families.blocks import (
    PRE_NORMS,
    expect,
    experts,
    norms,
    outside,
    projections,
)
from kvplan.sources.huggingface.families.dense import decoder
from kvplan.sources.huggingface.families.llama import full_caches, llama, qwen2, qwen3
from kvplan.sources.huggingface.fields import Fields


def qwen(c: Fields) -> Architecture:
    """Qwen 1: biases on queries, keys and values; ``intermediate_size`` is both halves together.

    Source: vLLM 0.9 ``qwen.py``: the MLP has ``intermediate_size // 2`` inputs.
    """
    expect(c, "no_bias", True)

    def count() -> Weights:
        hidden = c.hidden()
        width = c.integer("intermediate_size", "ffn_hidden_size")
        layer = [
            *projections(c, qkv_bias=True, prefix="attn"),
            *gated_mlp(hidden, width // 2),
            *norms(("ln_1", "ln_2"), hidden),
        ]
        return Weights(alike(layer, c.layers()), outside(c, final="transformer.ln_f"))

    return Architecture(full_caches(c), count)


def internlm(c: Fields) -> Architecture:
    """InternLM 1: one switch for the biases of all four projections."""
    bias = c.boolean("bias", default=True)
    return Architecture(full_caches(c), decoder(c, qkv_bias=bias, o_bias=bias))


def internlm2(c: Fields) -> Architecture:
    """InternLM 2 and 2.5, also under InternVL. Source: vLLM ``internlm2.py``."""
    expect(c, "bias", False)
    return Architecture(full_caches(c), decoder(c))


def internlm3(c: Fields) -> Architecture:
    """InternLM 3: ``qkv_bias`` for queries, keys and values, ``bias`` for output and MLP."""
    bias = c.boolean("bias", "attention_bias", default=False)
    weights = decoder(
        c,
        qkv_bias=c.boolean("qkv_bias", "attention_bias", default=False),
        o_bias=bias,
        mlp_bias=c.boolean("bias", "mlp_bias", default=False),
    )
    return Architecture(full_caches(c), weights)


def baichuan(c: Fields) -> Architecture:
    """Baichuan 1 and 2: multi-head attention with fused projections."""
    return Architecture(full_caches(c), decoder(c))


def orion(c: Fields) -> Architecture:
    """Orion: as Llama with layer norms. Source: vLLM ``orion.py``."""
    return Architecture(full_caches(c), decoder(c, norm_bias=True))


def chatglm(c: Fields) -> Architecture:
    """ChatGLM 2 and 3, GLM-4-9B. Source: vLLM ``chatglm.py``.

    ``multi_query_group_num`` counts only with ``multi_query_attention``.
    """
    expect(c, "rmsnorm", True)
    expect(c, "post_layer_norm", True)
    layers, heads, hidden = c.layers(), c.heads(), c.hidden()
    size = c.head_size()
    kept = (
        c.integer("multi_query_group_num")
        if c.boolean("multi_query_attention", default=False)
        else heads
    )

    def count() -> Weights:
        bias = c.boolean("add_bias_linear", default=False)
        qkv_bias = bias or c.boolean("add_qkv_bias", default=False)
        layer = [
            *attention(hidden, heads, kept, size, qkv_bias=qkv_bias, o_bias=bias),
            *gated_mlp(hidden, c.integer("ffn_hidden_size"), bias=bias),
            *norms(PRE_NORMS, hidden),
        ]
        return Weights(alike(layer, layers), outside(c, final="encoder.final_layernorm"))

    return Architecture([(FullAttention(kept, size, size),)] * layers, count)


def minicpm(c: Fields) -> Architecture:
    """MiniCPM 1, 2 and 4, the mixture of 8 included. Source: vLLM ``minicpm.py``.

    Sparse attention of MiniCPM 4.1 (``sparse_config``) reads less but stores every token.
    """
    count = c.optional_integer("num_experts", minimum=0) or 0

    def weights() -> Weights:
        hidden, inner = c.hidden(), c.integer("intermediate_size")
        mlp = (
            experts(hidden, count, inner, c.optional_integer("num_experts_per_tok"))
            if count
            else gated_mlp(hidden, inner)
        )
        layer = [*projections(c), *mlp, *norms(PRE_NORMS, hidden)]
        return Weights(alike(layer, c.layers()), outside(c, tied=True))

    return Architecture(full_caches(c), weights)


_MINICPMV = {"2.0": minicpm, "2.5": llama, "2.6": qwen2, "4.0": llama, "4.5": qwen3}
"""Language model of each version. Source: vLLM ``minicpmv.py``, ``_SUPPORT_VERSION``."""


def minicpmv(c: Fields) -> Architecture:
    """MiniCPM-V: the language model of its ``version``, without the picture tower."""
    version = c.raw("version")
    if version is None:
        is_first = c.hidden() == 2304 and c.optional_integer("query_num") == 64
        version = "2.0" if is_first else "2.5"
    build = _MINICPMV.get(str(version))
    if build is None:
        raise UnsupportedArchitecture("version", version, where=c.where, known=_MINICPMV)
    return build(c)


def molmo(c: Fields) -> Architecture:
    """Molmo 1, text part. Source: vLLM ``molmo.py``.

    ``intermediate_size`` is both halves together; 128 further tokens have a table of their own.
    """
    expect(c, "layer_norm_type", "rms")
    expect(c, "attention_layer_norm", False)

    def count() -> Weights:
        hidden = c.hidden()
        layer = [
            *projections(c, qkv_bias=c.boolean("qkv_bias", default=False)),
            *gated_mlp(hidden, c.integer("intermediate_size") // 2),
            *norms(PRE_NORMS, hidden),
        ]
        extra = Tensor(EMBEDDING, "transformer.wte.new_embedding", 128, hidden)
        tied = c.boolean("weight_tying", default=False)
        vocab = c.integer("embedding_size", "vocab_size", maximum=10**8)
        last = [embedding(vocab, hidden), extra, *norm("model.norm", hidden)]
        if not tied:
            last.append(head(vocab, hidden))
        return Weights(alike(layer, c.layers()), tuple(last))

    return Architecture(full_caches(c), count)
