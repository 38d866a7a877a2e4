"""How a difference is worded: the same for the terminal and for a comment."""

from __future__ import annotations

from kvplan.checking.budgets import amount
from kvplan.checking.difference import Change, DeploymentChange, DiffReport, FigureChange
from kvplan.reports.words import count_of

NAMES = {
    "gpu_count": "GPUs",
    "weight_bytes": "weights",
    "kv_bytes_per_token": "KV bytes a token",
    "kv_bytes_per_sequence": "KV bytes a sequence",
    "kv_needed_bytes": "KV cache needed",
    "kv_pool_bytes": "KV pool",
    "headroom_bytes": "headroom",
    "kv_share": "KV share of the GPU",
    "concurrency": "concurrency",
    "max_batch": "largest batch",
    "max_seq_len": "longest context",
    "seq_len": "seq",
    "batch": "batch",
}


def side(value: float | None, figure: FigureChange) -> str:
    """The figure on one side; empty where there is no such side."""
    return "" if value is None else amount(value, figure.unit)


def delta(figure: FigureChange) -> str:
    """The change with its sign, and its share of the base."""
    if figure.delta is None:
        return ""
    sign = "-" if figure.delta < 0 else "+"
    shown = sign + amount(abs(figure.delta), figure.unit)
    return shown if figure.ratio is None else f"{shown} ({figure.ratio * 100:+,.1f} %)"


def verdicts(change: DeploymentChange) -> str:
    """``fits → oom``, or the one that there is."""
    base, head = change.base_verdict, change.head_verdict
    if base is None or head is None:
        return str(head or base or "")
    return str(head) if base is head else f"{base} → {head}"


def summary(report: DiffReport) -> str:
    """The whole in one sentence."""
    counts = dict.fromkeys(Change, 0)
    for change in report.deployments:
        counts[change.change] += 1
    parts = [f"{counts[kind]:,} {kind}" for kind in Change if counts[kind]]
    worse = count_of(report.regressions, "regression") if report.regressions else "no regression"
    return f"{', '.join(parts) or 'no deployments'}; {worse}"
