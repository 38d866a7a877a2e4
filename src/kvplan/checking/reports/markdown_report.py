"""A check for a job summary or a comment on a pull request: GitHub-flavoured Markdown."""

from __future__ import annotations

from kvplan.checking.report import CheckReport, DeploymentResult, FileResult, Status
from kvplan.checking.reports import findings
from kvplan.reports.markdown import code, escape, table

_MARK = {
    Status.PASSED: "✅ passed",
    Status.WARNED: "⚠️ warning",
    Status.FAILED: "❌ failed",
    Status.ERROR: "⛔ not understood",
    Status.OFF: "off",
}


def render(report: CheckReport, to_file: bool) -> str:  # noqa: ARG001
    """A headline, then each file's budgets in one table."""
    parts = [f"## kvplan check: {_MARK[report.status]}\n\n{findings.summary(report)}\n"]
    parts += [_file(file) for file in report.files]
    return "\n".join(parts)


def _file(file: FileResult) -> str:
    lines = [f"### {code(file.path)}\n"]
    faults = [f"- line {f.line}: {escape(findings.with_hint(f.message, f.hint))}\n"
              for f in file.faults]  # fmt: skip
    if faults:
        lines.append("".join(faults))
    rows = [row for each in file.deployments for row in _rows(each)]
    if rows:
        titles = ["", "deployment", "budget", "need", "have", "margin", "line"]
        lines.append(table(titles, rows, right=(3, 4, 5, 6)))
    said = [
        f"- {code(each.name)}: {escape(warning)}\n"
        for each in file.deployments
        for warning in each.warnings
    ]
    if said:
        lines.append("".join(said))
    return "\n".join(lines)


def _rows(each: DeploymentResult) -> list[list[str]]:
    name = code(each.name)
    if each.fault is not None:
        text = escape(findings.with_hint(each.fault.message, each.fault.hint))
        return [[_MARK[Status.ERROR], name, text, "", "", "", str(each.fault.line)]]
    return [
        [
            _MARK[b.status],
            name,
            code(b.budget),
            escape(findings.need(b)),
            escape(findings.have(b)),
            escape(findings.margin(b)),
            str(b.line),
        ]
        for b in each.budgets
    ]
