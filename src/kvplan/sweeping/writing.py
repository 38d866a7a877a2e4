"""A job's rows brought to where they belong, in its format."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple

from kvplan.errors import InputError
from kvplan.sweeping.blocks import Block
from kvplan.sweeping.output import (
    RowSink,
    appending,
    existing_rows,
    new_file,
    partial_path,
    to_new_file,
    to_stdout,
)
from kvplan.sweeping.progress import progress
from kvplan.sweeping.records import without_first
from kvplan.sweeping.run import Job, Part, parts
from kvplan.sweeping.stopping import stops_between
from kvplan.sweeping.writers import BINARY_FORMATS, LINE_FORMATS, load_writer


class Target(NamedTuple):
    """Where to write, and how."""

    path: str | None = None
    append: bool = False
    resume: bool = False
    excel: bool = False


def write(job: Job, target: Target, processes: int) -> int:
    """Write all rows; how many were written."""
    _check(job, target)
    if job.format in LINE_FORMATS:
        return _write_lines(job, target, processes)
    return _write_document(job, target, processes)


def _check(job: Job, target: Target) -> None:
    if target.resume and not target.append:
        raise InputError("--resume goes with --append", hint="Use: --append --resume --output FILE")
    if target.append and target.path is None:
        raise InputError("--append needs --output FILE")
    if target.append and job.format not in LINE_FORMATS:
        raise InputError(f"--append: {job.format} is written whole", hint="Use --format csv.")
    if target.excel and job.format != "csv":
        raise InputError("--excel belongs to --format csv")
    if job.format in BINARY_FORMATS and target.path is None:
        raise InputError(f"--format {job.format} needs --output FILE")


def _write_lines(job: Job, target: Target, processes: int) -> int:
    header: str = load_writer(job.format).header(job.names, target.excel)
    have = None
    if target.append and target.path is not None:
        have = existing_rows(target.path, header.encode(), quotes=_quotes(job))
    skip = have.rows if have and target.resume else 0
    sink_of: AbstractContextManager[RowSink]
    if target.path is None:
        sink_of = to_stdout()
    elif target.append:
        sink_of = appending(target.path, have.rows if have else 0)
    else:
        sink_of = to_new_file(target.path)
    with sink_of as sink, progress(job.source.rows) as done, stops_between() as stop:
        if have is None:
            sink.write(header.encode(), 0)
        elif skip:
            _check_same(job, have.last, skip, processes)
        try:
            for part in _continued(job, processes, skip, done):
                sink.write(part.data, part.written)
                stop()
        except KeyboardInterrupt:
            sink.flush()
            _tell_interrupted(sink.rows, target)
            raise
    return sink.rows - (have.rows if have else 0)


def _continued(job: Job, processes: int, skip: int, done: Callable[[int], None]) -> Iterator[Part]:
    """The parts behind the first ``skip`` written rows."""
    if not skip:
        for part in parts(job, processes):
            yield part
            done(part.rows)
        return
    # With filters nobody knows which row asked was the last one written: all are asked again.
    asked_before = 0 if job.filters else skip
    left = skip
    started = parts(job, processes, asked_before)
    if not job.filters:
        left = skip - _rows_before(job, skip)
    for part in started:
        done(part.rows)
        if left >= part.written:
            left -= part.written
            continue
        data = without_first(part.data, left, quotes=_quotes(job)) if left else part.data
        yield Part(part.rows, part.written - left, data, [])
        left = 0


def _quotes(job: Job) -> bool:
    """Whether a row may hold a line break in quotes."""
    quotes: bool = load_writer(job.format).BREAKS_IN_QUOTES
    return quotes


def _rows_before(job: Job, skip: int) -> int:
    """Rows of the tasks that lie wholly before row ``skip``."""
    from kvplan.sweeping.run import tasks

    before = 0
    for rows, _ in tasks(job):
        if before + rows > skip:
            break
        before += rows
    return before


def _check_same(job: Job, last: bytes, rows: int, processes: int) -> None:
    """Whether the last row that a file has is that row of this sweep. Raises where it is not."""
    for part in _continued(job, 1 if not job.filters else processes, rows - 1, lambda _: None):
        if part.data.startswith(last):
            return
        break
    raise InputError(
        f"--resume: row {rows:,} of the file is not row {rows:,} of this sweep",
        hint="Give the flags that the file was begun with, or another --output.",
    )


def _write_document(job: Job, target: Target, processes: int) -> int:
    writer = load_writer(job.format)
    if hasattr(writer, "workbook") and target.path is not None:
        with new_file(target.path) as file:
            lines: int = writer.workbook(file, job)
        return lines
    count = 0

    def blocks() -> Iterator[Block]:
        nonlocal count
        with progress(job.source.rows) as done:
            for part in parts(job, processes):
                count += part.written
                if writer.MOST_ROWS is not None and count > writer.MOST_ROWS:
                    raise InputError(
                        f"--format {job.format} is for at most {writer.MOST_ROWS:,} rows",
                        hint="Use --format csv, or narrow the grid with --where.",
                    )
                yield from part.blocks
                done(part.rows)

    if job.format == "parquet" and target.path is not None:
        with new_file(target.path) as file:
            for _ in writer.write(file, blocks(), job.keys, job.described):
                pass
        return count
    data: bytes = writer.document(blocks(), job.keys, job.described)
    if target.path is not None:
        with new_file(target.path) as file:
            file.write(data)
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    return count


def _tell_interrupted(rows: int, target: Target) -> None:
    where = "on stdout" if target.path is None else f"in {target.path}"
    if target.path is not None and not target.append:
        where = f"in {partial_path(target.path)}"
    more = "; the same command with --append --resume goes on" if target.append else ""
    sys.stderr.write(f"kvplan: stopped after {rows:,} complete rows, {where}{more}\n")
