"""Prometheus's own tools in tests: promtool on rules, and metrics pages as its input."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvplan.monitoring.engines import load_metrics
from kvplan.monitoring.exporters import load_exporter
from kvplan.monitoring.plan import Plan
from kvplan.monitoring.rule_question import Question, RuleOptions
from kvplan.policy import load_policy

PAGES = Path(__file__).parent / "data" / "metrics"
GIB = 2**30

PLAN = Plan(
    model="llama-3.1-8b", gpu="h100-sxm", engine="vllm", engine_version="0.33",
    kv_cache_dtype="bf16", seq_len=32_768, batch=13, replicas=1, gpus=1, verdict="fits",
    device_bytes=80 * GIB, usable_bytes=80 * GIB, claim_bytes=72 * GIB, weight_bytes=15 * GIB,
    pool_bytes=54 * GIB, pool_blocks=28_000, pool_tokens=448_000,
    pool_low_bytes=53 * GIB, pool_high_bytes=55 * GIB, max_batch=13, options=(),
    formats=(("bf16", 13), ("fp8_e4m3", 27)), flags=("vllm", "serve", "llama"),
)  # fmt: skip
"""5 % of 28,000 blocks is 1,400; its measured range, 1 GiB of 54, is narrower."""


def tool(name: str) -> str:
    """The path of promtool or prometheus; the test is skipped where it is not installed."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed: apt-get install prometheus")
    return path


def question(engine: str, plan: Plan | None = PLAN, **options: Any) -> Question:
    """What rules are made from, with every constant that an alert needs."""
    metrics = load_metrics(engine)
    chosen: dict[str, Any] = {
        "exporter": load_exporter("dcgm"),
        "exporter_job": "dcgm",
        "peak_tokens_per_s": 1000.0,
        "peak_source": "the test",
        **options,
    }
    if plan is not None and plan.engine not in metrics.plan_engines:
        plan = plan._replace(engine=metrics.plan_engines[0])
    return Question(metrics, load_policy(), plan, RuleOptions(job="engine", **chosen))


def page_series(name: str, job: str = "engine") -> dict[str, str]:
    """A stored page as input series that stay as they are."""
    from prometheus_client.parser import text_string_to_metric_families

    text = (PAGES / name).read_text()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = {**sample.labels, "job": job, "instance": f"{job}:8000"}
            shown = ",".join(f'{key}="{value}"' for key, value in labels.items())
            found[f"{sample.name}{{{shown}}}"] = f"{sample.value}+0x240"
    return found


def check(rules: str, folder: Path) -> None:
    """promtool accepts the rules."""
    path = folder / "rules.yml"
    path.write_text(rules)
    done = subprocess.run(
        [tool("promtool"), "check", "rules", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def assert_firing(
    rules: str, series: Mapping[str, str], expected: set[str], folder: Path, at: str = "1h"
) -> None:
    """Exactly these alerts fire ``at`` that time on these series, of one sample every 30 s."""
    (folder / "rules.yml").write_text(rules)
    samples = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(expected)]
    test = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "30s",
        "tests": [
            {
                "interval": "30s",
                "input_series": [{"series": k, "values": v} for k, v in series.items()],
                "promql_expr_test": [
                    {
                        "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                        "eval_time": at,
                        "exp_samples": samples,
                    }
                ],
            }
        ],
    }
    run_promtool(test, folder)


def run_promtool(test: Mapping[str, Any], folder: Path) -> None:
    """``promtool test rules`` passes."""
    path = folder / "test.yml"
    path.write_text(yaml.safe_dump(dict(test), sort_keys=False))
    done = subprocess.run(
        [tool("promtool"), "test", "rules", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
