"""The engine's command alone, on one line, for a script or a manifest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvplan.errors import UnsupportedCombination
from kvplan.reports import words

if TYPE_CHECKING:
    from kvplan.deployment import Deployment
    from kvplan.planning.report import FitReport


def render(report: FitReport, explained: Deployment | None, to_file: bool) -> str:  # noqa: ARG001
    """The line as a shell reads it."""
    if not report.flags:
        raise UnsupportedCombination(
            f"--format flags: --engine {report.deployment.engine} has no command to run",
            hint="Ask for an engine that serves, such as --engine vllm.",
        )
    return " ".join(words.command(report.flags)) + "\n"
