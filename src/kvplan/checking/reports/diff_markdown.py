"""A difference for a comment on a pull request: GitHub-flavoured Markdown."""

from __future__ import annotations

from kvplan.checking.difference import Change, DeploymentChange, DiffReport
from kvplan.checking.reports import changes
from kvplan.reports.markdown import bullets, code, escape, table


def render(report: DiffReport, to_file: bool) -> str:  # noqa: ARG001
    """A headline, then a table of everything that changed."""
    parts = [
        f"## kvplan: {code(report.base)} → {code(report.head)}\n\n"
        f"{escape(changes.summary(report))}\n"
    ]
    if report.faults:
        parts.append(bullets(report.faults))
    rows = [row for change in report.deployments for row in _rows(change)]
    if rows:
        titles = ["deployment", "figure", "base", "head", "change", ""]
        parts.append(table(titles, rows, right=(2, 3, 4)))
    same = [change.name for change in report.deployments if change.change is Change.SAME]
    if same:
        parts.append(f"Unchanged: {', '.join(map(code, same))}\n")
    return "\n".join(parts)


def _rows(change: DeploymentChange) -> list[list[str]]:
    if change.change is Change.SAME:
        return []
    name = code(change.name)
    if change.message is not None:
        return [[name, "⛔ not understood", "", "", escape(change.message), ""]]
    rows = []
    if change.base_verdict is not change.head_verdict:
        worse = change.change is Change.CHANGED and change.regression
        rows.append(
            [
                name,
                "verdict",
                escape(str(change.base_verdict or "")),
                escape(str(change.head_verdict or "")),
                str(change.change),
                "❌" if worse else "",
            ]
        )
    rows += [
        [
            name,
            changes.NAMES[figure.figure],
            escape(changes.side(figure.base, figure)),
            escape(changes.side(figure.head, figure)),
            escape(changes.delta(figure)),
            "❌" if figure.regression else "",
        ]
        for figure in change.figures
    ]
    rows += [[name, code(budget), "", "", "now fails", "❌"] for budget in change.newly_failing]
    return rows
