"""A check for a terminal: each deployment with its budgets, then the whole in one line."""

from __future__ import annotations

from kvplan.checking.budgets import amount
from kvplan.checking.report import CheckReport, DeploymentResult, FileResult, Status
from kvplan.checking.reports import findings
from kvplan.reports.layout import Cell, Column, Line, Span, heading, paragraph, table
from kvplan.reports.terminal import screen, to_text

_STYLE = {
    Status.PASSED: "good",
    Status.WARNED: "warn",
    Status.FAILED: "bad",
    Status.ERROR: "bad",
    Status.OFF: "dim",
}
_COLUMNS = (
    Column("status"),
    Column("budget"),
    Column("need", right=True, drop=2),
    Column("have", right=True, drop=1),
    Column("margin", right=True, drop=3),
)


def render(report: CheckReport, to_file: bool) -> str:
    """Files, their deployments, and a last line that says it all."""
    on = screen(to_file)
    lines: list[Line] = []
    for file in report.files:
        lines += _file(file, on.width)
    lines.append([Span(findings.summary(report), _STYLE[report.status])])
    return to_text(lines, on)


def _file(file: FileResult, width: int) -> list[Line]:
    lines: list[Line] = [heading(file.path, width)]
    for fault in file.faults:
        lines += _fault(
            f"{file.path}:{fault.line}:{fault.column}", fault.message, fault.hint, width
        )
    for deployment in file.deployments:
        lines += _deployment(file, deployment, width)
    return lines


def _deployment(file: FileResult, deployment: DeploymentResult, width: int) -> list[Line]:
    style = _STYLE[deployment.status]
    state = Span(f"{findings.WORDS[deployment.status].upper()}  ", style)
    asked = findings.question(deployment)
    title = f"{deployment.name}: {asked}" if asked else deployment.name
    lines = paragraph(title, width, "strong", state)
    if deployment.fault is not None:
        fault = deployment.fault
        at = f"{file.path}:{fault.line}:{fault.column}"
        return lines + _fault(at, fault.message, fault.hint, width)
    rows: list[list[Cell]] = [
        [
            Span(findings.WORDS[b.status], _STYLE[b.status]),
            b.budget,
            amount(b.need, b.unit),
            findings.have(b),
            findings.margin(b),
        ]
        for b in deployment.budgets
    ]
    lines += table(_COLUMNS, rows, width, indent=2)
    for b in deployment.budgets:
        if b.status in {Status.FAILED, Status.WARNED, Status.ERROR}:
            mark = Span(f"  {file.path}:{b.line}: ", "dim")
            lines += paragraph(f"{b.budget}: {b.message}", width, "", mark)
    for warning in deployment.warnings:
        lines += paragraph(warning, width, "dim", Span("  ! ", "warn"))
    return lines


def _fault(at: str, message: str, hint: str | None, width: int) -> list[Line]:
    lines = paragraph(f"{at}: {message}", width, "bad", "  ")
    return lines + (paragraph(hint, width, "dim", "    ") if hint else [])
