"""vLLM's description of what each layer stores: bytes of a block, tokens in it, blocks a sequence.

Source: vLLM 0.33 ``v1/kv_cache_interface.py`` and the ``get_kv_cache_spec`` of its layers.
"""

from __future__ import annotations

from typing import NamedTuple

from kvplan.errors import UnsupportedCombination
from kvplan.model.caches import (
    Cache,
    ChunkedLocal,
    Compressed,
    CompressorState,
    CrossAttention,
    FullAttention,
    Indexer,
    Latent,
    Recurrent,
    Shared,
    SlidingWindow,
)
from kvplan.model.rows import Row
from kvplan.precision.kv import KvFormat
from kvplan.units import cdiv, round_up

PACKED_SCALES = 8
"""Bytes of scales in a packed DeepSeek-V4 vector."""
PACKED_ALIGNMENT = 576
"""Bytes that its pages are multiples of."""
WINDOW_BLOCK = 64
"""Tokens of a block of its windows."""
COMPRESSOR_BLOCKS = (4, 8)
"""Tokens of a block of compressor state, for groups of 4 (overlapping) and of 128.
Source: ``models/deepseek_v4/compressor.py``."""
_OVERLAPPING_GROUP = 8


class Paging(NamedTuple):
    """What decides the blocks besides the model: fixed once the engine's arguments are known."""

    block_size: int
    """Tokens of a block of full attention."""
    kv: KvFormat
    wide_kv: KvFormat
    """The 16-bit format of layers that a quantised cache skips."""
    tp: int = 1
    dcp: int = 1
    """Ranks that share the tokens of a sequence."""
    in_flight_tokens: int = 0
    """Tokens scheduled but not finished, which a window keeps beside its own."""
    encoder_tokens: int = 0
    """Encoder tokens that cross attention reserves."""
    aligned_states: bool = True
    """Recurrent states are kept at block boundaries for the prefix cache."""
    state_page_bytes: int | None = None
    """Page that recurrent states are padded to."""
    state_element_bytes: int | None = None
    """Bytes of a recurrent state's element where an argument sets them."""
    exports_checkpoints: bool = False
    """Gated delta net layers keep one state more, which their prefill kernel exports."""
    mamba_exports: bool = True
    """And Mamba 2 layers do."""
    speculative_tokens: int = 0
    skipped_layers: frozenset[int] = frozenset()
    """Layers that keep 16 bits under a quantised cache."""
    skips_windows: bool = False
    """All windows keep 16 bits under a quantised cache."""
    window_page_bytes: int | None = None
    """Page that skipped windows are fitted into."""
    page_alignment: int = 1
    """Pages are multiples of it: 576 B in DeepSeek-V4's packed layout."""


class Spec(NamedTuple):
    """One layer's cache as vLLM plans it."""

    kind: str
    block_tokens: int
    page_bytes: int
    """Bytes of one block of this layer."""
    cap_tokens: int | None = None
    """Tokens beyond which a sequence takes no further block."""
    extra_blocks: int = 0
    fixed_blocks: int | None = None
    """Blocks of a sequence whatever its length (states, encoder tokens)."""
    scales: bool = True
    """A smaller page may get a larger block, to be brought to the common page."""
    pads: bool = True
    """Or be padded to it."""

    def row(self, block_bytes: int, dcp: int) -> Row:
        """Bytes of a sequence: ``ceil(min(n, cap) / block) + extra`` blocks, or a fixed number."""
        if self.fixed_blocks is not None:
            return Row(0, constant_bytes=self.fixed_blocks * block_bytes)
        tokens = self.block_tokens * (dcp if self.kind == "full" else 1)
        return Row(block_bytes, tokens, self.cap_tokens, self.extra_blocks * block_bytes)


