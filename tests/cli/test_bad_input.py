"""Whatever a person types or a file holds: one clear message, exit 2, no traceback, no report."""

from __future__ import annotations

import array
import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import pytest
from builders import TINY_LLAMA

from .conftest import COMMAND, Kvplan, Run, environment

H100 = ("--gpu", "h100")


def refused(run: Run, *words: str) -> None:
    """Exit 2, nothing on stdout, and a message on stderr that says these things."""
    assert run.code == 2, run
    assert run.out == ""
    assert "Traceback" not in run.err
    assert "\x1b" not in run.err
    assert "error" in run.err.lower()
    assert 0 < len(run.err) < 2000
    for word in words:
        assert word in run.err, run.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["fit", "lama-3.1-8b", *H100], ["'lama-3.1-8b'", "llama-3.1-8b", "Nearest"]),
        (["fit", "xyzzy", *H100], ["'xyzzy'", "models"]),
        (["fit", "", *H100], ["no model was named"]),
        (["fit", "llama-3.1-8b", "--gpu", "h10"], ['"h10"', "Nearest", "h100"]),
        (["fit", "llama-3.1-8b", "--gpu", "a100"], ["a100-40g", "a100-80g", "Say which"]),
        (["fit", "llama-3.1-8b", "--gpu", ""], ["--gpu"]),
        (["fit", "llama-3.1-8b"], ["no GPU was named", "--gpu"]),
        (["fit"], ["MODEL"]),
        (["fit", "llama-3.1-8b", *H100, "--seq", "-5"], ["--seq", "'-5'", "too small"]),
        (["fit", "llama-3.1-8b", *H100, "--seq", "0"], ["--seq", "'0'", "too small"]),
        (["fit", "llama-3.1-8b", *H100, "--seq", "32x"], ["--seq", "'32x'"]),
        (["fit", "llama-3.1-8b", *H100, "--seq", "1e30"], ["--seq", "'1e30'"]),
        (["fit", "llama-3.1-8b", *H100, "--seq", "9" * 30], ["--seq", "too large"]),
        (["fit", "./no-such-folder", *H100], ["no such file or folder"]),
        (["fitt", "llama-3.1-8b"], ["'fitt' is not a command", "kvplan fit"]),
        (["fit", "llama-3.1-8b", *H100, "--batch", "1.5"], ["'1.5' is not a whole number\n"]),
        (
            ["fit", "llama-3.1-8b", *H100, "--seq", "4k", "--prefix-tokens", "8k"],
            ["--prefix-tokens 8,192", "4,096 tokens of a sequence"],
        ),
        (
            ["fit", "llama-3.1-8b", *H100, "--seq", "4k", "--mean-seq", "8k"],
            ["--mean-seq 8,192", "4,096 tokens of a sequence"],
        ),
        (["fit", "llama-3.1-8b", *H100, "--weights", "mxfp4"], ["only experts", "has none"]),
        (["fit", "llama-3.1-8b", *H100, "--engine", "vlm"], ["none, transformers, vllm"]),
        (["fit", "llama-3.1-8b", *H100, "--cache", "static"], ["cache", "no such argument"]),
        (
            ["fit", "llama-3.1-8b", *H100, "--engine", "transformers", "--cache", "quantized"],
            ["--cache quantized", "dynamic, static"],
        ),
        (
            ["fit", "llama-3.1-8b", *H100, "--engine", "none", "--format", "flags"],
            ["no command to run"],
        ),
        (["fit", "llama-3.1-8b", *H100, "--set", "num_kv_heads=5"], ["5 does not divide the 32"]),
        (["fit", "llama-3.1-8b", *H100, "--revision", "main"], ["--revision", "not a hub id"]),
        (["fit", "llama-3.1-8b", "--gpu", "local"], ["--gpu local"]),
        (["models", "import", "no-such-model"], ["neither a bundled model nor a file"]),
        (["models", "import", "./no-such-model"], ["no such file or folder"]),
        (["fit", "llama-3.1-8b", *H100, "--seq", "999999999999999"], ["--seq", "too large"]),
        (["fit", "llama-3.1-8b", *H100, "--seq"], ["--seq"]),
        (["fit", "llama-3.1-8b", *H100, "--batch", "0"], ["--batch", "'0'"]),
        (["fit", "llama-3.1-8b", *H100, "--batch", "many"], ["--batch", "'many'"]),
        (
            ["fit", "llama-3.1-8b", *H100, "--seq", "1024g", "--batch", "999999999999"],
            ["8 EiB"],
        ),
        (["fit", "llama-3.1-8b", *H100, "--tp", "3"], ["--tp 3", "32 attention heads"]),
        (["fit", "llama-3.1-8b", *H100, "--tp", "0"], ["--tp"]),
        (
            ["fit", "llama-3.1-8b", *H100, "--tp", "4", "--gpus", "2"],
            ["needs 4 GPUs", "--gpus is 2"],
        ),
        (["fit", "llama-3.1-8b", *H100, "--pp", "33"], ["--pp 33", "32 layers"]),
        (["fit", "llama-3.1-8b", *H100, "--kv", "fp9"], ["--kv 'fp9'", "Try"]),
        (["fit", "llama-3.1-8b", *H100, "--kv", "q8_0"], ["q8_0", "It takes"]),
        (["fit", "deepseek-v3", "--gpu", "h200", "--tp", "8", "--kv", "nvfp4_ds_mla"], ["nvfp4"]),
        (["fit", "gpt-oss-20b", *H100, "--kv", "nvfp4"], ["nvfp4", "It takes"]),
        (["fit", "llama-3.1-8b", *H100, "--weights", "int5"], ["--weights 'int5'", "Try"]),
        (["fit", "llama-3.1-8b", *H100, "--block-size", "7"], ["multiples of 16"]),
        (["fit", "llama-3.1-8b", *H100, "--engine", "vlm"], ["--engine 'vlm'", "vllm"]),
        (["fit", "llama-3.1-8b", *H100, "--engine", "vllm@0.1"], ["0.1", "0.33"]),
        (["fit", "llama-3.1-8b", *H100, "--gpu-memory", "80G"], ["80GiB", "80GB"]),
        (["fit", "llama-3.1-8b", *H100, "--gpu-memory", "-1GiB"], ["--gpu-memory"]),
        (["fit", "llama-3.1-8b", *H100, "--reserve", "100GiB"], ["--reserve"]),
        (["fit", "llama-3.1-8b", *H100, "--gpu-memory-utilization", "1.2"], ["at most 1"]),
        (["fit", "llama-3.1-8b", *H100, "--set", "layers"], ["--set 'layers'", "=VALUE"]),
        (["fit", "llama-3.1-8b", *H100, "--set", "num_kv_heds=8"], ["num_kv_heds", "num_kv_heads"]),
        (["fit", "llama-3.1-8b", *H100, "--format", "jsn"], ["--format 'jsn'", "json"]),
        (["fit", "llama-3.1-8b", *H100, "--policy", "missing.yaml"], ["missing.yaml"]),
        (["fit", "llama-3.1-8b", *H100, "--sequence", "1k"], ["--sequence"]),
        (["fit", "llama-3.1-8b", "extra", *H100], ["extra"]),
        (["fitt", "llama-3.1-8b"], ["fitt"]),
        (["fit", "missing.json", *H100], ["missing.json", "no such file"]),
        (["fit", "./no/such/folder/config.json", *H100], ["no such file"]),
        (["fit", "missing.yaml", *H100], ["missing.yaml"]),
        (["fit", "llama-3.1-8b", "--gpu", "missing.yaml"], ["missing.yaml"]),
    ],
    ids=lambda value: " ".join(value[-3:])[:40] if isinstance(value, list) else None,
)
def test_words(kvplan: Kvplan, words: list[str], told: list[str]) -> None:
    refused(kvplan(*words), *told)


