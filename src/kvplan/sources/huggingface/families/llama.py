"""Llama and the dense models shaped like it: norm, attention, norm, gated MLP.

Parameters of a layer: ``2*d*H*h + 2*d*K*h + 3*d*f + 2*d`` with d hidden, H heads, K key-value
heads, h head size, f intermediate size.
Source: transformers ``models/llama/modeling_llama.py`` and the modules of the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvplan.model.caches import Cache
from kvplan.model.tensors import attention, gated_mlp, norm
from kvplan.sources.huggingface.architecture import (
    FULL,
    SLIDING,
    Architecture,
    Weights,
    alike,
    head_cache,
    kv_heads,
    stated_layer_types,
    typed_caches,
    vocabulary,
    window,
)
from kvplan.sources.huggingface.fields import Fields


def llama(c: Fields) -> Architecture:
    """Llama 1 to 3.3, Yi and others: plain attention in every layer."""
    bias = c.boolean("attention_bias", default=False)
    return Architecture(
        full_caches(c),
        dense_weights(c, qkv_bias=bias, o_bias=bias, mlp_bias=c.boolean("mlp_bias", default=False)),
    )


def mistral(c: Fields) -> Architecture:
    """Mistral: as Llama, with a sliding window in every layer where one is stated."""
    return Architecture(all_sliding(c), dense_weights(c))


def phi3(c: Fields) -> Architecture:
    """Phi-3 and Phi-4: fused projections of the same sizes, a window that is often off."""
    return Architecture(all_sliding(c), dense_weights(c))


def qwen2(c: Fields) -> Architecture:
    """Qwen 2 and 2.5: biases on queries, keys and values; the window is off unless switched on."""
    return Architecture(qwen_caches(c), dense_weights(c, qkv_bias=True))


def qwen3(c: Fields) -> Architecture:
    """Qwen 3: a norm on each query and key head instead of biases."""
    bias = c.boolean("attention_bias", default=False)
    return Architecture(
        qwen_caches(c), dense_weights(c, qkv_bias=bias, o_bias=bias, head_norms=True)
    )


def full_attention(c: Fields) -> Architecture:
    """Any config, every layer taken as plain attention because the user says so."""
    said = "every layer is taken as plain full attention (--assume full-attention)"
    return Architecture(full_caches(c), dense_weights(c), (said,))


def full_caches(c: Fields) -> Sequence[tuple[Cache, ...]]:
    """Plain attention in every layer; a ``layer_types`` list is obeyed where there is one."""
    layers, cache = c.layers(), head_cache(c)
    kinds = stated_layer_types(c, layers) or [FULL] * layers
    return typed_caches(c, cache, kinds, window(c))


def all_sliding(c: Fields) -> Sequence[tuple[Cache, ...]]:
    """The stated window in every layer.

    Source: transformers ``models/mistral/modeling_mistral.py`` (one mask for all layers).
    """
    layers, cache = c.layers(), head_cache(c)
    kinds = stated_layer_types(c, layers) or [SLIDING] * layers
    return typed_caches(c, cache, kinds, window(c))


def qwen_caches(c: Fields) -> Sequence[tuple[Cache, ...]]:
    """A window only with ``use_sliding_window``, and then from layer ``max_window_layers`` on.

    Files of Qwen 2.5 state ``sliding_window: 131072`` beside ``use_sliding_window: false``.
    Source: transformers ``models/qwen2/configuration_qwen2.py``.
    """
    layers, cache = c.layers(), head_cache(c)
    if not c.boolean("use_sliding_window", default=False):
        return typed_caches(c, cache, [FULL] * layers, None)
    kinds = stated_layer_types(c, layers)
    if kinds is None:
        first = c.optional_integer("max_window_layers", minimum=0)
        first = 28 if first is None else first  # the class default
        kinds = [SLIDING if index >= first else FULL for index in range(layers)]
    return typed_caches(c, cache, kinds, window(c))


def dense_weights(
    c: Fields,
    *,
    qkv_bias: bool = False,
    o_bias: bool = False,
    mlp_bias: bool = False,
    head_norms: bool = False,
    tied: bool = False,
    norms: Sequence[str] = ("input_layernorm", "post_attention_layernorm"),
) -> Callable[[], Weights]:
    """Counts the weights of a model whose layers are all alike: attention, gated MLP, norms."""

    def count() -> Weights:
        hidden, heads = c.hidden(), c.heads()
        layer = [
            *attention(
                hidden, heads, kv_heads(c, heads), c.head_size(),
                qkv_bias=qkv_bias, o_bias=o_bias, head_norms=head_norms,
            ),
            *gated_mlp(hidden, c.integer("intermediate_size"), bias=mlp_bias),
        ]  # fmt: skip
        for name in norms:
            layer += norm(name, hidden)
        outside = [*vocabulary(c, tied_by_default=tied), *norm("model.norm", hidden)]
        return Weights(alike(layer, c.layers()), tuple(outside))

    return count
