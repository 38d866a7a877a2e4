"""GPT-2 and the models of its time: learned positions, layer norms and biases everywhere.

Source: transformers ``modeling_gpt2.py``, ``modeling_gpt_bigcode.py``, ``modeling_opt.py``.
"""

from __future__ import annotations

from kvplan.model.caches import FullAttention
from kvplan.model.tensors import (
    EMBEDDING,
    HEAD,
    MLP,
    Tensor,
    attention,
    embedding,
    head,
    norm,
    plain_mlp,
)
from kvplan.sources.huggingface.architecture import Architecture, Weights, alike
from kvplan.sources.huggingface.fields import Fields

DEFAULTS = {
    # configuration_gpt2.py: GPT2Config
    "gpt2": {"n_positions": 1024},
    # configuration_gpt_bigcode.py: GPTBigCodeConfig
    "gpt_bigcode": {"multi_query": True, "n_positions": 1024},
}


def gpt2(c: Fields) -> Architecture:
    """GPT-2: multi-head attention."""
    return _gpt(c, c.heads())


def gpt_bigcode(c: Fields) -> Architecture:
    """StarCoder 1, SantaCoder, WizardCoder: one key-value head."""
    return _gpt(c, 1 if c.boolean("multi_query") else c.heads())


def _gpt(c: Fields, kept: int) -> Architecture:
    layers, heads, size = c.layers(), c.heads(), c.head_size()

    def count() -> Weights:
        hidden, vocab = c.hidden(), c.vocab()
        layer = [
            *attention(hidden, heads, kept, size, qkv_bias=True, o_bias=True, prefix="attn"),
            *plain_mlp(
                hidden,
                c.optional_integer("n_inner") or 4 * hidden,
                bias=True,
                names=("c_fc", "c_proj"),
            ),
            *norm("ln_1", hidden, bias=True),
            *norm("ln_2", hidden, bias=True),
        ]
        outside = [
            embedding(vocab, hidden, "transformer.wte"),
            positions(c.integer("n_positions", "max_position_embeddings", "n_ctx"), hidden),
            *norm("transformer.ln_f", hidden, bias=True),
        ]
        if not c.boolean("tie_word_embeddings", default=True):
            outside.append(head(vocab, hidden))
        return Weights(alike(layer, layers), tuple(outside))

    return Architecture([(FullAttention(kept, size, size),)] * layers, count)


def opt(c: Fields) -> Architecture:
    """OPT: learned positions with an offset of 2; the 350M projects its embedding."""
    layers, heads, size = c.layers(), c.heads(), c.head_size()

    def count() -> Weights:
        hidden, vocab = c.hidden(), c.vocab()
        bias = c.boolean("enable_bias", default=True)
        affine = c.boolean("layer_norm_elementwise_affine", default=True)
        layer = [
            *attention(hidden, heads, heads, size, qkv_bias=bias, o_bias=bias, names=_OPT_NAMES),
            *plain_mlp(hidden, c.integer("ffn_dim"), bias=bias, prefix="fc"),
        ]
        if affine:
            layer += norm("self_attn_layer_norm", hidden, bias=True)
            layer += norm("final_layer_norm", hidden, bias=True)
        width = c.optional_integer("word_embed_proj_dim") or hidden
        outside = [
            embedding(vocab, width, "model.decoder.embed_tokens"),
            positions(c.integer("max_position_embeddings") + 2, hidden),
        ]
        if width != hidden:
            outside += [
                Tensor(MLP, "model.decoder.project_in", hidden, width),
                Tensor(MLP, "model.decoder.project_out", width, hidden),
            ]
        before = c.boolean("do_layer_norm_before", default=True)
        if affine and before and not c.boolean("_remove_final_layer_norm", default=False):
            outside += norm("model.decoder.final_layer_norm", hidden, bias=True)
        if not c.boolean("tie_word_embeddings", default=True):
            outside.append(Tensor(HEAD, "lm_head", vocab, width, units=vocab))
        return Weights(alike(layer, layers), tuple(outside))

    return Architecture([(FullAttention(heads, size, size),)] * layers, count)


_OPT_NAMES = ("q_proj", "k_proj", "v_proj", "out_proj")


def positions(count: int, hidden: int) -> Tensor:
    """A table of learned positions, whole on every rank."""
    return Tensor(EMBEDDING, "positions", count, hidden)
