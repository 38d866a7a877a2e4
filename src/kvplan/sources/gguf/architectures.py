"""A GGUF file's metadata → the caches of each layer, by the rules of llama.cpp.

The names of a file say how its tensors are laid out, not the model's history: ``llama`` is also
Mistral, and its window is not used. Where llama.cpp leaves a stated window unused, or has a number
of its own, so does this module, because the file can run nowhere else.
Source: llama.cpp 0c1e57098, ``src/models/*.cpp`` ``load_arch_hparams``, ``src/llama-hparams.cpp``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kvplan.errors import UnsupportedArchitecture
from kvplan.model.caches import (
    Cache,
    ChunkedLocal,
    FullAttention,
    Indexer,
    Latent,
    Recurrent,
    Shared,
    SlidingWindow,
)
from kvplan.sources.gguf.metadata import Metadata

Caches = list[tuple[Cache, ...]]


def layer_caches(m: Metadata, assume: str | None = None) -> Caches:
    """The caches of each layer but the draft (MTP) layers at the end, which keep none."""
    read = _ARCHITECTURES.get(m.architecture)
    if read is None and assume == "full-attention":
        read = _plain
    if read is None:
        raise UnsupportedArchitecture(
            "general.architecture", m.architecture, where=m.path, known=_ARCHITECTURES
        )
    return read(m)[: layers(m)]


def known_architectures() -> list[str]:
    """Every ``general.architecture`` whose layers are understood."""
    return list(_ARCHITECTURES)


def is_known(m: Metadata) -> bool:
    """Whether the architecture's layers are understood."""
    return m.architecture in _ARCHITECTURES


def layers(m: Metadata) -> int:
    """Layers that run for every token: all blocks but the draft layers at the end."""
    draft = m.optional("nextn_predict_layers") or 0
    if draft >= m.blocks:
        raise m.unsupported("nextn_predict_layers", draft)
    return m.blocks - draft


class _Window(NamedTuple):
    """Which layers keep a window only."""

    period: int | None
    """The last (or first) layer of each period is full; None when the file must list them."""
    default: int | None = None
    """The window where the file states none; None when it must, 0 for no window then."""
    full_first: bool = False
    fixed: int | None = None
    """The window that llama.cpp takes whatever the file states."""
    chunked: bool = False


def _heads(m: Metadata) -> list[int]:
    """Query heads a layer; 0 in models without attention."""
    return m.per_layer("attention.head_count", 0)


def _kv_heads(m: Metadata) -> list[int]:
    """Key-value heads a layer; not stated means one for each query head."""
    if m.raw("attention.head_count_kv") is None:
        return _heads(m)
    return m.per_layer("attention.head_count_kv")


def _head_sizes(m: Metadata) -> tuple[int, int]:
    """Elements of a key and a value head: stated, or hidden size over the first layer's heads."""
    key, value = m.optional("attention.key_length", 1), m.optional("attention.value_length", 1)
    if key is None or value is None:
        heads = _heads(m)[0]
        if heads == 0:
            raise m.unsupported("attention.head_count", 0)
        derived = m.integer("embedding_length") // heads
        key, value = key or derived, value or derived
    return key, value


def _attention(m: Metadata) -> list[FullAttention]:
    """The attention cache that each layer would keep in full."""
    key, value = _head_sizes(m)
    return [FullAttention(heads, key, value) for heads in _kv_heads(m)]


def _plain(m: Metadata) -> Caches:
    """Every layer keeps every token; a layer without key-value heads keeps nothing."""
    return [(cache,) if cache.num_kv_heads else () for cache in _attention(m)]


