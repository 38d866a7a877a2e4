"""The tensors of transformers' cache object as rows: one rule for each kind of cache.

Source: transformers 5.24 ``cache_utils.py`` (``DynamicLayer``, ``DynamicSlidingWindowLayer``,
``StaticLayer``, ``StaticSlidingWindowLayer``, ``DynamicIndexedLayer``, ``LinearAttentionLayer``)
and the ``modeling_*.py`` of the models named below.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from kvplan.errors import UnsupportedCombination
from kvplan.model.caches import (
    Cache,
    ChunkedLocal,
    CrossAttention,
    FullAttention,
    Indexer,
    Latent,
    Recurrent,
    Shared,
    SlidingWindow,
)
from kvplan.model.model import Model, group_caches
from kvplan.model.rows import Row
from kvplan.precision.kv import KvFormat

DYNAMIC, STATIC = "dynamic", "static"
CACHES = (DYNAMIC, STATIC)


class Options(NamedTuple):
    """The engine's own arguments."""

    cache: str = DYNAMIC
    max_cache_len: int | None = None


class State(NamedTuple):
    """How transformers stores one flavour of recurrent state."""

    spare_columns: int
    """1 where the convolution keeps as many inputs as its kernel is wide, one more than needed."""
    is_float32: bool
    """The recurrent state is float32 whatever the model runs in; otherwise it follows the model."""
    has_static: bool = True
    """The model also runs with a static cache."""


STATES = {
    "mamba1": State(1, is_float32=True),
    "mamba2": State(1, is_float32=True),
    "gated_delta_net": State(1, is_float32=True),
    "kda": State(1, is_float32=True),
    "short_conv": State(1, is_float32=True),
    # Its states lie on the modules, beside a cache of either kind.
    "rg_lru": State(0, is_float32=True, has_static=False),
    "cca": State(0, is_float32=False),
    "lightning": State(0, is_float32=False, has_static=False),
    "rwkv4": State(0, is_float32=True, has_static=False),
    "xlstm": State(0, is_float32=False, has_static=False),
}

FLOAT32_CONVOLUTIONS = {"inkling_text", "inkling2_text", "inkling2_loop_text"}
"""Models whose convolutions run in float32. Source: ``modeling_inkling.py`` and its successors."""
WHOLE_WINDOWS = {"gpt_neo"}
"""Models whose local layers mask old tokens but keep them. Source: ``modeling_gpt_neo.py``."""
EXPANDED_HEADS = {"falcon": "new_decoder_architecture"}
"""Models that copy keys and values to every query head before they are kept, and the switch that
makes them. Source: ``modeling_falcon.py``, ``FalconAttention``."""
INDEX_POSITIONS = {"qwen4_exp_text": 3 * 8}
"""Bytes of position numbers beside a token's index keys, which the first layer of them keeps for
all: three int64. Source: ``modeling_qwen4_exp.py``."""
PACKED_INDEX = {"glm5_next_text"}
"""Models that keep a gate beside each index key and a mark of validity. Source:
``modeling_glm5_next.py``, ``Glm5NextTextIndexer``."""


ODD = {
    "openai-gpt": "it keeps no cache and reads every token again",
    "cpmant": "it keeps prompt tokens of its own before the text",
}
"""Models whose cache follows no common rule. Source: ``modeling_openai.py``,
``modeling_cpmant.py``."""


@lru_cache(maxsize=1024)
def cache_rows(
    model: Model,
    kv: KvFormat,
    options: Options = Options(),
    encoder_tokens: int | None = None,
    *,
    start: int = 0,
    end: int | None = None,
) -> tuple[Row, ...]:
    """Bytes of one sequence in the layers from ``start`` to ``end``."""
    if model.model_type in ODD:
        raise UnsupportedCombination(
            f"{model.name}: its cache in transformers is not modelled: {ODD[model.model_type]}",
            hint="--engine none gives the logical figure.",
        )
    return tuple(
        row
        for cache, layers in group_caches(model.layers[start:end])
        for row in _rows(model, cache, layers, kv, options, encoder_tokens)
    )


