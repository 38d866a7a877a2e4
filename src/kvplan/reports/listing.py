"""Lists and single entries of the catalogue as tables, JSON and CSV.

A list is rows of plain figures by name; a table shows them in units, JSON and CSV as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from kvplan.reports.json_report import json_text
from kvplan.reports.layout import Cell, Column, Line, Span, facts, heading, paragraph, table
from kvplan.reports.terminal import screen, to_text

LIST_FORMATS = ("table", "json", "csv")
SHOW_FORMATS = ("table", "json")

Record = Mapping[str, object]


class Shown(NamedTuple):
    """A column of a list's table."""

    key: str
    title: str
    write: Callable[[object], str] = str
    right: bool = False
    drop: int = 0


def whole(value: object) -> int:
    """A whole number of a record; 0 for anything else."""
    return value if isinstance(value, int) else 0


def render_list(
    records: Sequence[Record], columns: Sequence[Shown], name: str, *, to_file: bool = False
) -> str:
    """The records in one of `LIST_FORMATS`."""
    if name == "json":
        return json_text([dict(record) for record in records])
    if name == "csv":
        return _csv(records)
    on = screen(to_file)
    rows: list[list[Cell]] = [
        [
            Span("" if record[c.key] is None else c.write(record[c.key]), style)
            for c, style in zip(columns, ("strong", *[""] * len(columns)), strict=False)
        ]
        for record in records
    ]
    shown = [Column(c.title, c.right, drop=c.drop) for c in columns]
    return to_text(table(shown, rows, on.width, indent=0), on)


def _csv(records: Sequence[Record]) -> str:
    import csv
    import io

    from kvplan.reports.csv_report import cell

    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\r\n")
    if records:
        writer.writerow(records[0])
    for record in records:
        values = (" ".join(v) if isinstance(v, list) else v for v in record.values())
        writer.writerow([cell(value) for value in values])
    return buffer.getvalue()


class Entry(NamedTuple):
    """One thing of the catalogue, with everything known of it."""

    title: str
    facts: Sequence[tuple[str, str]]
    """Labels and values in words."""
    uncertain: str
    """What of it is not certain, in words; empty when all is."""
    sources: Sequence[str]
    notes: str | None
    document: Record
    """The same as plain figures."""


def render_entry(entry: Entry, name: str, *, to_file: bool = False) -> str:
    """One entry in one of `SHOW_FORMATS`."""
    if name == "json":
        return json_text(dict(entry.document))
    on = screen(to_file)
    return to_text(_entry_lines(entry, on.width), on)


def _entry_lines(entry: Entry, width: int) -> list[Line]:
    lines = paragraph(entry.title, width, "strong")
    lines += facts(entry.facts, width)
    if entry.uncertain:
        lines += paragraph(entry.uncertain, width, "warn", Span("  ! ", "warn"))
    if entry.notes:
        lines.append(heading("Notes", width))
        lines += paragraph(entry.notes, width, "", "  ")
    if entry.sources:
        lines.append(heading("Sources", width))
        for source in entry.sources:
            lines += paragraph(source, width, "dim", Span("  - ", "dim"))
    return lines
