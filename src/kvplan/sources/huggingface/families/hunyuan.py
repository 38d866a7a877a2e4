"""Hunyuan with experts: the remote-code files of Large and A13B, and the converted ones.

Source: mlx-lm ``models/hunyuan.py``; transformers ``modeling_hunyuan_v1_moe.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.errors import UnsupportedArchitecture
from kvplan.model.caches import Cache, Shared
from kvplan.model.tensors import SHARED_EXPERTS, Tensor, gated_mlp
from kvplan.sources.huggingface.architecture import Architecture, Weights, head_cache
from kvplan.sources.huggingface.families.blocks import (
    PRE_NORMS,
    by_kind,
    expect,
    experts,
    layer_mlp,
    norms,
    outside,
    projections,
)
from kvplan.sources.huggingface.families.dense import attention_bias
from kvplan.sources.huggingface.fields import Fields


def hunyuan_v1_moe(c: Fields) -> Architecture:
    """Converted: experts of ``intermediate_size`` and one shared MLP of the same width."""
    shared = [1] * c.layers()
    return _hunyuan(c, has_norms=True, shared=shared, width_key="intermediate_size", tied=False)


def hunyuan(c: Fields) -> Architecture:
    """Remote code. With ``use_cla`` only every ``cla_share_factor``-th layer keeps a cache.

    Many facts are a number or a list with one entry a layer.
    """
    layers = c.layers()
    expect(c, "moe_layer_num_skipped", 0)
    mixed = c.boolean("use_mixed_mlp_moe", default=False)
    shared = per_layer(c, "num_shared_expert", layers) if mixed else [0] * layers
    width = "moe_intermediate_size" if c.states("moe_intermediate_size") else "intermediate_size"
    has_norms = c.boolean("use_qk_norm", default=False)
    return _hunyuan(
        c, has_norms=has_norms, shared=shared, width_key=width, tied=True, one_is_dense=True
    )


def per_layer(c: Fields, key: str, layers: int) -> list[int]:
    """A number for each layer, whether the config states one or a list."""
    if isinstance(c.raw(key), list):
        return [c.checked(item, key, 0) for item in c.sequence(key, length=layers) or ()]
    return [c.integer(key, minimum=0)] * layers


def _hunyuan(
    c: Fields,
    *,
    has_norms: bool,
    shared: Sequence[int],
    width_key: str,
    tied: bool,
    one_is_dense: bool = False,
) -> Architecture:
    layers, cache, bias = c.layers(), head_cache(c), attention_bias(c)
    every = 1
    if c.boolean("use_cla", default=False):
        every = c.integer("cla_share_factor")
    caches: list[tuple[Cache, ...]] = [
        (cache if index % every == 0 else Shared(),) for index in range(layers)
    ]

    def count() -> Weights:
        hidden = c.hidden()
        counts = per_layer(c, "num_experts", layers)
        widths = per_layer(c, width_key, layers)
        if len(set(counts)) != 1:
            raise UnsupportedArchitecture("num_experts", counts, where=c.where)

        def layer(kind: tuple[int, int, int, bool]) -> Sequence[Tensor]:
            number, inner, beside, owns = kind
            tensors = [
                *projections(c, qkv_bias=bias, o_bias=bias, head_norms=has_norms),
                *norms(PRE_NORMS, hidden),
            ]
            if not owns:
                tensors = [
                    t for t in tensors if ".k_proj" not in t.name and ".v_proj" not in t.name
                ]
            if number == 1 and one_is_dense:
                return [*tensors, *layer_mlp(c)]
            active = per_layer(c, "moe_topk", layers)[0] if c.states("moe_topk") else None
            tensors += experts(hidden, number, inner, active, gate="mlp.gate.wg")
            if beside:
                width = c.integer("intermediate_size") * beside
                tensors += gated_mlp(hidden, width, part=SHARED_EXPERTS, prefix="mlp.shared_mlp")
            return tensors

        kinds = [
            (counts[index], widths[index], shared[index], index % every == 0)
            for index in range(layers)
        ]
        return Weights(by_kind(kinds, layer), outside(c, tied=tied))

    return Architecture(caches, count)