def _rows(
    model: Model,
    cache: Cache,
    layers: int,
    kv: KvFormat,
    options: Options,
    encoder_tokens: int | None,
) -> list[Row]:
    """The tensors of one kind of cache over its layers."""
    element = kv.k.bits // 8
    if isinstance(cache, (SlidingWindow, ChunkedLocal)) and model.model_type not in WHOLE_WINDOWS:
        return [_windowed(cache, layers * cache.state_bytes(kv), options)]
    if isinstance(cache, FullAttention) and _expands_heads(model):
        cache = cache._replace(num_kv_heads=model.num_attention_heads)
    if isinstance(cache, (FullAttention, SlidingWindow, ChunkedLocal, Latent)):
        return [_growing(layers * cache.state_bytes(kv), options)]
    if isinstance(cache, Indexer):
        elements = cache.index_head_dim
        if model.model_type in PACKED_INDEX:
            elements = 2 * elements + 1
        rows = [_growing(layers * elements * element, options)]
        positions = INDEX_POSITIONS.get(model.model_type)
        return [*rows, Row(positions)] if positions else rows
    if isinstance(cache, Recurrent):
        return [Row(0, constant_bytes=layers * _state_bytes(model, cache, element, options))]
    if isinstance(cache, CrossAttention) and options.cache == DYNAMIC:
        tokens = cache.encoder_tokens if encoder_tokens is None else encoder_tokens
        return [Row(0, constant_bytes=layers * cache.state_bytes(kv) * tokens)]
    if isinstance(cache, Shared):
        return []
    raise UnsupportedCombination(
        f"{model.name}: how transformers keeps its {cache.kind} layers in a {options.cache} cache "
        "is not modelled",
        hint="--engine none gives the logical figure.",
    )


def _expands_heads(model: Model) -> bool:
    switch = EXPANDED_HEADS.get(model.model_type)
    return switch is not None and model.facts.get(switch) is True


def _growing(token_bytes: int, options: Options) -> Row:
    """Every token seen; a static cache has room for ``max_cache_len`` from the start.

    A sequence beyond that length would need a second cache of the kind.
    """
    if options.max_cache_len is None:
        return Row(token_bytes)
    return Row(token_bytes * options.max_cache_len, unit_tokens=options.max_cache_len)


def _windowed(cache: SlidingWindow | ChunkedLocal, token_bytes: int, options: Options) -> Row:
    """The last ``window - 1`` tokens, since the next one joins them; a static cache has all.

    Chunked layers are kept as windows of the chunk's length.
    """
    span = cache.sliding_window if isinstance(cache, SlidingWindow) else cache.attention_chunk_size
    if options.cache == DYNAMIC:
        return Row(token_bytes, cap_tokens=span - 1)
    if options.max_cache_len is None:
        return Row(token_bytes, cap_tokens=span)
    return Row(0, constant_bytes=token_bytes * min(span, options.max_cache_len))


def _state_bytes(model: Model, cache: Recurrent, element: int, options: Options) -> int:
    """A state of fixed size. ``element``: bytes of the dtype that the model runs in."""
    stored = STATES.get(cache.flavour)
    if stored is None or (options.cache == STATIC and not stored.has_static):
        raise UnsupportedCombination(
            f"{model.name}: transformers has no {options.cache} cache for {cache.flavour} states",
            hint="--engine none gives the logical figure.",
        )
    columns = cache.conv_kernel - 1 + stored.spare_columns if cache.conv_channels else 0
    conv_bytes = 4 if model.model_type in FLOAT32_CONVOLUTIONS else element
    state_bytes = 4 if stored.is_float32 else element
    return cache.conv_channels * columns * conv_bytes + cache.state_elements * state_bytes
