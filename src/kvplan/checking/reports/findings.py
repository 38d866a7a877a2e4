"""What there is to tell of a check: one wording for every format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kvplan.checking.budgets import amount
from kvplan.checking.report import (
    BudgetResult,
    CheckReport,
    DeploymentResult,
    Fault,
    FileResult,
    Status,
)
from kvplan.reports.layout import printable
from kvplan.reports.words import count_of

NOT_UNDERSTOOD = "KVP100"
"""The rule of whatever is not understood."""
NOT_UNDERSTOOD_HELP = "The plan, or something it names, is not understood; it is never a pass."

WORDS = {
    Status.PASSED: "passed",
    Status.WARNED: "warning",
    Status.FAILED: "failed",
    Status.ERROR: "not understood",
    Status.OFF: "off",
}


class Finding(NamedTuple):
    """One thing that is not as it should be."""

    path: str
    line: int
    column: int
    rule: str
    status: Status
    deployment: str
    """Empty for a fault of the file itself."""
    budget: str
    """Empty for what is not understood."""
    message: str


def findings(report: CheckReport) -> Iterator[Finding]:
    """Everything that warned, failed or was not understood, in the order of the plans."""
    for file in report.files:
        for fault in file.faults:
            yield _finding(file, fault.line, fault.column, message=_told(fault))
        for deployment in file.deployments:
            yield from _of(file, deployment)


def _of(file: FileResult, deployment: DeploymentResult) -> Iterator[Finding]:
    fault = deployment.fault
    if fault is not None:
        yield _finding(file, fault.line, fault.column, deployment.name, message=_told(fault))
    for b in deployment.budgets:
        if b.status not in {Status.PASSED, Status.OFF}:
            yield _finding(
                file, b.line, b.column, deployment.name, b.rule, b.status, b.budget,
                message=b.message,
            )  # fmt: skip


def _finding(
    file: FileResult,
    line: int,
    column: int,
    deployment: str = "",
    rule: str = NOT_UNDERSTOOD,
    status: Status = Status.ERROR,
    budget: str = "",
    *,
    message: str,
) -> Finding:
    """A finding, its texts without control characters."""
    return Finding(
        printable(file.path),
        line,
        column,
        rule,
        status,
        printable(deployment),
        budget,
        printable(message),
    )


def _told(fault: Fault) -> str:
    return with_hint(fault.message, fault.hint)


def with_hint(message: str, hint: str | None) -> str:
    """A message and what to do about it, in one line."""
    return printable(f"{message}. {hint}" if hint else message)


def need(budget: BudgetResult) -> str:
    """What is asked, with its sense."""
    shown = amount(budget.need, budget.unit)
    sense = {"min": "at least ", "max": "at most "}.get(budget.budget[:3], "")
    return sense + shown


def have(budget: BudgetResult) -> str:
    """What there is; not looked at when the budget is off."""
    return "" if budget.status is Status.OFF else amount(budget.have, budget.unit)


def margin(budget: BudgetResult) -> str:
    """What is to spare, with its sign."""
    if budget.margin is None or budget.status is Status.OFF:
        return ""
    shown = amount(abs(budget.margin), budget.unit)
    return f"{'-' if budget.margin < 0 else '+'}{shown}"


def summary(report: CheckReport) -> str:
    """The whole in one sentence."""
    s = report.summary
    parts = [f"{s.passed:,} passed"]
    if s.warned:
        parts.append(count_of(s.warned, "warning"))
    if s.failed:
        parts.append(f"{s.failed:,} failed")
    if s.errors:
        parts.append(f"{s.errors:,} not understood")
    if s.off:
        parts.append(f"{s.off:,} off")
    return f"{count_of(s.deployments, 'deployment')}: {', '.join(parts)}"


def question(deployment: DeploymentResult) -> str:
    """What was judged: model, GPUs, load."""
    d = deployment.deployment
    if d is None:
        return ""
    return printable(
        f"{d.model} on {d.gpu_count} x {d.gpu}, {d.batch:,} x {d.seq_len:,} tokens, "
        f"{d.weight_format} weights, {d.kv_cache_dtype} KV"
    )
