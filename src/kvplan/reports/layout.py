"""Text that fits a width: wrapped words, tables that give way when narrow, columns side by side.

A report is a list of lines, a line a list of spans, a span a piece of text with the name of a
style. What a style looks like, and whether there is colour at all, is in `terminal`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Span(NamedTuple):
    """A piece of text in one style."""

    text: str
    style: str = ""


Line = list[Span]
Cell = str | Span

GAP = 2
"""Blanks between the columns of a table."""
NARROWEST_FLEXIBLE = 20
"""Below this a column of words goes under its row instead of beside it."""

_BOUND = re.compile(r"(?<=\d) (?=(?:GiB|B|GB/s|TFLOPS|tokens|blocks|bits|x)\b|%)")
_HELD = "\N{NO-BREAK SPACE}"


def printable(text: str) -> str:
    """``text`` without control characters: names and notes come from strangers' files."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def cell_width(text: str) -> int:
    """Columns that ``text`` takes on a terminal: two for a wide character, none for a mark."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(
        0 if combining(c) else 2 if east_asian_width(c) in {"W", "F"} else 1 for c in text
    )


def wrap(text: str, width: int, hang: int = 0) -> list[str]:
    """``text`` in lines of at most ``width``; those after the first begin with ``hang`` blanks.

    A number stays on the line of its unit. Only a word longer than a line is cut.
    """
    words = [word for word in _BOUND.sub(_HELD, printable(text)).split(" ") if word]
    lines: list[str] = []
    current, room = "", width
    for word in words:
        if current and cell_width(current) + 1 + cell_width(word) <= room:
            current += " " + word
            continue
        if current:
            lines.append(current)
            room = width - hang
        current = word
        while cell_width(current) > room:
            head, current = _cut(current, room)
            lines.append(head)
            room = width - hang
    if current or not lines:
        lines.append(current)
    margin = " " * hang
    return [
        (margin if number else "") + line.replace(_HELD, " ") for number, line in enumerate(lines)
    ]


def _cut(word: str, room: int) -> tuple[str, str]:
    size = max(1, room)
    while size > 1 and cell_width(word[:size]) > room:
        size -= 1
    return word[:size], word[size:]


def paragraph(text: str, width: int, style: str = "", mark: Cell = "") -> list[Line]:
    """Wrapped text behind an optional mark, its further lines indented to the text."""
    mark = _span(mark)
    margin = cell_width(mark.text)
    lines = wrap(text, max(1, width - margin))
    first: Line = [mark, Span(lines[0], style)] if margin else [Span(lines[0], style)]
    return [first, *([Span(" " * margin), Span(line, style)] for line in lines[1:])]


class Column(NamedTuple):
    """A column of a table."""

    title: str = ""
    right: bool = False
    """Numbers stand at the right."""
    flexible: bool = False
    """Words that take what is left and wrap; at most one column, the last."""
    drop: int = 0
    """When the table is too wide the column with the highest is left out; 0 is always kept."""


def table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[Cell]],
    width: int,
    *,
    indent: int = 2,
    under: bool = True,
) -> list[Line]:
    """Rows under their titles, never wider than ``width``.

    When it is too wide, the flexible column wraps, or goes ``under`` its row where that takes
    fewer lines; then columns are left out by their ``drop``, and at last the first column wraps.
    """
    cells = [[_span(cell) for cell in row] for row in rows]
    shown = list(range(len(columns)))
    room = width - indent
    while True:
        fixed = [i for i in shown if not columns[i].flexible]
        sizes = {i: _natural(columns, cells, i) for i in shown}
        taken = sum(sizes[i] for i in fixed) + GAP * (len(fixed) - 1)
        if taken <= room:
            break
        droppable = [i for i in fixed if columns[i].drop]
        if not droppable:
            sizes[fixed[0]] = max(6, sizes[fixed[0]] - (taken - room))
            taken = sum(sizes[i] for i in fixed) + GAP * (len(fixed) - 1)
            break
        shown.remove(max(droppable, key=lambda i: columns[i].drop))
    flexible = next((i for i in shown if columns[i].flexible), None)
    left = room - taken - GAP
    beside = flexible is not None and (
        left >= NARROWEST_FLEXIBLE or left >= sizes.get(flexible, 0)
    )
    margin = Span(" " * indent)
    lines: list[Line] = []
    if any(columns[i].title for i in shown):
        titles: Line = [margin]
        for i in fixed:
            titles.append(Span(_padded(columns[i].title, sizes[i], columns[i].right), "title"))
            titles.append(Span(" " * GAP))
        if beside and flexible is not None:
            titles.append(Span(columns[flexible].title, "title"))
        lines.append(titles)
    for row in cells:
        lines += _row(columns, row, fixed, sizes, margin)
        if flexible is None or not row[flexible].text:
            continue
        text, style = row[flexible]
        first, *rest = wrap(text, left) if beside else ("",)
        below = wrap(text, room - 2)
        if beside and (not under or not rest or len(rest) < len(below)):
            lines[-1].append(Span(first, style))
            blank = Span(" " * (indent + taken + GAP))
            lines += [[blank, Span(line, style)] for line in rest]
        else:
            lines += [[Span(" " * (indent + 2)), Span(line, style)] for line in below]
    return lines


def _row(
    columns: Sequence[Column],
    row: Sequence[Span],
    fixed: Sequence[int],
    sizes: dict[int, int],
    margin: Span,
) -> list[Line]:
    """One row; a first cell that is too long takes lines of its own above."""
    above: list[Line] = []
    line: Line = [margin]
    for i in fixed:
        text = printable(row[i].text)
        if cell_width(text) > sizes[i]:
            *extra, text = wrap(text, sizes[i])
            above += [[margin, Span(part, row[i].style)] for part in extra]
        blanks = Span(" " * (sizes[i] - cell_width(text)))
        shown = Span(text, row[i].style)
        line += [blanks, shown] if columns[i].right else [shown, blanks]
        line.append(Span(" " * GAP))
    return [*above, line]


def _natural(columns: Sequence[Column], rows: Sequence[Sequence[Span]], i: int) -> int:
    return max([cell_width(columns[i].title), *(cell_width(row[i].text) for row in rows)])


def _padded(text: str, size: int, right: bool) -> str:
    blanks = " " * (size - cell_width(text))
    return blanks + text if right else text + blanks


def _span(cell: Cell) -> Span:
    return Span(cell) if isinstance(cell, str) else cell


def facts(pairs: Iterable[tuple[str, Cell]], width: int, *, indent: int = 2) -> list[Line]:
    """Labels with their values, which wrap."""
    rows = [(Span(label, "label"), value) for label, value in pairs]
    columns = [Column(), Column(flexible=True)]
    return table(columns, rows, width, indent=indent, under=False)


def grid(pairs: Sequence[tuple[str, Span]], width: int, *, indent: int = 2) -> list[Line]:
    """Short facts in as many columns as the width takes, read downwards."""
    for count in range(min(4, len(pairs)), 0, -1):
        height = -(-len(pairs) // count)
        columns = [pairs[start : start + height] for start in range(0, len(pairs), height)]
        labels = [max(cell_width(label) for label, _ in column) + GAP for column in columns]
        sizes = [
            label + max(cell_width(value.text) for _, value in column)
            for label, column in zip(labels, columns, strict=True)
        ]
        if indent + sum(sizes) + (GAP + 1) * (len(sizes) - 1) <= width or count == 1:
            break
    if count == 1:
        return facts(pairs, width, indent=indent)
    lines: list[Line] = []
    for number in range(height):
        line: Line = [Span(" " * indent)]
        for column, label, size in zip(columns, labels, sizes, strict=True):
            if number < len(column):
                name, value = column[number]
                line += [Span(_padded(name, label, False), "label"), value]
                line.append(Span(" " * (size - label - cell_width(value.text) + GAP + 1)))
        lines.append(line)
    return lines


def heading(text: str, width: int) -> Line:
    """A section's title with a rule up to the width."""
    title = text[:width]
    return [Span(title, "heading"), Span(" " + "─" * (width - len(title) - 1), "rule")]


def line_width(line: Line) -> int:
    """Columns that a line takes."""
    return sum(cell_width(span.text) for span in line)


def side_by_side(
    left: Sequence[Line], right: Sequence[Line], left_width: int, *, gap: int = 4
) -> list[Line]:
    """Two blocks of lines beside each other."""
    lines: list[Line] = []
    for number in range(max(len(left), len(right))):
        line = list(left[number]) if number < len(left) else []
        if number < len(right):
            line.append(Span(" " * (left_width + gap - line_width(line))))
            line += right[number]
        lines.append(line)
    return lines
