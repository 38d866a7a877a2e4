"""The state of recurrent layers on one rank, against the shapes that vLLM 0.33 computes."""

from __future__ import annotations

import pytest

from kvplan.model.caches import Recurrent
from kvplan.precision.kv import KV_FORMATS

BF16 = KV_FORMATS["bf16"]
GRANITE_H_SMALL = Recurrent(
    "mamba2", 128 * 64 + 2 * 128, 4, 128 * 64 * 128, 128, groups=1, group_channels=256
)
NEMOTRON_NANO_9B = Recurrent(
    "mamba2", 128 * 80 + 2 * 8 * 128, 4, 128 * 80 * 128, 128, groups=8, group_channels=256
)
QWEN3_NEXT = Recurrent("gated_delta_net", 8192, 4, 32 * 128 * 128, 32)
KIMI_LINEAR = Recurrent("kda", 12_288, 4, 32 * 128 * 128, 32)
JAMBA_MINI = Recurrent("mamba1", 8192, 4, 8192 * 16, 8192)


@pytest.mark.parametrize(
    ("state", "tp", "conv", "recurrent"),
    [
        (GRANITE_H_SMALL, 1, 3 * 8448, 128 * 64 * 128),
        (GRANITE_H_SMALL, 2, 3 * 4352, 64 * 64 * 128),  # the group is on both ranks
        (GRANITE_H_SMALL, 8, 3 * 1280, 16 * 64 * 128),
        (NEMOTRON_NANO_9B, 4, 3 * 3072, 32 * 80 * 128),  # two of eight groups on each
        (NEMOTRON_NANO_9B, 8, 3 * 1536, 16 * 80 * 128),
        (QWEN3_NEXT, 1, 3 * 8192, 32 * 128 * 128),
        (QWEN3_NEXT, 8, 3 * 1024, 4 * 128 * 128),
        (KIMI_LINEAR, 4, 3 * 3072, 8 * 128 * 128),
        (JAMBA_MINI, 2, 3 * 4096, 4096 * 16),
    ],
)
def test_a_rank_holds_its_heads_and_their_channels(
    state: Recurrent, tp: int, conv: int, recurrent: int
) -> None:
    assert (state.conv_elements(tp), state.recurrent_elements(tp)) == (conv, recurrent)
    assert state.splits(tp)


def test_bytes_are_the_models_dtype_and_float32() -> None:
    assert QWEN3_NEXT.state_bytes(BF16) == 3 * 8192 * 2 + 32 * 128 * 128 * 4  # 2,146,304
    assert QWEN3_NEXT.row(BF16, layers=36).bytes_for(1) == 77_266_944
    assert QWEN3_NEXT.row(BF16, layers=36).bytes_for(10**6) == 77_266_944
    halved = QWEN3_NEXT._replace(element_bytes=2, is_dtype_stated=True)
    assert halved.state_bytes(BF16) == 3 * 8192 * 2 + 32 * 128 * 128 * 2  # 1,097,728


def test_heads_that_do_not_divide_are_said_not_to() -> None:
    assert not QWEN3_NEXT.splits(3)
    assert not NEMOTRON_NANO_9B.splits(3)


def test_without_a_convolution_only_the_matrix_counts() -> None:
    lightning = Recurrent("lightning", 0, 1, 64 * 128 * 128, 64)
    assert lightning.conv_elements() == 0
    assert lightning.row(BF16, layers=70).constant_bytes == 293_601_280  # MiniMax-Text-01
