"""`kvplan.sweep` from Python."""

from __future__ import annotations

import pytest

import kvplan
from kvplan.errors import InputError


def test_rows_are_dictionaries() -> None:
    rows = list(kvplan.sweep("llama-3.1-8b", gpu=["l4", "h100-sxm"], seq="4k..8k:4k", batch=2))
    assert [(row["gpu"], row["seq_len"]) for row in rows] == [
        ("l4", 4096), ("l4", 8192), ("h100-sxm", 4096), ("h100-sxm", 8192)
    ]  # fmt: skip
    report = kvplan.fit(kvplan.build_deployment("llama-3.1-8b", gpu="l4", seq=8192, batch=2))
    assert rows[1]["headroom_bytes"] == report.memory.headroom_bytes
    assert rows[1]["verdict"] == report.verdict == "fits"
    assert rows[1]["error"] is None


def test_filters_and_columns() -> None:
    rows = kvplan.sweep(
        ["llama-3.1-8b"], gpu="l4", seq="4k,128k", tp="1,3", columns="tp,seq_len,verdict",
        where="verdict != oom", only_valid=True,
    )  # fmt: skip
    assert list(rows) == [{"tp": 1, "seq_len": 4096, "verdict": "fits"}]


def test_bad_grid() -> None:
    with pytest.raises(InputError):
        next(kvplan.sweep("llama-3.1-8b", gpu="l4", seqs="4k"))
