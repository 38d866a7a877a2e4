"""Several fits beside each other: one column a deployment, one row a figure."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvplan.errors import InputError
from kvplan.reports import markdown
from kvplan.reports.csv_report import as_row, cell
from kvplan.reports.json_report import as_document, json_text
from kvplan.reports.layout import GAP, Column, Line, Span, cell_width, printable, table
from kvplan.reports.terminal import screen, to_text
from kvplan.reports.words import context, term_name
from kvplan.units import format_gib

if TYPE_CHECKING:
    from kvplan.planning.report import FitReport

SCHEMA = "kvplan.fits/1"
INDENT = 2
LABELS = (
    "model", "GPUs", "verdict", "decided by", "weights", "KV a token", "one sequence", "batch",
    "KV pool", "headroom", "largest batch", "longest sequence", "fewest GPUs", "mildest KV",
)  # fmt: skip


def compare(reports: Sequence[FitReport], name: str, *, to_file: bool = False) -> str:
    """The reports in the format ``name``."""
    if name == "table":
        on = screen(to_file)
        return to_text(_lines(reports, on.width), on)
    if name == "markdown":
        rows = list(zip(LABELS, *map(figures, reports), strict=True))
        titles = ["", *(str(number + 1) for number in range(len(reports)))]
        return markdown.table(titles, [[markdown.escape(c) for c in row] for row in rows]) + "\n"
    if name == "csv":
        return _csv(reports)
    if name in {"json", "yaml"}:
        return _document(reports, name)
    raise InputError(
        f"--format {name} takes one model and one GPU", hint="Ask for one, or use --format table."
    )


def figures(report: FitReport) -> list[str]:
    """What is compared, in the order of `LABELS`, each figure with its unit."""
    d, kv, memory, limits = report.deployment, report.kv_cache, report.memory, report.limits
    return [
        printable(d.model),
        f"{d.gpu_count} x {d.gpu}",
        report.verdict.upper(),
        term_name(report.limiting_term),
        _gib(memory.weight_bytes),
        f"{kv.bytes_per_token:,} B",
        format_gib(kv.reserved_bytes_per_sequence),
        format_gib(kv.needed_bytes),
        _gib(kv.pool_bytes),
        _gib(memory.headroom_bytes),
        f"{limits.max_batch:,}",
        context(limits.max_seq_len),
        "none fits" if limits.min_gpus is None else f"{limits.min_gpus:,}",
        limits.kv_cache_dtype or "none fits",
    ]


def _gib(size: int | None) -> str:
    return "not known" if size is None else format_gib(size)


def _lines(reports: Sequence[FitReport], width: int) -> list[Line]:
    """Columns as many as the width takes; further deployments follow below."""
    columns = [figures(report) for report in reports]
    label_width = max(map(len, LABELS))
    lines: list[Line] = []
    while columns:
        count, used = 0, INDENT + label_width
        for column in columns:
            used += GAP + max(map(cell_width, column))
            if count and used > width:
                break
            count += 1
        shown, columns = columns[:count], columns[count:]
        rows = [
            [
                Span(label, "label"),
                *(Span(text, text.lower() if label == "verdict" else "") for text in texts),
            ]
            for label, *texts in zip(LABELS, *shown, strict=True)
        ]
        heads = [Column(), *(Column(right=True) for _ in shown)]
        lines += [*([[]] if lines else []), *table(heads, rows, width, indent=INDENT)]
    return lines


def _csv(reports: Sequence[FitReport]) -> str:
    rows = [as_row(report) for report in reports]
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\r\n")
    writer.writerow(rows[0])
    writer.writerows([cell(value) for value in row.values()] for row in rows)
    return buffer.getvalue()


def _document(reports: Sequence[FitReport], name: str) -> str:
    document = {"schema": SCHEMA, "reports": [as_document(report) for report in reports]}
    if name == "json":
        return json_text(document)
    import yaml

    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)
    return text