def config(**changes: Any) -> str:
    return json.dumps({**TINY_LLAMA, **changes})


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", ["is empty"]),
        (" \n", ["is empty"]),
        ("{", ["not valid JSON", "line 1, column 2"]),
        (config()[:-40], ["not valid JSON", "line 1"]),
        ("[1, 2]", ["holds a list"]),
        ("null", ["holds nothing"]),
        ("{}", ["model_type"]),
        ('{"a":' * 100_000, ["nested"]),
        ('{"a":' * 70 + "1" + "}" * 70, ["nested more than 64 deep"]),
        (config(hidden_size=float("nan")), ["NaN"]),
        (config(hidden_size=float("inf")), ["Infinity"]),
        (config(model_type="transmogrifier"), ["model_type = 'transmogrifier'", "--assume"]),
        (config(model_type=7), ["model_type = 7"]),
        (config(model_type=None), ["model_type"]),
        (config(num_hidden_layers="32"), ["num_hidden_layers must be a whole number, not '32'"]),
        (config(num_hidden_layers=None), ["num_hidden_layers is missing"]),
        (config(num_hidden_layers=0), ["num_hidden_layers is 0"]),
        (config(num_hidden_layers=-1), ["num_hidden_layers is -1"]),
        (config(num_hidden_layers=10**9), ["num_hidden_layers is 1000000000"]),
        (config(num_hidden_layers=True), ["num_hidden_layers", "not True"]),
        (config(num_hidden_layers=4.5), ["num_hidden_layers", "4.5"]),
        (config(num_hidden_layers=[4]), ["num_hidden_layers"]),
        (config(num_attention_heads=0), ["num_attention_heads is 0"]),
        (config(num_key_value_heads="many"), ["num_key_value_heads", "'many'"]),
        (config(num_key_value_heads=10**40), ["num_key_value_heads", "more than 30 digits"]),
        (config(head_dim=-16), ["head_dim is -16"]),
        (config(hidden_size=10**12), ["hidden_size", "cannot be meant"]),
        (config(head_dim=None, hidden_size=65), ["hidden_size 65 is not a multiple of 4"]),
        (config(vocab_size="big"), ["vocab_size"]),
        (config(intermediate_size=None), ["intermediate_size is missing"]),
        (config(torch_dtype="float3"), ["torch_dtype = 'float3'"]),
        (config(torch_dtype=16), ["torch_dtype"]),
        (config(tie_word_embeddings="yes"), ["tie_word_embeddings", "'yes'"]),
        (config(layer_types=["full_attention"] * 3), ["layer_types has 3 entries for 4 layers"]),
        (config(layer_types=["magic"] * 4), ["layer_types[0] = 'magic'"]),
        (config(layer_types="full"), ["layer_types must be a list"]),
        (config(max_position_embeddings=2**60), ["max_position_embeddings"]),
        (config(quantization_config={"quant_method": "magic"}), ["quant_method", "'magic'"]),
        (config(quantization_config=[1]), ["quantization_config"]),
        (config(text_config=5), ["text_config"]),
    ],
    ids=lambda value: value[0][:40] if isinstance(value, list) else None,
)
def test_config(kvplan: Kvplan, tmp_path: Path, content: str, told: list[str]) -> None:
    (tmp_path / "config.json").write_text(content)
    refused(kvplan("fit", "config.json", *H100), "config.json", *told)


