"""The report as CSV (RFC 4180): one row, numbers only, a missing figure is an empty cell.

Lists (groups, terms, options, the matrix) and sentences are left to JSON.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvplan.deployment import Deployment
    from kvplan.planning.report import FitReport

_SECTIONS = ("deployment", "kv_cache", "memory", "model", "limits", "recommended")


def render(report: FitReport, explained: Deployment | None, to_file: bool) -> str:  # noqa: ARG001
    """A header and one row."""
    row = as_row(report)
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\r\n")
    writer.writerow(row)
    writer.writerow(cell(value) for value in row.values())
    return buffer.getvalue()


def as_row(report: FitReport) -> dict[str, object]:
    """The scalar figures under their JSON keys, in the order of the document.

    A key that an earlier section has already used takes its own section's name in front:
    ``kv_cache_dtype`` is the deployment's, ``limits_kv_cache_dtype`` the mildest that fits.
    """
    row: dict[str, object] = {}
    for section in _SECTIONS:
        part = getattr(report, section)
        for key in type(part).__annotations__:
            value = getattr(part, key)
            if not isinstance(value, list) and not key.endswith("_reason"):
                row[f"{section}_{key}" if key in row else key] = value
    row["verdict"] = str(report.verdict)
    row["limiting_term"] = report.limiting_term
    row["warnings"] = len(report.warnings)
    return row


def cell(value: object) -> object:
    """A cell: empty for unknown, 1 or 0 for yes or no, text that no spreadsheet runs as a formula.

    Excel and LibreOffice evaluate text that begins with ``= + - @``, a tab or a return; a leading
    apostrophe makes it text again.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, str):
        text = "".join(c if c.isprintable() else " " for c in value)
        return f"'{text}" if text[:1] in {"=", "+", "-", "@"} else text
    return value
