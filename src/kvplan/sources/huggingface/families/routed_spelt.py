"""Mixtures of experts with spellings of their own: DBRX, ERNIE 4.5, Aria.

Source: transformers ``modeling_<model_type>.py`` and ``configuration_<model_type>.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.model.caches import FullAttention
from kvplan.model.tensors import SHARED_EXPERTS, Tensor, attention, gated_mlp
from kvplan.sources.huggingface.architecture import Architecture, Weights
from kvplan.sources.huggingface.families.blocks import (
    experts,
    layer_mlp,
    norms,
    outside,
    projections,
)
from kvplan.sources.huggingface.families.dense import attention_bias
from kvplan.sources.huggingface.families.llama import full_caches
from kvplan.sources.huggingface.families.routed import active, mixture
from kvplan.sources.huggingface.fields import Fields

DEFAULTS = {
    # configuration_ernie4_5_moe.py
    "ernie4_5_moe": {
        "moe_layer_start_index": 1,
        "moe_layer_end_index": -1,
        "moe_layer_interval": 1,
        "moe_num_shared_experts": 2,
    },
}


def dbrx(c: Fields) -> Architecture:
    """DBRX: key-value heads and experts in sections of their own."""
    layers, heads = c.layers(), c.heads()
    size = c.head_size()
    section = c.nested("attn_config") or Fields({}, c.where)
    kept = section.optional_integer("kv_n_heads") or 1
    ffn = c.nested("ffn_config") or Fields({}, c.where)

    def count() -> Weights:
        hidden = c.hidden()
        layer = (
            *attention(hidden, heads, kept, size, prefix="norm_attn_norm.attn"),
            *experts(
                hidden,
                ffn.integer("moe_num_experts"),
                ffn.integer("ffn_hidden_size"),
                ffn.optional_integer("moe_top_k"),
                gate="ffn.router.layer",
                prefix="ffn.experts",
            ),
            *norms(("norm_1", "norm_2"), hidden),
        )
        return Weights([layer] * layers, outside(c, final="norm_f"))

    return Architecture([(FullAttention(kept, size, size),)] * layers, count)


def ernie4_5_moe(c: Fields) -> Architecture:
    """ERNIE 4.5 with experts: tied; the router's correction bias counts as a parameter."""
    bias = c.boolean("use_bias", default=False)

    def is_sparse() -> list[bool]:
        layers = c.layers()
        start = c.integer("moe_layer_start_index", minimum=0)
        end = c.integer("moe_layer_end_index", minimum=-1)
        end = layers - 1 if end == -1 else end
        every = c.integer("moe_layer_interval")
        return [start <= i <= end and (i + 1) % every == 0 for i in range(layers)]

    def sparse() -> Sequence[Tensor]:
        inner = c.integer("moe_intermediate_size")
        return experts(
            c.hidden(),
            c.integer("moe_num_experts"),
            inner,
            active(c, "moe_k"),
            shared=inner * c.integer("moe_num_shared_experts", minimum=0),
            shared_bias=bias,
            correction="mlp.moe_statics.e_score_correction_bias",
            correction_trained=True,
        )

    return mixture(
        c,
        full_caches(c),
        lambda: projections(c, qkv_bias=bias, o_bias=bias),
        sparse,
        is_sparse=is_sparse,
        dense=lambda: layer_mlp(c, bias=bias),
        tied=True,
        head_bias=bias,
    )


def aria_text(c: Fields) -> Architecture:
    """Aria: shared experts as one MLP."""
    bias = attention_bias(c)

    def sparse() -> Sequence[Tensor]:
        hidden, inner = c.hidden(), c.integer("intermediate_size")
        shared = inner * c.integer("moe_num_shared_experts")
        mlp_bias = c.boolean("mlp_bias", default=False)
        return [
            *experts(
                hidden, c.integer("moe_num_experts"), inner, active(c, "moe_topk"),
                gate="mlp.router",
            ),
            *gated_mlp(
                hidden, shared, part=SHARED_EXPERTS, prefix="mlp.shared_experts", bias=mlp_bias
            ),
        ]  # fmt: skip

    return mixture(c, full_caches(c), lambda: projections(c, qkv_bias=bias, o_bias=bias), sparse)
