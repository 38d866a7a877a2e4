"""A check or a difference → text: one module a format, found by its name in this folder.

Every format is deterministic: the same plan gives the same bytes, with no time and no machine in
them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvplan.checking.difference import DiffReport
    from kvplan.checking.report import CheckReport

FORMATS = ("text", "json", "junit", "sarif", "github", "markdown", "csv")
"""What ``kvplan check --format`` takes; each is a module ``<name>_report`` here."""
DIFF_FORMATS = ("text", "json", "markdown")
"""What ``kvplan diff --format`` takes; each is a module ``diff_<name>`` here."""


def render(report: CheckReport, name: str, *, to_file: bool = False) -> str:
    """A check in the format ``name``."""
    text: str = import_module(f"{__name__}.{name}_report").render(report, to_file)
    return text


def render_diff(report: DiffReport, name: str, *, to_file: bool = False) -> str:
    """A difference in the format ``name``."""
    text: str = import_module(f"{__name__}.diff_{name}").render(report, to_file)
    return text
