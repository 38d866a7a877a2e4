"""``kvplan sweep`` as a person runs it: files, pipes, stops, and what is refused."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from kvplan import build_deployment, fit

from .conftest import COMMAND, Kvplan, environment

SMALL = ("sweep", "llama-3.1-8b", "--gpu", "h100-sxm,l4", "--seq", "4k,32k", "--batch", "1..3")
LARGE = ("sweep", "llama-3.1-8b", "--gpu", "h100-sxm", "--seq", "1k..2000k:1k", "--batch",
         "1..200")  # fmt: skip
LARGE_ROWS = 400_000


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))


def test_a_row_a_configuration(kvplan: Kvplan) -> None:
    run = kvplan(*SMALL)
    assert (run.code, run.err) == (0, "")
    found = rows(run.out)
    assert [(row["gpu"], row["seq_len"], row["batch"]) for row in found] == [
        (gpu, seq, batch)
        for gpu in ("h100-sxm", "l4")
        for seq in ("4096", "32768")
        for batch in ("1", "2", "3")
    ]
    report = fit(build_deployment("llama-3.1-8b", gpu="l4", seq="32k", batch=3))
    assert int(found[-1]["headroom_bytes"]) == report.memory.headroom_bytes
    assert float(found[-1]["kv_share"]) == report.memory.kv_share
    assert found[-1]["verdict"] == report.verdict


def test_combinations_that_cannot_be_are_rows(kvplan: Kvplan) -> None:
    words = ("sweep", "llama-3.1-8b", "--gpu", "h100-sxm", "--tp", "1,3", "--kv", "auto,q8_0",
             "--seq", "1k", "--columns", "tp,kv_cache_dtype,seq_len,verdict,error")  # fmt: skip
    run = kvplan(*words)
    assert run.code == 0
    assert [(row["tp"], row["error"]) for row in rows(run.out)] == [
        ("1", ""),
        ("1", "unsupported_combination"),
        ("3", "unsupported_combination"),
        ("3", "unsupported_combination"),
    ]
    valid = kvplan(*words, "--only-valid")
    assert [row["tp"] for row in rows(valid.out)] == ["1"]
    where = kvplan(*words, "--where", "error == unsupported_combination and tp == 1")
    assert len(rows(where.out)) == 1


def test_without_seq_it_is_the_native_context(kvplan: Kvplan) -> None:
    run = kvplan("sweep", "llama-3.1-8b,llama-2-7b", "--gpu", "h100-sxm", "--columns", "seq_len")
    assert run.out == "seq_len\r\n131072\r\n4096\r\n"


def test_set_flags_are_columns(kvplan: Kvplan) -> None:
    run = kvplan("sweep", "llama-3.1-8b", "--gpu", "l4", "--seq", "1k", "--set",
                 "num_kv_heads=4,8", "--mean-seq", "500")  # fmt: skip
    found = rows(run.out)
    assert [row["set"] for row in found] == ["num_key_value_heads=4", "num_key_value_heads=8"] or [
        row["set"] for row in found
    ] == ["num_kv_heads=4", "num_kv_heads=8"]
    # 32 layers x 4 or 8 heads x (128 + 128) elements x 2 B
    assert [row["bytes_per_token"] for row in found] == ["65536", "131072"]
    assert {row["mean_seq"] for row in found} == {"500"}


def test_grid_file_and_command_line(kvplan: Kvplan, tmp_path: Path) -> None:
    (tmp_path / "grid.yaml").write_text(
        "model: llama-3.1-8b\ngpu: [l4]\nseq: 1k..3k:1k\nbatch: 2\n"
    )
    run = kvplan("sweep", "--grid", "grid.yaml", "--columns", "seq_len,batch", "--batch", "5")
    assert run.out == "seq_len,batch\r\n1024,5\r\n2048,5\r\n3072,5\r\n"


def test_rows_of_a_file(kvplan: Kvplan, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("team,gpu,seq\nred,l4,4k\nblue,h100-sxm,8k\n")
    run = kvplan("sweep", "llama-3.1-8b", "--from", "rows.csv", "--columns", "gpu,seq_len,verdict")
    assert run.out == "team,gpu,seq_len,verdict\r\nred,l4,4096,fits\r\nblue,h100-sxm,8192,fits\r\n"


def test_json_lines_and_tables(kvplan: Kvplan) -> None:
    run = kvplan(*SMALL, "--format", "jsonl", "--columns", "gpu,batch,mean_concurrency")
    assert [json.loads(line) for line in run.out.splitlines()][-1] == {
        "gpu": "l4",
        "batch": 3,
        "mean_concurrency": None,
    }
    table = kvplan(*SMALL, "--format", "table")
    assert table.out.splitlines()[0].startswith("model")
    assert "headroom (GiB)" in table.out.splitlines()[0]
    assert len(table.out.splitlines()) == 14
    assert kvplan(*SMALL, "--format", "markdown").out.count("\n| ") == 13


def test_excel(kvplan: Kvplan, tmp_path: Path) -> None:
    assert kvplan(*SMALL, "--excel", "--output", "out.csv").code == 0
    assert (tmp_path / "out.csv").read_bytes().startswith(b"\xef\xbb\xbfmodel,")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("sweep",), "no model was named"),
        (("sweep", "llama-3.1-8b"), "no GPU was named"),
        ((*SMALL, "--tp", ""), "--tp '' is empty"),
        ((*SMALL, "--mean-seq", "8k..4k"), "runs backwards"),
        (("sweep", "llama-3.1-8b", "--gpu", "l4", "--seq", "1..1M", "--batch", "1..1000000"),
         "the grid has 1,048,576,000,000 rows"),
        ((*SMALL, "--columns", "verdict,verdict"), "--columns names verdict twice"),
        ((*SMALL, "--columns", "verdicts"), "'verdicts' is not a column"),
        ((*SMALL, "--where", "verdict = fits"), "--where"),
        ((*SMALL, "--format", "xls"), "--format 'xls'"),
        ((*SMALL, "--append"), "--append needs --output FILE"),
        ((*SMALL, "--resume"), "--resume goes with --append"),
        ((*SMALL, "--format", "jsonl", "--excel"), "--excel belongs to --format csv"),
        ((*SMALL, "--format", "parquet"), "--format parquet needs --output FILE"),
        ((*SMALL, "--format", "parquet", "--append", "--output", "x"), "is written whole"),
        ((*SMALL, "--output", "none/out.csv"), "--output 'none/out.csv' cannot be written"),
        ((*LARGE, "--format", "table"), "--format table is for at most 2,000 rows"),
        ((*SMALL, "--from", "a.csv", "--grid", "b.yaml"), "give one"),
        ((*SMALL, "--from", "a.csv"), "--seq can have one value for all rows"),
        (("sweep", "llama-3.1-8b", "--from", "none.csv", "--gpu", "l4"), "cannot be read"),
    ],
)  # fmt: skip
def test_one_clear_message(kvplan: Kvplan, words: tuple[str, ...], message: str) -> None:
    run = kvplan(*words)
    assert run.code == 2
    assert run.out == ""
    assert run.err.startswith("kvplan: error: ")
    assert message in run.err
    assert "Traceback" not in run.err


def test_fault_in_a_file_comes_before_any_row(kvplan: Kvplan, tmp_path: Path) -> None:
    good = "l4,4k\n" * 3000
    (tmp_path / "rows.csv").write_text(f"gpu,seq\n{good}l4,many\n")
    run = kvplan("sweep", "llama-3.1-8b", "--from", "rows.csv", "--output", "out.csv")
    assert (run.code, run.out) == (2, "")
    assert "row 3002, seq: --seq 'many'" in run.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.csv"]


def test_closed_pipe_is_no_error(tmp_path: Path) -> None:
    line = " ".join([*COMMAND, *LARGE, "--jobs", "2"]) + " | head -2; exit ${PIPESTATUS[0]}"
    done = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, env=environment(), cwd=tmp_path,
        timeout=60, check=False,
    )  # fmt: skip
    assert len(done.stdout.splitlines()) == 2
    assert (done.returncode, done.stderr) == (0, "")


def test_processes_change_nothing(kvplan: Kvplan, tmp_path: Path) -> None:
    words = ("sweep", "gemma-3-27b,llama-3.1-8b", "--gpu", "h200", "--seq", "1k..300k:1k",
             "--batch", "1..40", "--kv", "auto,fp8", "--where", "batch != 7")  # fmt: skip
    assert kvplan(*words, "--jobs", "1", "--output", "one.csv").code == 0
    assert kvplan(*words, "--jobs", "3", "--output", "three.csv").code == 0
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "three.csv").read_bytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The large sweep in one go."""
    path = tmp_path_factory.mktemp("whole") / "out.csv"
    subprocess.run(
        [*COMMAND, *LARGE, "--output", str(path)], env=environment(), check=True, timeout=120
    )
    data = path.read_bytes()
    assert data.count(b"\n") == LARGE_ROWS + 1
    return data


