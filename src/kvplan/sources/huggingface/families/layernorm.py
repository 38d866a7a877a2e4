"""Decoders with layer norms and biases: StarCoder 2, StableLM, Phi, GPT-NeoX, GPT-J, BLOOM, MPT.

Source: transformers ``modeling_<model_type>.py`` and ``configuration_<model_type>.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvplan.errors import UnsupportedArchitecture
from kvplan.model.caches import Cache, FullAttention
from kvplan.model.tensors import Tensor, attention, norm, plain_mlp
from kvplan.sources.huggingface.architecture import Architecture, Weights, kv_heads
from kvplan.sources.huggingface.families.blocks import PRE_NORMS, expect, norms, outside
from kvplan.sources.huggingface.families.dense import attention_bias, decoder
from kvplan.sources.huggingface.families.gpt import positions
from kvplan.sources.huggingface.families.llama import all_sliding, full_caches
from kvplan.sources.huggingface.fields import Fields

DEFAULTS = {
    # configuration_xglm.py, configuration_biogpt.py, configuration_openai.py: published files of
    # these state their sizes; only switches are left out.
    "openai_gpt": {"n_positions": 512},
}


def starcoder2(c: Fields) -> Architecture:
    """StarCoder 2: biases everywhere, tied, the stated window in every layer."""
    bias = c.boolean("use_bias", default=True)
    weights = decoder(
        c, qkv_bias=bias, o_bias=bias, mlp_bias=bias, norm_bias=True, gated_mlp=False, tied=True
    )
    return Architecture(all_sliding(c), weights)


def nemotron(c: Fields) -> Architecture:
    """Nemotron 3 and 4, Minitron: layer norms and an MLP of two projections (squared ReLU)."""
    bias = attention_bias(c)
    mlp_bias = c.boolean("mlp_bias", default=False)
    weights = decoder(
        c, qkv_bias=bias, o_bias=bias, mlp_bias=mlp_bias, norm_bias=True, gated_mlp=False
    )
    return Architecture(full_caches(c), weights)


def stablelm(c: Fields) -> Architecture:
    """StableLM: optional biases on queries, keys and values, optional norms a head."""

    def per_head() -> Sequence[Tensor]:
        if not c.boolean("qk_layernorm", default=False):
            return ()
        heads, size = c.heads(), c.head_size()
        return [
            *norm("self_attn.q_layernorm", heads * size),
            *norm("self_attn.k_layernorm", kv_heads(c, heads) * size),
        ]

    parallel = c.boolean("use_parallel_residual", default=False)
    weights = decoder(
        c,
        qkv_bias=c.boolean("use_qkv_bias", default=False),
        norm_names=PRE_NORMS[:1] if parallel else PRE_NORMS,
        norm_bias=True,
        more=per_head,
    )
    return Architecture(full_caches(c), weights)


def phi(c: Fields) -> Architecture:
    """Phi 1, 1.5 and 2: attention and MLP in parallel behind one norm; biases everywhere.

    Files of ``phi-msft`` and ``mixformer-sequential`` write ``n_embd`` and leave ``n_inner`` null,
    which means four times the hidden size.
    """
    layers = c.layers()
    caches: list[tuple[Cache, ...]] = [full_caches(c)[0]] * layers

    def count() -> Weights:
        hidden, heads, size = c.hidden(), c.heads(), c.head_size()
        layer = [
            *attention(hidden, heads, kv_heads(c, heads), size, qkv_bias=True, o_bias=True,
                       names=("q_proj", "k_proj", "v_proj", "dense")),
            *plain_mlp(
                hidden, c.optional_integer("intermediate_size", "n_inner") or 4 * hidden, bias=True
            ),
            *norm("input_layernorm", hidden, bias=True),
        ]  # fmt: skip
        if c.boolean("qk_layernorm", default=False):
            layer += norms(("self_attn.q_layernorm", "self_attn.k_layernorm"), size, bias=True)
        last = outside(c, final="model.final_layernorm", norm_bias=True, head_bias=True)
        return Weights([tuple(layer)] * layers, last)

    return Architecture(caches, count)


def persimmon(c: Fields) -> Architecture:
    """Persimmon: biases everywhere and, by default, layer norms on heads."""
    layers, heads, size = c.layers(), c.heads(), c.head_size()

    def count() -> Weights:
        hidden = c.hidden()
        layer = [
            *attention(hidden, heads, heads, size, qkv_bias=True, o_bias=True),
            *plain_mlp(hidden, c.integer("intermediate_size"), bias=True),
            *norms(PRE_NORMS, hidden, bias=True),
        ]
        if c.boolean("qk_layernorm", default=True):
            layer += norms(("self_attn.q_layernorm", "self_attn.k_layernorm"), size, bias=True)
        last = outside(c, final="model.final_layernorm", norm_bias=True)
        return Weights([tuple(layer)] * layers, last)

    return Architecture([(FullAttention(heads, size, size),)] * layers, count)


def gpt_neox(c: Fields) -> Architecture:
    """GPT-NeoX, Pythia, Dolly, RedPajama: multi-head attention, biases everywhere, untied."""
    bias = attention_bias(c, default=True)
    return _classic(
        c,
        c.heads(),
        lambda: (c.integer("intermediate_size"), True),
        qkv_bias=bias,
        o_bias=bias,
        layer_norms=PRE_NORMS,
        last=lambda: outside(c, final="final_layer_norm", norm_bias=True),
    )


def gptj(c: Fields) -> Architecture:
    """GPT-J and CodeGen: one norm, no attention biases, a bias on the head; untied."""
    return _classic(
        c,
        c.heads(),
        lambda: (c.optional_integer("n_inner") or 4 * c.hidden(), True),
        qkv_bias=False,
        o_bias=False,
        layer_norms=("ln_1",),
        last=lambda: outside(c, final="transformer.ln_f", norm_bias=True, head_bias=True),
    )


def gpt_neo(c: Fields) -> Architecture:
    """GPT-Neo: every other layer looks at 256 tokens only, but all tokens are stored.

    The window is a mask in ``modeling_gpt_neo.py``; no implementation drops what lies outside.
    """
    return _classic(
        c,
        c.heads(),
        lambda: (c.optional_integer("intermediate_size") or 4 * c.hidden(), True),
        qkv_bias=False,
        o_bias=True,
        layer_norms=("ln_1", "ln_2"),
        last=lambda: outside(
            c,
            tied=True,
            final="transformer.ln_f",
            norm_bias=True,
            more=[positions(c.integer("max_position_embeddings"), c.hidden())],
        ),
    )


def bloom(c: Fields) -> Architecture:
    """BLOOM: ALiBi positions, a norm behind the embedding, tied."""
    return _classic(
        c,
        c.heads(),
        lambda: (4 * c.hidden(), True),
        layer_norms=PRE_NORMS,
        last=lambda: outside(
            c,
            tied=True,
            final="transformer.ln_f",
            norm_bias=True,
            more=norm("word_embeddings_layernorm", c.hidden(), bias=True),
        ),
    )


def mpt(c: Fields) -> Architecture:
    """MPT: ALiBi positions, no biases, tied; ``attn_config`` says how many key-value heads."""
    expect(c, "no_bias", True)
    section = c.nested("attn_config")
    kept = c.heads()
    if section is not None:
        expect(section, "alibi", True)
        expect(section, "qk_ln", False)
        kind = section.text("attn_type") or "multihead_attention"
        if kind == "multiquery_attention":
            kept = 1
        elif kind == "grouped_query_attention":
            kept = section.integer("kv_n_heads")
        elif kind != "multihead_attention":
            raise UnsupportedArchitecture("attn_config.attn_type", kind, where=c.where)
    return _classic(
        c,
        kept,
        lambda: ((c.optional_integer("expansion_ratio") or 4) * c.hidden(), False),
        qkv_bias=False,
        o_bias=False,
        layer_norms=("norm_1", "norm_2"),
        norm_bias=False,
        last=lambda: outside(c, tied=True, final="norm_f"),
    )


def openai_gpt(c: Fields) -> Architecture:
    """GPT-1: norms behind attention and MLP, none at the end; tied."""
    return _classic(
        c,
        c.heads(),
        lambda: (4 * c.hidden(), True),
        layer_norms=("ln_1", "ln_2"),
        last=lambda: outside(
            c, tied=True, final=None, more=[positions(c.integer("n_positions"), c.hidden())]
        ),
    )


def ctrl(c: Fields) -> Architecture:
    """CTRL: sinusoidal positions, tied, a bias on the head."""
    return _classic(
        c,
        c.heads(),
        lambda: (c.integer("dff"), True),
        layer_norms=("layernorm1", "layernorm2"),
        last=lambda: outside(
            c, tied=True, final="transformer.layernorm", norm_bias=True, head_bias=True
        ),
    )


def xglm(c: Fields) -> Architecture:
    """XGLM: sinusoidal positions, tied."""
    return _classic(
        c,
        c.heads(),
        lambda: (c.integer("ffn_dim"), True),
        layer_norms=("self_attn_layer_norm", "final_layer_norm"),
        last=lambda: outside(c, tied=True, final="model.layer_norm", norm_bias=True),
    )


def biogpt(c: Fields) -> Architecture:
    """BioGPT: learned positions with an offset of 2, tied."""
    return _classic(
        c,
        c.heads(),
        lambda: (c.integer("intermediate_size"), True),
        layer_norms=("self_attn_layer_norm", "final_layer_norm"),
        last=lambda: outside(
            c,
            tied=True,
            final="biogpt.layer_norm",
            norm_bias=True,
            more=[positions(c.integer("max_position_embeddings") + 2, c.hidden())],
        ),
    )


def _classic(
    c: Fields,
    kept: int,
    mlp: Callable[[], tuple[int, bool]],
    *,
    layer_norms: Sequence[str],
    last: Callable[[], tuple[Tensor, ...]],
    qkv_bias: bool = True,
    o_bias: bool = True,
    norm_bias: bool = True,
) -> Architecture:
    """Layers all alike, ``kept`` key-value heads, an MLP of two projections: width and bias."""
    layers, heads, size = c.layers(), c.heads(), c.hidden() // c.heads()
    if c.hidden() % heads:
        raise UnsupportedArchitecture("hidden_size", c.hidden(), where=c.where)

    def count() -> Weights:
        hidden = c.hidden()
        width, bias = mlp()
        layer = (
            *attention(hidden, heads, kept, size, qkv_bias=qkv_bias, o_bias=o_bias, prefix="attn"),
            *plain_mlp(hidden, width, bias=bias),
            *norms(layer_norms, hidden, bias=norm_bias),
        )
        return Weights([layer] * layers, last())

    return Architecture([(FullAttention(kept, size, size),)] * layers, count)
