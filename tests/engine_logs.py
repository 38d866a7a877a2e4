"""Start-up logs of real engines beside what kvplan says of the same start.

``tests/data/engine_logs.jsonl``, one log a line: who printed it (``origin``), what the log or its
author states, and the same as flags of kvplan. What no log states is left to the engine's defaults
of that version. First come configs of models outside the catalogue. Rows without a ``model`` say in
``not_covered`` why they are not compared.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from kvplan.deployment import Deployment
from kvplan.engines import load_engine
from kvplan.engines.base import KvLayout, PoolFigures
from kvplan.errors import KvplanError
from kvplan.model.model import Model
from kvplan.planning.budget import Budget, evaluate
from kvplan.planning.report import Verdict
from kvplan.question import build_deployment
from kvplan.sources.huggingface.config import read_config
from kvplan.units import GIB

Row = dict[str, Any]
DATA = Path(__file__).parent / "data" / "engine_logs.jsonl"
_DOCUMENTS: list[Row] = [json.loads(line) for line in DATA.read_text("utf-8").splitlines()]
CONFIGS = {d["config_of"]: d["config"] for d in _DOCUMENTS if "config_of" in d}
"""Configs of models that the catalogue may not have."""
ROWS = [d for d in _DOCUMENTS if "id" in d]
HALF_DIGIT = 0.005
"""Sizes are printed in GiB with two decimals."""
ENGINE = load_engine("vllm")
NOT_A_PREDICTION = ("GPU not named", "model inferred", "development build", "unequal GPUs")
"""Notes of rows whose configuration does not determine the pool."""


_OTHER_WORKER = "the size is one worker's, the blocks are the fewest over all workers"
TOKENS_DIFFER = {"vllm-015": _OTHER_WORKER, "vllm-021": _OTHER_WORKER}
"""Rows whose printed tokens are not those of the printed pool."""
POOL_DIFFERS = {
    "vllm-008": "2.12 GiB of activation where 1,024 sequences' sampling alone is 4.8: fewer "
    "sequences than the default, or FlashInfer's sampler",
    "vllm-032": "Marlin kernels and their padding, where Triton's are the default on Hopper",
    "vllm-123": "a T4 that printed 0.90 GiB of activation for the 1.19 of the law",
}
"""Rows whose pool is more than 2 % of the claim away."""
TERM_DIFFERS = {
    ("weights", "vllm-050"): "the vision tower, which the row's config gives no total for",
    ("weights", "vllm-108"): "the vision tower, which the row's config gives no total for",
    ("weights", "vllm-125"): "an AMD build that held the tied embedding twice",
    ("weights", "vllm-130"): "the vision tower counted whole on each of 4 ranks",
    ("activation", "vllm-125"): "0.04 GiB beyond the range, on an AMD build",
    ("runtime", "vllm-011"): "a development build, whose accounting was replaced before release",
    ("runtime", "vllm-012"): "a development build, whose accounting was replaced before release",
}
"""Terms outside their range, or weights more than 2 % away."""
TERMS = {
    "weights": "weights_gib_per_gpu",
    "activation": "activation_peak_gib",
    "runtime": "non_torch_gib",
    "cuda_graph": "cuda_graph_gib",
}
"""Each term and where a row has it."""


class Result(NamedTuple):
    """One log and kvplan's answer to the same configuration."""

    row: Row
    budget: Budget | None
    error: str | None

    @property
    def id(self) -> str:
        name: str = self.row["id"]
        return name

    @property
    def notes(self) -> list[str]:
        notes: list[str] = self.row.get("notes", [])
        return notes

    def seen(self, key: str) -> float | None:
        value: float | None = self.row["observed"].get(key)
        return value

    def claim_error(self) -> float | None:
        """Predicted less logged pool, as a share of the claim."""
        logged = self.seen("kv_cache_gib_per_gpu")
        if self.budget is None or logged is None or not self.budget.claim_bytes:
            return None
        return (self.budget.pool_bytes - logged * GIB) / self.budget.claim_bytes

    def predicts(self) -> bool:
        """The log names model, GPU, tp and utilisation, and is sure of what it says."""
        return (
            self.row["confidence"] == "high"
            and self.claim_error() is not None
            and "gpu_memory_utilization" in self.row["flags"]
            and not any(part in note for note in self.notes for part in NOT_A_PREDICTION)
        )

    def figures_of_logged_pool(self) -> tuple[tuple[PoolFigures, int | None], ...] | None:
        """What the logged pool comes to at both ends of its rounding: figures and blocks."""
        logged = self.seen("kv_cache_gib_per_gpu")
        if self.budget is None or logged is None or logged <= 0:
            return None
        layout, d = self.budget.layout, self.budget.deployment
        ends = [round((logged + off) * GIB) for off in (-HALF_DIGIT, HALF_DIGIT)]
        return tuple(
            (ENGINE.pool_figures(d, layout, size), layout.pool_blocks(size)) for size in ends
        )