def test_good_config_is_accepted(kvplan: Kvplan, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(config())
    for name in ("config.json", ".", str(tmp_path)):
        run = kvplan("fit", name, *H100, "--format", "json")
        assert (run.code, run.err) == (0, "")
        assert json.loads(run.out)["model"]["parameters"] == 164_416


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"\x89PNG\r\n\x1a\n\x00\x01", "not UTF-8"),
        (b"\x00" * 1000, "not valid JSON"),
        (b"GGUF\x03\x00\x00\x00\xff\xfe", "not UTF-8"),
    ],
)
def test_binary_file(kvplan: Kvplan, tmp_path: Path, content: bytes, told: str) -> None:
    (tmp_path / "config.json").write_bytes(content)
    refused(kvplan("fit", "config.json", *H100), "config.json", told)


def test_folder_without_a_config(kvplan: Kvplan, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    refused(kvplan("fit", "./model", *H100), "no config.json")


def test_config_that_is_a_folder(kvplan: Kvplan, tmp_path: Path) -> None:
    (tmp_path / "model" / "config.json").mkdir(parents=True)
    refused(kvplan("fit", "./model", *H100), "config.json")


def test_large_file(kvplan: Kvplan, tmp_path: Path) -> None:
    (tmp_path / "model.json").touch()
    os.truncate(tmp_path / "model.json", 200 * 10**6)
    started = time.monotonic()
    refused(kvplan("fit", "model.json", *H100), "200,000,000 bytes")
    assert time.monotonic() - started < 5


def test_named_pipe_does_not_hang(kvplan: Kvplan, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    refused(kvplan("fit", "config.json", *H100), "not a regular file")


ALIASES = "a: &a [x, x, x, x]\n" + "".join(
    f"{name}: &{name} [*{before}, *{before}, *{before}, *{before}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize("option", ["--gpu", "--policy", "MODEL"])
@pytest.mark.parametrize(
    ("content", "told"),
    [
        (ALIASES, "alias"),
        ("a: !!python/object/apply:os.system ['touch touched']\n", "not valid YAML"),
        ("a: !magic 1\n", "not valid YAML"),
        ("- 1\n", "a list"),
        ("", "nothing"),
        ("a: [1\n", "not valid YAML"),
        ("\x07: 1\n", "not valid YAML"),
        ("unknown_key: 1\n", "unknown_key"),
        ("a: " + "[" * 3000 + "]" * 3000, "nested"),
    ],
    ids=["aliases", "python tag", "tag", "list", "empty", "torn", "control", "key", "nested"],
)
def test_yaml(kvplan: Kvplan, tmp_path: Path, option: str, content: str, told: str) -> None:
    (tmp_path / "own.yaml").write_text(content)
    words = {
        "--gpu": ("llama-3.1-8b", "--gpu", "own.yaml"),
        "--policy": ("llama-3.1-8b", *H100, "--policy", "own.yaml"),
        "MODEL": ("own.yaml", *H100),
    }[option]
    refused(kvplan("fit", *words), "own.yaml", told)
    assert os.listdir(tmp_path) == ["own.yaml"]  # nothing in it was run


@pytest.mark.parametrize("place", ["missing/report.json", "file/report.json", "folder"])
def test_unwritable_output(kvplan: Kvplan, tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("kept")
    (tmp_path / "folder").mkdir()
    run = kvplan("fit", "llama-3.1-8b", *H100, "--format", "json", "--output", place)
    refused(run, "--output", place, "cannot be written")
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]
    assert os.listdir(tmp_path / "folder") == []
    assert (tmp_path / "file").read_text() == "kept"


def test_full_disk(kvplan: Kvplan) -> None:
    run = kvplan("fit", "llama-3.1-8b", *H100, "--format", "json", "--output", "/dev/full")
    refused(run, "No space left")


def test_error_before_the_report_leaves_the_old_file(kvplan: Kvplan, tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text("kept")
    words = ("--format", "json", "--output", "report.json")
    refused(kvplan("fit", "llama-3.1-8b", *H100, "--seq", "0", *words), "--seq")
    assert (tmp_path / "report.json").read_text() == "kept"


def test_closed_pipe(tmp_path: Path) -> None:
    line = " ".join(COMMAND) + " fit llama-3.1-8b --gpu h100 --seq 8k --format json"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line} | head -1"],
        capture_output=True,
        text=True,
        env=environment(),
        cwd=tmp_path,
        timeout=60,
        check=False,
    )
    assert done.stdout == "{\n"
    assert done.stderr == ""
    assert done.returncode in {0, 141}


def test_reader_that_never_reads(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*COMMAND, "fit", "llama-3.1-8b", *H100, "--seq", "8k", "--format", "json"],
        stdout=writing,
        stderr=subprocess.PIPE,
        env=environment(),
        cwd=tmp_path,
        timeout=60,
        check=False,
    )
    os.close(writing)
    assert done.stderr == b""
    assert done.returncode == 0  # the verdict still is the exit code


@pytest.mark.skipif(sys.platform != "linux", reason="sets the size of a pipe")
def test_interrupted_while_writing(tmp_path: Path) -> None:
    """The report is longer than the pipe, so the program waits for its reader until Ctrl-C."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    process = subprocess.Popen(
        [*COMMAND, "fit", "llama-3.1-8b", *H100, "--seq", "8k", "--format", "json"],
        stdout=writing,
        stderr=subprocess.PIPE,
        env=environment(),
        cwd=tmp_path,
    )
    os.close(writing)
    wait_until_full(reading)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    os.close(reading)
    assert process.returncode == 130
    assert b"interrupted" in err
    assert b"Traceback" not in err


def wait_until_full(pipe: int) -> None:
    waiting = array.array("i", [0])
    deadline = time.monotonic() + 30
    while waiting[0] < 4096:
        assert time.monotonic() < deadline
        fcntl.ioctl(pipe, termios.FIONREAD, waiting)
        time.sleep(0.005)


PRESS = """
import os, signal, sys
class Press:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.argv = ["kvplan", "fit", "llama-3.1-8b", "--gpu", "h100", "--format", "json"]
from kvplan.cli.main import entry
sys.meta_path.insert(0, Press())
entry()
"""
"""Ctrl-C is pressed at the moment when a module is about to be loaded."""


@pytest.mark.parametrize(
    "module", ["typer", "kvplan.cli.fit", "kvplan.catalogue", "kvplan.planning.fit", "json.encoder"]
)
def test_interrupted_while_starting(tmp_path: Path, module: str) -> None:
    """From the first line of the entry point on, Ctrl-C ends the program quietly."""
    done = subprocess.run(
        [sys.executable, "-c", PRESS.format(module=module)],
        capture_output=True,
        env=environment(),
        cwd=tmp_path,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (130, b"")
    assert done.stderr == b"kvplan: interrupted\n"


HOSTILE = "\x1b[31mred\x07\r\u202e"


@pytest.mark.parametrize(
    "words",
    [
        ("fit", f"{HOSTILE}.json", *H100),
        ("fit", f"{HOSTILE}.yaml", *H100),
        ("fit", HOSTILE, *H100),
        ("fit", "llama-3.1-8b", "--gpu", HOSTILE),
        ("fit", "llama-3.1-8b", "--gpu", f"{HOSTILE}.yaml"),
        ("fit", "llama-3.1-8b", *H100, "--policy", f"{HOSTILE}.yaml"),
        ("fit", "llama-3.1-8b", *H100, "--engine-arg", f"{HOSTILE}=1"),
        ("fit", "llama-3.1-8b", *H100, "--set", f"{HOSTILE}=1"),
        ("fit", "llama-3.1-8b", *H100, "--\x1b[31mred\x07"),
        (HOSTILE,),
    ],
    ids=repr,
)
def test_typed_words_are_not_echoed_raw(kvplan: Kvplan, words: tuple[str, ...]) -> None:
    run = kvplan(*words)
    refused(run, "red")
    assert not set(run.err) & {"\x1b", "\x07", "\r", "\u202e"}


def test_names_from_files_are_not_echoed_raw(kvplan: Kvplan, tmp_path: Path) -> None:
    cases = [
        config(model_type=HOSTILE),
        config(torch_dtype=HOSTILE),
        config(layer_types=[HOSTILE] * 4),
        config(num_hidden_layers=HOSTILE),
        config(quantization_config={"quant_method": HOSTILE}),
    ]
    for content in cases:
        (tmp_path / "config.json").write_text(content)
        run = kvplan("fit", "config.json", *H100)
        refused(run, "red")
        assert not set(run.err) & {"\x1b", "\x07", "\r", "\u202e"}


@pytest.mark.parametrize("form", ["json", "csv", "table", "markdown", "yaml"])
def test_folder_name_in_a_report_is_not_raw(kvplan: Kvplan, tmp_path: Path, form: str) -> None:
    folder = tmp_path / "\x1b[31mred\x07"
    folder.mkdir()
    (folder / "config.json").write_text(config())
    run = kvplan("fit", str(folder), *H100, "--format", form)
    assert run.code == 0
    assert "red" in run.out
    assert not set(run.out + run.err) & {"\x1b", "\x07"}


def test_path_that_is_not_utf_8(tmp_path: Path) -> None:
    folder = os.path.join(os.fsencode(tmp_path), b"model-\xff")
    os.mkdir(folder)
    with open(os.path.join(folder, b"config.json"), "w") as file:
        file.write(config())
    for more in ([], ["--output", "report.json"]):
        done = subprocess.run(
            [*COMMAND, "fit", folder, *H100, "--format", "json", *more],
            capture_output=True,
            env=environment(),
            cwd=tmp_path,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b"")
    assert b"model-" in (tmp_path / "report.json").read_bytes()


def test_fault_of_our_own_is_told_without_a_traceback(kvplan: Kvplan, tmp_path: Path) -> None:
    """A broken installation: the bundled catalogue is not JSON."""
    package = tmp_path / "site" / "kvplan"
    source = Path(__file__).parents[2] / "src" / "kvplan"
    package.parent.mkdir()
    subprocess.run(["cp", "-r", str(source), str(package)], check=True)
    (package / "catalogue" / "gpus.jsonl").write_text("broken")
    run = kvplan("fit", "llama-3.1-8b", *H100, env={"PYTHONPATH": str(package.parent)})
    assert (run.code, run.out) == (3, "")
    assert "Traceback" not in run.err
    assert "catalogue" in run.err
