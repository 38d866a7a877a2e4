"""transformers' own cache objects against kvplan's engine: their bytes, all exact.

``tests/data/transformers_cache.jsonl``: its first line says where the rows come from, then come
the configs, each followed by the bytes that its cache held.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kvplan.deployment import Deployment
from kvplan.engines import load_engine
from kvplan.errors import InputError, UnsupportedCombination
from kvplan.model.model import Model
from kvplan.question import build_deployment
from kvplan.sources.huggingface.config import read_config

Row = dict[str, Any]
DATA = Path(__file__).parents[1] / "data" / "transformers_cache.jsonl"
_DOCUMENTS = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]
CONFIGS: dict[str, Any] = {d["config_of"]: d["config"] for d in _DOCUMENTS if "config_of" in d}
ROWS: list[Row] = [d for d in _DOCUMENTS if "of" in d]
ENGINE = load_engine("transformers")

REFUSED = {
    ("deepseek_v4", "dynamic"): "compressed layers",  # its buffers shrink as tokens come
    ("deepseek_v4:long", "dynamic"): "compressed layers",
    ("recurrent_gemma", "static"): "no static cache",  # its states lie outside the cache
}
"""Caches that this engine does not model, with the words of the error."""

_EXACT = [row for row in ROWS if (row["of"], row["cache"]) not in REFUSED]


@cache
def model_of(key: str) -> Model:
    return read_config(CONFIGS[key], name=key, source=key)


def ask(row: Row) -> Deployment:
    """The row's inputs as a person's flags."""
    arguments = [f"cache={row['cache']}"]
    if "max_cache_len" in row:
        arguments.append(f"max_cache_len={row['max_cache_len']}")
    return ENGINE.resolve(
        build_deployment(
            model_of(row["of"]),
            engine="transformers",
            gpu="h200-sxm",
            kv=row["dtype"],
            seq=row["tokens"],
            batch=row["batch"],
            engine_arg=arguments,
            encoder_tokens=row.get("encoder_tokens"),
        )
    )


def test_every_config_has_rows_and_every_row_a_config() -> None:
    assert {row["of"] for row in ROWS} == set(CONFIGS)
    assert set(REFUSED) <= {(row["of"], row["cache"]) for row in ROWS}


@pytest.mark.parametrize("key", sorted({row["of"] for row in _EXACT}))
def test_cache_bytes_are_those_of_transformers(key: str) -> None:
    for row in _EXACT:
        if row["of"] == key:
            layout = ENGINE.kv_layout(ask(row), 0)
            assert layout.reserved_bytes(row["tokens"]) * row["batch"] == row["total_bytes"], row


@pytest.mark.parametrize("row", [row for row in ROWS if row not in _EXACT], ids=repr)
def test_caches_that_are_not_modelled_are_refused(row: Row) -> None:
    words = REFUSED[(row["of"], row["cache"])]
    with pytest.raises(UnsupportedCombination, match=words):
        ENGINE.kv_layout(ask(row), 0)


@pytest.mark.parametrize("family", ["minimax", "rwkv", "xlstm"])
def test_models_with_a_cache_of_their_own_have_no_static_one(family: str) -> None:
    row: Row = {"of": family, "cache": "static", "dtype": "bf16", "tokens": 8, "batch": 1}
    with pytest.raises(UnsupportedCombination, match="no static cache"):
        ENGINE.kv_layout(ask(row), 0)


def test_a_dynamic_window_keeps_one_token_less_than_a_static_one() -> None:
    row: Row = {"of": "mistral", "dtype": "bf16", "tokens": 48, "batch": 1}
    token = 4 * 2 * 2 * 16 * 2  # layers x (keys, values) x heads x head size x bytes
    dynamic = ENGINE.kv_layout(ask({**row, "cache": "dynamic"}), 0)
    static = ENGINE.kv_layout(ask({**row, "cache": "static"}), 0)
    assert [dynamic.reserved_bytes(n) for n in (31, 32, 48)] == [31 * token] * 3
    assert [static.reserved_bytes(n) for n in (31, 32, 48)] == [31 * token, 32 * token, 32 * token]


def test_a_static_cache_is_whole_from_the_first_token() -> None:
    row: Row = {"of": "llama", "cache": "static", "dtype": "bf16", "tokens": 8, "batch": 1}
    layout = ENGINE.kv_layout(ask({**row, "max_cache_len": 64}), 0)
    assert [layout.reserved_bytes(n) for n in (1, 8, 64)] == [32_768] * 3
    assert layout.longest(32_768) == 64


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"tp": 2}, UnsupportedCombination, "not split"),
        ({"kv": "fp8"}, UnsupportedCombination, "dtype the model runs in"),
        ({"engine": "transformers@4.50"}, UnsupportedCombination, "is not modelled"),
        ({"engine_arg": ["cache=quantized"]}, InputError, "not a cache"),
        ({"engine_arg": ["max_cache_len=64"]}, InputError, "static cache"),
        ({"engine_arg": ["cache=static", "max_cache_len=8"]}, InputError, "less than the 16"),
        ({"engine_arg": ["offload=true"]}, InputError, "no such argument"),
    ],
)
def test_what_it_cannot_do_is_refused_by_name(
    changes: dict[str, Any], error: type[Exception], words: str
) -> None:
    flags = {"engine": "transformers", "gpu": "h200-sxm", "seq": 16, **changes}
    with pytest.raises(error, match=words):
        ENGINE.resolve(build_deployment(model_of("llama"), **flags))
