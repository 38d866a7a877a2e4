"""Filters: a small language that is read and never run."""

from __future__ import annotations

import numpy as np
import pytest

from kvplan.errors import InputError
from kvplan.planning.piece import Coded
from kvplan.sweeping.blocks import Block
from kvplan.sweeping.where import parse_where

UNKNOWN = np.array([[None], [5]], dtype=object)
BLOCK = Block(
    2,
    3,
    {
        "verdict": Coded(("fits", "oom"), np.array([[0, 0, 1], [0, 1, 1]])),
        "headroom_bytes": np.array([[3 << 30, 1 << 30, -5], [2 << 30, 0, -9]]),
        "batch": np.array([[1, 2, 4]]),
        "seq_len": np.array([[1024], [32768]]),
        "gpu": "l40s",
        "tp": 4,
        "pool_tokens": None,
        "max_batch": UNKNOWN,
        "kv_cache_dtype": "k=q8_0,v=q4_0",
    },
)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("verdict == fits", [0, 1, 3]),
        ("verdict==fits", [0, 1, 3]),
        ("verdict != fits", [2, 4, 5]),
        ("verdict == fits and headroom_bytes > 1GiB", [0, 3]),
        ("headroom_bytes >= 1073741824", [0, 1, 3]),
        ("headroom_bytes<0 or batch==1", [0, 2, 3, 5]),
        ("not batch >= 2", [0, 3]),
        ("not (batch == 1 or batch == 4)", [1, 4]),
        ("batch == 1 or batch == 2 and seq_len > 1k", [0, 3, 4]),  # and binds tighter
        ("seq_len == 32k", [3, 4, 5]),
        ("gpu == 'l40s' and tp <= 4", [0, 1, 2, 3, 4, 5]),
        ("gpu == h100-sxm", []),
        ("pool_tokens > 0", []),
        ("max_batch >= 0", [3, 4, 5]),  # an unknown cell is not
        ('kv_cache_dtype == "k=q8_0,v=q4_0"', [0, 1, 2, 3, 4, 5]),
        ("batch < 2.5", [0, 1, 3, 4]),
    ],
)
def test_rows_that_pass(text: str, rows: list[int]) -> None:
    where = parse_where(text)
    mask = np.broadcast_to(where(BLOCK), (2, 3))
    assert np.flatnonzero(mask).tolist() == rows
    assert BLOCK.masked(where(BLOCK)).size == len(rows)
    assert where.columns <= BLOCK.cells.keys()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the end where a column was expected"),
        ("verdict", "the end where a comparison"),
        ("verdict ==", "the end where a value was expected"),
        ("verdict = fits", "'=' where"),
        ("verdicts == fits", "'verdicts' is not a column"),
        ("verdict > fits", "verdict is text: compare it with == or !="),
        ("batch == many", "--where batch 'many' is not a number of tokens"),
        ("headroom_bytes > 1G", "can mean two sizes"),
        ("(batch == 1", "the end where a closing bracket was expected"),
        ("batch == 1)", "')' where and, or, or the end was expected"),
        ("batch == 1 batch == 2", "'batch' where and, or, or the end"),
        ("__import__('os').system('x') == 1", "is not a column"),
        ("batch.real == 1", "'batch.real' is not a column"),
        ("batch == 1; batch", "';' where"),
        ("(" * 100 + "batch == 1" + ")" * 100, "nested too deeply"),
        ("not " * 100 + "batch == 1", "nested too deeply"),
    ],
)
def test_what_is_no_filter(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_where(text)
    assert message in caught.value.message
