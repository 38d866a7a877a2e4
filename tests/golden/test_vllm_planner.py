"""vLLM's own planner against kvplan's: bytes, blocks, tokens and verdict, all exact.

``tests/data/vllm_planner.jsonl``: its first line says where the rows come from, then come the
configs, then one row a start of vLLM with what it was given and what it planned.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kvplan.deployment import Deployment
from kvplan.engines import load_engine
from kvplan.engines.base import KvLayout
from kvplan.errors import KvplanError
from kvplan.model.model import Model
from kvplan.planning.budget import evaluate
from kvplan.planning.limits import Question, with_fitted_length
from kvplan.planning.report import Verdict
from kvplan.question import build_deployment
from kvplan.sources.huggingface.config import read_config

Row = dict[str, Any]
DATA = Path(__file__).parents[1] / "data" / "vllm_planner.jsonl"
_DOCUMENTS = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]
CONFIGS: dict[str, Any] = {d["config_of"]: d["config"] for d in _DOCUMENTS if "config_of" in d}
ROWS: list[Row] = [d for d in _DOCUMENTS if "id" in d]
GPUS = {"H200": "h200-sxm", "B200": "b200-sxm", "A100-SXM4-80GB": "a100-80g-sxm"}

NOT_YET: dict[str, frozenset[int]] = {}
"""Rows that kvplan does not answer exactly yet, by reason. A row that it does answer fails until
it is taken off this list."""

STATED_CONTEXT = {108: 131_072, 111: 8192}
"""Context lengths that vLLM knew from elsewhere than the config in the row."""

_LISTED = {number: reason for reason, numbers in NOT_YET.items() for number in numbers}


@cache
def model_of(key: str) -> Model:
    return read_config(CONFIGS[key], name=key, source=key)


def ask(row: Row) -> Deployment:
    """The row's inputs as the flags of a person who starts vLLM in that way."""
    given = row["inputs"]
    args = dict(given["engine_args"])
    available = given["available_bytes"]
    flags: dict[str, Any] = {
        "gpu": GPUS[given["device"]],
        "tp": given["tp"],
        "pp": given["pp"],
        "seq": STATED_CONTEXT.get(row["id"], given["max_model_len"]),
        "block_size": given["block_size"],
        "kv_cache_memory": max(0, max(available) if isinstance(available, list) else available),
        "max_num_batched_tokens": args.pop("max_num_batched_tokens", None),
        "disable_hybrid_kv_cache_manager": args.pop("disable_hybrid_kv_cache_manager", False),
        "no_async_scheduling": args.pop("async_scheduling", True) is False,
        "enforce_eager": True,  # as the rows were made: no graphs, and no refusals for their sake
        "no_prefix_caching": args.pop("enable_prefix_caching", True) is False,
    }
    if given["kv_cache_dtype"] != "auto":
        flags["kv"] = given["kv_cache_dtype"]
    if given["dcp"] > 1:
        flags["dcp"] = given["dcp"]
    if given["max_model_len"] == -1:
        flags["seq"], flags["max_model_len"] = None, "auto"
    args.pop("speculative_config", None)  # n-gram proposals keep nothing on the GPU
    if given["dtype"] == "float32":
        args["dtype"] = "float32"
    if args:
        flags["engine_arg"] = [f"{name}={_text(value)}" for name, value in args.items()]
    return build_deployment(model_of(row["config"]), **flags)


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def differences(row: Row) -> list[str]:
    """What kvplan answers otherwise than vLLM did; empty when all is exact."""
    given, expected = row["inputs"], row["expected"]
    engine = load_engine("vllm")
    d = engine.resolve(with_fitted_length(Question(engine, ask(row), 0.0)).asked)
    layouts = [engine.kv_layout(d, stage) for stage in range(d.pp)]
    if isinstance(given["available_bytes"], list):
        layout, pool = smallest(layouts, given["available_bytes"], d.tp)
        verdict = None
    else:
        budget = evaluate(engine, d, 0.0)
        d, layout, pool, verdict = (
            budget.deployment, budget.layout, budget.pool_bytes, budget.verdict,
        )  # fmt: skip
    figures = engine.pool_figures(d, layout, pool)
    max_model_len = d.args.max_model_len or 0
    got = {
        "max_model_len": max_model_len,
        "bytes_per_block": [each.block_bytes for each in layouts],
        "blocks_per_request": layout.sequence_blocks(max_model_len),
    }
    if expected["error"] is None:
        got |= {
            "num_blocks": layout.pool_blocks(pool),
            "kv_cache_size_tokens": figures.tokens,
            "max_concurrency": figures.max_concurrency,
        }
    wrong = [f"{key}: {got[key]}, vLLM {expected[key]}" for key in got if got[key] != expected[key]]
    if verdict is not None and (verdict is Verdict.OOM) != (expected["error"] is not None):
        wrong.append(f"verdict {verdict}, vLLM {expected['error'] or 'starts'}")
    longest = re.search(r"estimated maximum model length is (\d+)", expected["error"] or "")
    if longest and layout.longest(layout.available_bytes(pool)) != int(longest[1]):
        wrong.append(f"longest {layout.longest(layout.available_bytes(pool))}, vLLM {longest[1]}")
    return wrong


def smallest(layouts: list[KvLayout], available: list[int], tp: int) -> tuple[KvLayout, int]:
    """The rank with the fewest blocks: all ranks take that many. Ranks count tp first, then pp."""
    ranks = [(layouts[rank // tp], pool) for rank, pool in enumerate(available)]
    return min(ranks, key=lambda rank: rank[0].pool_blocks(rank[1]) or 0)


def test_the_data_is_whole() -> None:
    assert len(ROWS) == len({row["id"] for row in ROWS}) == 336
    assert sum(row["expected"]["error"] is not None for row in ROWS) == 11
    assert set(_LISTED) <= {row["id"] for row in ROWS}
    assert len(_LISTED) == sum(len(numbers) for numbers in NOT_YET.values()), (
        "a row is listed twice"
    )


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['id']}-{row['config']}")
def test_row_is_exact(row: Row) -> None:
    reason = _LISTED.get(row["id"])
    if reason is None:
        assert differences(row) == []
        return
    try:
        wrong = differences(row)
    except KvplanError:
        return
    assert wrong, f"this row is exact now: take {row['id']} off the list {reason!r}"
