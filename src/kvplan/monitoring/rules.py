"""Prometheus rules for one engine and one plan: recording rules first, alerts on them after."""

from __future__ import annotations

from typing import Any, NamedTuple

from kvplan.monitoring.alerts import alerts
from kvplan.monitoring.records import PEAK, records
from kvplan.monitoring.rule_question import Question


class RuleSet(NamedTuple):
    """The rules as Prometheus reads them, and what a person should know of them."""

    title: str
    groups: list[dict[str, Any]]
    left_out: list[str]
    notes: list[str]


def rules(question: Question) -> RuleSet:
    """Every rule that this engine's metrics allow."""
    found, left_out = alerts(question)
    notes = [*question.metrics.notes]
    for which in ("ttft", "tpot"):
        judged = question.judged(which)
        if judged is not None:
            notes.append(judged.words())
    options = question.options
    if options.peak_tokens_per_s is not None:
        notes.append(
            f"{PEAK} is the constant {options.peak_tokens_per_s:g} tokens/s of one server, from "
            f"{options.peak_source or '--peak-tokens-per-s'}."
        )
    if options.exporter is not None and options.host_label is None:
        notes.append(
            f"GPU use is the mean over every GPU of job {options.exporter_job!r}; with several "
            "hosts name the label that engine and exporter share: --host-label."
        )
    return RuleSet(
        title=question.metrics.title,
        groups=[
            {"name": f"kvplan-{question.metrics.engine}-records", "rules": records(question)},
            {"name": f"kvplan-{question.metrics.engine}-alerts", "rules": found},
        ],
        left_out=[*(f"{what}: {why}" for what, why in question.metrics.absent), *left_out],
        notes=notes,
    )
