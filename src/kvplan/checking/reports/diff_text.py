"""A difference for a terminal: each deployment that changed, figure by figure."""

from __future__ import annotations

from kvplan.checking.difference import Change, DeploymentChange, DiffReport
from kvplan.checking.reports import changes
from kvplan.reports.layout import Cell, Column, Line, Span, heading, paragraph, table
from kvplan.reports.terminal import screen, to_text

_COLUMNS = (
    Column("figure"),
    Column("base", right=True, drop=2),
    Column("head", right=True, drop=1),
    Column("change", right=True),
)


def render(report: DiffReport, to_file: bool) -> str:
    """What is the same is only counted."""
    on = screen(to_file)
    lines: list[Line] = [heading(f"{report.base} → {report.head}", on.width)]
    for fault in report.faults:
        lines += paragraph(fault, on.width, "bad", "  ")
    for change in report.deployments:
        if change.change is not Change.SAME:
            lines += _deployment(change, on.width)
    style = "bad" if report.regressions or report.errors else "good"
    lines.append([Span(changes.summary(report), style)])
    return to_text(lines, on)


def _deployment(change: DeploymentChange, width: int) -> list[Line]:
    bad = change.regression or change.change is Change.ERROR
    word = "regression" if change.regression else str(change.change)
    title = f"{change.name}: {changes.verdicts(change)}".removesuffix(": ")
    lines = paragraph(title, width, "strong", Span(f"{word.upper()}  ", "bad" if bad else "dim"))
    if change.message is not None:
        lines += paragraph(change.message, width, "bad", "  ")
    rows: list[list[Cell]] = [
        [
            changes.NAMES[figure.figure],
            changes.side(figure.base, figure),
            changes.side(figure.head, figure),
            Span(changes.delta(figure), "bad" if figure.regression else ""),
        ]
        for figure in change.figures
    ]
    if rows:
        lines += table(_COLUMNS, rows, width, indent=2)
    for budget in change.newly_failing:
        lines += paragraph(f"{budget} now fails", width, "bad", "  ")
    return lines