def stopped(tmp_path: Path, sign: int, *more: str) -> tuple[int, str]:
    """Start the large sweep and stop it while it writes; its exit code and stderr."""
    process = subprocess.Popen(
        [*COMMAND, *LARGE, "--output", "out.csv", *more],
        cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
        text=True,
    )  # fmt: skip
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        sizes = [path.stat().st_size for path in tmp_path.iterdir()]
        if max(sizes, default=0) > 0:
            break
        time.sleep(0.005)
    process.send_signal(sign)
    err = process.communicate(timeout=60)[1]
    return process.returncode, err


@pytest.mark.skipif(os.name == "nt", reason="signals")
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_killed_and_resumed(kvplan: Kvplan, tmp_path: Path, whole: bytes, jobs: str) -> None:
    code, _ = stopped(tmp_path, signal.SIGKILL, "--append", "--jobs", jobs)
    assert code == -signal.SIGKILL
    path = tmp_path / "out.csv"
    part = path.read_bytes()
    assert 0 < len(part) < len(whole)
    path.write_bytes(part[:-7])  # as if the last write had stopped in a row
    run = kvplan(*LARGE, "--output", "out.csv", "--append", "--resume", "--jobs", jobs)
    assert (run.code, run.err) == (0, "")
    assert path.read_bytes() == whole
    again = kvplan(*LARGE, "--output", "out.csv", "--append", "--resume", "--jobs", jobs)
    assert again.code == 0
    assert path.read_bytes() == whole


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_interrupted(tmp_path: Path, whole: bytes) -> None:
    code, err = stopped(tmp_path, signal.SIGINT)
    assert code == 130
    partial = (tmp_path / "out.csv.partial").read_bytes()
    kept = partial.count(b"\n") - 1
    assert 0 < kept < LARGE_ROWS
    assert whole.startswith(partial)
    assert f"stopped after {kept:,} complete rows, in out.csv.partial" in err
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv.partial"]


