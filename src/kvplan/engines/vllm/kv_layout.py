"""How vLLM divides its KV pool: one spec a layer, layers in groups, one block size in bytes.

All groups draw blocks from one pool, so a block has the same bytes whichever group takes it, and
a sequence takes the sum of the groups' blocks. That is why a model that mixes windows and full
attention reserves more than the mathematics needs: windows hold in-flight tokens, pages are made
alike by padding, and groups are filled up to one number of layers.

Source: vLLM 0.33 ``v1/kv_cache_interface.py`` (specs) and ``v1/core/kv_cache_planning.py``
(``get_kv_cache_groups``, ``unify_kv_cache_spec_page_size``,
``_get_kv_cache_groups_uniform_page_size``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from kvplan.engines.base import Group, KvLayout
from kvplan.errors import UnsupportedCombination
from kvplan.model.caches import Cache, ChunkedLocal, FullAttention, Indexer, Latent, SlidingWindow
from kvplan.model.model import Model, stage_layers
from kvplan.model.rows import Row
from kvplan.precision.kv import KvFormat
from kvplan.units import cdiv

NULL_BLOCKS = 1
"""Block 0 is taken at start and never given to a sequence (``v1/core/block_pool.py``)."""


class Spec(NamedTuple):
    """vLLM's description of one layer's cache."""

    kind: str
    block_tokens: int
    page_bytes: int
    """Bytes of one block of this layer."""
    cap_tokens: int | None = None
    """Tokens beyond which a sequence takes no further block."""
    extra_blocks: int = 0
    is_latent: bool = False


class LayerGroup(NamedTuple):
    """Layers that share one block table."""

    spec: Spec
    layers: tuple[int, ...]
    """Numbers of the layers; a layer with two caches appears twice."""
    page_bytes: tuple[int, ...]
    """The page of each of them."""


@lru_cache(maxsize=1024)
def vllm_layout(
    model: Model,
    kv: KvFormat,
    *,
    tp: int,
    pp: int,
    stage: int,
    block_size: int,
    in_flight_tokens: int,
    hybrid: bool,
) -> KvLayout:
    """The layout of one rank of a stage.

    Groups are formed over the whole model and each stage keeps its own layers of them; a block is
    as large as the largest group's pages together.
    """
    specs = [
        (index, spec)
        for index, layer in enumerate(model.layers)
        for cache in layer.caches
        for spec in layer_specs(cache, kv, tp, block_size, in_flight_tokens, model.name)
    ]
    groups = group_layers(specs if hybrid else without_windows(specs))
    start, end = stage_layers(model.num_hidden_layers, pp, stage)
    block_bytes = max(
        sum(
            page
            for layer, page in zip(group.layers, group.page_bytes, strict=True)
            if start <= layer < end
        )
        for group in groups
    )
    rows = tuple(_blocks_row(group.spec, block_bytes) for group in groups)
    return KvLayout(
        rows=rows,
        block_size=block_size,
        block_bytes=block_bytes,
        held_blocks=NULL_BLOCKS,
        groups=tuple(
            Group(group.spec.kind, len(group.layers), group.spec.block_tokens, row)
            for group, row in zip(groups, rows, strict=True)
        ),
    )


def layer_specs(
    cache: Cache, kv: KvFormat, tp: int, block_size: int, in_flight_tokens: int, name: str
) -> list[Spec]:
    """The spec of one cache.

    A window keeps ``window - 1`` tokens behind the in-flight ones and may straddle one block more;
    a chunk keeps itself and the in-flight tokens.
    Source: ``SlidingWindowSpec.max_admission_blocks_per_request``, ``ChunkedLocalAttentionSpec``.
    """
    if isinstance(cache, (FullAttention, SlidingWindow, ChunkedLocal, Latent)):
        page = cache.state_bytes(kv, tp) * block_size
        if isinstance(cache, SlidingWindow):
            cap = cache.sliding_window - 1 + in_flight_tokens
            return [Spec(cache.kind, block_size, page, cap, extra_blocks=1)]
        if isinstance(cache, ChunkedLocal):
            cap = cache.attention_chunk_size + in_flight_tokens
            return [Spec(cache.kind, block_size, page, cap)]
        return [Spec("full", block_size, page, is_latent=isinstance(cache, Latent))]
    if isinstance(cache, Indexer):
        page = cache.state_bytes(kv, tp) * cdiv(block_size, cache.tokens_per_state)
        return [Spec("full", block_size, page, is_latent=True)]
    raise UnsupportedCombination(
        f"{name}: how vLLM pages its {cache.kind} layers is not modelled yet",
        hint="--engine none gives the logical figure.",
    )


def without_windows(specs: Sequence[tuple[int, Spec]]) -> list[tuple[int, Spec]]:
    """Specs with the hybrid manager off: windows and chunks are kept in full beside full layers.

    A model that has only windows keeps them. Source: ``unify_hybrid_kv_cache_specs``.
    """
    if all(spec.cap_tokens is not None for _, spec in specs):
        return list(specs)
    return [
        (layer, spec._replace(kind="full", cap_tokens=None, extra_blocks=0))
        for layer, spec in specs
    ]


def group_layers(specs: Sequence[tuple[int, Spec]]) -> list[LayerGroup]:
    """Layers in groups of one block table each.

    * All alike: one group. All of one type with different pages (latent and indexer): one group
      too, whose page is their sum.
    * Otherwise pages are made alike, each type is dealt into groups of as many layers as the
      rarest type has (or the commonest, if it has less than 1.5 times as many), and incomplete
      groups are filled with padding that is paid for.
    """
    types = {(spec.kind, spec.block_tokens, spec.cap_tokens) for _, spec in specs}
    if len(types) == 1:
        spec = specs[0][1]
        return [LayerGroup(spec, tuple(n for n, _ in specs), tuple(s.page_bytes for _, s in specs))]
    buckets: dict[Spec, list[int]] = {}
    for layer, spec in unify_pages(specs):
        buckets.setdefault(spec, []).append(layer)
    fewest = min(len(layers) for layers in buckets.values())
    most = max(len(layers) for layers in buckets.values())
    size = most if 2 * most < 3 * fewest else fewest
    groups = []
    for spec, layers in buckets.items():
        count = cdiv(len(layers), size)
        for number in range(count):
            members = tuple(layers[number::count])
            groups.append(LayerGroup(spec, members, (spec.page_bytes,) * len(members)))
    return groups


def unify_pages(specs: Sequence[tuple[int, Spec]]) -> list[tuple[int, Spec]]:
    """Specs with one page size: a smaller page gets a larger block where it divides, else padding.

    A latent page can only be multiplied, never padded.
    """
    largest = max(spec.page_bytes for _, spec in specs)
    unified = []
    for layer, spec in specs:
        ratio, rest = divmod(largest, spec.page_bytes)
        if rest and spec.is_latent:
            raise UnsupportedCombination(
                "vLLM cannot bring this model's latent and other layers to one page size"
            )
        tokens = spec.block_tokens if rest else spec.block_tokens * ratio
        unified.append((layer, spec._replace(block_tokens=tokens, page_bytes=largest)))
    return unified


def _blocks_row(spec: Spec, block_bytes: int) -> Row:
    """Bytes of one sequence in a group: ``ceil(min(n, cap) / block) + extra`` blocks."""
    return Row(block_bytes, spec.block_tokens, spec.cap_tokens, spec.extra_blocks * block_bytes)
