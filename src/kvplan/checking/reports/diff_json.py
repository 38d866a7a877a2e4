"""A difference as JSON: key for key the fields of `DiffReport`."""

from __future__ import annotations

from kvplan.checking.difference import DiffReport
from kvplan.reports.json_report import json_text


def render(report: DiffReport, to_file: bool) -> str:  # noqa: ARG001
    """One document, indented, keys in the order of the contract."""
    return json_text(report)
