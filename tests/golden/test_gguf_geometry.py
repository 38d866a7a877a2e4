"""GGUF metadata → caches, against the buffers that llama.cpp itself sets aside for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvplan.model.caches import (
    Cache,
    ChunkedLocal,
    FullAttention,
    Indexer,
    Latent,
    Recurrent,
    SlidingWindow,
)
from kvplan.model.rows import sequence_bytes
from kvplan.precision.kv import KV_FORMATS
from kvplan.sources.gguf.architectures import layer_caches
from kvplan.sources.gguf.metadata import Metadata

MODELS = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "llamacpp_kv_geometry.jsonl")
    .read_text()
    .splitlines()
]
F16 = KV_FORMATS["fp16"]
WINDOWS = (SlidingWindow, ChunkedLocal)


def caches_of(model: dict[str, Any], *kinds: type) -> list[Cache]:
    read = layer_caches(Metadata(model["metadata"], model["model"], {}))
    return [cache for kept in read for cache in kept if isinstance(cache, kinds)]


def buffer(caches: list[Cache], cells: int) -> list[int]:
    """Cells, layers, bytes of keys and bytes of values that these layers fill."""
    keys = values = 0
    for cache in caches:
        if isinstance(cache, Latent):
            keys += 2 * cells * (cache.kv_lora_rank + cache.qk_rope_head_dim)
        elif isinstance(cache, Indexer):  # llama.cpp keeps these keys in the cache's own type
            keys += 2 * cells * cache.index_head_dim
        elif isinstance(cache, (FullAttention, SlidingWindow, ChunkedLocal)):
            keys += 2 * cells * cache.num_kv_heads * cache.head_size
            values += 2 * cells * cache.num_kv_heads * cache.head_size_v
    return [cells, len(caches), keys, values]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: str(model["model"]))
def test_attention_buffers_are_llama_cpps(model: dict[str, Any]) -> None:
    """One buffer for full layers, one for window layers, one for indexer keys, to the byte."""
    kinds = [(FullAttention, Latent), WINDOWS, (Indexer,)]
    groups = [group for group in (caches_of(model, *kind) for kind in kinds) if group]
    for row in model["rows"]:
        assert [len(groups)] == [len(row["kv"])]
        for group, expected in zip(groups, row["kv"], strict=True):
            assert buffer(group, expected[0]) == expected


@pytest.mark.parametrize("model", MODELS, ids=lambda model: str(model["model"]))
def test_recurrent_states_are_llama_cpps(model: dict[str, Any]) -> None:
    states = caches_of(model, Recurrent)
    for row in model["rows"]:
        rows, layers, conv, state = row["rs"] or (1, 0, 0, 0)
        assert rows == 1
        assert len(states) == layers
        assert sum(cache.state_bytes(F16) for cache in states) == conv + state  # type: ignore[union-attr]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: str(model["model"]))
def test_full_layers_grow_as_llama_cpps(model: dict[str, Any]) -> None:
    """The logical bytes of n tokens are llama.cpp's buffer of n cells, where nothing slides."""
    full = caches_of(model, FullAttention, Latent)
    for row in model["rows"] if full else ():
        cells, _, keys, values = row["kv"][0]
        logical = sequence_bytes([cache.row(F16) for cache in full], cells)
        assert logical == keys + values


@pytest.mark.parametrize("model", MODELS, ids=lambda model: str(model["model"]))
def test_the_log_says_the_same(model: dict[str, Any]) -> None:
    for row in model["rows"]:
        for (_, _, keys, values), (k_mib, v_mib) in zip(row["kv"], row["logged_mib"], strict=True):
            assert keys / 2**20 == pytest.approx(k_mib, abs=0.0051)
            assert values / 2**20 == pytest.approx(v_mib, abs=0.0051)
