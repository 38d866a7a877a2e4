"""What each kind of layer keeps: bytes of a state on one rank, and states by tokens."""

from __future__ import annotations

import pytest

from kvplan.model.caches import (
    Cache,
    ChunkedLocal,
    CrossAttention,
    FullAttention,
    Indexer,
    Latent,
    Recurrent,
    Shared,
    SlidingWindow,
    head_sizes,
)
from kvplan.model.rows import Row
from kvplan.precision.kv import KV_FORMATS, kv_format

BF16, FP8 = KV_FORMATS["bf16"], KV_FORMATS["fp8_e4m3"]


@pytest.mark.parametrize(
    ("tp", "size"),
    [
        (1, 4096),  # 8 heads * (128 + 128) * 2 B
        (2, 2048),
        (4, 1024),
        (8, 512),
        (16, 512),  # never less than one head: two ranks hold the same one
        (64, 512),
        (3, 1536),  # ceil(8/3) = 3 heads
    ],
)
def test_heads_divide_over_tp_down_to_one(tp: int, size: int) -> None:
    assert FullAttention(8, 128, 128).state_bytes(BF16, tp) == size
    assert SlidingWindow(8, 128, 128, 1024).state_bytes(BF16, tp) == size
    assert ChunkedLocal(8, 128, 128, 8192).state_bytes(BF16, tp) == size
    assert CrossAttention(8, 128, 128, 1500).state_bytes(BF16, tp) == size


def test_keys_and_values_of_different_size_and_format() -> None:
    assert FullAttention(1, 192, 128).state_bytes(BF16) == 640  # (192 + 128) * 2
    # keys 192/32 * 34 = 204 B, values 128/32 * 18 = 72 B, two heads
    assert FullAttention(2, 192, 128).state_bytes(kv_format("k=q8_0,v=q4_0")) == 552


def test_scales_are_counted_a_head() -> None:
    # 8 heads * 2 * (128 + 4) B; one scale for all heads together would be 2,056
    assert FullAttention(8, 128, 128).state_bytes(KV_FORMATS["int8_per_token_head"]) == 2112


def test_full_attention_keeps_every_token() -> None:
    assert FullAttention(8, 128, 128).row(BF16, 2, layers=32) == Row(65_536)  # 2,048 * 32


def test_window_and_chunk_keep_no_more_than_their_span() -> None:
    assert SlidingWindow(8, 128, 128, 1024).row(FP8, layers=3) == Row(6144, cap_tokens=1024)
    assert ChunkedLocal(8, 128, 128, 8192).row(FP8, layers=3) == Row(6144, cap_tokens=8192)


@pytest.mark.parametrize("tp", [1, 8, 128])
def test_latent_is_one_vector_whole_on_every_rank(tp: int) -> None:
    assert Latent(512, 64).state_bytes(BF16, tp) == 1152  # (512 + 64) * 2
    assert Latent(512, 64).state_bytes(FP8, tp) == 576
    assert Latent(512, 64).row(BF16, tp, layers=61) == Row(70_272)  # 1,152 * 61


def test_indexer_key_is_fp8_with_a_scale_whatever_the_cache() -> None:
    for kv in (BF16, FP8):
        assert Indexer(128).state_bytes(kv, 8) == 132  # 128 + 4
    assert Indexer(256).state_bytes(BF16) == 264  # 256 + 2 * 4
    assert Indexer(128, tokens_per_state=4).row(BF16, layers=2) == Row(264, 4)


def test_recurrent_state_is_a_constant_divided_over_tp() -> None:
    cache = Recurrent("mamba", 8, 4, 1000, heads=4)
    # convolution 8 channels * 3 inputs * 2 B = 48; state 1,000 * 4 B = 4,000
    assert cache.state_bytes(BF16) == cache.state_bytes(FP8) == 4048
    assert cache.state_bytes(BF16, tp=4) == 1012  # 2 channels, 250 elements: 12 + 1,000
    assert cache.row(BF16, layers=3) == Row(0, constant_bytes=12_144)
    assert cache._replace(element_bytes=2).state_bytes(BF16) == 2048  # 48 + 1,000 * 2
    assert cache._replace(conv_bytes=4).state_bytes(BF16) == 4096  # 96 + 4,000


def test_cross_attention_keeps_the_encoders_tokens() -> None:
    # 20 heads * (64 + 64) * 2 B * 1,500 tokens * 32 layers
    row = CrossAttention(20, 64, 64, 1500).row(BF16, layers=32)
    assert row == Row(0, constant_bytes=245_760_000)


def test_shared_keeps_nothing() -> None:
    assert Shared().state_bytes(BF16) == 0
    assert Shared().row(BF16, layers=10).bytes_for(10**6) == 0


def test_kinds_with_equal_numbers_are_different_caches() -> None:
    """Named tuples compare by value: without the kind a window would equal a chunk."""
    caches: set[Cache] = {
        SlidingWindow(8, 128, 128, 8192),
        ChunkedLocal(8, 128, 128, 8192),
        CrossAttention(8, 128, 128, 8192),
    }
    assert len(caches) == 3
    assert Latent(128, 1) != Indexer(128, 1)


def test_rows_that_a_block_format_must_divide() -> None:
    assert head_sizes(FullAttention(8, 192, 128)) == (192, 128)
    assert head_sizes(SlidingWindow(8, 64, 64, 128)) == (64, 64)
    assert head_sizes(Latent(512, 64)) == (512, 64)
    assert head_sizes(Recurrent("mamba", 8, 4, 1000, heads=4)) == ()
