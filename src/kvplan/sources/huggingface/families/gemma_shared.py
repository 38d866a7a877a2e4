"""Gemma 3n and Gemma 4: layers that share a cache, wider heads on full layers, per-layer inputs.

Source: transformers ``modeling_gemma3n.py``, ``modeling_gemma4.py`` and their configurations;
vLLM ``model_executor/models/gemma4.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.errors import UnsupportedArchitecture
from kvplan.model.caches import Cache, FullAttention, Shared
from kvplan.model.tensors import (
    EMBEDDING,
    EXPERTS,
    MIXER,
    NORMS,
    ROUTER,
    Tensor,
    attention,
    gated_mlp,
    norm,
    router,
)
from kvplan.sources.huggingface.architecture import (
    FULL,
    SLIDING,
    Architecture,
    Weights,
    head_cache,
    local,
    stated_layer_types,
    window,
)
from kvplan.sources.huggingface.families.blocks import (
    FOUR_NORMS,
    by_kind,
    every_nth_full,
    norms,
    outside,
)
from kvplan.sources.huggingface.families.dense import attention_bias
from kvplan.sources.huggingface.fields import Fields

DEFAULTS = {
    # configuration_gemma3n.py: Gemma3nTextConfig
    "gemma3n": {
        "head_dim": 256,
        "sliding_window": 512,
        "num_kv_shared_layers": 15,
        "vocab_size_per_layer_input": 262144,
        "hidden_size_per_layer_input": 256,
        "altup_num_inputs": 4,
        "laurel_rank": 64,
    },
    # configuration_gemma4.py: Gemma4TextConfig
    "gemma4": {
        "head_dim": 256,
        "global_head_dim": 512,
        "sliding_window": 512,
        "num_kv_shared_layers": 0,
        "vocab_size_per_layer_input": 262144,
        "hidden_size_per_layer_input": 256,
    },
    # configuration_gemma4_unified.py: no inputs by layer
    "gemma4_unified": {
        "head_dim": 256,
        "global_head_dim": 512,
        "sliding_window": 1024,
        "num_kv_shared_layers": 0,
        "hidden_size_per_layer_input": 0,
    },
}


def first_shared(c: Fields, layers: int) -> int:
    """The layer from which on all reuse the cache of the last earlier one of their type."""
    return layers - c.integer("num_kv_shared_layers", minimum=0, maximum=layers)


def gemma3n(c: Fields) -> Architecture:
    """Gemma 3n, text part: every fifth layer is full, the last 15 keep nothing."""
    layers, cache, span = c.layers(), head_cache(c), window(c)
    kinds = stated_layer_types(c, layers) or every_nth_full(layers, 5)
    first = first_shared(c, layers)
    caches: list[tuple[Cache, ...]] = [
        (local(cache, kind, span, c.where) if index < first else Shared(),)
        for index, kind in enumerate(kinds)
    ]

    def count() -> Weights:
        width = c.raw("intermediate_size")
        widths = c.sequence("intermediate_size", length=layers) if isinstance(width, list) else None
        sizes = (
            [c.integer("intermediate_size")] * layers
            if widths is None
            else [c.checked(item, "intermediate_size") for item in widths]
        )

        def layer(kind: tuple[int, bool]) -> Sequence[Tensor]:
            return _gemma3n_layer(c, cache, *kind)

        keys = [(size, index < first) for index, size in enumerate(sizes)]
        hidden, streams = c.hidden(), c.integer("altup_num_inputs")
        mixing = Tensor(MIXER, "model.altup_projections", hidden, hidden, copies=2 * (streams - 1))
        return Weights(by_kind(keys, layer), (*outside(c, tied=True), mixing, *_inputs(c, layers)))

    return Architecture(caches, count)


def _gemma3n_layer(c: Fields, cache: FullAttention, width: int, owns: bool) -> Sequence[Tensor]:
    hidden, streams, rank = c.hidden(), c.integer("altup_num_inputs"), c.integer("laurel_rank")
    bias, size = attention_bias(c), cache.head_size
    tensors = [
        *attention(
            hidden, c.heads(), cache.num_kv_heads, size,
            qkv_bias=bias, o_bias=bias, head_norms=True,
        ),
        *gated_mlp(hidden, width),
        *norms(FOUR_NORMS, hidden),
        *norm("altup.correct_output_scale", hidden),
        Tensor(MIXER, "altup.correction_coefs", streams, streams),
        Tensor(MIXER, "altup.prediction_coefs", streams * streams, streams),
        Tensor(MIXER, "altup.modality_router", streams, hidden),
        *norm("altup.router_norm", hidden),
        Tensor(MIXER, "laurel.linear_left", rank, hidden),
        Tensor(MIXER, "laurel.linear_right", hidden, rank),
        *norm("laurel.post_laurel_norm", hidden),
        *_layer_input(c, hidden),
    ]  # fmt: skip
    return tensors if owns else _without_keys(tensors)


def _without_keys(tensors: Sequence[Tensor]) -> list[Tensor]:
    """A layer that reuses another's keys and values projects neither."""
    own = ("self_attn.k_proj", "self_attn.v_proj", "self_attn.k_norm")
    return [tensor for tensor in tensors if not tensor.name.startswith(own)]