@cache
def model_of(name: str) -> Model | str:
    """A model with a config in the data; else the name of a bundled one."""
    if name in CONFIGS:
        return read_config(CONFIGS[name], name=name, source=name)
    return name


def asked(row: Row, **changes: Any) -> Deployment:
    """The row's configuration as flags."""
    flags = {"seq": 2048, **row["flags"], **changes}
    return build_deployment(model_of(row["model"]), gpu=row["gpu"], engine=row["engine"], **flags)


def answer(row: Row) -> Result:
    """kvplan's answer to a row; an error where it has none."""
    if "model" not in row:
        return Result(row, None, row["not_covered"])
    try:
        return Result(row, evaluate(ENGINE, ENGINE.resolve(asked(row)), 0.05), None)
    except KvplanError as error:
        return Result(row, None, error.message)


@cache
def results() -> list[Result]:
    """All rows, answered once."""
    return [answer(row) for row in ROWS]


def with_tokens() -> list[Result]:
    """Rows that print tokens or blocks of a pool whose size they print too."""
    return [
        r
        for r in results()
        if r.figures_of_logged_pool() is not None
        and (r.seen("kv_tokens") is not None or r.seen("gpu_blocks") is not None)
    ]


def whole_model_layout(row: Row) -> tuple[KvLayout, int]:
    """The layout of the model on one stage, and the length, as vLLM's check of a length has it."""
    d = ENGINE.resolve(asked(row, pp=1))
    return ENGINE.kv_layout(d, 0), d.args.max_model_len or d.seq_len


def term(result: Result, key: str) -> tuple[float, float, float] | None:
    """A term's range in GiB."""
    if result.budget is None:
        return None
    found = next((t for t in result.budget.terms if t.key == key), None)
    return None if found is None else (found.low / GIB, found.likely / GIB, found.high / GIB)


class Compared(NamedTuple):
    """A term of a row in GiB."""

    id: str
    low: float
    likely: float
    high: float
    seen: float

    @property
    def inside(self) -> bool:
        """Within the range and the log's rounding."""
        return self.low - 2 * HALF_DIGIT <= self.seen <= self.high + 2 * HALF_DIGIT


def compared(key: str) -> list[Compared]:
    """Every row that logs a term. Weights have a range of 2 %; freed graph memory counts as 0.

    From 0.20 the printed peak activation holds the estimate of the graphs as well.
    """
    found = []
    for result in results():
        seen, b = result.seen(TERMS[key]), result.budget
        if seen is None or b is None or b.weight_bytes is None:
            continue
        ends = term(result, key)
        if key == "weights":
            size = b.weight_bytes / GIB
            ends = (size * 0.98, size, size * 1.02)
        graphs = next(t for t in b.terms if t.key == "cuda_graph")
        if key == "activation" and graphs.in_claim and ends is not None:
            more = (graphs.low / GIB, graphs.likely / GIB, graphs.high / GIB)
            ends = (ends[0] + more[0], ends[1] + more[1], ends[2] + more[2])
        if ends is not None:
            found.append(Compared(result.id, *ends, max(seen, 0.0)))
    return found


def fits(result: Result) -> bool:
    """Whether kvplan would have let the start through without a warning."""
    return result.budget is not None and result.budget.verdict is Verdict.FITS
