"""The what-if of a sliding window over layers that the model keeps in full."""

from __future__ import annotations

from dataclasses import replace

from kvplan.model.caches import Cache, FullAttention, SlidingWindow
from kvplan.model.model import Layer, Model


def with_window(model: Model, window: int) -> Model:
    """``model`` with a window over every plain attention layer; narrower ones stay as they are."""

    def windowed(cache: Cache) -> Cache:
        if isinstance(cache, FullAttention):
            return SlidingWindow(*cache[:3], window)
        if isinstance(cache, SlidingWindow):
            return cache._replace(sliding_window=min(window, cache.sliding_window))
        return cache

    layers = tuple(
        Layer(tuple(windowed(cache) for cache in layer.caches), layer.tensors)
        for layer in model.layers
    )
    return replace(
        model,
        layers=layers,
        warnings=(
            *model.warnings,
            f"a window of {window:,} tokens: the model was not trained with it and cannot recall "
            "what lies outside",
        ),
    )
