"""Every change that is offered makes it fit, when it is asked for as it is written."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from builders import deployment, tiny_model
from fake_engine import FakeEngine

from kvplan.planning.budget import evaluate
from kvplan.planning.fit import fit
from kvplan.planning.limits import Question, solve_limits
from kvplan.planning.options import options
from kvplan.planning.report import FitReport, OptionReport, Verdict
from kvplan.policy import load_policy
from kvplan.precision.kv import KV_FORMATS
from kvplan.precision.weights import WEIGHT_FORMATS
from kvplan.question import BY_NAME, build_deployment

ASKED: list[dict[str, Any]] = [
    {"model": "llama-7b", "gpu": "a100-80g", "seq": "32k", "batch": 8},
    {"model": "llama-3.1-70b", "gpu": "h100", "seq": "8k", "batch": 4},
    {"model": "llama-3.1-8b", "gpu": "rtx-4090", "seq": "32k", "batch": 2},
    {"model": "gemma-3-27b", "gpu": "l40s", "seq": "16k"},
    {"model": "llama-2-7b", "gpu": "a100-80g", "seq": "32k", "batch": 8, "engine": "none"},
]


def flags_of(words: str) -> dict[str, Any]:
    """``--tp 2 --enforce-eager`` as keyword arguments."""
    found: dict[str, Any] = {}
    parts = shlex.split(words)
    while parts:
        name = parts.pop(0).removeprefix("--").replace("-", "_")
        found[name] = True if BY_NAME[name].parse is None else parts.pop(0)
    return found


def judge(asked: dict[str, Any]) -> FitReport:
    return fit(build_deployment(**asked))


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: asked["model"])
def test_each_option_fits_as_written(asked: dict[str, Any]) -> None:
    report = judge(asked)
    assert report.verdict is not Verdict.FITS
    assert report.options
    for option in report.options:
        changed = judge({**asked, **flags_of(option.change)})
        assert changed.verdict is option.verdict, option.change
        assert changed.verdict is not Verdict.OOM, option.change
        assert changed.kv_cache.needed_bytes == option.kv_bytes, option.change
        assert changed.limits.max_batch == option.max_batch, option.change
        assert changed.flags == option.flags, option.change
        assert option.quality_note
        assert option.source


def test_no_options_where_it_fits() -> None:
    assert judge({"model": "llama-3.1-8b", "gpu": "h100", "seq": "8k"}).options == []


def fake_options(engine: FakeEngine, **changes: Any) -> list[OptionReport]:
    d = deployment(tiny_model(), **{"device_bytes": 10**12, **changes})
    question = Question(engine, d, 0.0)
    budget = evaluate(engine, d, 0.0)
    return options(question, budget, solve_limits(question, budget), load_policy())


WEIGHTS, SEQUENCE = 328_832, 524_288  # 1,024 tokens of 512 B


def test_order_is_settings_gpus_formats_load() -> None:
    engine = FakeEngine(
        WEIGHTS + SEQUENCE - 1,
        formats=["bf16", "int4_per_token_head", "fp8_e4m3", "nvfp4", "q4_0"],
        settings=[("--enforce-eager", {"kv_cache_memory_bytes": SEQUENCE})],
    )
    words = [option.change for option in fake_options(engine)]
    assert words == [
        "--enforce-eager",
        "--tp 2",
        # by measured cost, those never measured last: not all of them are listed
        "--kv fp8_e4m3",
        "--kv nvfp4",
        "--kv q4_0",
        "--weights fp8",
        "--weights fp8_block",
        "--weights int8",
        "--seq 1023",
    ]


def test_formats_outside_the_policys_bits_are_not_offered() -> None:
    engine = FakeEngine(WEIGHTS + SEQUENCE // 6, formats=["bf16", "kivi-2", "nuq3-1%", "q4_0"])
    words = [option.change for option in fake_options(engine)]
    assert not any(change.startswith("--kv") for change in words)


def test_fewer_sequences() -> None:
    engine = FakeEngine(WEIGHTS + 3 * SEQUENCE, formats=["bf16"])
    words = [option.change for option in fake_options(engine, batch=5)]
    assert "--batch 3" in words
    assert "--seq 614" in words  # 3 * 1,024 / 5 tokens = 614.4


def test_formats_are_listed_from_mild_to_harsh() -> None:
    report = judge(ASKED[-1])
    kv = [o.change.split()[1] for o in report.options if o.change.startswith("--kv")]
    weights = [o.change.split()[1] for o in report.options if o.change.startswith("--weights")]
    for names, known in ((kv, KV_FORMATS), (weights, WEIGHT_FORMATS)):
        costs = [known[name].quality_cost for name in names]
        measured = [cost for cost in costs if cost is not None]
        assert measured == sorted(measured)
        assert costs[: len(measured)] == measured
