"""The block size vLLM settles on, and the page its recurrent states are padded to.

Source: vLLM 0.33 ``platforms/interface.py`` (``update_block_size_for_backend``,
``_align_hybrid_block_size``, ``_align_heterogeneous_kv_block_size``).
"""

from __future__ import annotations

from math import lcm

from kvplan.engines.vllm.specs import Paging, state_bytes
from kvplan.model.caches import FullAttention, Latent, Recurrent, SlidingWindow
from kvplan.model.model import Model
from kvplan.units import cdiv

KERNEL_BLOCK = 16
"""Smallest block of the attention kernels for plain attention."""
LATENT_ALIGNMENT = 128
"""Latent decode kernels want blocks of 128 tokens together in a hybrid model."""
CHECKPOINT_ALIGNMENT = 64
"""Grid of the states that FlashInfer's gated delta net exports from a prefill."""


def settle(model: Model, paging: Paging) -> Paging:
    """``paging`` with the block size aligned as hybrid models and mixed formats need it."""
    if any(isinstance(group.cache, Recurrent) for group in model.groups):
        paging = _align_states(model, paging)
    if paging.skipped_layers or paging.skips_windows:
        paging = _align_mixed_formats(model, paging)
    return paging


def _align_states(model: Model, p: Paging) -> Paging:
    """Attention blocks large enough to hold a recurrent state, and states padded to that page.

    ``block = align * ceil(state / (align * attention bytes of a token))``. A quantised cache makes
    the block longer, it does not make the state smaller.
    """
    token_bytes = _token_bytes(model, p)
    states = [g.cache for g in model.groups if isinstance(g.cache, Recurrent)]
    page = max(state_bytes(cache, p) for cache in states)
    if token_bytes is None:  # no attention at all: one block holds the state of a sequence
        return p
    is_latent = any(isinstance(group.cache, Latent) for group in model.groups)
    align = max(KERNEL_BLOCK, p.block_size, LATENT_ALIGNMENT if is_latent else 0)
    if p.aligned_states and p.exports_checkpoints and _exports(states):
        align = lcm(align, CHECKPOINT_ALIGNMENT)
    block = max(p.block_size, align * cdiv(page, align * token_bytes))
    return p._replace(block_size=block, state_page_bytes=block * token_bytes)


def _exports(states: list[Recurrent]) -> bool:
    return all(cache.flavour == "gated_delta_net" for cache in states)


def _token_bytes(model: Model, p: Paging) -> int | None:
    """Attention bytes of one token in one layer; None without attention."""
    for group in model.groups:
        if isinstance(group.cache, (FullAttention, SlidingWindow, Latent)):
            return group.cache.state_bytes(p.kv, p.tp)
    return None


def _align_mixed_formats(model: Model, p: Paging) -> Paging:
    """A block of the quantised layers must cover a 16-bit block of the skipped ones.

    vLLM sizes the quantised side here by its storage type (one byte an element), whatever the
    format packs into it.
    """
    cache = next(
        group.cache
        for group in model.groups
        if isinstance(group.cache, (FullAttention, SlidingWindow))
    )
    wide = cache.state_bytes(p.wide_kv, p.tp)
    narrow = cache.state_bytes(p.kv, p.tp) if p.kv.name.startswith("fp8") else wide // 2
    if narrow >= wide:
        return p
    align = max(KERNEL_BLOCK, p.block_size)
    needed = max(wide * KERNEL_BLOCK, p.state_page_bytes or 0)
    block = max(p.block_size, align * cdiv(needed, align * narrow))
    return p._replace(
        block_size=block, window_page_bytes=block * narrow if p.skips_windows else None
    )
