"""A result → text: one module a format, found by its name in this folder."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvplan.deployment import Deployment
    from kvplan.planning.report import FitReport

FORMATS = ("table", "json", "csv", "markdown", "yaml", "flags")
"""What ``--format`` takes; each is a module ``<name>_report`` here with a function ``render``."""
FOR_MACHINES = frozenset({"json", "csv", "yaml", "flags"})
"""Formats that a program reads: a person then finds the warnings on stderr."""


def render(
    report: FitReport, name: str, explained: Deployment | None = None, *, to_file: bool = False
) -> str:
    """``report`` in the format ``name``; ``explained`` adds the formulas behind the figures."""
    module = import_module(f"{__name__}.{name}_report")
    text: str = module.render(report, explained, to_file)
    return text
