"""Where the rows go: stdout, a new file that appears whole, or behind those a file has."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple

from kvplan.errors import InputError
from kvplan.sweeping.records import record_lengths


class Existing(NamedTuple):
    """The rows that a file has already."""

    rows: int
    last: bytes
    """The last complete row."""


class RowSink:
    """Takes rows, and knows how many it has."""

    def __init__(self, file: BinaryIO, rows: int = 0) -> None:
        self._file = file
        self.rows = rows

    def write(self, data: bytes, rows: int) -> None:
        """Write complete rows."""
        self._file.write(data)
        self.rows += rows

    def flush(self) -> None:
        """Hand everything to the system."""
        self._file.flush()


@contextmanager
def to_stdout() -> Iterator[RowSink]:
    """Rows on stdout."""
    sink = RowSink(sys.stdout.buffer)
    try:
        yield sink
        sink.flush()
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def to_new_file(path: str) -> Iterator[RowSink]:
    """A file that appears when all rows are there.

    An interrupt leaves the complete rows in ``PATH.partial``; any other end leaves nothing.
    """
    with new_file(path) as file:
        yield RowSink(file)


@contextmanager
def new_file(path: str) -> Iterator[BinaryIO]:
    """The same for any bytes."""
    if os.path.exists(path) and not os.path.isfile(path):  # a device or a pipe: just write
        with open(path, "wb") as file:
            yield file
        return
    folder = os.path.dirname(os.path.abspath(path))
    try:
        handle, temporary = tempfile.mkstemp(prefix=".kvplan-", dir=folder)
    except OSError as error:
        raise _unwritable(path, error) from error
    target: str | None = None
    try:
        with os.fdopen(handle, "wb") as file:
            try:
                yield file
                target = path
            except KeyboardInterrupt:
                target = partial_path(path)
                raise
            except OSError as error:
                raise _unwritable(path, error) from error
    finally:
        if target is None:
            os.unlink(temporary)
        else:
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(temporary, 0o666 & ~mask)
            os.replace(temporary, target)


def partial_path(path: str) -> str:
    """Where an interrupted run leaves its rows."""
    return f"{path}.partial"


def existing_rows(path: str, header: bytes, *, quotes: bool) -> Existing | None:
    """What a file has, its last row cut off where it is not complete; None without a file.

    Raises where the file begins with other columns.
    """
    if not os.path.exists(path):
        return None
    try:
        with open(path, "r+b") as file:
            start = file.read(len(header))
            if start != header:
                if header.startswith(start):  # stopped before its first line was whole
                    file.truncate(0)
                    return None
                raise InputError(
                    f"--append {path!r}: the file has other columns than this sweep",
                    hint="Give the same --columns and flags, or another --output.",
                )
            rows, place, last = 0, len(header), (len(header), 0)
            for length in record_lengths(file, quotes=quotes):
                rows, last = rows + 1, (place, length)
                place += length
            file.truncate(place)
            file.seek(last[0])
            return Existing(rows, file.read(last[1]))
    except OSError as error:
        raise _unwritable(path, error) from error


@contextmanager
def appending(path: str, rows: int) -> Iterator[RowSink]:
    """Rows written behind those of a file, straight into it."""
    try:
        with open(path, "ab") as file:
            yield RowSink(file, rows)
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: str, error: OSError) -> InputError:
    return InputError(f"--output {path!r} cannot be written: {error.strerror}")
