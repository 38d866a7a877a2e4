"""KV bytes as rows: a constant, a rate by unit, a cap; one length or many; and solved backwards."""

from __future__ import annotations

import numpy as np
import pytest

from kvplan.errors import InputError
from kvplan.model.rows import Row, largest_tokens, sequence_bytes, slope_bytes

PLAIN = Row(131_072)
BLOCKS = Row(2_097_152, unit_tokens=16)  # blocks of 16 tokens
WINDOW = Row(8192, cap_tokens=1024)
STATE = Row(0, constant_bytes=5_000_000)
MIXED = Row(10, unit_tokens=4, cap_tokens=6, constant_bytes=100)


@pytest.mark.parametrize(
    ("row", "tokens", "size"),
    [
        (PLAIN, 0, 0),
        (PLAIN, 32_768, 4_294_967_296),  # 131,072 * 32,768
        (BLOCKS, 1, 2_097_152),
        (BLOCKS, 16, 2_097_152),
        (BLOCKS, 17, 4_194_304),
        (WINDOW, 1000, 8_192_000),
        (WINDOW, 1024, 8_388_608),
        (WINDOW, 131_072, 8_388_608),  # no more than the window
        (STATE, 1, 5_000_000),
        (STATE, 10**9, 5_000_000),
        (MIXED, 0, 100),
        (MIXED, 4, 110),  # 100 + 10 * ceil(4/4)
        (MIXED, 5, 120),  # 100 + 10 * ceil(5/4)
        (MIXED, 99, 120),  # min(99, 6) = 6 tokens: ceil(6/4) = 2 units
    ],
)
def test_bytes_of_a_row(row: Row, tokens: int, size: int) -> None:
    assert row.bytes_for(tokens) == size


def test_slope_is_what_one_more_token_costs() -> None:
    assert PLAIN.slope(1) == 131_072
    assert BLOCKS.slope(1) == 131_072  # 2,097,152 / 16
    assert Row(10, unit_tokens=4).slope(1) == 3  # 2.5 rounded up
    assert (WINDOW.slope(1023), WINDOW.slope(1024)) == (8192, 0)
    assert STATE.slope(7) == 0
    assert slope_bytes((PLAIN, WINDOW, STATE), 10) == 131_072 + 8192
    assert slope_bytes((PLAIN, WINDOW, STATE), 5000) == 131_072


def test_sequence_is_the_sum_of_its_rows() -> None:
    # 131,072 * 2,000 + 8,192 * 1,024 + 5,000,000
    assert sequence_bytes((PLAIN, WINDOW, STATE), 2000) == 275_532_608
    assert sequence_bytes((), 2000) == 0


def test_array_of_lengths() -> None:
    tokens = np.array([0, 1, 4, 5, 6, 7, 10**6], dtype=np.int64)
    got = sequence_bytes((MIXED, Row(3)), tokens)
    # 100 + 10 * ceil(min(n, 6) / 4) + 3 n
    assert got.tolist() == [100, 113, 122, 135, 138, 141, 3_000_120]
    assert got.dtype == np.int64
    assert sequence_bytes((MIXED,), np.array([], dtype=np.int64)).tolist() == []


def test_narrow_integers_do_not_wrap() -> None:
    tokens = np.array([32_768], dtype=np.int32)
    assert sequence_bytes((PLAIN,), tokens).tolist() == [4_294_967_296]  # beyond 32 bits


def test_beyond_64_bits_is_an_error_and_never_a_wrap() -> None:
    row = Row(2**40)
    assert sequence_bytes((row,), 2**23 - 1) == 2**63 - 2**40
    for tokens in (2**23, np.array([1, 2**23], dtype=np.int64)):
        with pytest.raises(InputError, match=r"more than 2\*\*63 - 1 bytes"):
            sequence_bytes((row,), tokens)
    with pytest.raises(InputError):
        sequence_bytes((Row(2**62), Row(2**62)), 1)  # only together


@pytest.mark.parametrize(
    "rows",
    [
        (PLAIN,),
        (BLOCKS,),
        (MIXED,),
        (Row(7, 3), Row(5, 2, cap_tokens=9), Row(0, constant_bytes=11)),
        (Row(1000, cap_tokens=5), Row(1, 16)),
    ],
)
def test_longest_sequence_by_trying_every_length(rows: tuple[Row, ...]) -> None:
    limit = 60
    for budget in [*range(0, 400, 7), 4999, 5001, 5003, 10**7, 10**8]:
        fitting = [n for n in range(1, limit + 1) if sum(r.bytes_for(n) for r in rows) <= budget]
        assert largest_tokens(rows, budget, limit) == max(fitting, default=0), budget


def test_longest_sequence() -> None:
    assert largest_tokens((PLAIN,), 16 * 2**30) == 131_072  # 16 GiB / 131,072
    assert largest_tokens((PLAIN,), 16 * 2**30 - 1) == 131_071
    assert largest_tokens((BLOCKS,), 3 * 2_097_152 - 1) == 32  # two whole blocks of 16
    assert largest_tokens((WINDOW,), 8_388_608) == 2**40  # a full window is never exceeded
    assert largest_tokens((WINDOW,), 8_388_607) == 1023
    assert largest_tokens((STATE,), 4_999_999) == 0
    assert largest_tokens((PLAIN,), -1) == 0
    assert largest_tokens((), 0) == 2**40