def _layer_input(c: Fields, hidden: int) -> list[Tensor]:
    width = c.integer("hidden_size_per_layer_input", minimum=0)
    if not width:
        return []
    return [
        Tensor(MIXER, "per_layer_input_gate", width, hidden),
        Tensor(MIXER, "per_layer_projection", hidden, width),
        *norm("post_per_layer_input_norm", hidden),
    ]


def _inputs(c: Fields, layers: int) -> list[Tensor]:
    """Embeddings by layer, ``[vocabulary, layers * width]``: most of a small model."""
    width = c.integer("hidden_size_per_layer_input", minimum=0)
    if not width:
        return []
    vocab = c.integer("vocab_size_per_layer_input", maximum=10**8)
    return [
        Tensor(EMBEDDING, "model.embed_tokens_per_layer", vocab, layers * width, units=vocab),
        Tensor(MIXER, "model.per_layer_model_projection", layers * width, c.hidden()),
        *norm("model.per_layer_projection_norm", width),
    ]


def gemma4(c: Fields) -> Architecture:
    """Gemma 4, text part: full layers have wider heads and, with ``attention_k_eq_v``, fewer.

    Their checkpoints then have no value projection, but engines store keys and values all the
    same. The last ``num_kv_shared_layers`` keep nothing.
    """
    layers, span = c.layers(), window(c)
    if c.raw("use_bidirectional_attention") == "all" and span is not None:
        span = span // 2 + 1
    kinds = stated_layer_types(c, layers) or every_nth_full(layers, 6)
    kinds = [*kinds[:-1], FULL]  # the class forces the last layer
    first, base = first_shared(c, layers), head_cache(c)
    shapes = [_shape(c, base, kind, index) for index, kind in enumerate(kinds)]
    caches: list[tuple[Cache, ...]] = [
        (local(shape, kind, span, c.where) if index < first else Shared(),)
        for index, (kind, shape) in enumerate(zip(kinds, shapes, strict=True))
    ]

    def count() -> Weights:
        def layer(kind: tuple[str, FullAttention, bool]) -> Sequence[Tensor]:
            return _gemma4_layer(c, *kind)

        keys = [
            (kind, shape, index < first)
            for index, (kind, shape) in enumerate(zip(kinds, shapes, strict=True))
        ]
        return Weights(by_kind(keys, layer), (*outside(c, tied=True), *_inputs(c, layers)))

    return Architecture(caches, count)


gemma4_unified = gemma4


def _shape(c: Fields, base: FullAttention, kind: str, index: int) -> FullAttention:
    """Heads of one layer: ``per_layer_config`` where it is written, else by its type."""
    if kind == SLIDING:
        return base
    size = c.integer("global_head_dim")
    kept = base.num_kv_heads
    if c.boolean("attention_k_eq_v", default=False):
        kept = c.optional_integer("num_global_key_value_heads") or kept
    listed = c.raw("per_layer_config")
    if isinstance(listed, dict):
        named = {int(key): value for key, value in listed.items() if str(key).isdigit()}
        own = Fields(_entry(c, named.get(index)), f"{c.where}: per_layer_config")
        for key in own.data:
            if key not in ("head_dim", "num_key_value_heads"):
                raise UnsupportedArchitecture(f"per_layer_config.{key}", own.data, where=c.where)
        size = own.optional_integer("head_dim") or size
        kept = own.optional_integer("num_key_value_heads") or kept
    return FullAttention(kept, size, size)


def _entry(c: Fields, entry: object) -> dict[str, object]:
    if entry is None:
        return {}
    if not isinstance(entry, dict):
        raise UnsupportedArchitecture("per_layer_config", entry, where=c.where)
    return entry


def _gemma4_layer(c: Fields, kind: str, shape: FullAttention, owns: bool) -> Sequence[Tensor]:
    hidden, bias = c.hidden(), attention_bias(c)
    no_value = kind != SLIDING and c.boolean("attention_k_eq_v", default=False)
    wide = 2 if not owns and c.boolean("use_double_wide_mlp", default=False) else 1
    tensors = [
        *attention(
            hidden, c.heads(), shape.num_kv_heads, shape.head_size,
            qkv_bias=bias, o_bias=bias, head_norms=True,
        ),
        *gated_mlp(hidden, c.integer("intermediate_size") * wide),
        *norms(FOUR_NORMS, hidden),
        Tensor(NORMS, "layer_scalar", 1, trained=False),
        *_layer_input(c, hidden),
        *_gemma4_experts(c, hidden),
    ]  # fmt: skip
    if no_value:
        tensors = [t for t in tensors if not t.name.startswith("self_attn.v_proj")]
    return tensors if owns else _without_keys(tensors)


def _gemma4_experts(c: Fields, hidden: int) -> list[Tensor]:
    """Experts stand beside the MLP, not in its place."""
    if not c.boolean("enable_moe_block", default=False):
        return []
    count = c.integer("num_experts")
    return [
        *gated_mlp(
            hidden,
            c.integer("moe_intermediate_size", "expert_intermediate_size"),
            part=EXPERTS,
            prefix="experts.*",
            copies=count,
            active=c.optional_integer("top_k_experts"),
        ),
        *router(hidden, count, prefix="router.proj"),
        Tensor(ROUTER, "router.scale", hidden),
        Tensor(ROUTER, "router.per_expert_scale", count),
        Tensor(NORMS, "expert_norms", hidden, copies=3),
    ]
