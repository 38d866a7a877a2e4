"""Mixtures of experts of 2026 with windows, output gates and sinks in several spellings.

Source: transformers ``modeling_<model_type>.py`` and ``configuration_<model_type>.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvplan.errors import UnsupportedArchitecture
from kvplan.model.caches import Cache, FullAttention
from kvplan.model.tensors import ATTENTION, EXPERTS, ROUTER, Tensor, attention, gated_mlp
from kvplan.sources.huggingface.architecture import (
    FULL,
    SLIDING,
    Architecture,
    Weights,
    kv_heads,
)
from kvplan.sources.huggingface.families.blocks import (
    FOUR_NORMS,
    PRE_NORMS,
    after_first,
    by_kind,
    every_nth_full,
    experts,
    layer_mlp,
    mlp_kinds,
    norms,
    outside,
    projections,
)
from kvplan.sources.huggingface.families.dense import attention_bias, patterned, sinks
from kvplan.sources.huggingface.families.llama import full_caches
from kvplan.sources.huggingface.families.routed import active, deepseek_experts, mixture
from kvplan.sources.huggingface.fields import Fields

DEFAULTS = {
    # configuration_<model_type>.py of each
    "afmoe": {"head_dim": 128, "sliding_window": 1024, "global_attn_every_n_layers": 4},
    "beam": {"head_dim": 128, "sliding_window": 512},
    "flint": {"head_dim": 128, "sliding_window": 513},
    "kolibri1": {"head_dim": 128, "sliding_window": 513},
    "laguna": {"head_dim": 128, "sliding_window": 512},
    "mellum": {"head_dim": 128, "sliding_window": 1024},
    "hy_v3": {"head_dim": 128},
    "jetmoe": {"kv_channels": 128},
    "cohere2_moe": {
        "head_dim": 128,
        "sliding_window": 4096,
        "sliding_window_pattern": 4,
        "prefix_dense_sliding_window_pattern": 1,
    },
}


def output_gate(c: Fields) -> Tensor:
    """A gate on every element that attention puts out."""
    heads = c.heads()
    return Tensor(ATTENTION, "self_attn.gate_proj", heads * c.head_size(), c.hidden(), units=heads)


def routed(
    c: Fields, count: str, width: str, *, shared: int = 0, trained: bool = False,
    correction: bool = True,
) -> list[Tensor]:  # fmt: skip
    """Experts by the names of their fields."""
    return experts(
        c.hidden(),
        c.integer(count),
        c.integer(width),
        active(c),
        shared=shared,
        correction="mlp.gate.e_score_correction_bias" if correction else None,
        correction_trained=trained,
    )


def afmoe(c: Fields) -> Architecture:
    """Arcee Trinity: norms on heads, gated outputs, four norms."""
    bias = attention_bias(c)
    shared = c.optional_integer("num_shared_experts", minimum=0) or 0

    def is_sparse() -> Sequence[bool]:
        first = c.optional_integer("num_dense_layers", minimum=0) or 0
        return [index >= first for index in range(c.layers())]

    return mixture(
        c,
        patterned(c, lambda n: every_nth_full(n, c.integer("global_attn_every_n_layers"))),
        lambda: [
            *projections(c, qkv_bias=bias, o_bias=bias, head_norms=True),
            output_gate(c),
        ],
        lambda: routed(
            c, "num_experts", "moe_intermediate_size",
            shared=shared * c.integer("moe_intermediate_size"), trained=True,
        ),
        is_sparse=is_sparse,
        norm_names=FOUR_NORMS,
    )  # fmt: skip


def beam(c: Fields) -> Architecture:
    """Beam: gated outputs with a bias a head; three dense layers."""
    bias = attention_bias(c)

    def kinds(layers: int) -> Sequence[str]:
        return [*every_nth_full(layers, 6)[:-1], FULL]

    return mixture(
        c,
        patterned(c, kinds),
        lambda: [
            *projections(c, qkv_bias=bias, o_bias=bias, head_norms=True),
            output_gate(c),
            Tensor(ATTENTION, "self_attn.gate_bias", c.heads(), units=c.heads()),
        ],
        lambda: routed(c, "num_experts", "moe_intermediate_size"),
        is_sparse=lambda: mlp_kinds(c, c.layers(), lambda: [i >= 3 for i in range(c.layers())]),
        norm_names=FOUR_NORMS,
    )


def flint(c: Fields) -> Architecture:
    """Flint: sinks; full layers first, last and at every fourth place; two dense layers."""
    bias = attention_bias(c)

    def kinds(layers: int) -> Sequence[str]:
        return [FULL if i < 2 or i % 4 == 1 or i == layers - 1 else SLIDING for i in range(layers)]

    def is_sparse() -> Sequence[bool]:
        stated = c.indices("mlp_only_layers")
        dense = {0, 1} if stated is None else stated
        step = c.optional_integer("decoder_sparse_step") or 1
        return [i not in dense and (i + 1) % step == 0 for i in range(c.layers())]

    return mixture(
        c,
        patterned(c, kinds),
        lambda: [*projections(c, qkv_bias=bias, o_bias=bias, head_norms=True), sinks(c)],
        lambda: routed(
            c, "num_experts", "moe_intermediate_size",
            shared=c.integer("shared_expert_intermediate_size"),
        ),
        is_sparse=is_sparse,
    )  # fmt: skip


def kolibri1(c: Fields) -> Architecture:
    """Kolibri 1: every fifth layer is full; four norms."""
    return mixture(
        c,
        patterned(c, lambda layers: every_nth_full(layers, 5)),
        lambda: projections(c, head_norms=True),
        lambda: routed(
            c, "num_local_experts", "moe_intermediate_size",
            shared=c.integer("shared_expert_intermediate_size"),
        ),
        norm_names=FOUR_NORMS,
    )  # fmt: skip


def mellum(c: Fields) -> Architecture:
    """Mellum 2: norms on heads; windows where ``layer_types`` says so."""
    bias = attention_bias(c)
    return mixture(
        c,
        patterned(c, lambda layers: [FULL] * layers),
        lambda: projections(c, qkv_bias=bias, o_bias=bias, head_norms=True),
        lambda: routed(c, "num_local_experts", "moe_intermediate_size", correction=False),
        is_sparse=lambda: mlp_kinds(c, c.layers(), lambda: [True] * c.layers()),
    )


def hy_v3(c: Fields) -> Architecture:
    """Hunyuan 3: norms on heads, one dense layer."""
    bias, mlp_bias = attention_bias(c), c.boolean("mlp_bias", default=False)
    return mixture(
        c,
        full_caches(c),
        lambda: projections(c, qkv_bias=bias, o_bias=bias, head_norms=True),
        lambda: deepseek_experts(c, shared_bias=mlp_bias),
        is_sparse=lambda: mlp_kinds(c, c.layers(), lambda: after_first(c, c.layers(), default=1)),
        dense=lambda: layer_mlp(c, bias=mlp_bias),
    )


def cohere2_moe(c: Fields) -> Architecture:
    """Command A with experts: one norm a layer, tied."""
    bias = attention_bias(c)
    first = c.optional_integer("first_k_dense_replace", minimum=0) or 0

    def kinds(layers: int) -> Sequence[str]:
        early = every_nth_full(first, c.integer("prefix_dense_sliding_window_pattern"))
        return [*early, *every_nth_full(layers - first, c.integer("sliding_window_pattern"))]

    def dense() -> Sequence[Tensor]:
        width = c.optional_integer("prefix_dense_intermediate_size")
        return gated_mlp(c.hidden(), width or c.integer("intermediate_size"))

    shared = c.optional_integer("num_shared_experts", minimum=0) or 0
    return mixture(
        c,
        patterned(c, kinds),
        lambda: projections(c, qkv_bias=bias, o_bias=bias),
        lambda: routed(
            c, "num_experts", "intermediate_size",
            shared=shared * c.integer("intermediate_size"), correction=False,
        ),
        is_sparse=lambda: mlp_kinds(c, c.layers(), lambda: after_first(c, c.layers())),
        dense=dense,
        norm_names=PRE_NORMS[:1],
        tied=True,
    )  # fmt: skip


def laguna(c: Fields) -> Architecture:
    """Laguna: query heads and an output gate by layer; the correction bias is a parameter."""
    layers, bias = c.layers(), attention_bias(c)
    caches = patterned(c, lambda count: [FULL] * count)
    stated = c.sequence("num_attention_heads_per_layer", length=layers)
    heads = [c.checked(item, "num_attention_heads_per_layer") for item in stated or ()]
    gating = c.raw("gating")
    if gating not in (None, True, False, "per-head", "per-element"):
        raise UnsupportedArchitecture("gating", gating, where=c.where)

    def count() -> Weights:
        hidden, size, kept = c.hidden(), c.head_size(), kv_heads(c, c.heads())
        sparse = mlp_kinds(c, layers, lambda: [index > 0 for index in range(layers)])

        def layer(kind: tuple[int, bool]) -> Sequence[Tensor]:
            own, has_experts = kind
            gates = own * (1 if gating in (None, True, "per-head") else size)
            mlp: Callable[[], list[Tensor]] = lambda: layer_mlp(c)  # noqa: E731
            if has_experts:
                mlp = lambda: routed(  # noqa: E731
                    c, "num_experts", "moe_intermediate_size",
                    shared=c.integer("shared_expert_intermediate_size"), trained=True,
                )  # fmt: skip
            return [
                *attention(hidden, own, kept, size, qkv_bias=bias, o_bias=bias, head_norms=True),
                Tensor(ATTENTION, "self_attn.g_proj", gates, hidden, units=own),
                *norms(PRE_NORMS, hidden),
                *mlp(),
            ]

        kinds = list(zip(heads or [c.heads()] * layers, sparse, strict=True))
        return Weights(by_kind(kinds, layer), outside(c))

    return Architecture(caches, count)


def jetmoe(c: Fields) -> Architecture:
    """JetMoE: query and output projections are experts too; keys and values are not. Tied."""
    layers, size = c.layers(), c.integer("kv_channels")
    kept = c.integer("num_key_value_heads")
    heads = kept * c.integer("num_experts_per_tok")
    cache = FullAttention(kept, size, size)
    caches: list[tuple[Cache, ...]] = [(cache,)] * layers

    def count() -> Weights:
        hidden, number, used = c.hidden(), c.integer("num_local_experts"), active(c)
        width, inner = kept * size, c.integer("intermediate_size")
        layer = (
            Tensor(ATTENTION, "self_attention.kv_proj", 2 * width, hidden, units=kept),
            Tensor(EXPERTS, "attn.input", width, hidden, number, units=kept, active=used),
            Tensor(EXPERTS, "attn.output", hidden, width, number, kept, True, used),
            Tensor(EXPERTS, "mlp.input", 2 * inner, hidden, number, inner, active=used),
            Tensor(EXPERTS, "mlp.output", hidden, inner, number, inner, True, used),
            Tensor(ROUTER, "routers", number, hidden, copies=2),
            Tensor("norms", "bias", hidden, copies=2),
            *norms(PRE_NORMS, hidden),
        )
        return Weights([layer] * layers, outside(c, tied=True))

    return Architecture(caches, count, heads=heads)
