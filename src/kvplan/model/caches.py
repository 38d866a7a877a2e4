"""The kinds of cache that a layer keeps, one class a kind.

Each kind answers the same two questions, and everything else (blocks, totals, limits) is common:

* `state_bytes`: bytes of one stored state on one rank of a tensor-parallel group;
* `row`: how states follow from tokens, as a `Row` of the common form.

``kind`` is a field, because tuples of different classes compare equal by their values alone.

These are the *logical* figures, what the mathematics needs. What an engine reserves beyond them
(blocks, padding, in-flight tokens) is in that engine's room.
"""

from __future__ import annotations

from typing import NamedTuple

from kvplan.model.rows import Row
from kvplan.precision.kv import KvFormat
from kvplan.units import cdiv


class FullAttention(NamedTuple):
    """Keys and values of every token: multi-head, grouped-query or multi-query attention."""

    num_kv_heads: int
    head_size: int
    head_size_v: int

    kind: str = "full"

    def state_bytes(self, kv: KvFormat, tp: int = 1) -> int:
        """Bytes of one token on one rank: ``ceil(kv_heads / tp) * (row_k(d_k) + row_v(d_v))``.

        Shapes ``[heads, head_size]`` and ``[heads, head_size_v]``; scales are counted per head
        row. A rank never holds less than one head: beyond ``tp = num_kv_heads`` the heads are
        replicated and more GPUs save nothing. Calculators that take the query heads or
        ``hidden_size`` instead are wrong by the grouping factor (8x for Llama-3-70B).
        Source: GQA, arXiv 2305.13245; vLLM ``AttentionSpec.state_content_size_bytes``.
        """
        return kv_head_bytes(self.num_kv_heads, self.head_size, self.head_size_v, kv, tp)

    def row(self, kv: KvFormat, tp: int = 1, layers: int = 1) -> Row:
        """Every token stays."""
        return Row(self.state_bytes(kv, tp) * layers)


class SlidingWindow(NamedTuple):
    """Keys and values of the last ``sliding_window`` tokens."""

    num_kv_heads: int
    head_size: int
    head_size_v: int
    sliding_window: int

    kind: str = "sliding_window"

    def state_bytes(self, kv: KvFormat, tp: int = 1) -> int:
        """Bytes of one token on one rank, as `FullAttention.state_bytes`."""
        return kv_head_bytes(self.num_kv_heads, self.head_size, self.head_size_v, kv, tp)

    def row(self, kv: KvFormat, tp: int = 1, layers: int = 1) -> Row:
        """``min(n, window)`` tokens stay.

        Charging these layers in full makes Gemma-3-27B 6 times too large at 128k.
        Source: Mistral 7B, arXiv 2310.06825, section 2.
        """
        return Row(self.state_bytes(kv, tp) * layers, cap_tokens=self.sliding_window)


class ChunkedLocal(NamedTuple):
    """Keys and values of the current chunk of ``attention_chunk_size`` tokens (Llama 4)."""

    num_kv_heads: int
    head_size: int
    head_size_v: int
    attention_chunk_size: int

    kind: str = "chunked_local"

    def state_bytes(self, kv: KvFormat, tp: int = 1) -> int:
        """Bytes of one token on one rank, as `FullAttention.state_bytes`."""
        return kv_head_bytes(self.num_kv_heads, self.head_size, self.head_size_v, kv, tp)

    def row(self, kv: KvFormat, tp: int = 1, layers: int = 1) -> Row:
        """At most one chunk stays: a token attends only within its own chunk.

        Source: vLLM ``ChunkedLocalAttentionSpec``.
        """
        return Row(self.state_bytes(kv, tp) * layers, cap_tokens=self.attention_chunk_size)


class Latent(NamedTuple):
    """One compressed vector for keys and values together (multi-head latent attention)."""

    kv_lora_rank: int
    qk_rope_head_dim: int

    kind: str = "latent"

    def state_bytes(self, kv: KvFormat, tp: int = 1) -> int:  # noqa: ARG002
        """Bytes of one token: ``kv_lora_rank + qk_rope_head_dim`` elements, on every rank.

        One vector, so no factor 2, no heads, and **not divided by tp**: each rank needs it whole.
        Treating it as 128 ordinary heads makes DeepSeek-V3 25 to 70 times too large.
        Source: DeepSeek-V2, arXiv 2405.04434, section 2.1.2; vLLM ``MLAAttentionSpec``.
        """
        return kv.latent_bytes(self.kv_lora_rank, self.qk_rope_head_dim)

    def row(self, kv: KvFormat, tp: int = 1, layers: int = 1) -> Row:
        """Every token stays."""
        return Row(self.state_bytes(kv, tp) * layers)