@pytest.mark.parametrize("format", ["csv", "jsonl"])
@pytest.mark.parametrize("filtered", [(), ("--where", "batch != 2")])
def test_resume_at_any_byte(
    kvplan: Kvplan, tmp_path: Path, format: str, filtered: tuple[str, ...]
) -> None:
    words = (*SMALL, "--format", format, "--output", "out", *filtered)
    assert kvplan(*words).code == 0
    path = tmp_path / "out"
    whole = path.read_bytes()
    for cut in (1, 5, 20, len(whole) // 3, len(whole) // 2, len(whole) - 1, len(whole)):
        path.write_bytes(whole[:cut])
        run = kvplan(*words, "--append", "--resume")
        assert run.code == 0, run.err
        assert path.read_bytes() == whole


def test_resume_of_another_sweep_is_refused(kvplan: Kvplan, tmp_path: Path) -> None:
    assert kvplan(*SMALL, "--output", "out.csv").code == 0
    before = (tmp_path / "out.csv").read_bytes()
    other = ("sweep", "llama-3.1-8b", "--gpu", "h100-sxm,l40s", *SMALL[4:])
    run = kvplan(*other, "--output", "out.csv", "--append", "--resume")
    assert run.code == 2
    assert "row 12 of the file is not row 12 of this sweep" in run.err
    columns = kvplan(*SMALL, "--output", "out.csv", "--append", "--resume", "--columns", "batch")
    assert columns.code == 2
    assert "the file has other columns" in columns.err
    assert (tmp_path / "out.csv").read_bytes() == before


def test_append_puts_one_sweep_behind_another(kvplan: Kvplan, tmp_path: Path) -> None:
    assert kvplan(*SMALL, "--output", "out.csv").code == 0
    assert kvplan(*SMALL, "--output", "out.csv", "--append").code == 0
    text = (tmp_path / "out.csv").read_text()
    assert len(rows(text)) == 24
    assert rows(text)[:12] == rows(text)[12:]
