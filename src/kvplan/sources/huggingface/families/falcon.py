"""Falcon: one key-value head (7B), or a few in the newer architecture (40B, 180B).

Source: transformers ``modeling_falcon.py``, ``configuration_falcon.py``.
"""

from __future__ import annotations

from kvplan.model.caches import FullAttention
from kvplan.model.tensors import attention, norm, plain_mlp
from kvplan.sources.huggingface.architecture import Architecture, Weights, alike, vocabulary
from kvplan.sources.huggingface.fields import Fields

DEFAULTS = {
    # configuration_falcon.py: FalconConfig
    "falcon": {
        "multi_query": True,
        "parallel_attn": True,
        "tie_word_embeddings": True,
        "max_position_embeddings": 2048,
    },
}


def falcon(c: Fields) -> Architecture:
    """Falcon 7B, 40B, 180B and RefinedWeb."""
    layers, heads = c.layers(), c.heads()
    size = c.head_size()
    kept = falcon_kv_heads(c, heads)

    def count() -> Weights:
        hidden = c.hidden()
        bias = c.boolean("bias", default=False)
        inner = c.optional_integer("ffn_hidden_size") or 4 * hidden
        layer = [
            *attention(
                hidden, heads, kept, size, qkv_bias=bias, o_bias=bias, prefix="self_attention"
            ),
            *plain_mlp(hidden, inner, bias=bias, names=("dense_h_to_4h", "dense_4h_to_h")),
        ]
        for name in _norms(c):
            layer += norm(name, hidden, bias=True)
        outside = (*vocabulary(c), *norm("transformer.ln_f", hidden, bias=True))
        return Weights(alike(layer, layers), outside)

    return Architecture([(FullAttention(kept, size, size),)] * layers, count)


def falcon_kv_heads(c: Fields, heads: int) -> int:
    """Key-value heads: the new architecture states them, the old one has one or all.

    ``multi_query`` is still true in files of the new architecture, where it means nothing.
    """
    if c.boolean("new_decoder_architecture", default=False):
        return c.optional_integer("num_kv_heads", "n_head_kv") or heads
    return 1 if c.boolean("multi_query") else heads


def _norms(c: Fields) -> tuple[str, ...]:
    if c.boolean("new_decoder_architecture", default=False):
        single = c.optional_integer("num_ln_in_parallel_attn") == 1
        return ("input_layernorm",) if single else ("ln_attn", "ln_mlp")
    if c.boolean("parallel_attn"):
        return ("input_layernorm",)
    return ("input_layernorm", "post_attention_layernorm")