class Indexer(NamedTuple):
    """The key that a sparse-attention indexer keeps beside a layer's cache.

    Sparse attention reads only the top tokens but stores them all; this comes on top.
    """

    index_head_dim: int
    tokens_per_state: int = 1
    """Tokens pooled into one key."""
    is_fp8: bool = True
    """False: the key stays in 16 bits (MiniMax M3)."""

    kind: str = "indexer"

    def state_bytes(self, kv: KvFormat, tp: int = 1) -> int:  # noqa: ARG002
        """Bytes of one key on every rank: fp8 codes and a float32 scale per 128 of them.

        132 bytes at the usual 128, whatever the format of the cache beside it.
        Source: vLLM ``DeepseekV32IndexerCache``; ``models/minimax_m3/common/indexer.py``.
        """
        if not self.is_fp8:
            return self.index_head_dim * 2
        return self.index_head_dim + cdiv(self.index_head_dim, 128) * 4

    def row(self, kv: KvFormat, tp: int = 1, layers: int = 1) -> Row:
        """One key for each ``tokens_per_state`` tokens."""
        return Row(self.state_bytes(kv, tp) * layers, self.tokens_per_state)


class Compressed(NamedTuple):
    """One vector for keys and values of several tokens together, or of each token of a window.

    DeepSeek-V4 keeps both in every layer: the last 128 tokens one by one, and everything in
    groups of 4 or 128.
    """

    head_size: int
    """The whole vector, its rotary part included."""
    qk_rope_head_dim: int
    tokens_per_state: int = 1
    """Tokens that one vector stands for."""
    sliding_window: int | None = None
    """Tokens beyond which nothing more is kept; None when it grows for ever."""

    kind: str = "compressed"

    def state_bytes(self, kv: KvFormat, tp: int = 1) -> int:  # noqa: ARG002
        """Bytes of one vector, on every rank: 1,024 in 16 bits at head size 512.

        Source: vLLM ``models/deepseek_v4/attention.py``.
        """
        return kv.latent_bytes(self.head_size - self.qk_rope_head_dim, self.qk_rope_head_dim)

    def row(self, kv: KvFormat, tp: int = 1, layers: int = 1) -> Row:
        """One vector for each ``tokens_per_state`` tokens, of the last ``sliding_window``."""
        return Row(self.state_bytes(kv, tp) * layers, self.tokens_per_state, self.sliding_window)


class CompressorState(NamedTuple):
    """Inputs of the group of tokens that a compressor has not closed yet, in float32.

    A vector and its gate for each of the last tokens, twice where groups overlap.
    """

    elements: int
    """Elements of one token: ``2 * head_size``, or ``4 * head_size`` for overlapping groups."""
    sliding_window: int
    """Tokens that are kept: one group, or two that overlap."""

    kind: str = "compressor_state"

    def state_bytes(self, kv: KvFormat, tp: int = 1) -> int:  # noqa: ARG002
        """Bytes of one token on every rank, whatever the KV format: float32 elements.

        Source: vLLM ``models/deepseek_v4/compressor.py``, ``CompressorStateCache``.
        """
        return self.elements * 4

    def row(self, kv: KvFormat, tp: int = 1, layers: int = 1) -> Row:
        """The tokens of the open group."""
        return Row(self.state_bytes(kv, tp) * layers, cap_tokens=self.sliding_window)


