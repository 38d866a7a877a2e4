"""Rows of a sweep are answers of `fit`: the same figures, monotone, and the same when read back."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np
import pytest
from builders import deployment, gpu, tiny_model
from fake_engine import FakeEngine
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan import FitReport, build_deployment, fit
from kvplan.engines.base import Settled, Term
from kvplan.errors import KvplanError
from kvplan.planning import sweep
from kvplan.planning.edges import largest_each
from kvplan.policy import load_policy
from kvplan.reports.csv_report import as_row, cell
from kvplan.sweeping.columns import BY_NAME, COLUMNS, FLAG_COLUMNS, choose
from kvplan.sweeping.grid import read_grid
from kvplan.sweeping.row_file import open_rows
from kvplan.sweeping.run import Job, parts

POLICY = load_policy()
ASKED = {column.name for column in FLAG_COLUMNS}
"""Columns that repeat what was asked: `window` of a report is the recommended one."""
EVERY_COLUMN = ",".join(column.name for column in COLUMNS)

models = st.sampled_from(
    ["llama-3.1-8b", "deepseek-v3", "gemma-3-27b", "qwen3-next-80b-a3b", "gpt-oss-20b"]
)
lengths = st.lists(st.integers(1, 2**20) | st.sampled_from([1, 7, 8, 9, 4096, 131_072]),
                   min_size=1, max_size=4, unique=True)  # fmt: skip
batches = st.lists(st.integers(1, 3000) | st.sampled_from([1, 256, 1024, 1025]),
                   min_size=1, max_size=4, unique=True)  # fmt: skip
flags = st.fixed_dictionaries(
    {
        "gpu": st.sampled_from(["h100-sxm", "l4", "a100-80g-sxm", "h200", "v100-16g-sxm"]),
        "tp": st.sampled_from([1, 2, 4, 8]),
    },
    optional={
        "engine": st.sampled_from(["vllm", "vllm@0.19", "vllm@0.10", "none", "transformers"]),
        "kv": st.sampled_from(["auto", "fp8"]),
        "pp": st.sampled_from([1, 2]),
        "dp": st.sampled_from([1, 2]),
        "prefix_tokens": st.integers(1, 5000),
        "mean_seq": st.integers(1, 5000),
        "max_model_len": st.sampled_from(["4096", "auto", "200000"]),
        "max_num_seqs": st.sampled_from([64, 2048]),
        "max_num_batched_tokens": st.sampled_from([512, 8192]),
        "gpu_memory_utilization": st.sampled_from([0.5, 0.9, 1.0]),
        "kv_cache_memory": st.sampled_from(["1GiB", "40GiB"]),
        "enforce_eager": st.just(True),
        "reserve": st.sampled_from(["1GiB"]),
        "weights": st.sampled_from(["awq", "fp8"]),
    },
)  # fmt: skip


def table(source: Any, columns: str | None = EVERY_COLUMN, **job: Any) -> list[dict[str, str]]:
    """The rows of a sweep as a spreadsheet reads them."""
    found = Job(source, tuple(choose(columns, ())), "csv", **job)
    text = b"".join(part.data for part in parts(found, 1)).decode()
    return list(csv.DictReader(io.StringIO(text, newline=""), found.names))


def as_cells(row: dict[str, Any]) -> dict[str, str]:
    """A report's row as CSV has it."""
    return {
        key: "" if value is None else str(int(value)) if isinstance(value, bool) else str(value)
        for key, value in row.items()
    }


def answer(model: str, asked: dict[str, Any]) -> tuple[FitReport | None, str]:
    """What `fit` says, or its error."""
    try:
        return fit(build_deployment(model, **asked), POLICY), ""
    except KvplanError as error:
        return None, error.message


def said(row: dict[str, str]) -> tuple[str, str, str]:
    """What a row of an impossible combination says."""
    return row["verdict"], row["needed_bytes"], row["error_message"]


