"""Text that fits a width: wrapped words, tables that give way when narrow, columns side by side.

A report is a list of lines, a line a list of spans, a span a piece of text with the name of a
style. What a style looks like, and whether there is colour at all, is in `terminal`.
"""

from __future__ import annotations

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
NARROWEST_FLEXIBLE = 18
"""Below this a column of words goes under its row instead of beside it."""

_UNITS = frozenset({"GiB", "B", "GB/s", "TFLOPS", "tokens", "blocks", "bits", "%"})
"""Words that stay on the line of the number before them."""
_NARROW = "─█▓░▚▞▒▙▟·▶ "
"""What the reports draw with: one column each."""


def printable(text: str) -> str:
    """``text`` without control characters: names and notes come from strangers' files."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def cell_width(text: str) -> int:
    """Columns that ``text`` takes on a terminal: two for a wide character, none for a mark."""
    if text.isascii() or text.strip(_NARROW).isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(c) else 2 if east_asian_width(c) in {"W", "F"} else 1 for c in text)


def wrap(text: str, width: int, hang: int = 0) -> list[str]:
    """``text`` in lines of at most ``width``; those after the first begin with ``hang`` blanks.

    A number stays on the line of its unit. Only a word longer than a line is cut.
    """
    lines: list[str] = []
    current, room = "", width
    for word in _words(printable(text)):
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
    return [(margin if number else "") + line for number, line in enumerate(lines)]


def _words(text: str) -> list[str]:
    words: list[str] = []
    for word in text.split(" "):
        if words and words[-1][-1].isdigit() and word.rstrip(",;:.)") in _UNITS:
            words[-1] += " " + word
        elif word:
            words.append(word)
    return words


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
    room = width - indent
    sizes = _sizes(columns, cells, room)
    taken = sum(sizes.values()) + GAP * (len(sizes) - 1)
    flexible = next((i for i, column in enumerate(columns) if column.flexible), None)
    left = room - taken - GAP
    widest = 0 if flexible is None else _natural(columns, cells, flexible)
    beside = flexible is not None and left >= min(NARROWEST_FLEXIBLE, widest)
    lines: list[Line] = []
    if any(column.title for column in columns):
        titles = [Span(column.title, "title") for column in columns]
        lines += _row(columns, titles, sizes, indent)
        if beside and flexible is not None:
            lines[-1] += [Span(" " * GAP), titles[flexible]]
    for row in cells:
        lines += _row(columns, row, sizes, indent)
        if flexible is None or not row[flexible].text:
            continue
        text, style = row[flexible]
        first, *rest = wrap(text, left) if beside else ("",)
        below = wrap(text, room - 2)
        if beside and (not under or not rest or len(rest) < len(below)):
            lines[-1] += [Span(" " * GAP), Span(first, style)]
            blank = Span(" " * (indent + taken + GAP))
            lines += [[blank, Span(line, style)] for line in rest]
        else:
            lines += [[Span(" " * (indent + 2)), Span(line, style)] for line in below]
    return lines


def _sizes(columns: Sequence[Column], rows: Sequence[Sequence[Span]], room: int) -> dict[int, int]:
    """Widths of the columns that are shown, the flexible one aside."""
    sizes = {
        i: _natural(columns, rows, i) for i, column in enumerate(columns) if not column.flexible
    }
    while (over := sum(sizes.values()) + GAP * (len(sizes) - 1) - room) > 0:
        last = max(sizes, key=lambda i: columns[i].drop)
        if not columns[last].drop:
            first = min(sizes)
            sizes[first] = max(6, sizes[first] - over)
            break
        del sizes[last]
    return sizes


def _row(
    columns: Sequence[Column], row: Sequence[Span], sizes: dict[int, int], indent: int
) -> list[Line]:
    """One row; a first cell that is too long takes lines of its own above."""
    margin = Span(" " * indent)
    above: list[Line] = []
    line: Line = [margin]
    for i, size in sizes.items():
        text, style = printable(row[i].text), row[i].style
        if cell_width(text) > size:
            *extra, text = wrap(text, size)
            above += [[margin, Span(part, style)] for part in extra]
        blanks = Span(" " * (size - cell_width(text)))
        if len(line) > 1:
            line.append(Span(" " * GAP))
        line += [blanks, Span(text, style)] if columns[i].right else [Span(text, style), blanks]
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
    for count in range(min(4, len(pairs)), 1, -1):
        lines = _columns(pairs, count, indent)
        if max(map(line_width, lines)) <= width:
            return lines
    return facts(pairs, width, indent=indent)


def _columns(pairs: Sequence[tuple[str, Span]], count: int, indent: int) -> list[Line]:
    height = -(-len(pairs) // count)
    lines: list[Line] = [[Span(" " * indent)] for _ in range(height)]
    for start in range(0, len(pairs), height):
        column = pairs[start : start + height]
        label = max(cell_width(name) for name, _ in column) + GAP
        size = max(cell_width(value.text) for _, value in column)
        last = start + height >= len(pairs)
        for line, (name, value) in zip(lines, column, strict=False):
            blanks = "" if last else " " * (size - cell_width(value.text) + GAP + 1)
            line += [Span(_padded(name, label, False), "label"), value, Span(blanks)]
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