class Recurrent(NamedTuple):
    """A state of fixed size: Mamba, gated delta net, lightning, RWKV, short convolution."""

    flavour: str
    """The rule it follows, such as ``mamba2`` or ``gated_delta_net``."""
    conv_channels: int
    """Channels of the convolution, over all groups; 0 without one."""
    conv_kernel: int
    """Its width: the state holds the last ``conv_kernel - 1`` inputs of each channel."""
    state_elements: int
    """Elements of the recurrent state, a multiple of ``heads``."""
    heads: int
    """Heads (or channels) that tensor parallelism deals the recurrent state out by."""
    conv_bytes: int = 2
    """Bytes of a convolution element: the model's dtype."""
    element_bytes: int = 4
    """Bytes of a state element: float32 unless the config states its dtype."""
    is_dtype_stated: bool = False
    """The config states the state's dtype; otherwise an engine follows its own rule."""
    groups: int = 0
    """Groups of Mamba-2, whose channels are copied when they do not divide by tp; 0 for others."""
    group_channels: int = 0
    """Convolution channels of one group: its B and its C, ``2 * state_size``."""

    kind: str = "recurrent"

    def conv_elements(self, tp: int = 1) -> int:
        """Elements of the convolution state on one rank: ``channels / tp * (kernel - 1)``.

        Groups that do not divide by tp are extended to one a rank, so that each rank has the
        groups of its heads: Granite-4's single group costs 2 * 128 channels on every rank.
        Source: vLLM ``mamba_utils.py``, ``extra_groups_for_head_shards``.
        """
        extra = tp - self.groups if self.groups and self.groups % tp else 0
        channels = self.conv_channels + extra * self.group_channels
        return cdiv(channels, tp) * max(self.conv_kernel - 1, 0)

    def recurrent_elements(self, tp: int = 1) -> int:
        """Elements of the recurrent state on one rank: whole heads, at least one."""
        return self.state_elements // self.heads * cdiv(self.heads, tp)

    def splits(self, tp: int) -> bool:
        """Whether the heads and channels divide by tp, as vLLM's ``divide`` demands.

        A group need not divide, because it is extended; one that is neither divided by tp nor
        less than it cannot be.
        """
        extra = tp - self.groups if self.groups and self.groups % tp else 0
        channels = self.conv_channels + extra * self.group_channels
        return extra >= 0 and self.heads % tp == 0 and channels % tp == 0

    def state_bytes(self, kv: KvFormat, tp: int = 1) -> int:  # noqa: ARG002
        """Bytes of one sequence's state on one rank; the KV format does not touch it.

        The convolution's last ``kernel - 1`` inputs in the model's dtype and the recurrent state
        in its own, each divided over ``tp``.
        Source: Mamba, arXiv 2312.00752, section 3; vLLM ``mamba_utils.py``
        ``MambaStateShapeCalculator``.
        """
        return (
            self.conv_elements(tp) * self.conv_bytes
            + self.recurrent_elements(tp) * self.element_bytes
        )

    def row(self, kv: KvFormat, tp: int = 1, layers: int = 1) -> Row:
        """One state, whatever the length."""
        return Row(0, constant_bytes=self.state_bytes(kv, tp) * layers)


class CrossAttention(NamedTuple):
    """Keys and values of the encoder's tokens, which do not grow with the text."""

    num_kv_heads: int
    head_size: int
    head_size_v: int
    encoder_tokens: int

    kind: str = "cross_attention"

    def state_bytes(self, kv: KvFormat, tp: int = 1) -> int:
        """Bytes of one encoder token on one rank, as `FullAttention.state_bytes`."""
        return kv_head_bytes(self.num_kv_heads, self.head_size, self.head_size_v, kv, tp)

    def row(self, kv: KvFormat, tp: int = 1, layers: int = 1) -> Row:
        """A constant: the encoder's tokens."""
        return Row(0, constant_bytes=self.state_bytes(kv, tp) * self.encoder_tokens * layers)


class Shared(NamedTuple):
    """Nothing of its own: the layer reads another layer's cache."""

    kind: str = "shared"

    def state_bytes(self, kv: KvFormat, tp: int = 1) -> int:  # noqa: ARG002
        """Nothing."""
        return 0

    def row(self, kv: KvFormat, tp: int = 1, layers: int = 1) -> Row:  # noqa: ARG002
        """Nothing."""
        return Row(0)


HeadCache = FullAttention | SlidingWindow | ChunkedLocal | CrossAttention
"""Kinds that store keys and values by head."""
Cache = HeadCache | Latent | Compressed | CompressorState | Indexer | Recurrent | Shared


def kv_head_bytes(kv_heads: int, head_size: int, head_size_v: int, kv: KvFormat, tp: int) -> int:
    """Bytes of one token's keys and values on one rank of ``tp``."""
    return cdiv(kv_heads, tp) * (kv.k.row_bytes(head_size) + kv.v.row_bytes(head_size_v))


def head_sizes(cache: Cache) -> tuple[int, ...]:
    """Row lengths that a block format must divide."""
    if isinstance(cache, Latent):
        return (cache.kv_lora_rank, cache.qk_rope_head_dim)
    if isinstance(cache, Compressed):
        return (cache.head_size - cache.qk_rope_head_dim, cache.qk_rope_head_dim)
    if isinstance(cache, (FullAttention, SlidingWindow, ChunkedLocal, CrossAttention)):
        return (cache.head_size, cache.head_size_v)
    return ()
