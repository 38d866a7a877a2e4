"""vLLM's blocks by hand: windows with tokens in flight, groups, padding, pages made alike."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from builders import cache_model, deployment

from kvplan.deployment import Deployment, EngineArgs
from kvplan.engines import load_engine
from kvplan.engines.base import KvLayout
from kvplan.errors import UnsupportedCombination
from kvplan.model.caches import (
    Cache,
    ChunkedLocal,
    FullAttention,
    Indexer,
    Latent,
    Shared,
    SlidingWindow,
)
from kvplan.precision.kv import kv_format

ENGINE = load_engine("vllm")
FULL = FullAttention(16, 128, 128)  # 16 * 256 * 2 B = 8,192 B a token
WINDOW = SlidingWindow(16, 128, 128, 1024)
PAGE = 131_072  # 8,192 B * 16 tokens
FIVE_TO_ONE = ([WINDOW] * 5 + [FULL]) * 10 + [WINDOW] * 2  # Gemma-3-27B: 10 full, 52 sliding


def resolved(caches: Iterable[Cache], **changes: object) -> Deployment:
    args = {"block_size": 16, "max_num_batched_tokens": 8192, "async_scheduling": False}
    names = set(EngineArgs._fields)
    args |= {name: value for name, value in changes.items() if name in names}
    rest = {name: value for name, value in changes.items() if name not in names}
    model = cache_model([(cache,) for cache in caches])
    d = deployment(model, engine="vllm", seq_len=131_072, **rest)  # type: ignore[arg-type]
    return ENGINE.resolve(d._replace(args=EngineArgs(**args)))  # type: ignore[arg-type]


def layout(caches: Iterable[Cache], stage: int = 0, **changes: object) -> KvLayout:
    return ENGINE.kv_layout(resolved(caches, **changes), stage)


def groups(kv: KvLayout) -> list[tuple[str, int, int]]:
    return [(group.kind, group.layers, group.block_tokens) for group in kv.groups]


def test_full_attention_is_one_group() -> None:
    kv = layout([FULL] * 32)
    assert groups(kv) == [("full", 32, 16)]
    assert kv.block_bytes == 32 * PAGE
    assert [kv.sequence_blocks(n) for n in (1, 16, 17, 131_072)] == [1, 1, 2, 8192]
    assert kv.held_blocks == 1  # the null block


def test_block_size_is_the_tokens_of_a_block() -> None:
    kv = layout([FULL] * 32, block_size=64)
    assert kv.block_bytes == 32 * 8192 * 64
    assert kv.sequence_blocks(65) == 2


def test_heads_divide_over_tp() -> None:
    assert layout([FULL] * 32, tp=4).block_bytes == 8 * PAGE  # 32 layers * 131,072 / 4
    assert layout([FULL] * 32, tp=32).block_bytes == 2 * PAGE  # 16 heads: no less than one each


def test_window_keeps_the_tokens_in_flight_and_may_straddle_a_block() -> None:
    kv = layout([WINDOW] * 32)
    # ceil((1,024 - 1 + 8,192) / 16) + 1 = 576 + 1
    assert kv.sequence_blocks(131_072) == 577
    assert kv.sequence_blocks(9215) == 577
    assert kv.sequence_blocks(9200) == 576  # 575 + 1: not yet capped
    assert kv.sequence_blocks(1) == 2


@pytest.mark.parametrize(("window", "blocks"), [(1025, 577), (1026, 578)])
def test_window_counts_the_token_being_made_once(window: int, blocks: int) -> None:
    # (1,025 - 1 + 8,192) / 16 = 576 whole blocks; one token more begins another
    assert layout([SlidingWindow(16, 128, 128, window)]).sequence_blocks(131_072) == blocks


def test_scheduling_ahead_holds_a_second_batch_in_flight() -> None:
    # ceil((1,023 + 2 * 8,192) / 16) + 1 = 1,088 + 1
    assert layout([WINDOW] * 32, async_scheduling=True).sequence_blocks(131_072) == 1089


def test_pipeline_stages_hold_more_batches_in_flight() -> None:
    # two stages: ceil((1,023 + 2 * 8,192) / 16) + 1; ahead of them one batch more:
    # ceil((1,023 + 3 * 8,192) / 16) + 1 = 1,600 + 1
    assert layout([WINDOW] * 32, pp=2).sequence_blocks(131_072) == 1089
    assert layout([WINDOW] * 32, pp=2, async_scheduling=True).sequence_blocks(131_072) == 1601


def test_chunk_keeps_itself_and_the_tokens_in_flight() -> None:
    kv = layout([ChunkedLocal(8, 128, 128, 8192)] * 4)
    assert kv.sequence_blocks(131_072) == 1024  # (8,192 + 8,192) / 16, and no block more
    assert kv.sequence_blocks(100) == 7


def test_groups_have_as_many_layers_as_the_rarest_kind() -> None:
    kv = layout(FIVE_TO_ONE)
    # 10 full layers are one group; 52 windows are ceil(52/10) = 6 groups of 8 or 9
    assert sorted(groups(kv)) == [
        ("full", 10, 16),
        *[("sliding_window", 8, 16)] * 2,
        *[("sliding_window", 9, 16)] * 4,
    ]
    assert kv.block_bytes == 10 * PAGE  # the largest group's pages; the others are filled up
    # 8,192 blocks of the full group and 577 of each of 6 others
    assert kv.sequence_blocks(131_072) == 8192 + 6 * 577


def test_equal_numbers_pair_up() -> None:
    kv = layout([SlidingWindow(8, 64, 64, 128), FullAttention(8, 64, 64)] * 18)
    assert sorted(groups(kv)) == [("full", 18, 16), ("sliding_window", 18, 16)]
    assert kv.block_bytes == 18 * 32_768  # 8 * 128 * 2 B * 16 tokens
    # ceil((127 + 8,192) / 16) + 1 = 521
    assert kv.sequence_blocks(131_072) == 8192 + 521


@pytest.mark.parametrize(
    ("windows", "block_pages", "number"),
    [
        (10, 10, 2),
        (14, 14, 2),  # less than 1.5 times as many: the larger number, the full group filled up
        (15, 10, 3),  # 1.5 times: groups of ten, the last filled up
        (20, 10, 3),
        (21, 10, 4),
    ],
)
def test_numbers_that_are_near_are_padded(windows: int, block_pages: int, number: int) -> None:
    kv = layout([FULL] * 10 + [WINDOW] * windows)
    assert len(kv.groups) == number
    assert kv.block_bytes == block_pages * PAGE
    assert kv.sequence_blocks(131_072) == 8192 + (number - 1) * 577


def test_hybrid_manager_off_keeps_windows_in_full() -> None:
    kv = layout(FIVE_TO_ONE, disable_hybrid_kv_cache_manager=True)
    assert groups(kv) == [("full", 62, 16)]
    assert kv.block_bytes == 62 * PAGE == 8_126_464
    assert kv.sequence_blocks(131_072) == 8192


def test_hybrid_manager_off_leaves_a_model_of_windows_alone() -> None:
    kv = layout([WINDOW] * 32, disable_hybrid_kv_cache_manager=True)
    assert kv.sequence_blocks(131_072) == 577


def test_smaller_page_gets_a_longer_block() -> None:
    half = SlidingWindow(8, 128, 128, 1024)  # 4,096 B a token
    kv = layout([FULL] * 4 + [half] * 4)
    assert sorted(groups(kv)) == [("full", 4, 16), ("sliding_window", 4, 32)]
    assert kv.block_bytes == 4 * PAGE
    # ceil(9,215 / 32) + 1 = 289
    assert kv.sequence_blocks(131_072) == 8192 + 289


def test_page_that_does_not_divide_is_padded() -> None:
    odd = SlidingWindow(12, 128, 128, 1024)  # 6,144 B a token: 98,304 B a page
    kv = layout([FULL] * 4 + [odd] * 4)
    assert sorted(groups(kv)) == [("full", 4, 16), ("sliding_window", 4, 16)]
    assert kv.block_bytes == 4 * PAGE


def test_two_windows_of_different_length_are_different_groups() -> None:
    kv = layout([WINDOW] * 4 + [SlidingWindow(16, 128, 128, 4096)] * 4)
    # 577, and ceil((4,095 + 8,192) / 16) + 1 = 769
    assert kv.sequence_blocks(131_072) == 577 + 769


def test_groups_are_made_over_the_whole_model_and_cut_by_stage() -> None:
    caches = [FULL] * 4 + [WINDOW] * 4  # all full layers are on the first of two stages
    first, last = (layout(caches, stage, pp=2) for stage in (0, 1))
    assert first.block_bytes == last.block_bytes == 4 * PAGE
    assert first.sequence_blocks(131_072) == last.sequence_blocks(131_072) == 8192 + 1089


def test_uneven_stages_have_blocks_of_different_size() -> None:
    sizes = [layout([FULL] * 61, stage, pp=2).block_bytes for stage in (0, 1)]
    assert sizes == [31 * PAGE, 30 * PAGE]


def test_latent_cache_is_whole_on_every_rank() -> None:
    for tp in (1, 8):
        kv = layout([Latent(512, 64)] * 61, tp=tp)
        assert kv.block_bytes == 61 * 1152 * 16 == 1_124_352


def test_indexer_shares_the_block_of_its_latent_cache() -> None:
    model = cache_model([(Latent(512, 64), Indexer(128))] * 61)
    d = resolved([FULL])._replace(model=model)
    kv = ENGINE.kv_layout(d._replace(args=d.args._replace(block_size=64)), 0)
    assert kv.block_bytes == 61 * (1152 + 132) * 64
    assert kv.sequence_blocks(131_072) == 2048


def test_shared_layers_take_nothing() -> None:
    kv = layout([FULL] * 4 + [Shared()] * 12)
    assert kv.block_bytes == 4 * PAGE
    assert groups(kv) == [("full", 4, 16)]


def test_page_beside_a_latent_one_is_padded_to_it() -> None:
    # 576 * 2 B * 16 = 18,432 B; the window's own page is 160 * 2 B * 16 = 5,120 B
    kv = layout([Latent(512, 64), SlidingWindow(1, 80, 80, 1024)])
    assert kv.block_bytes == 18_432
    assert kv.sequence_blocks(131_072) == 8192 + 577


def test_latent_page_is_never_padded() -> None:
    # the window's page is 5 * 256 * 2 B * 16 = 40,960 B: 2.2 latent pages
    with pytest.raises(UnsupportedCombination, match="one page size"):
        layout([Latent(512, 64), SlidingWindow(5, 128, 128, 1024)])


@pytest.mark.parametrize(
    ("text", "token_bytes"),
    [
        ("fp8", 4096),  # 16 heads * 256 B
        ("int8_per_token_head", 4224),  # 16 * (256 + 8)
        ("int4_per_token_head", 2176),  # 16 * (128 + 8)
        ("nvfp4", 2304),  # 16 * 144
    ],
)
def test_quantised_block(text: str, token_bytes: int) -> None:
    kv = layout([FULL] * 32, kv=kv_format(text), kv_is_stated=True)
    assert kv.block_bytes == 32 * token_bytes * 16


def test_figures_that_vllm_prints() -> None:
    d = resolved([FULL] * 32)
    kv = ENGINE.kv_layout(d, 0)
    pool = 10_000 * 32 * PAGE + 5
    figures = ENGINE.pool_figures(d, kv, pool)
    # 10,000 blocks, the null block among them, over 8,192 of one request of 131,072 tokens
    assert figures.max_concurrency == 10_000 / 8192
    assert figures.tokens == 160_000  # int(1.220703125 * 131,072)
    # what sequences can use has one block less
    assert kv.available_bytes(pool) == 9999 * 32 * PAGE
