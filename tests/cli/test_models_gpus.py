"""``kvplan models`` and ``kvplan gpus``."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import TINY_LLAMA
from filemakers import TINY_GGUF, gguf_bytes, tiny_gguf_tensors

from .conftest import Kvplan


def listed(kvplan: Kvplan, *words: str) -> list[dict[str, Any]]:
    run = kvplan(*words, "--format", "json")
    assert run.code == 0, run
    found: list[dict[str, Any]] = json.loads(run.out)
    return found


def test_models_list_names_what_a_token_keeps(kvplan: Kvplan) -> None:
    run = kvplan("models", "list")
    assert run.code == 0
    assert run.err == ""
    [line] = [line for line in run.out.split("\n") if line.startswith("llama-3.1-8b ")]
    assert line.split()[-2:] == ["131,072", "B"]
    assert "8.03 billion" in line


def test_models_list_as_csv_and_json_agree(kvplan: Kvplan) -> None:
    records = listed(kvplan, "models", "list")
    rows = list(csv.DictReader(io.StringIO(kvplan("models", "list", "--format", "csv").out)))
    assert [row["name"] for row in rows] == [record["name"] for record in records]
    assert list(rows[0]) == list(records[0])
    by_name = {row["name"]: row for row in rows}
    assert by_name["llama-3.1-8b"]["bytes_per_token"] == "131072"


def test_models_list_filters(kvplan: Kvplan) -> None:
    latent = listed(kvplan, "models", "list", "--attention", "latent")
    assert {"deepseek-v3", "deepseek-v2-lite"} <= {model["name"] for model in latent}
    assert all("latent" in model["attention"] for model in latent)
    windows = listed(kvplan, "models", "list", "--attention", "sliding-window")
    assert windows
    assert all("sliding_window" in model["attention"] for model in windows)
    long = listed(kvplan, "models", "list", "--min-context", "128k")
    assert all(model["max_position_embeddings"] >= 131072 for model in long)
    family = listed(kvplan, "models", "list", "--family", "Deepseek_V3", "--min-context", "1k")
    assert all(model["model_type"] == "deepseek_v3" for model in family)
    assert family


def test_models_list_of_nothing_says_so(kvplan: Kvplan) -> None:
    run = kvplan("models", "list", "--min-context", "1024M", "--format", "json")
    assert run.code == 0
    assert json.loads(run.out) == []
    assert "no bundled model" in run.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("models", "list", "--attention", "latnt"), "latent"),
        (("models", "list", "--family", "deepsek"), "deepseek"),
        (("models", "list", "--min-context", "32x"), "--min-context"),
        (("models", "list", "--format", "yaml"), "--format"),
        (("models", "show", "lama-3.1-8b"), "Nearest: llama-3.1-8b"),
        (("gpus", "show", "h10"), "Nearest"),
        (("gpus", "show", "a100"), "a100-80g"),
        (("gpus", "list", "--vendor", "nvidai"), "nvidia"),
        (("gpus", "list", "--format", "xml"), "--format"),
        (("models", "lst"), "lst"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_mistakes_are_explained(kvplan: Kvplan, words: tuple[str, ...], told: str) -> None:
    run = kvplan(*words)
    assert run.code == 2
    assert run.out == ""
    assert told in run.err
    assert "Traceback" not in run.err


def test_model_is_shown_with_its_sources(kvplan: Kvplan) -> None:
    run = kvplan("models", "show", "meta-llama/Llama-3.1-8B")
    assert run.code == 0
    for words in ("32 x full", "8,030,261,248", "131,072 tokens", "Sources"):
        assert words in run.out, words
    document = json.loads(kvplan("models", "show", "llama-3.1-8b", "--format", "json").out)
    assert document["parameters"] == sum(document["parts"].values()) == 8_030_261_248
    assert document["sources"]
    assert document["aliases"]


def test_gpus_list_gives_memory_in_gib_and_bytes(kvplan: Kvplan) -> None:
    run = kvplan("gpus", "list")
    [line] = [line for line in run.out.split("\n") if line.startswith("h100-sxm ")]
    assert "79.19 GiB" in line
    records = {gpu["name"]: gpu for gpu in listed(kvplan, "gpus", "list")}
    assert records["h100-sxm"]["memory_bytes"] == 85_029_027_840
    amd = listed(kvplan, "gpus", "list", "--vendor", "AMD")
    assert {gpu["vendor"] for gpu in amd} == {"amd"}
    rows = list(csv.DictReader(io.StringIO(kvplan("gpus", "list", "--format", "csv").out)))
    assert len(rows) == len(records)


def test_gpu_is_shown_with_sources_and_doubts(kvplan: Kvplan) -> None:
    run = kvplan("gpus", "show", "b300-sxm")
    assert run.code == 0
    assert "! not certain: memory, bandwidth, link" in run.out
    assert "Sources" in run.out
    document = json.loads(kvplan("gpus", "show", "h100-sxm", "--format", "json").out)
    assert document["uncertain"] == ["link"]
    assert document["memory_is_certain"] is True
    assert document["sources"]


def test_name_that_leaves_something_out_says_what_it_was_taken_for(kvplan: Kvplan) -> None:
    run = kvplan("gpus", "show", "h100")
    assert run.code == 0
    assert '"h100" taken as h100-sxm' in run.err


@pytest.mark.parametrize("width", [40, 60, 80, 140])
@pytest.mark.parametrize(
    "words",
    [
        ("models", "list"),
        ("gpus", "list"),
        ("models", "show", "gemma-3-27b"),
        ("gpus", "show", "h100-sxm"),
    ],
    ids=" ".join,
)
def test_no_line_is_wider_than_the_terminal(
    kvplan: Kvplan, words: tuple[str, ...], width: int
) -> None:
    run = kvplan(*words, env={"COLUMNS": str(width)})
    assert max(map(len, run.out.split("\n"))) <= width


@pytest.mark.parametrize("command", ["models", "gpus"])
def test_help_and_output(kvplan: Kvplan, command: str, tmp_path: Any) -> None:
    for words in ((command, "--help"), (command, "list", "--help"), (command, "show", "--help")):
        run = kvplan(*words)
        assert run.code == 0
        assert "Usage" in run.out
    assert kvplan(command, "list", "--format", "json", "--output", "list.json").out == ""
    assert json.loads((tmp_path / "list.json").read_text())


def test_models_import_writes_a_profile_that_reads_back(kvplan: Kvplan, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text(json.dumps(TINY_LLAMA))
    run = kvplan("models", "import", "mine", "--output", "mine.yaml")
    assert (run.code, run.out, run.err) == (0, "", "")
    profile = yaml.safe_load((tmp_path / "mine.yaml").read_text())
    assert profile["config"]["num_hidden_layers"] == TINY_LLAMA["num_hidden_layers"]
    assert profile["sources"] == ["config.json of mine/config.json"]
    both = [
        json.loads(kvplan("fit", ref, "--gpu", "l4", "--seq", "1k", "--format", "json").out)
        for ref in ("mine", "mine.yaml")
    ]
    assert both[0]["kv_cache"] == both[1]["kv_cache"]
    assert both[0]["memory"] == both[1]["memory"]


def test_models_import_takes_a_gguf_file_and_a_profile(kvplan: Kvplan, tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf").write_bytes(gguf_bytes(TINY_GGUF, tiny_gguf_tensors()))
    for source, target in (("tiny.gguf", "tiny.yaml"), ("tiny.yaml", "again.yaml")):
        run = kvplan("models", "import", source, "--output", target)
        assert (run.code, run.out, run.err) == (0, "", "")
    profile = yaml.safe_load((tmp_path / "again.yaml").read_text())
    assert profile["sources"] == ["GGUF header of tiny.gguf", "profile tiny.yaml"]
    words = ("--gpu", "l4", "--seq", "1k", "--engine", "none", "--format", "json")
    one, *others = (
        json.loads(kvplan("fit", ref, *words).out)
        for ref in ("tiny.gguf", "tiny.yaml", "again.yaml")
    )
    for other in others:
        assert (one["kv_cache"], one["memory"]) == (other["kv_cache"], other["memory"])


def test_models_import_of_a_bundled_name_is_its_profile(kvplan: Kvplan) -> None:
    profile = yaml.safe_load(kvplan("models", "import", "Llama_3.1-8B").out)
    assert profile["name"] == "llama-3.1-8b"
    assert profile["config"]["num_key_value_heads"] == 8
    assert profile["sources"]


def test_models_show_draws_the_layers_and_several_contexts(kvplan: Kvplan) -> None:
    """Gemma 3 27B: 52 layers keep 1,024 tokens, 10 keep all; 16 heads x 256 x 2 B in each."""
    run = kvplan("models", "show", "gemma-3-27b")
    assert " SSSSSF SSSSSF " in run.out
    assert "2k 294,912 B (0.56 GiB)" in run.out
    document = json.loads(kvplan("models", "show", "gemma-3-27b", "--format", "json").out)
    assert document["contexts"] == [
        {"tokens": n, "bytes": held, "bytes_per_token": -(-held // n)}
        for n in (2048, 8192, 32_768, 131_072)
        for held in [(52 * 1024 + 10 * n) * 16 * 256 * 2]
    ]
    assert "drawn" not in kvplan("models", "show", "llama-7b").out