def _windowed(rule: _Window) -> Callable[[Metadata], Caches]:
    """Window layers and full layers by a pattern."""

    def read(m: Metadata) -> Caches:
        window = rule.fixed or m.optional("attention.sliding_window", 0, 2**40)
        if rule.fixed and m.optional("attention.sliding_window", 0, 2**40) == 0:
            window = 0
        if window is None:
            window = rule.default
        if window is None:
            window = m.integer("attention.sliding_window")
        if window == 0:
            return _plain(m)
        slides = _pattern(m, rule)
        key, value = _head_sizes(m)
        local_key = m.optional("attention.key_length_swa", 1) or key
        local_value = m.optional("attention.value_length_swa", 1) or value
        kind = ChunkedLocal if rule.chunked else SlidingWindow
        caches: Caches = []
        for heads, local in zip(_kv_heads(m), slides, strict=True):
            if local:
                caches.append((kind(heads, local_key, local_value, window),))
            else:
                caches.append((FullAttention(heads, key, value),))
        return caches

    return read


def _pattern(m: Metadata, rule: _Window) -> list[bool]:
    """Which layers slide: the file's list, else a period, the file's own or the usual one."""
    stated = m.flags("attention.sliding_window_pattern")
    if stated is not None:
        return stated
    if rule.period is None:
        raise m.unsupported(
            "attention.sliding_window_pattern", m.raw("attention.sliding_window_pattern")
        )
    period = m.optional("attention.sliding_window_pattern", 0)
    period = rule.period if period is None else period
    if period == 0:
        return [True] * m.blocks
    full = 0 if rule.full_first else period - 1
    return [layer % period != full for layer in range(m.blocks)]


def _exaone4(m: Metadata) -> Caches:
    """The 32B model, by its 64 layers, alternates; the 1.2B one is full."""
    return _windowed(_Window(4, 4096))(m) if layers(m) == 64 else _plain(m)


def _gemma3n(m: Metadata) -> Caches:
    """From layer 20 on the layers read the cache of an earlier one, whatever the file states."""
    return _sharing_from(20, _windowed(_Window(5))(m))


def _gemma4(m: Metadata) -> Caches:
    """The last ``shared_kv_layers`` read an earlier layer's cache; windows by the file's list."""
    shared = m.optional("attention.shared_kv_layers") or 0
    return _sharing_from(m.blocks - shared, _windowed(_Window(None))(m))


def _sharing_from(first: int, caches: Caches) -> Caches:
    return [kept if index < first else (Shared(),) for index, kept in enumerate(caches)]


def _latent(m: Metadata) -> Caches:
    """One latent vector a layer; files made before that was known keep all heads in full.

    The new files state the sizes of the expanded heads beside it (``key_length_mla``).
    """
    cache = _latent_cache(m)
    return _plain(m) if cache is None else [(cache,)] * m.blocks


def _latent_cache(m: Metadata) -> Latent | None:
    if not (m.optional("attention.key_length_mla") and m.optional("attention.value_length_mla")):
        return None
    rank, key = m.integer("attention.kv_lora_rank"), m.integer("attention.key_length")
    if key < rank:
        raise m.unsupported("attention.key_length", key)
    return Latent(rank, key - rank)


def _sparse_latent(m: Metadata) -> Caches:
    """Latent attention with the keys of an indexer, in the layers that have one of their own."""
    cache = _latent_cache(m)
    if cache is None:
        raise m.unsupported("attention.key_length_mla", None)
    own = m.flags("attention.indexer.types")
    if own is None and m.architecture == "glm-dsa" and (m.context or 0) >= 2**20:
        raise m.unsupported("attention.indexer.types", None)
    if m.architecture != "glm-dsa":
        own = None
    indexer = Indexer(m.integer("attention.indexer.key_length"))
    return [
        (cache, indexer) if own is None or own[layer] else (cache,) for layer in range(m.blocks)
    ]


def _state(m: Metadata, flavour: str) -> Recurrent:
    """The state of one Mamba or gated delta layer, both parts float32 as llama.cpp keeps them.

    Convolution: ``(d_inner + 2 * groups * d_state)`` channels; recurrence: ``d_state * d_inner``.
    """
    inner, state = m.integer("ssm.inner_size"), m.integer("ssm.state_size")
    groups = 0 if flavour == "mamba1" else m.optional("ssm.group_count") or 0
    return Recurrent(
        flavour,
        conv_channels=inner + 2 * groups * state,
        conv_kernel=m.integer("ssm.conv_kernel"),
        state_elements=state * inner,
        heads=inner if flavour == "mamba1" else m.optional("ssm.time_step_rank", 1) or 1,
        conv_bytes=4,
    )


