"""Where the rows of a text end: a line break inside quotes is part of a cell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def record_lengths(lines: Iterable[bytes], *, quotes: bool = True) -> Iterator[int]:
    """Bytes of each complete record; what follows the last line break is none.

    ``lines`` end with ``\\n``, but perhaps the last. A record is complete when its quotes are;
    without ``quotes`` every line is one.
    """
    held, marks = 0, 0
    for line in lines:
        held += len(line)
        marks += quotes * line.count(b'"')
        if line.endswith(b"\n") and marks % 2 == 0:
            yield held
            held = marks = 0


def without_first(data: bytes, records: int, *, quotes: bool = True) -> bytes:
    """What stands behind the first records."""
    ends = record_lengths(data.splitlines(keepends=True), quotes=quotes)
    skipped = sum(length for _, length in zip(range(records), ends, strict=False))
    return data[skipped:]
