"""A Grafana dashboard for one engine and one plan, as plain JSON.

Plain JSON, not Grafana's Foundation SDK: a dozen panels of two kinds need no builder, the SDK is
alpha, and its releases are numbered by epochs so that an unpinned install gets the oldest Grafana.
The tests read the result back with the SDK's classes, which are made from Grafana's own schema.
"""

from __future__ import annotations

import hashlib
from typing import Any

from kvplan.monitoring.dashboard_panels import panels
from kvplan.monitoring.panels import DATASOURCE, Json, as_json, lay_out, text_panel
from kvplan.monitoring.rule_question import Question
from kvplan.units import format_gib


def dashboard(question: Question) -> Json:
    """The dashboard as Grafana imports it."""
    drawn = [text_panel("Plan", _words(question)), *map(as_json, panels(question))]
    plan, title = question.plan, question.metrics.title
    name = f"kvplan: {plan.model if plan else question.options.job} on {title}"
    seed = f"{question.metrics.engine}/{question.options.job}/{plan.words() if plan else ''}"
    return {
        "uid": "kvplan-" + hashlib.sha256(seed.encode()).hexdigest()[:16],
        "title": name.replace("$", ""),
        "description": "KV cache, requests, latencies and memory against the plan of kvplan fit.",
        "tags": ["kvplan", question.metrics.engine],
        "timezone": "browser",
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "schemaVersion": 41,
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": _variables(question)},
        "annotations": {"list": []},
        "panels": lay_out(drawn),
    }


def _variables(q: Question) -> list[Json]:
    """Data source, instance and model; the last two only where the engine's series have them."""
    found: list[Json] = [
        {"type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus"}
    ]

    def labels(name: str, label: str, title: str, selector: str) -> Json:
        query = f"label_values({selector}, {label})"
        return {
            "type": "query",
            "name": name,
            "label": title,
            "datasource": DATASOURCE,
            "query": {"qryType": 1, "query": query, "refId": f"variable-{name}"},
            "refresh": 2,
            "includeAll": True,
            "multi": True,
            "allValue": ".*",
            "sort": 1,
        }

    m = q.metrics
    if "instance" in m.group:
        found.append(labels("instance", "instance", "Instance", f"up{{{q.job}}}"))
    if m.model_label and m.model_label in m.group and m.running is not None:
        found.append(labels("model", m.model_label, "Model", m.running.select(q.job)))
    return found


def _words(q: Question) -> str:
    from kvplan.reports.markdown import bullets, escape

    lines = [f"**{escape(q.metrics.title)}**"]
    if q.plan is not None:
        plan = q.plan
        lines.append(escape(plan.words()))
        if q.same_engine and plan.pool_bytes is not None:
            blocks = f", {plan.pool_blocks:,} blocks" if plan.pool_blocks else ""
            tokens = f", {plan.pool_tokens:,} tokens" if plan.pool_tokens else ""
            lines.append(
                f"KV pool of the plan: {format_gib(plan.pool_bytes)}{blocks}{tokens} a GPU."
            )
        lines.append(f"Sequences of {plan.seq_len:,} tokens that it holds: {plan.max_batch:,}.")
    missing = [f"{what}: {why}" for what, why in q.metrics.absent]
    text = "  \n".join(lines)
    if missing:
        text += "\n\nNot exported by this engine:\n\n" + bullets(missing)
    return text.replace("$", "&#36;")


def render(document: Json) -> str:
    """The dashboard's file."""
    import json

    text: Any = json.dumps(document, indent=2, ensure_ascii=False)
    return f"{text}\n"
