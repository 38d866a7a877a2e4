"""A check as GitHub Actions annotations: workflow commands that point at lines of the plan.

GitHub shows ten errors and ten warnings of a step, so there is one annotation a deployment and
level, and the tenth counts what is left; the job summary has everything.
Source: "Workflow commands for GitHub Actions" and its limits on annotations.
"""

from __future__ import annotations

from kvplan.checking.report import CheckReport, Status
from kvplan.checking.reports.findings import Finding, findings, summary

MOST = 10
_COMMAND = {Status.WARNED: "warning", Status.FAILED: "error", Status.ERROR: "error"}


def render(report: CheckReport, to_file: bool) -> str:  # noqa: ARG001
    """One workflow command a line; a notice alone when there is nothing to tell."""
    grouped: dict[tuple[str, str, str, str], list[Finding]] = {}
    for number, found in enumerate(findings(report)):
        # A fault of the file itself stands alone; a deployment's findings go together.
        key = found.deployment or str(number)
        grouped.setdefault((_COMMAND[found.status], found.path, key, found.deployment), []).append(
            found
        )
    lines = []
    for command in ("error", "warning"):
        groups = [group for key, group in grouped.items() if key[0] == command]
        shown = groups if len(groups) <= MOST else groups[: MOST - 1]
        lines += [_annotation(command, group) for group in shown]
        if len(groups) > len(shown):
            left = len(groups) - len(shown)
            lines.append(f"::{command} title=kvplan::and {left} more; see the job summary\n")
    if not lines:
        lines = [f"::notice title=kvplan::{_message(summary(report))}\n"]
    return "".join(lines)


def _annotation(command: str, group: list[Finding]) -> str:
    first = group[0]
    title = f"kvplan: {first.deployment}" if first.deployment else "kvplan"
    places = {
        "file": first.path,
        "line": str(first.line),
        "col": str(first.column),
        "title": title,
    }
    said = "\n".join(f"{f.budget}: {f.message}" if f.budget else f.message for f in group)
    properties = ",".join(f"{name}={_property(value)}" for name, value in places.items())
    return f"::{command} {properties}::{_message(said)}\n"


def _message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")
