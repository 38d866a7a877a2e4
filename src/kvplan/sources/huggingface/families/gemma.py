"""Gemma 1 to 3: wide heads, tied embeddings, and from Gemma 2 on windows in most layers.

Source: transformers ``modeling_gemma*.py`` and ``configuration_gemma*.py``.
"""

from __future__ import annotations

from kvplan.sources.huggingface.architecture import (
    FULL,
    SLIDING,
    Architecture,
    head_cache,
    stated_layer_types,
    typed_caches,
    window,
)
from kvplan.sources.huggingface.families.llama import dense_weights, full_caches
from kvplan.sources.huggingface.fields import Fields

DEFAULTS = {
    # configuration_gemma.py: GemmaConfig
    "gemma": {"head_dim": 256},
    # configuration_gemma2.py: Gemma2Config
    "gemma2": {"head_dim": 256, "sliding_window": 4096},
    # configuration_gemma3.py: Gemma3TextConfig. Published 4B, 12B and 27B files leave these out.
    "gemma3": {
        "vocab_size": 262208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "sliding_window": 4096,
        "max_position_embeddings": 131072,
        "sliding_window_pattern": 6,
    },
}

_FOUR_NORMS = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)


def gemma(c: Fields) -> Architecture:
    """Gemma 1: plain attention."""
    bias = c.boolean("attention_bias", default=False)
    return Architecture(full_caches(c), dense_weights(c, qkv_bias=bias, o_bias=bias, tied=True))


def gemma2(c: Fields) -> Architecture:
    """Gemma 2: even layers have a window, odd layers are full."""
    layers, cache = c.layers(), head_cache(c)
    kinds = stated_layer_types(c, layers) or [
        SLIDING if index % 2 == 0 else FULL for index in range(layers)
    ]
    bias = c.boolean("attention_bias", default=False)
    return Architecture(
        typed_caches(c, cache, kinds, window(c)),
        dense_weights(c, qkv_bias=bias, o_bias=bias, tied=True, norms=_FOUR_NORMS),
    )


def gemma3(c: Fields) -> Architecture:
    """Gemma 3: every sixth layer is full, the others have a window; norms on query and key heads.

    Without the pattern a reader takes all 62 layers of the 27B for full (6x too much at 128k) or,
    worse, all for sliding (6x too little).
    """
    layers, cache = c.layers(), head_cache(c)
    kinds = stated_layer_types(c, layers)
    if kinds is None:
        period = c.integer("_sliding_window_pattern", "sliding_window_pattern")
        kinds = [SLIDING if (index + 1) % period else FULL for index in range(layers)]
    bias = c.boolean("attention_bias", default=False)
    return Architecture(
        typed_caches(c, cache, kinds, window(c)),
        dense_weights(c, qkv_bias=bias, o_bias=bias, head_norms=True, tied=True, norms=_FOUR_NORMS),
    )
