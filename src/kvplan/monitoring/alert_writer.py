"""How an alert is written: severity, a summary with units, what to do, and its runbook section."""

from __future__ import annotations

from typing import Any

from kvplan.monitoring import records as names
from kvplan.monitoring.advice import runbook_link
from kvplan.monitoring.promql import as_text
from kvplan.monitoring.rule_question import Question

Rules = list[dict[str, Any]]
PERCENT = "{{ $value | humanizePercentage }}"
NUMBER = "{{ $value | humanize }}"


class Writer:
    """Collects the alerts that can be written and the reasons why others cannot."""

    def __init__(self, question: Question) -> None:
        self.q = question
        self.made: Rules = []
        self.left_out: list[str] = []
        self.who = (
            "{{ $labels.instance }}"
            if "instance" in question.metrics.group
            else "{{ $labels.job }}"
        )

    def alert(
        self, name: str, severity: str, expr: str, hold: str, summary: str, *, action: str
    ) -> None:
        annotations = {
            "summary": summary,
            "action": as_text(action),
            "runbook_url": runbook_link(name, self.q.options.runbook),
        }
        if self.q.plan is not None:
            annotations["plan"] = as_text(self.q.plan.words())
        self.made.append(
            {
                "alert": name,
                "expr": expr,
                "for": hold,
                "labels": {"severity": severity, "engine": self.q.metrics.engine},
                "annotations": annotations,
            }
        )

    def omit(self, name: str, why: str) -> None:
        self.left_out.append(f"{name}: {why}")


def near_full(w: Writer) -> str:
    """The condition of a pool near full."""
    return f"{names.KV_USE}{{{w.q.job}}} > {w.q.policy.monitoring.near_full:g}"


def and_with(w: Writer, condition: str) -> str:
    """The same server also meets ``condition``."""
    return f" and on ({w.q.by}) {condition}"