@settings(max_examples=150)
@given(models, flags, lengths, batches, st.randoms(use_true_random=False))
def test_a_row_is_what_fit_says(
    model: str, asked: dict[str, Any], seqs: list[int], sizes: list[int], random: Any
) -> None:
    rows = table(read_grid([model], {**asked, "seq": seqs, "batch": sizes}))
    order = [(str(n), str(b)) for n in seqs for b in sizes]
    assert [(row["seq_len"], row["batch"]) for row in rows] == order
    for place in random.sample(range(len(rows)), min(3, len(rows))):
        seq, batch = seqs[place // len(sizes)], sizes[place % len(sizes)]
        row = rows[place]
        report, error = answer(model, {**asked, "seq": seq, "batch": batch})
        if report is None:
            assert said(row) == ("", "", cell(error))
            continue
        expected = as_cells(as_row(report))
        shared = (BY_NAME.keys() & expected.keys()) - ASKED
        assert len(shared) > 40
        assert {key: row[key] for key in shared} == {key: expected[key] for key in shared}
        assert len(row["warning_codes"].split()) <= len(report.warnings)
        assert bool(row["warning_codes"]) == bool(report.warnings)


@settings(max_examples=150)
@given(
    models,
    st.sampled_from(["h100-sxm", "l40s", "none"]),
    st.integers(1, 200_000),
    st.integers(0, 1000),
    st.integers(1, 64),
    st.integers(0, 3),
)
def test_more_is_never_less(
    model: str, gpu_name: str, seq: int, more: int, batch: int, others: int
) -> None:
    asked = {"gpu": "h100-sxm", "engine": "none"} if gpu_name == "none" else {"gpu": gpu_name}
    asked |= {"tp": "8"}
    seqs, sizes = sorted({seq, seq + more}), sorted({batch, batch + others})
    rows = table(read_grid([model], {**asked, "seq": seqs, "batch": sizes}), None)
    order = {"fits": 0, "tight": 1, "oom": 2}
    by_place = {(int(row["seq_len"]), int(row["batch"])): row for row in rows}
    for (length, size), row in by_place.items():
        for larger in ((seqs[-1], size), (length, sizes[-1])):
            next_row = by_place[larger]
            assert int(row["needed_bytes"]) <= int(next_row["needed_bytes"])
            assert order[row["verdict"]] <= order[next_row["verdict"]]
            assert int(row["max_batch"]) >= int(next_row["max_batch"])
            assert int(row["max_seq_len"]) >= int(next_row["max_seq_len"])


@settings(max_examples=40)
@given(models, st.integers(1, 100_000), st.integers(1, 64))
def test_fewer_bits_never_need_more(model: str, seq: int, batch: int) -> None:
    asked = {"gpu": "h100-sxm", "engine": "none", "kv": "bf16,fp8,q4_0,fp32"}
    rows = table(read_grid([model], {**asked, "seq": [seq], "batch": [batch]}), None)
    found = [row for row in rows if not row["error"]]
    found.sort(key=lambda row: float(row["kv_cache_bits"]))
    needed = [int(row["needed_bytes"]) for row in found]
    assert len(found) >= 3
    assert needed == sorted(needed)


@settings(max_examples=20)
@given(models, st.sampled_from(["none", "vllm"]), lengths, batches)
def test_written_and_read_back_is_the_same_grid(
    tmp_path_factory: pytest.TempPathFactory, model: str, engine: str, seqs: list[int],
    sizes: list[int],
) -> None:  # fmt: skip
    chosen = ",".join(
        column.name
        for column in choose(None, ())
        # What the engine chose would be stated when read back, and bind max_batch.
        if column.name not in {"max_num_seqs", "max_num_batched_tokens", "max_model_len"}
    )
    asked = {"gpu": "h100-sxm,l4", "tp": "1,8", "engine": engine, "seq": seqs, "batch": sizes}
    grid = read_grid([model], asked)
    job = Job(grid, tuple(choose(chosen, ())), "csv")
    text = b"".join(part.data for part in parts(job, 1)).decode()
    path = tmp_path_factory.mktemp("grid") / "grid.csv"
    path.write_text(",".join(job.names) + "\r\n" + text, encoding="utf-8", newline="")
    back = job._replace(source=open_rows(str(path), None, {}))
    assert back.names == job.names  # nothing is left to pass through
    assert b"".join(part.data for part in parts(back, 1)).decode() == text


@given(
    st.lists(st.integers(0, 2000), min_size=1, max_size=20),
    st.lists(st.integers(-10, 3000), min_size=20, max_size=20),
    st.integers(1, 1500),
)
def test_edges_found_together_are_the_edges(edge: list[int], guess: list[int], limit: int) -> None:
    edges = np.array(edge, dtype=np.int64)
    start = np.array(guess[: edges.size], dtype=np.int64)
    found = largest_each(lambda which, value: value <= edges[which], start, limit)
    assert found.tolist() == [min(value, limit) for value in edge]


class Whimsical(FakeEngine):
    """An engine whose terms follow the batch beyond 4 and the length below 10."""

    def settled(self, deployment: Any) -> Settled:
        return Settled(10, 50, 4)

    def overheads(self, deployment: Any, stage: int) -> list[Term]:
        size = 1000 * max(4, deployment.replica_batch) + 10 * min(10, deployment.seq_len)
        return [Term("activation", size, size, 2 * size, "a test")]


@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=6, unique=True),
    st.lists(st.integers(1, 9), min_size=1, max_size=6, unique=True),
    st.integers(10_000, 400_000),
)
def test_pieces_cover_every_row_once_with_settings_of_their_own(
    seqs: list[int], sizes: list[int], claim: int
) -> None:
    engine = Whimsical(claim + 328_832)
    asked = deployment(tiny_model(), gpu=gpu(1.0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep, "load_engine", lambda name: engine)
        patch.setattr("kvplan.planning.fit.load_engine", lambda name: engine)
        swept = sweep.LoadSweep(asked, POLICY)
        grid = list(swept.pieces(np.array(seqs)[:, None], np.array(sizes)[None, :]))
        pairs = [(n, b) for n in seqs for b in sizes]
        columns = np.array(pairs)
        listed = list(swept.pieces(columns[:, :1], columns[:, 1:]))
    for pieces, place in (
        (grid, lambda row, column: (seqs[row], sizes[column])),
        (listed, lambda row, column: pairs[row]),
    ):
        seen = {}
        for piece in pieces:
            for row in piece.rows:
                for column in piece.columns:
                    key = place(row, column)
                    assert key not in seen
                    seen[key] = piece.cells["activation_bytes"]
        assert seen == {(n, b): 1000 * max(4, b) + 10 * min(10, n) for n, b in pairs}
