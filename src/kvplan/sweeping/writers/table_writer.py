"""A plain table for a terminal, for grids that a screen can hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kvplan.reports.layout import printable
from kvplan.sweeping.blocks import Block
from kvplan.sweeping.columns import TEXT, Column
from kvplan.sweeping.writers.people import MOST_ROWS, shown, title

__all__ = ["MOST_ROWS", "document"]


def document(blocks: Iterable[Block], keys: Sequence[str], columns: Sequence[Column]) -> bytes:
    """The whole table: a heading over two lines where it has a unit, numbers to the right."""
    texts: list[list[str]] = [[] for _ in columns]
    for block in blocks:
        for cells, key, column in zip(texts, keys, columns, strict=True):
            cells += [printable(shown(column, value)) for value in block.flat(key)]
    sides = [str.ljust if column.kind == TEXT else str.rjust for column in columns]
    titles = [title(column) for column in columns]
    widths = [max(map(len, [name, *cells])) for name, cells in zip(titles, texts, strict=True)]
    lines = [titles, ["-" * width for width in widths], *map(list, zip(*texts, strict=True))]
    drawn = (
        "  ".join(side(cell, width) for side, cell, width in zip(sides, line, widths, strict=True))
        for line in lines
    )
    return "".join(line.rstrip() + "\n" for line in drawn).encode()
