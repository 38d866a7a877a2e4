"""A check as JSON: the stable contract, key for key the fields of `CheckReport`."""

from __future__ import annotations

from kvplan.checking.report import CheckReport
from kvplan.reports.json_report import json_text


def render(report: CheckReport, to_file: bool) -> str:  # noqa: ARG001
    """One document, indented, keys in the order of the contract."""
    return json_text(report)
