"""What a family reads out of a config: caches at once, weights only when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kvplan.errors import MalformedFile, UnsupportedArchitecture
from kvplan.model.caches import Cache, ChunkedLocal, FullAttention, SlidingWindow
from kvplan.model.tensors import Tensor, embedding, head
from kvplan.sources.huggingface.fields import Fields

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
LAYER_TYPES = (FULL, SLIDING, CHUNKED)


class Weights(NamedTuple):
    """The tensors of each layer, and those outside the layers."""

    layers: Sequence[tuple[Tensor, ...]]
    outside: tuple[Tensor, ...]


class Architecture(NamedTuple):
    """One config, understood."""

    caches: Sequence[tuple[Cache, ...]]
    """The caches of each layer."""
    weights: Callable[[], Weights]
    """Counts the weights; raises `MissingField` for a width that the config lacks."""
    assumptions: tuple[str, ...] = ()
    heads: int | None = None
    """Query heads, where they are not in the usual field."""


def kv_heads(c: Fields, heads: int) -> int:
    """Key-value heads; absent means one for each query head.

    Each serves the same number of query heads. Source: GQA, arXiv 2305.13245, section 2.2;
    transformers ``repeat_kv``.
    """
    stated = c.optional_integer("num_key_value_heads", "num_kv_heads", "n_head_kv")
    if stated is None:
        return heads
    if heads % stated:
        raise MalformedFile(
            c.where, f"num_key_value_heads {stated} does not divide the {heads} attention heads"
        )
    return stated


def head_cache(c: Fields) -> FullAttention:
    """The cache of one plain attention layer."""
    size = c.head_size()
    return FullAttention(kv_heads(c, c.heads()), size, size)


def local(cache: FullAttention, kind: str, span: int | None, where: str) -> Cache:
    """``cache`` for a layer of that type: whole, the last ``span`` tokens, or the current chunk."""
    if kind == FULL or span is None:
        return cache
    if kind == SLIDING:
        return SlidingWindow(*cache[:3], span)
    if kind == CHUNKED:
        return ChunkedLocal(*cache[:3], span)
    raise UnsupportedArchitecture("layer_types", kind, where=where, known=LAYER_TYPES)


def stated_layer_types(c: Fields, layers: int) -> list[str] | None:
    """The config's own list of layer types; an entry kvplan does not know is an error."""
    kinds = c.sequence("layer_types", length=layers)
    for index, kind in enumerate(kinds or ()):
        if kind not in LAYER_TYPES:
            raise UnsupportedArchitecture(
                f"layer_types[{index}]", kind, where=c.where, known=LAYER_TYPES
            )
    return kinds


def typed_caches(
    c: Fields, cache: FullAttention, kinds: Sequence[str], span: int | None
) -> list[tuple[Cache, ...]]:
    """Caches for a list of layer types that share one shape."""
    by_kind = {kind: (local(cache, kind, span, c.where),) for kind in set(kinds)}
    return [by_kind[kind] for kind in kinds]


def window(c: Fields) -> int | None:
    """The sliding window, or None where it is null or zero.

    A window as long as the context (Phi-3.5: 262,144 for 131,072 tokens) never drops a token, but
    engines still lay such layers out as windows, so it is kept.
    """
    return (
        c.optional_integer("sliding_window", "sliding_window_size", minimum=0, maximum=2**40)
        or None
    )


def vocabulary(c: Fields, *, tied_by_default: bool = False) -> list[Tensor]:
    """The embedding, and a head of its own unless the config ties the two."""
    vocab, hidden = c.vocab(), c.hidden()
    tensors = [embedding(vocab, hidden)]
    if not c.boolean("tie_word_embeddings", default=tied_by_default):
        tensors.append(head(vocab, hidden))
    return tensors


def alike(layer: Sequence[Tensor], count: int) -> list[tuple[Tensor, ...]]:
    """``count`` layers of the same tensors."""
    return [tuple(layer)] * count
