"""``kvplan calibrate`` as a process: a log in, a comparison out, a file for later plans."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from .conftest import COMMAND, Kvplan, environment

LOG = """\
\x1b[1;36m(EngineCore_DP0 pid=7)\x1b[0;0m INFO 10-02 10:00:00 [core.py:77] Initializing a V1 LLM \
engine (v0.11.0) with config: model='meta-llama/Llama-3.1-8B-Instruct', \
tokenizer='/home/me/private', dtype=torch.bfloat16, max_seq_len=16000, tensor_parallel_size=1, \
pipeline_parallel_size=1, quantization=None, enforce_eager=False, kv_cache_dtype=auto
(EngineCore_DP0 pid=7) INFO Model loading took 14.9889 GiB and 3.652170 seconds
(EngineCore_DP0 pid=7) INFO Available KV cache memory: 51.38 GiB
(EngineCore_DP0 pid=7) INFO GPU KV cache size: 420,896 tokens
(EngineCore_DP0 pid=7) INFO Maximum concurrency for 16,000 tokens per request: 26.31x
(EngineCore_DP0 pid=7) INFO Graph capturing finished in 13 secs, took 0.41 GiB
"""
GPU = ("--gpu", "h100-sxm")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "start.log"
    path.write_text(LOG, encoding="utf-8")
    return path


def test_table_says_each_term_and_its_ratio(kvplan: Kvplan, log: Path) -> None:
    run = kvplan("calibrate", str(log), *GPU)
    assert (run.code, run.err) == (0, "")
    for words in ("weights", "14.99 GiB", "KV pool", "420,896", "26.31x", "vllm 0.11", "1.000"):
        assert words in run.out
    assert "/home/me" not in run.out
    assert "private" not in run.out


def test_json_has_the_schemas_keys(kvplan: Kvplan, log: Path) -> None:
    run = kvplan("calibrate", str(log), *GPU, "--format", "json")
    document = json.loads(run.out)
    assert document["schema"] == "kvplan.calibration_report/1"
    assert document["deployment"]["model"] == "llama-3.1-8b"
    assert document["from_log"] == ["engine", "max_model_len", "pp", "seq", "tp"]
    tokens = next(term for term in document["terms"] if term["key"] == "tokens_of_logged_pool")
    assert (tokens["observed"], tokens["inside"]) == (420_896, True)
    assert document["calibration"]["measured_on"]["tp"] == 1


def test_the_file_corrects_a_later_fit(kvplan: Kvplan, log: Path, tmp_path: Path) -> None:
    made = kvplan("calibrate", str(log), *GPU, "--output", "cal.yaml")
    assert made.code == 0
    written = yaml.safe_load((tmp_path / "cal.yaml").read_text(encoding="utf-8"))
    assert written["schema"] == "kvplan.calibration/1"
    assert (written["gpu"], written["engine"], written["engine_version"]) == (
        "h100-sxm", "vllm", "0.11",
    )  # fmt: skip
    assert "private" not in (tmp_path / "cal.yaml").read_text(encoding="utf-8")
    words = ("fit", "llama-3.1-8b", *GPU, "--seq", "16000", "--format", "json")
    plain = json.loads(kvplan(*words, "--engine", "vllm@0.11").out)["memory"]
    calibrated = json.loads(kvplan(*words, "--calibration", "cal.yaml").out)["memory"]
    logged = 51.38 * 2**30
    assert abs(calibrated["kv_pool_bytes"] - logged) < abs(plain["kv_pool_bytes"] - logged)
    assert abs(calibrated["kv_pool_bytes"] - logged) < 2**20
    other = kvplan("fit", "llama-3.1-8b", "--gpu", "l4", "--calibration", "cal.yaml")
    assert other.code == 2
    assert "measured on the GPU h100-sxm, not on l4" in other.err


def test_flags_override_the_log(kvplan: Kvplan, log: Path) -> None:
    run = kvplan(
        "calibrate", str(log), *GPU, "--model", "qwen3-8b", "--engine", "vllm@0.33", "--seq", "8k",
        "--format", "json",
    )  # fmt: skip
    deployment = json.loads(run.out)["deployment"]
    assert deployment["model"] == "qwen3-8b"
    assert deployment["engine_version"] == "0.33"
    assert deployment["max_model_len"] == 8192


def test_stdin_and_several_files(log: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "calibrate", "-", *GPU],
        input=LOG.encode(), capture_output=True, timeout=60, env=environment(), check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert b"420,896" in done.stdout


def test_parts_of_a_log_are_read_together(kvplan: Kvplan, tmp_path: Path) -> None:
    lines = LOG.splitlines(keepends=True)
    (tmp_path / "a.log").write_text("".join(lines[:2]), encoding="utf-8")
    (tmp_path / "b.log").write_text("".join(lines[2:]), encoding="utf-8")
    run = kvplan("calibrate", "a.log", "b.log", *GPU)
    assert run.code == 0
    assert "14.99 GiB" in run.out
    assert "420,896" in run.out


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        (LOG, (), "does not name the GPU"),
        ("nothing here\n", GPU, "no line of vLLM's about memory"),
        ("Available KV cache memory: 1.0 GiB\n", GPU, "does not name a model"),
        (LOG.replace("meta-llama/Llama-3.1-8B-Instruct", "/data/secret/Llama"), GPU,
         "does not name a model"),
        (LOG.replace("meta-llama/Llama-3.1-8B-Instruct", "acme/unheard-of-9b"), GPU,
         "the model that the log names is not bundled"),
        (LOG.replace("v0.11.0", "v0.4.1"), GPU, "is not modelled"),
        (LOG, (*GPU, "--engine", "none"), "cannot read the logs of --engine none"),
        (LOG, (*GPU, "--format", "csv"), "--format 'csv' is not one of table, json"),
        (LOG, (*GPU, "--calibration", "x.yaml"), "a log is compared with the plan that has none"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_said(
    kvplan: Kvplan, tmp_path: Path, text: str, words: tuple[str, ...], said: str
) -> None:
    (tmp_path / "start.log").write_text(text, encoding="utf-8")
    run = kvplan("calibrate", "start.log", *words)
    assert (run.code, run.out) == (2, "")
    assert said in run.err
    assert "secret" not in run.err
    assert "Traceback" not in run.err


def test_files_that_cannot_be_read(kvplan: Kvplan, tmp_path: Path) -> None:
    assert "cannot be read" in kvplan("calibrate", "missing.log", *GPU).err
    assert "cannot be read" in kvplan("calibrate", ".", *GPU).err
    (tmp_path / "binary.log").write_bytes(bytes(range(256)) * 4096)
    assert "no line of vLLM's" in kvplan("calibrate", "binary.log", *GPU).err
    assert kvplan("calibrate", *GPU).code == 2


def test_a_log_beyond_the_limit_is_refused(kvplan: Kvplan, tmp_path: Path) -> None:
    with open(tmp_path / "large.log", "wb") as file:
        file.truncate(65 * 2**20)
    run = kvplan("calibrate", "large.log", *GPU)
    assert run.code == 2
    assert "more than 64 MiB of log" in run.err