def _delta_state(m: Metadata) -> Recurrent:
    """Kimi's delta attention: three convolutions and a square state a head."""
    heads, size = _heads(m)[0], m.integer("kda.head_dim")
    if heads == 0:
        raise m.unsupported("attention.head_count", 0)
    return Recurrent(
        "kda",
        conv_channels=3 * heads * size,
        conv_kernel=m.optional("ssm.conv_kernel", 1) or 4,
        state_elements=heads * size * size,
        heads=heads,
        conv_bytes=4,
    )


def _recurrent_only(flavour: str) -> Callable[[Metadata], Caches]:
    return lambda m: [(_state(m, flavour),)] * m.blocks


def _rwkv(m: Metadata) -> Caches:
    """The last inputs of the token shifts, and a state of ``wkv.head_size`` a channel."""
    hidden, size = m.integer("embedding_length"), m.integer("wkv.head_size")
    shifts = m.optional("token_shift_count", 1) or 2
    state = Recurrent("rwkv", hidden * shifts, 2, hidden * size, max(1, hidden // size), 4)
    return [(state,)] * m.blocks


def _by_heads(
    state: Callable[[Metadata], Recurrent],
    attention: Callable[[Metadata], Sequence[tuple[Cache, ...]]] = _plain,
) -> Callable[[Metadata], Caches]:
    """Layers without key-value heads are recurrent, the others attend."""

    def read(m: Metadata) -> Caches:
        attending, kept = attention(m), (state(m),)
        return [attending[layer] if heads else kept for layer, heads in enumerate(_kv_heads(m))]

    return read


def _short_conv(m: Metadata) -> Caches:
    """LFM2: layers without key-value heads keep the last inputs of a short convolution."""
    hidden = m.integer("embedding_length")
    state = Recurrent("short_conv", hidden, m.integer("shortconv.l_cache"), 0, hidden, 4)
    window = m.optional("attention.sliding_window", 0, 2**40)
    caches: Caches = []
    for cache in _attention(m):
        if not cache.num_kv_heads:
            caches.append((state,))
        elif window:
            caches.append((SlidingWindow(*cache[:3], window),))
        else:
            caches.append((cache,))
    return caches


def _nemotron_h(m: Metadata) -> Caches:
    """Attention where there are key-value heads, an MLP where there is its width, else Mamba-2."""
    widths, state = m.per_layer("feed_forward_length", 0), (_state(m, "mamba2"),)
    caches: Caches = []
    for cache, width in zip(_attention(m), widths, strict=True):
        if cache.num_kv_heads:
            caches.append((cache,))
        else:
            caches.append(() if width else state)
    return caches


def _both(m: Metadata) -> Caches:
    """Falcon-H1: attention and Mamba-2 side by side in every layer."""
    state = _state(m, "mamba2")
    return [(cache, state) for cache in _attention(m)]


def _every_few(m: Metadata) -> Caches:
    """Qwen3-Next and 3.5: gated delta layers, every ``full_attention_interval``-th one attends."""
    stated = m.flags("attention.recurrent_layers")
    interval = m.optional("full_attention_interval", 1) or 4
    state = (_state(m, "gated_delta_net"),)
    caches: Caches = []
    for layer, cache in enumerate(_attention(m)):
        attends = (layer + 1) % interval == 0 if stated is None else not stated[layer]
        caches.append((cache,) if attends else state)
    return caches


_PLAIN = (
    "llama", "deci", "falcon", "grok", "gpt2", "gptj", "gptneox", "mpt", "baichuan", "starcoder",
    "refact", "bloom", "stablelm", "qwen", "qwen2", "qwen2moe", "qwen2vl", "qwen3", "qwen3moe",
    "qwen3vl", "qwen3vlmoe", "phi2", "phi3", "phimoe", "plamo", "codeshell", "orion", "internlm2",
    "minicpm", "gemma", "starcoder2", "xverse", "command-r", "dbrx", "olmo", "olmoe", "openelm",
    "arctic", "deepseek", "chatglm", "glm4", "glm4moe", "bitnet", "jais", "nemotron", "exaone",
    "granite", "granitemoe", "chameleon", "bailingmoe", "bailingmoe2", "dots1", "arcee", "ernie4_5",
    "ernie4_5-moe", "hunyuan-moe", "hunyuan-dense", "smollm3", "seed_oss", "apertus", "minimax-m2",
    "mistral3", "minicpm3", "plm",
)  # fmt: skip
"""Attention in every layer, with a window in none (or, for phi3, with one that is switched off).
minicpm3 and plm are latent in their papers; llama.cpp keeps their heads in full."""

_ARCHITECTURES: dict[str, Callable[[Metadata], Caches]] = {
    **dict.fromkeys(_PLAIN, _plain),
    "gemma2": _windowed(_Window(2, 4096)),
    "gemma3": _windowed(_Window(6, 0)),
    "gemma3n": _gemma3n,
    "gemma4": _gemma4,
    "gpt-oss": _windowed(_Window(2)),
    "cohere2": _windowed(_Window(4)),
    "llama4": _windowed(_Window(4, fixed=8192, chunked=True)),
    "olmo2": _windowed(_Window(4, 0)),
    "exaone4": _exaone4,
    "afmoe": _windowed(_Window(4, 0)),
    "plamo3": _windowed(_Window(8, 0)),
    "mimo2": _windowed(_Window(None)),
    "step35": _windowed(_Window(None)),
    "granite_swa": _windowed(_Window(None)),
    "deepseek2": _latent,
    "mistral4": _latent,
    "deepseek32": _sparse_latent,
    "glm-dsa": _sparse_latent,
    "mamba": _recurrent_only("mamba1"),
    "mamba2": _recurrent_only("mamba2"),
    "rwkv6": _rwkv,
    "rwkv6qwen2": _rwkv,
    "rwkv7": _rwkv,
    "arwkv7": _rwkv,
    "jamba": _by_heads(lambda m: _state(m, "mamba1")),
    "plamo2": _by_heads(lambda m: _state(m, "mamba2")),
    "granitehybrid": _by_heads(lambda m: _state(m, "mamba2")),
    "kimi-linear": _by_heads(_delta_state, _latent),
    "lfm2": _short_conv,
    "lfm2moe": _short_conv,
    "nemotron_h": _nemotron_h,
    "nemotron_h_moe": _nemotron_h,
    "falcon-h1": _both,
    "qwen3next": _every_few,
    "qwen35": _every_few,
    "qwen35moe": _every_few,
}
"""``general.architecture`` → how its layers are read."""

HF_TYPES = {
    "qwen2moe": "qwen2_moe", "qwen3moe": "qwen3_moe", "qwen3next": "qwen3_next",
    "qwen35": "qwen3_5", "qwen35moe": "qwen3_5_moe", "gemma3": "gemma3_text", "gpt-oss": "gpt_oss",
    "deepseek2": "deepseek_v3", "deepseek32": "deepseek_v32", "glm4moe": "glm4_moe",
    "command-r": "cohere", "minimax-m2": "minimax_m2", "granitehybrid": "granitemoehybrid",
    "kimi-linear": "kimi_linear", "falcon-h1": "falcon_h1", "starcoder": "gpt_bigcode",
    "gptneox": "gpt_neox", "gptj": "gptj", "glm-dsa": "glm_moe_dsa",
}  # fmt: skip
"""The ``model_type`` that Hugging Face gives an architecture, where the two names differ."""
