"""``kvplan explain``."""

from __future__ import annotations

import json

import pytest

from .conftest import Kvplan


def test_pattern_formula_and_contexts(kvplan: Kvplan) -> None:
    run = kvplan("explain", "gemma-3-27b")
    assert run.code == 0
    assert run.err == ""
    for words in (
        "5 x sliding(1,024) + 1 x full, 10 times, then 2 x sliding(1,024)",
        "52 layers x ceil(16 / 1) heads x (128 + 128) x 2 B = 425,984 B/token",
        "capped at 1,024 tokens",
        "grows with every token",
        "131,072  10.41 GiB",
        "6.0x 62.00 GiB: windows left out",
    ):
        assert words in run.out, words


def test_latent_attention_is_not_divided_by_tp(kvplan: Kvplan) -> None:
    document = json.loads(kvplan("explain", "deepseek-v3", "--tp", "8", "--format", "json").out)
    [group] = document["groups"]
    assert group["bytes_per_token"] == 61 * 576 * 2
    assert document["tp"] == 8
    assert max(naive["ratio"] for naive in document["naive"]) > 70


def test_format_what_if_and_length(kvplan: Kvplan) -> None:
    document = json.loads(
        kvplan(
            "explain", "llama-3.1-8b", "--kv", "fp8", "--seq", "100k", "--set",
            "num_kv_heads=1", "--format", "json",
        ).out
    )  # fmt: skip
    assert document["kv_cache_dtype"] == "fp8_e4m3"
    assert document["groups"][0]["numbers"] == "32 layers x ceil(1 / 1) heads x (128 + 128) x 1 B"
    assert 102400 in [c["tokens"] for c in document["contexts"]]
    assert any("what if: num_key_value_heads = 1" in said for said in document["assumptions"])


def test_the_headline_is_for_the_length_asked(kvplan: Kvplan) -> None:
    # 10 full layers and 52 with a window of 1,024, each 16 heads x (128 + 128) x 2 B = 8,192 B
    at_4k = (10 * 4_096 + 52 * 1_024) * 8_192
    run = kvplan("explain", "gemma-3-27b", "--seq", "4k")
    assert f"keeps {at_4k // 4_096:,} B a token at 4k tokens: 0.72 GiB" in run.out
    document = json.loads(kvplan("explain", "gemma-3-27b", "--seq", "4k", "--format", "json").out)
    assert document["seq_len"] == 4_096


def test_markdown_is_tables(kvplan: Kvplan) -> None:
    run = kvplan("explain", "llama-3.1-8b", "--format", "markdown")
    assert run.out.startswith("## llama-3.1-8b\n")
    assert "| layers | growth | formula | with its numbers | source |" in run.out


@pytest.mark.parametrize("width", [40, 60, 80, 140])
@pytest.mark.parametrize("model", ["gemma-3-27b", "deepseek-v3", "llama-3.1-8b"])
def test_no_line_is_wider_than_the_terminal(kvplan: Kvplan, model: str, width: int) -> None:
    run = kvplan("explain", model, env={"COLUMNS": str(width)})
    assert run.code == 0
    assert max(map(len, run.out.split("\n"))) <= width


def test_errors_are_the_loaders_own(kvplan: Kvplan) -> None:
    run = kvplan("explain", "lama-3.1-8b")
    assert run.code == 2
    assert "Nearest: llama-3.1-8b" in run.err
    assert kvplan("explain", "llama-3.1-8b", "--tp", "3").code == 2
    assert "--format" in kvplan("explain", "llama-3.1-8b", "--format", "csv").err


def test_help_documents_every_option(kvplan: Kvplan) -> None:
    run = kvplan("explain", "--help")
    assert run.code == 0
    for option in ("--kv", "--tp", "--seq", "--set", "--format", "--output"):
        assert option in run.out
    assert "--gpu " not in run.out
