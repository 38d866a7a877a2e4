"""A grid's order, its size and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kvplan.errors import InputError, MalformedFile
from kvplan.sweeping.grid import Grid, Span, read_grid, spans
from kvplan.sweeping.grid_file import read_grid_file

FLAGS: dict[str, Any] = {"gpu": ["h100-sxm,l4"], "seq": ["4k,8k"], "batch": ["1..3"]}


def test_model_varies_slowest_and_batch_fastest() -> None:
    grid = read_grid(["llama-3.1-8b,llama-2-7b"], {**FLAGS, "tp": ["1,2"], "kv": ["auto,fp8"]})
    assert (grid.configurations, grid.rows_each, grid.rows) == (16, 6, 96)
    names = [grid.configuration(number) for number in range(16)]
    assert [name.model for name in names] == ["llama-3.1-8b"] * 8 + ["llama-2-7b"] * 8
    assert [name.flags["gpu"] for name in names[:8]] == ["h100-sxm"] * 4 + ["l4"] * 4
    assert [name.flags["tp"] for name in names[:4]] == [1, 1, 2, 2]
    assert [name.flags["kv"] for name in names[:4]] == ["auto", "fp8"] * 2


def test_settings_and_switches_are_axes() -> None:
    grid = read_grid(
        ["llama-3.1-8b"],
        {**FLAGS, "gpu": ["l4"], "set": ["num_kv_heads=4,8"], "enforce_eager": ["true", "false"]},
    )
    assert [grid.configuration(number).flags for number in range(4)] == [
        {"gpu": "l4", "set": [f"num_kv_heads={heads}"], "enforce_eager": eager}
        for heads in (4, 8)
        for eager in (True, False)
    ]


@pytest.mark.parametrize("block_rows", [1, 2, 3, 4, 6, 7, 1000])
@pytest.mark.parametrize(("lengths", "batches"), [(1, 1), (3, 2), (2, 7), (5, 1)])
def test_spans_are_all_rows_in_order(block_rows: int, lengths: int, batches: int) -> None:
    grid = Grid([], range(1, lengths + 1), range(1, batches + 1))
    grid.configurations = 3
    seen = []
    for part in spans(grid, block_rows):
        for span in part:
            assert span.rows <= max(block_rows, 1)
            seen += [
                (span.configuration, row, column)
                for row in range(*span.lengths)
                for column in range(*span.batches)
            ]
    assert seen == [
        (n, row, column) for n in range(3) for row in range(lengths) for column in range(batches)
    ]
    assert Span(0, (2, 4), (1, 6)).rows == 10


def test_too_many_rows_are_counted_and_refused() -> None:
    with pytest.raises(InputError) as caught:
        read_grid(["llama-3.1-8b"], {"gpu": ["l4"], "seq": ["1..1M"], "batch": ["1..1000000"]})
    assert caught.value.message == (
        "the grid has 1,048,576,000,000 rows (seq 1,048,576 x batch 1,000,000); "
        "at most 100,000,000 are made"
    )
    assert caught.value.hint is not None
    assert "--seq" in caught.value.hint


@pytest.mark.parametrize(
    ("models", "changes", "message"),
    [
        ([], {}, "no model was named"),
        (["llama-3.1-8b"], {"gpu": None}, "no GPU was named"),
        (["no-such-model"], {}, "no-such-model"),
        (["llama-3.1-8b"], {"gpu": ["h1000"]}, "h1000"),
        (["llama-3.1-8b"], {"kv": ["fp8,fp9"]}, "fp9"),
        (["llama-3.1-8b"], {"weights": ["awq,awk"]}, "awk"),
        (["llama-3.1-8b"], {"engine": ["vllm,vlllm@0.1"]}, "vlllm"),
        (["llama-3.1-8b"], {"enforce_eager": ["maybe"]}, "maybe"),
        (["llama-3.1-8b,"], {}, "empty value"),
    ],
)
def test_misspelt_names_are_errors_and_no_rows(
    models: list[str], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(Exception, match=message):
        read_grid(models, {**FLAGS, **changes})


def test_grid_file(tmp_path: Path) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text(
        "model: [llama-3.1-8b, llama-2-7b]\ngpu: l4\nseq: 4k..8k:4k\nbatch: [1, 2..4]\n"
        "gpu-memory-utilization: 0.9\nenforce_eager: [true, false]\nset: {num_kv_heads: [4, 8]}\n"
    )
    models, flags = read_grid_file(str(path))
    assert models == ["llama-3.1-8b", "llama-2-7b"]
    assert flags == {
        "gpu": ["l4"],
        "seq": ["4k..8k:4k"],
        "batch": ["1", "2..4"],
        "gpu_memory_utilization": ["0.9"],
        "enforce_eager": ["true", "false"],
        "set": ["num_kv_heads=4", "num_kv_heads=8"],
    }
    assert read_grid(models, flags).rows == 2 * 2 * 2 * 2 * 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpus: []", "gpus is an empty list"),
        ("sequence: 4k", "'sequence' is not a flag"),
        ("seq: {a: 1}", "seq must be a value, a list of them or a range"),
        ("seq: [null]", "seq must be"),
    ],
)
def test_bad_grid_file(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text(text)
    with pytest.raises(MalformedFile, match=message):
        read_grid_file(str(path))
