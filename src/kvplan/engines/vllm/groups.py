"""How vLLM puts layers into groups that share a block table, and pages into one block.

Source: vLLM 0.33 ``v1/core/kv_cache_planning.py`` (``get_kv_cache_groups``,
``unify_kv_cache_spec_page_size``, ``_get_kv_cache_groups_uniform_page_size``,
``unify_hybrid_kv_cache_specs``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kvplan.engines.vllm.specs import Spec
from kvplan.errors import UnsupportedCombination
from kvplan.units import cdiv

LayerSpec = tuple[int, Spec]
"""The number of a layer and its spec; a layer with two caches appears twice."""


class LayerGroup(NamedTuple):
    """Layers that share one block table."""

    spec: Spec
    layers: tuple[int, ...]
    page_bytes: tuple[int, ...]
    """The page of each layer."""

    def bytes_between(self, start: int, end: int) -> int:
        """Bytes of one block over the layers of a pipeline stage."""
        pages = zip(self.layers, self.page_bytes, strict=True)
        return sum(page for layer, page in pages if start <= layer < end)


def group_layers(
    specs: Sequence[LayerSpec], evens_below: tuple[int, int] | None = (3, 2)
) -> list[LayerGroup]:
    """Layers in groups of one block table each.

    * All of one type (the same blocks for the same tokens): one group whose block holds all their
      pages, even when they differ (latent and indexer, 16-bit and quantised layers).
    * Otherwise pages are made alike, each type is dealt into groups of as many layers as the
      rarest type has (or the commonest, if it has less than 1.5 times as many: ``evens_below``),
      and incomplete groups are filled with padding that is paid for.
    """
    types = {
        (s.kind, s.block_tokens, s.cap_tokens, s.fixed_blocks, s.page_bytes * (not s.scales))
        for _, s in specs
    }
    if len(types) == 1:
        spec = specs[0][1]
        return [LayerGroup(spec, tuple(n for n, _ in specs), tuple(s.page_bytes for _, s in specs))]
    buckets: dict[Spec, list[int]] = {}
    for layer, spec in unify_pages(specs):
        buckets.setdefault(spec, []).append(layer)
    fewest = min(len(layers) for layers in buckets.values())
    most = max(len(layers) for layers in buckets.values())
    evens = evens_below is not None and evens_below[1] * most < evens_below[0] * fewest
    size = most if evens else fewest
    groups = []
    for spec, layers in buckets.items():
        count = cdiv(len(layers), size)
        for number in range(count):
            members = tuple(layers[number::count])
            groups.append(LayerGroup(spec, members, (spec.page_bytes,) * len(members)))
    return groups


def pack_groups(specs: Sequence[LayerSpec]) -> list[LayerGroup]:
    """Groups of DeepSeek-V4's block-outermost layout: a block holds one group whatever its pages.

    Layers of one type form a bucket. A bucket whose page sizes repeat in step (one layer of each)
    is a pattern; patterns are cut into groups of as many repeats as wastes least over all of them,
    but a pattern of several page sizes stays whole. Other buckets are one group.
    Source: ``_get_packed_kv_cache_groups``.
    """
    buckets: dict[tuple[object, ...], list[LayerSpec]] = {}
    for layer, spec in specs:
        key = (spec.kind, spec.block_tokens, spec.cap_tokens, spec.fixed_blocks)
        buckets.setdefault(key, []).append((layer, spec))
    patterns = [_by_page(members) for members in buckets.values()]
    balanced = [len({len(layers) for layers in pages.values()}) == 1 for pages in patterns]
    repeats = [
        max(len(layers) for layers in pages.values())
        for pages, even in zip(patterns, balanced, strict=True)
        if even
    ]
    whole = [
        max(len(layers) for layers in pages.values())
        for pages, even in zip(patterns, balanced, strict=True)
        if even and len(pages) > 1
    ]
    per_group = _least_padding(repeats, max(whole)) if whole else None
    groups = []
    for pages, even in zip(patterns, balanced, strict=True):
        longest = max(len(layers) for layers in pages.values())
        count = cdiv(longest, per_group) if even and per_group else 1
        for number in range(count):
            members = [entry for layers in pages.values() for entry in layers[number::count]]
            groups.append(
                LayerGroup(
                    members[0][1],
                    tuple(layer for layer, _ in members),
                    tuple(spec.page_bytes for _, spec in members),
                )
            )
    return groups


def _by_page(members: Sequence[LayerSpec]) -> dict[int, list[LayerSpec]]:
    pages: dict[int, list[LayerSpec]] = {}
    for layer, spec in members:
        pages.setdefault(spec.page_bytes, []).append((layer, spec))
    return pages


def _least_padding(lengths: Sequence[int], least: int) -> int:
    """The group length from ``least`` up that pads the lengths least; the larger of equals.

    Source: ``_approximate_gcd``.
    """
    return min(
        range(least, max(lengths) + 1),
        key=lambda size: (sum(-length % size for length in lengths), -size),
    )


def unify_pages(specs: Sequence[LayerSpec]) -> list[LayerSpec]:
    """Specs with one page size: a smaller page gets a larger block where it divides, else padding.

    A recurrent state cannot take more tokens and is padded; a latent page can only be multiplied.
    """
    largest = max(spec.page_bytes for _, spec in specs)
    unified = []
    for layer, spec in specs:
        ratio, rest = divmod(largest, spec.page_bytes)
        scaled = ratio if spec.scales and not rest else 1
        if scaled == 1 and not spec.pads and spec.page_bytes != largest:
            raise UnsupportedCombination(
                "vLLM cannot bring this model's latent and other layers to one page size"
            )
        tokens = spec.block_tokens * scaled
        unified.append((layer, spec._replace(block_tokens=tokens, page_bytes=largest)))
    return unified


def without_windows(specs: Sequence[LayerSpec]) -> list[LayerSpec]:
    """Specs with the hybrid manager off: windows and chunks are kept in full beside full layers.

    A model that has only windows keeps them.
    """
    if all(spec.kind != "full" for _, spec in specs):
        return list(specs)
    local = {"sliding_window", "chunked_local"}
    return [
        (layer, spec._replace(kind="full", cap_tokens=None, extra_blocks=0))
        if spec.kind in local
        else (layer, spec)
        for layer, spec in specs
    ]
