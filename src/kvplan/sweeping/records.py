"""Where the rows of a text end: a line break inside quotes is part of a cell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def record_lengths(lines: Iterable[bytes]) -> Iterator[int]:
    """Bytes of each complete record; what follows the last line break is none.

    ``lines`` end with ``\\n``, but perhaps the last. A record is complete when its quotes are.
    """
    held, quotes = 0, 0
    for line in lines:
        held += len(line)
        quotes += line.count(b'"')
        if line.endswith(b"\n") and quotes % 2 == 0:
            yield held
            held = quotes = 0


def without_first(text: str, records: int) -> str:
    """The text behind its first records."""
    data = text.encode()
    ends = record_lengths(data.splitlines(keepends=True))
    skipped = sum(length for _, length in zip(range(records), ends, strict=False))
    return data[skipped:].decode()
