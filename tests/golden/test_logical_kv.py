"""Logical KV bytes of published configs against figures worked out by rule from the same files.

``tests/data/model_configs.jsonl``, one model a line: ``kv.growing`` bytes a token in bf16 of layers
that keep everything, ``kv.windows`` bytes a token of layers that keep a window (window: bytes),
``kv.state`` bytes of recurrent state in float32. Index keys and the open groups of compressors are
not in these figures; kvplan counts them too, so they are left out here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvplan.model.model import Model
from kvplan.model.rows import sequence_bytes
from kvplan.precision.kv import KV_FORMATS
from kvplan.sources.huggingface.config import read_config

Row = dict[str, Any]
BF16 = KV_FORMATS["bf16"]
DATA = Path(__file__).parents[1] / "data" / "model_configs.jsonl"
ROWS: list[Row] = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]

NOT_IN_THE_FIGURES = {"indexer", "compressor_state"}
NO_STATE_IN_THE_ROW = {"rwkv5-3b"}
"""The rule that made the row does not know RWKV's state."""
INDEX_IN_THE_ROW = {"deepseek-v4-pro": 30 * 128 * 2 // 4}
"""This row has the index keys after all, in 16 bits: 30 layers, a key for every 4 tokens."""
GROUP = 128
"""Lengths are multiples of DeepSeek V4's longest group, so that no group is open."""


def read(row: Row) -> Model:
    return read_config(row["config"], name=row["slug"], source=f"{row['slug']}/config.json")


def expected(row: Row, tokens: int) -> int:
    kv = row["kv"]
    windows = sum(min(int(span), tokens) * rate for span, rate in kv["windows"].items())
    growing = kv["growing"] - INDEX_IN_THE_ROW.get(row["slug"], 0)
    total = growing * tokens + windows + kv["state"]
    assert total == int(total)
    return int(total)


def lengths(model: Model) -> list[int]:
    """From one group up to the longest sequence the model was made for."""
    longest = (model.max_position_embeddings or 4096) // GROUP * GROUP
    return sorted({GROUP, 1024, 4096 + GROUP, longest})


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["slug"])
def test_kv_bytes_of_a_sequence(row: Row) -> None:
    model = read(row)
    kept = [
        group.cache.row(BF16, 1, group.layers)
        for group in model.groups
        if group.cache.kind not in NOT_IN_THE_FIGURES
    ]
    if row["slug"] in NO_STATE_IN_THE_ROW:
        assert {group.cache.kind for group in model.groups} == {"recurrent"}
        assert row["kv"]["state"] == 0
        return
    for tokens in lengths(model):
        if tokens <= (model.max_position_embeddings or tokens):
            assert sequence_bytes(kept, tokens) == expected(row, tokens)


def test_every_published_config_is_read() -> None:
    assert len(ROWS) == 210
    assert len({row["slug"] for row in ROWS}) == 210
    assert all(read(row).layers for row in ROWS)


def test_index_keys_and_open_groups_are_part_of_the_logical_figure() -> None:
    """DeepSeek V3.2: 61 layers of 132 bytes. V4 Pro: float32 inputs of the open groups.

    30 layers of 8 tokens of 4 * 512 and 4 * 128 elements, 31 layers of 128 tokens of 2 * 512.
    """
    by_slug = {row["slug"]: row for row in ROWS}
    v32 = read(by_slug["deepseek-v3.2"])
    assert sequence_bytes(v32.logical_rows(BF16), 1000) == 1000 * 61 * (576 * 2 + 132)
    v4 = read(by_slug["deepseek-v4-pro"])
    states = [
        g.cache.row(BF16, 1, g.layers) for g in v4.groups if g.cache.kind == "compressor_state"
    ]
    assert sequence_bytes(states, 4096) == 4 * (30 * 8 * (4 * 512 + 4 * 128) + 31 * 128 * 2 * 512)
