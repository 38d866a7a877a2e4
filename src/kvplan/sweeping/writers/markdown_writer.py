"""A table in GitHub-flavoured Markdown, for grids that a page can hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kvplan.reports.markdown import escape, table
from kvplan.sweeping.blocks import Block
from kvplan.sweeping.columns import TEXT, Column
from kvplan.sweeping.writers.people import MOST_ROWS, shown, title

__all__ = ["MOST_ROWS", "document"]


def document(blocks: Iterable[Block], keys: Sequence[str], columns: Sequence[Column]) -> bytes:
    """The whole table."""
    rows = []
    for block in blocks:
        cells = [
            [escape(shown(column, value)) for value in block.flat(key)]
            for key, column in zip(keys, columns, strict=True)
        ]
        rows += list(zip(*cells, strict=True))
    right = [number for number, column in enumerate(columns) if column.kind != TEXT]
    return table([escape(title(column)) for column in columns], rows, right).encode()
