"""Inside GitHub Actions: annotations, the job summary and the step's outputs.

Found by the environment that the runner sets; each part is left out where its variable is missing.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping

from kvplan.checking.report import CheckReport
from kvplan.checking.reports import render
from kvplan.errors import InputError

MOST_SUMMARY_BYTES = 1000 * 1000
"""A step's summary may be 1 MiB; source: "Adding a job summary"."""
MOST_COMMENT_CHARACTERS = 60_000
"""A comment may be 65,536 characters."""


def in_actions(environment: Mapping[str, str]) -> bool:
    """Whether this process runs in a step of GitHub Actions."""
    return environment.get("GITHUB_ACTIONS") == "true"


def tell(report: CheckReport, environment: Mapping[str, str], *, annotate: bool) -> None:
    """Write what the runner reads: annotations to stderr, the rest to its files.

    The runner takes workflow commands from stderr too, which leaves stdout to the report.
    """
    if annotate:
        sys.stderr.write(render(report, "github"))
    markdown = render(report, "markdown")
    summary = environment.get("GITHUB_STEP_SUMMARY")
    if summary:
        _append(summary, shortened(markdown, MOST_SUMMARY_BYTES) + "\n")
    output = environment.get("GITHUB_OUTPUT")
    if output:
        _append(output, outputs(report, shortened(markdown, MOST_COMMENT_CHARACTERS)))


def outputs(report: CheckReport, markdown: str) -> str:
    """The step's outputs; the delimiter of the long one cannot be in it."""
    s = report.summary
    plain = {
        "status": str(report.status),
        "deployments": s.deployments,
        "passed": s.passed,
        "warned": s.warned,
        "failed": s.failed,
        "errors": s.errors,
    }
    delimiter = f"kvplan-{hashlib.sha256(markdown.encode('utf-8', 'replace')).hexdigest()}"
    lines = [f"{name}={value}\n" for name, value in plain.items()]
    return "".join(lines) + f"comment<<{delimiter}\n{markdown.rstrip()}\n{delimiter}\n"


def shortened(markdown: str, most: int) -> str:
    """``markdown`` cut after a whole line, within ``most`` bytes."""
    data = markdown.encode("utf-8", "replace")
    if len(data) <= most:
        return markdown
    note = "\n…and more: the full report has the rest.\n"
    kept = data[: most - len(note.encode())].rpartition(b"\n")[0]
    return kept.decode("utf-8", "ignore") + "\n" + note


def _append(path: str, text: str) -> None:
    try:
        with open(path, "a", encoding="utf-8", errors="replace", newline="\n") as file:
            file.write(text)
    except OSError as error:
        raise InputError(
            f"GitHub's file {os.path.basename(path)!r} cannot be written: {error.strerror}",
            hint="--no-github leaves it alone.",
        ) from error
