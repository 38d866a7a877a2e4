"""The dashboard: Grafana's schema, queries that Prometheus parses, names that are exported."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_tools import PLAN, check, question

from kvplan.monitoring.dashboard import dashboard, render

ENGINES = ["vllm", "vllm@0.10", "sglang", "tensorrt-llm", "triton", "tgi", "llamacpp", "dynamo"]
NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_:]*(?=\{)")


def made(engine: str, **options: object) -> dict[str, Any]:
    return json.loads(render(dashboard(question(engine, **options))))  # type: ignore[arg-type,no-any-return]


def queries(board: dict[str, Any]) -> list[str]:
    return [t["expr"] for panel in board["panels"] for t in panel.get("targets", ())]


def lost(before: object, after: object, path: str = "") -> list[str]:
    """What is in ``before`` and not, or not the same, in ``after``."""
    if isinstance(before, dict):
        if not isinstance(after, dict):
            return [path]
        return [p for k, v in before.items() for p in lost(v, after.get(k), f"{path}/{k}")]
    if isinstance(before, list):
        if not isinstance(after, list) or len(before) != len(after):
            return [path]
        pairs = zip(before, after, strict=True)
        return [p for n, (a, b) in enumerate(pairs) for p in lost(a, b, f"{path}/{n}")]
    return [] if before == after else [path]


@pytest.mark.parametrize("engine", ENGINES)
def test_grafanas_schema_keeps_every_key(engine: str) -> None:
    """Read into classes made from Grafana's schema and written again: nothing is unknown to it."""
    sdk = pytest.importorskip("grafana_foundation_sdk.models.dashboard")
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins

    register_default_plugins()
    board = made(engine)
    again = json.loads(json.dumps(sdk.Dashboard.from_json(board), cls=JSONEncoder))
    assert lost(board, again) == []


@pytest.mark.parametrize("engine", ENGINES)
def test_every_query_parses(engine: str, tmp_path: Path) -> None:
    """As recording rules, with Grafana's variables put in, in promtool's hands."""
    found = [
        {"record": f"query:number{n}", "expr": expr.replace("$__rate_interval", "5m")}
        for n, expr in enumerate(queries(made(engine)))
    ]
    assert found
    check(yaml.safe_dump({"groups": [{"name": "queries", "rules": found}]}), tmp_path)


@pytest.mark.parametrize("engine", ENGINES)
def test_only_exported_names_are_asked_for(engine: str) -> None:
    asked = question(engine)
    assert asked.options.exporter is not None
    known = asked.metrics.names() | asked.options.exporter.names()
    named = {name for expr in queries(made(engine)) for name in NAME.findall(expr)}
    assert named
    assert named <= known


def test_what_a_person_looks_for_is_there() -> None:
    titles = {panel["title"] for panel in made("vllm")["panels"]}
    assert titles == {
        "Plan", "KV pool in use", "KV pool in use over time", "KV tokens against the plan",
        "Requests", "Time to first token", "Time to first token: share above 250 ms",
        "Time per output token", "Time per output token: share above 50 ms",
        "Throughput against the plan", "Prefix-cache hits", "GPU memory ledger of the plan",
        "GPU memory measured",
    }  # fmt: skip


def panel(board: dict[str, Any], title: str) -> dict[str, Any]:
    return next(p for p in board["panels"] if p["title"] == title)


def test_the_plans_figures_are_the_thresholds() -> None:
    board = made("vllm")

    def steps(title: str) -> list[float]:
        found = panel(board, title)["fieldConfig"]["defaults"]["thresholds"]["steps"]
        return [step["value"] for step in found[1:]]

    assert steps("KV pool in use") == [0.6, 0.9]
    assert steps("KV tokens against the plan") == [448_000]
    assert steps("Requests") == [13]
    assert steps("Time to first token") == [0.2]
    assert steps("Throughput against the plan") == [800, 1000]
    assert steps("GPU memory measured") == [72 * 2**30]
    ledger = panel(board, "GPU memory ledger of the plan")["targets"]
    parts = {t["legendFormat"]: int(t["expr"][len("vector(") : -1]) for t in ledger}
    # 72 GiB claimed, 15 of weights, 54 of KV pool: 3 GiB of activations, graphs and runtime.
    assert parts == {"weights": 15 * 2**30, "KV pool": 54 * 2**30, "rest": 3 * 2**30}


def test_the_panels_do_not_overlap() -> None:
    for engine in ENGINES:
        taken: set[tuple[int, int]] = set()
        for p in made(engine)["panels"]:
            place = p["gridPos"]
            cells = {
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            }
            assert not cells & taken
            assert max(x for x, _ in cells) < 24
            taken |= cells


def test_variables_for_instance_and_model() -> None:
    names = [v["name"] for v in made("vllm")["templating"]["list"]]
    assert names == ["datasource", "instance", "model"]
    assert [v["name"] for v in made("tgi")["templating"]["list"]] == ["datasource", "instance"]


def test_names_of_strangers_stay_text() -> None:
    nasty = "<img src=x onerror=alert(1)> [x](javascript:y) ${__user.login} `"
    board = made("vllm", plan=PLAN._replace(model=nasty))
    words = panel(board, "Plan")["options"]["content"]
    assert "<img" not in words.replace("\\<img", "")
    assert "${" not in words
    assert "$" not in board["title"]
    assert len(board["uid"]) <= 40
