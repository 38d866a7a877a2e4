"""A check as CSV (RFC 4180): a row for each budget, and for each fault; numbers only."""

from __future__ import annotations

import csv
import io

from kvplan.checking.report import CheckReport
from kvplan.reports.csv_report import cell

COLUMNS = (
    "path", "line", "deployment", "model", "gpu", "gpu_count", "seq_len", "batch", "verdict",
    "budget", "level", "status", "need", "have", "margin", "unit", "message",
)  # fmt: skip


def render(report: CheckReport, to_file: bool) -> str:  # noqa: ARG001
    """A header, then rows in the order of the plans."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for row in _rows(report):
        writer.writerow([cell(row.get(name)) for name in COLUMNS])
    return buffer.getvalue()


def _rows(report: CheckReport) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for file in report.files:
        rows += [_fault(file.path, None, fault.line, fault.message) for fault in file.faults]
        for each in file.deployments:
            if each.fault is not None:
                rows.append(_fault(file.path, each.name, each.fault.line, each.fault.message))
            d, figures = each.deployment, each.figures
            for budget in each.budgets:
                row: dict[str, object] = {name: getattr(budget, name, None) for name in COLUMNS}
                row |= {"status": str(budget.status), "path": file.path, "deployment": each.name}
                if d is not None:
                    row |= {
                        name: getattr(d, name)
                        for name in ("model", "gpu", "gpu_count", "seq_len", "batch")
                    }
                row["verdict"] = None if figures is None else str(figures.verdict)
                rows.append(row)
    return rows


def _fault(path: str, deployment: str | None, line: int, message: str) -> dict[str, object]:
    return {
        "path": path, "deployment": deployment, "line": line, "status": "error", "message": message,
    }  # fmt: skip
