"""What ``kvplan fit`` leaves on stdout, on stderr and in a file."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
from pathlib import Path
from shlex import quote

import pytest
import yaml

from .conftest import COMMAND, Kvplan, environment

FITS = ("fit", "llama-3.1-8b", "--gpu", "a100-80g", "--seq", "8k")
OOM = ("fit", "llama-3.1-8b", "--gpu", "rtx-4090", "--seq", "128k")
BEYOND = ("fit", "llama-2-7b", "--gpu", "a100-80g", "--seq", "32k")
"""It fits, with a warning: four times the native context."""

WARNING = "32,768 tokens is beyond the model's native context of 4,096"


def test_table_is_the_whole_report_and_stderr_is_empty(kvplan: Kvplan) -> None:
    run = kvplan(*BEYOND)
    assert run.code == 0
    assert run.err == ""
    assert run.out.startswith("FITS  16.00 GiB of KV cache for 1 x 32,768 tokens")
    assert WARNING in run.out
    assert run.out.index("Warnings") > run.out.index("Command")


@pytest.mark.parametrize("name", ["json", "csv", "yaml"])
def test_machine_formats_tell_warnings_on_stderr(kvplan: Kvplan, name: str) -> None:
    run = kvplan(*BEYOND, "--format", name)
    assert run.code == 0
    assert run.err == f"kvplan: warning: {WARNING}\n"


def test_formats_parse_back_to_the_same_figures(kvplan: Kvplan) -> None:
    document = json.loads(kvplan(*FITS, "--format", "json").out)
    assert yaml.safe_load(kvplan(*FITS, "--format", "yaml").out) == document
    [row] = csv.DictReader(io.StringIO(kvplan(*FITS, "--format", "csv").out, newline=""))
    for section in ("deployment", "kv_cache", "memory", "model", "limits"):
        for key, value in document[section].items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                assert float(row.get(f"{section}_{key}", row[key])) == value, key
    # 32 layers x 8 heads x (128 + 128) x 2 B.
    assert document["kv_cache"]["bytes_per_token"] == 131072


def test_markdown_is_a_comment_for_a_pull_request(kvplan: Kvplan) -> None:
    run = kvplan(*OOM, "--format", "markdown")
    assert run.code == 1
    assert run.out.startswith("## kvplan: OOM\n")
    assert "| --- | ---: |" in run.out
    assert run.err == ""


def test_exit_code_is_the_verdict(kvplan: Kvplan) -> None:
    assert kvplan(*FITS).code == 0
    run = kvplan(*OOM)
    assert run.code == 1
    assert run.out.startswith("OOM  ")
    assert "Single changes that fit, mildest first" in run.out
    assert kvplan(*OOM, "--exit-zero").code == 0


@pytest.mark.parametrize("width", [40, 60, 80, 100, 140])
@pytest.mark.parametrize("words", [FITS, OOM], ids=["fits", "oom"])
def test_no_line_is_wider_than_the_terminal(
    kvplan: Kvplan, words: tuple[str, ...], width: int
) -> None:
    run = kvplan(*words, env={"COLUMNS": str(width)})
    assert max(map(len, run.out.split("\n"))) <= width
    assert "\x1b" not in run.out


def test_usual_report_fits_a_screen_of_60_lines(kvplan: Kvplan) -> None:
    assert kvplan(*FITS, env={"COLUMNS": "80"}).out.count("\n") <= 60


def test_pipe_is_plain_and_80_columns_wide(kvplan: Kvplan) -> None:
    run = kvplan(*FITS, env={"NO_COLOR": "", "COLUMNS": "", "TERM": "xterm-256color"})
    assert "\x1b" not in run.out
    assert max(map(len, run.out.split("\n"))) == 80


def test_force_color_colours_a_pipe_and_no_color_wins(kvplan: Kvplan) -> None:
    forced = {"NO_COLOR": "", "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    coloured = kvplan(*FITS, env=forced).out
    assert "\x1b[" in coloured
    plain = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    wanted = kvplan(*FITS, env={**forced, "NO_COLOR": "0"}).out
    assert [line.rstrip() for line in plain.split("\n")] == wanted.split("\n")
    assert "\x1b" not in wanted


def test_terminal_that_is_not_utf8_gets_ascii(kvplan: Kvplan) -> None:
    run = kvplan(*OOM, env={"PYTHONIOENCODING": "ascii"})
    assert run.out.isascii()
    assert "?" not in run.out
    assert "####" in run.out
    assert run.err == ""


def test_reader_that_has_seen_enough_leaves_no_traceback() -> None:
    words = " ".join(map(quote, [*COMMAND, *FITS]))
    done = subprocess.run(
        ["bash", "-c", f"{words} | head -1; echo ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(),
        check=True,
    )
    first, code = done.stdout.splitlines()
    assert first.startswith("FITS  ")
    assert code == "0"
    assert done.stderr == ""


@pytest.mark.parametrize("name", ["table", "json", "csv", "markdown", "yaml"])
def test_output_writes_what_stdout_would_show(kvplan: Kvplan, tmp_path: Path, name: str) -> None:
    shown = kvplan(*FITS, "--format", name)
    written = kvplan(*FITS, "--format", name, "--output", "report")
    assert written.out == ""
    assert written.code == 0
    assert (tmp_path / "report").read_bytes().decode() == shown.out
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


def test_file_is_never_coloured(kvplan: Kvplan, tmp_path: Path) -> None:
    forced = {"NO_COLOR": "", "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    kvplan(*FITS, "--output", "report", env=forced)
    assert "\x1b" not in (tmp_path / "report").read_text()


def test_old_report_is_replaced_whole_and_kept_when_the_new_one_fails(
    kvplan: Kvplan, tmp_path: Path
) -> None:
    path = tmp_path / "report"
    path.write_text("x" * 100_000)
    assert kvplan(*OOM, "--output", "report", "--format", "json").code == 1
    assert json.loads(path.read_text())["verdict"] == "oom"
    assert kvplan("fit", "no-such-model", "--gpu", "h100", "--output", "report").code == 2
    assert json.loads(path.read_text())["verdict"] == "oom"


def test_folder_that_is_not_there_is_an_error(kvplan: Kvplan, tmp_path: Path) -> None:
    run = kvplan(*FITS, "--output", "missing/report")
    assert run.code == 2
    assert "'missing/report' cannot be written" in run.err
    assert run.out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_folder_that_may_not_be_written_is_an_error(kvplan: Kvplan, tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir()
    folder.chmod(0o555)
    run = kvplan(*FITS, "--output", "locked/report")
    folder.chmod(0o755)
    assert run.code == 2
    assert "cannot be written" in run.err
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_full_disk_is_an_error(kvplan: Kvplan) -> None:
    run = kvplan(*FITS, "--output", "/dev/full")
    assert run.code == 2
    assert "cannot be written: No space left on device" in run.err


def test_output_that_is_a_folder_is_an_error(kvplan: Kvplan, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    run = kvplan(*FITS, "--output", "folder")
    assert run.code == 2
    assert "cannot be written" in run.err


@pytest.mark.parametrize("name", ["table", "markdown", "json", "yaml"])
def test_explain_adds_the_formulas(kvplan: Kvplan, name: str) -> None:
    formula = "32 layers x ceil(8 / 1) heads x (128 + 128) x 2 B"
    assert formula in kvplan(*FITS, "--explain", "--format", name).out
    assert formula not in kvplan(*FITS, "--format", name).out


def test_unknown_format_names_the_known_ones(kvplan: Kvplan) -> None:
    run = kvplan(*FITS, "--format", "jsn")
    assert run.code == 2
    assert "--format json" in run.err
    assert run.out == ""


def test_the_command_alone(kvplan: Kvplan) -> None:
    """Each word is one that vLLM 0.33 takes; the figures are its own defaults on an A100."""
    run = kvplan(*BEYOND, "--format", "flags")
    assert run.code == 0
    assert run.out == (
        "vllm serve meta-llama/Llama-2-7b-hf --max-model-len 32768 --block-size 16 "
        "--max-num-seqs 256 --max-num-batched-tokens 2048 --gpu-memory-utilization 0.92\n"
    )
    assert run.err == f"kvplan: warning: {WARNING}\n"
    assert kvplan(*OOM, "--format", "flags").code == 1


def test_one_sequence_is_one(kvplan: Kvplan) -> None:
    assert "1 sequences" not in kvplan(*FITS).out


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_disk_is_said() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, *FITS], stdout=full, stderr=subprocess.PIPE, text=True,
            env=environment(), check=False,
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("kvplan: error: the report cannot be written to stdout: ")


def test_a_static_cache_is_laid_out_for_its_length(kvplan: Kvplan) -> None:
    """Llama-3.1-8B: 131,072 B a token; 64k of them are there from the start."""
    words = ("fit", "llama-3.1-8b", "--gpu", "h100", "--seq", "32k", "--engine", "transformers")
    run = kvplan(*words, "--cache", "static", "--max-cache-len", "64k", "--format", "json")
    assert json.loads(run.out)["kv_cache"]["needed_bytes"] == 131_072 * 65_536


@pytest.mark.parametrize("engine", ["none", "transformers"])
def test_settings_that_an_engine_has_not_are_said(kvplan: Kvplan, engine: str) -> None:
    run = kvplan(*FITS, "--engine", engine, "--max-num-seqs", "4", "--block-size", "32")
    assert run.code == 0
    assert f"--engine {engine} has no --block-size, --max-num-seqs: not used" in run.out


def test_several_models_and_gpus_are_side_by_side(kvplan: Kvplan) -> None:
    # 2 models x 2 GPUs; the 24 GB card cannot hold 131,072 tokens of Llama 3.1 8B beside 15 GiB
    run = kvplan(
        "fit", "llama-3.1-8b", "llama-3.2-1b", "--gpu", "a100-80g,rtx-4090", "--seq", "128k"
    )
    assert run.code == 1
    verdicts = [word for word in run.out.split() if word in {"FITS", "TIGHT", "OOM"}]
    assert verdicts == ["FITS", "OOM", "FITS", "FITS"]
    assert kvplan("fit", "llama-3.2-1b", "--gpu", "a100-80g,rtx-4090", "--seq", "8k").code == 0


def test_explain_is_of_one_deployment(kvplan: Kvplan) -> None:
    run = kvplan("fit", "llama-2-7b", "llama-7b", "--gpu", "a100-80g", "--explain")
    assert run.code == 2
    assert "one model and one GPU" in run.err