def layer_specs(cache: Cache, layer: int, paging: Paging, model_name: str) -> list[Spec]:
    """The spec of one cache of a layer.

    * A window keeps ``window - 1`` tokens behind the in-flight ones and may straddle one block
      more (``SlidingWindowSpec.max_admission_blocks_per_request``).
    * A chunk keeps itself and the in-flight tokens (``ChunkedLocalAttentionSpec``).
    * Cross attention reserves ``max_num_encoder_input_tokens``, which vLLM sets to
      ``max_num_batched_tokens`` (``config/scheduler.py``), not the encoder's own length.
    """
    p = paging
    kv = p.wide_kv if layer in p.skipped_layers else p.kv
    if isinstance(cache, SlidingWindow):
        kv = p.wide_kv if p.skips_windows else kv
        tokens = p.block_size
        per_token = cache.state_bytes(kv, p.tp)
        if p.skips_windows and p.window_page_bytes is not None:
            tokens = max(16, p.window_page_bytes // per_token // 16 * 16)
        page = max(per_token * tokens, p.window_page_bytes or 0)
        cap = cache.sliding_window - 1 + p.in_flight_tokens
        return [Spec(cache.kind, tokens, page, cap, extra_blocks=1)]
    if isinstance(cache, ChunkedLocal):
        page = cache.state_bytes(kv, p.tp) * p.block_size
        return [
            Spec(cache.kind, p.block_size, page, cache.attention_chunk_size + p.in_flight_tokens)
        ]
    if isinstance(cache, (FullAttention, Latent)):
        page = cache.state_bytes(kv, p.tp) * p.block_size
        return [Spec("full", p.block_size, page, pads=not isinstance(cache, Latent))]
    if isinstance(cache, Indexer):
        states = cdiv(p.block_size, cache.tokens_per_state)
        page = round_up(cache.state_bytes(kv, p.tp) * states, p.page_alignment)
        return [Spec("full", p.block_size, page, pads=False)]
    if isinstance(cache, Compressed):
        return [_compressed_spec(cache, p)]
    if isinstance(cache, CompressorState):
        tokens = COMPRESSOR_BLOCKS[cache.sliding_window > _OVERLAPPING_GROUP]
        page = round_up(cache.state_bytes(kv, p.tp) * tokens, p.page_alignment)
        cap = cache.sliding_window - 1 + p.in_flight_tokens
        return [Spec(cache.kind, tokens, page, cap, extra_blocks=1, scales=False, pads=False)]
    if isinstance(cache, CrossAttention):
        page = cache.state_bytes(kv, p.tp) * p.block_size
        blocks = cdiv(p.encoder_tokens, p.block_size)
        return [Spec(cache.kind, p.block_size, page, fixed_blocks=blocks)]
    if isinstance(cache, Recurrent):
        page = p.state_page_bytes or state_bytes(cache, p)
        return [
            Spec(cache.kind, p.block_size, page, fixed_blocks=_state_blocks(cache, p), scales=False)
        ]
    if isinstance(cache, Shared):  # it reads another layer's blocks
        return []
    raise UnsupportedCombination(
        f"{model_name}: how vLLM pages its {cache.kind} layers is not modelled",
        hint="--engine none gives the logical figure.",
    )


def _compressed_spec(cache: Compressed, p: Paging) -> Spec:
    """DeepSeek-V4's vectors: a window in blocks of 64, compressed ones by the 256-token block.

    A vector is packed into 584 B: its plain part in fp8, its rotary part in bf16, and 8 B of
    scales.
    Source: ``models/deepseek_v4/attention.py``, ``v1/attention/backends/mla/sparse_swa.py``.
    """
    plain = cache.head_size - cache.qk_rope_head_dim
    vector = plain + 2 * cache.qk_rope_head_dim + PACKED_SCALES
    if cache.sliding_window is None:
        states = cdiv(p.block_size, cache.tokens_per_state)
        page = round_up(vector * states, p.page_alignment)
        return Spec("full", p.block_size, page, pads=False, scales=False)
    page = round_up(vector * WINDOW_BLOCK, p.page_alignment)
    cap = cache.sliding_window - 1 + p.in_flight_tokens
    return Spec(cache.kind, WINDOW_BLOCK, page, cap, extra_blocks=1, scales=False, pads=False)


def _state_blocks(cache: Recurrent, p: Paging) -> int:
    """States of one sequence: the running one; with a prefix cache one more at the last block
    boundary, and one that a kernel exports from inside a prefill.

    Mamba 2 always exports one, a gated delta net only through FlashInfer on Hopper and newer.
    Source: ``MambaSpec.max_memory_usage_bytes``, ``mamba_mixer2.py``, ``qwen_gdn_linear_attn.py``.
    """
    if not p.aligned_states:
        return 1 + p.speculative_tokens
    exports = (cache.flavour == "mamba2" and p.mamba_exports) or (
        cache.flavour == "gated_delta_net" and p.exports_checkpoints
    )
    return 2 + p.speculative_tokens + exports


def state_bytes(cache: Recurrent, p: Paging) -> int:
    """Bytes of one recurrent state on one rank as vLLM stores it.

    The recurrence is in the model's dtype unless the config or ``mamba_ssm_cache_dtype`` says
    otherwise (Kimi's delta attention: float32); the logical figure takes float32 there, which
    vLLM does not.
    Source: ``mamba_utils.py`` ``MambaStateDtypeCalculator``, ``MambaStateShapeCalculator``.
    """
    if p.state_element_bytes is not None:
        cache = cache._replace(element_bytes=p.state_element_bytes)
    elif not cache.is_dtype_stated and cache.flavour != "kda":
        cache = cache._replace(element_bytes=cache.conv_bytes)
    return cache.state_bytes(p.kv, p.tp)
