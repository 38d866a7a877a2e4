"""A sweep from its first row to its last: in blocks, in order, on as many cores as are worth it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from kvplan.sweeping.blocks import Block, Evaluator
from kvplan.sweeping.columns import TEXT, Column
from kvplan.sweeping.grid import Grid, Span, spans
from kvplan.sweeping.row_file import Row, RowFile, read_rows
from kvplan.sweeping.where import parse_where
from kvplan.sweeping.writers import LINE_FORMATS, Kept, load_writer

BLOCK_ROWS = 65_536
WORTH_PROCESSES = 200_000
"""Rows from which other processes pay for their start."""
_KEPT = "kept:"

Task = list[Span] | list[tuple[Row, list[str]]]


class Job(NamedTuple):
    """What every process needs to know."""

    source: Grid | RowFile
    columns: tuple[Column, ...]
    format: str
    policy: str | None = None
    where: str | None = None
    only_valid: bool = False

    @property
    def kept(self) -> list[str]:
        """Columns of the user's file that are passed on, before all others."""
        return self.source.kept_names if isinstance(self.source, RowFile) else []

    @property
    def keys(self) -> list[str]:
        """Keys of the cells in order."""
        return [f"{_KEPT}{n}" for n in range(len(self.kept))] + [c.name for c in self.columns]

    @property
    def described(self) -> list[Column]:
        """The columns in order."""
        kept = [Column(name, "", TEXT, "From the user's own rows.") for name in self.kept]
        return [*kept, *self.columns]

    @property
    def names(self) -> list[str]:
        """The headings in order."""
        return [column.name for column in self.described]

    @property
    def filters(self) -> bool:
        """Whether rows may be left out."""
        return self.where is not None or self.only_valid


class Part(NamedTuple):
    """The answer to one task."""

    rows: int
    """Rows asked."""
    written: int
    """Rows kept by the filters."""
    data: bytes
    """Lines as UTF-8: encoded where they are made, so that nothing is decoded on the way."""
    blocks: list[Block]
    """For formats that are not lines."""


class Worker:
    """Answers tasks."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._where = parse_where(job.where) if job.where is not None else None
        wanted = [column.name for column in job.columns]
        extra = set(self._where.columns if self._where else ())
        if job.only_valid:
            extra.add("error")
        wanted += sorted(extra - set(wanted))
        self._evaluator = Evaluator(job.policy, wanted)
        self._writer = load_writer(job.format) if job.format in LINE_FORMATS else None
        self._keys, self._names = job.keys, job.names

    def answer(self, task: Task) -> Part:
        """The rows of a task, as lines or as blocks."""
        blocks = list(self._blocks(task))
        asked = sum(block.size for block in blocks)
        kept = [block for block in map(self._filtered, blocks) if block.size]
        written = sum(block.size for block in kept)
        if self._writer is None:
            return Part(asked, written, b"", kept)
        lines = [self._writer.lines(block, self._keys, self._names) for block in kept]
        return Part(asked, written, "".join(lines).encode("utf-8", errors="replace"), [])

    def _blocks(self, task: Task) -> Iterator[Block]:
        if isinstance(self._job.source, Grid):
            yield from self._evaluator.grid_blocks(self._job.source, task)  # type: ignore[arg-type]
            return
        rows: Any = task
        block = self._evaluator.row_block([row for row, _ in rows])
        for number in range(len(self._job.kept)):
            cell = np.empty((len(rows), 1), dtype=object)
            cell[:, 0] = [Kept(kept[number]) for _, kept in rows]
            block.cells[f"{_KEPT}{number}"] = cell
        yield block

    def _filtered(self, block: Block) -> Block:
        if self._job.only_valid:
            error = block.cells["error"]
            valid: Any = error is None
            if isinstance(error, np.ndarray):
                valid = np.array([one is None for one in error.ravel()]).reshape(error.shape)
            block = block.masked(valid)
        if self._where is not None and block.size:
            block = block.masked(self._where(block))
        return block


def tasks(job: Job, block_rows: int = BLOCK_ROWS) -> Iterator[tuple[int, Task]]:
    """All tasks in order, each with its number of rows."""
    if isinstance(job.source, Grid):
        for part in spans(job.source, block_rows):
            yield sum(span.rows for span in part), part
        return
    rows = read_rows(job.source)
    while chunk := list(islice(rows, block_rows)):
        yield len(chunk), chunk


def parts(job: Job, processes: int, skip: int = 0) -> Iterator[Part]:
    """The answers to all tasks in order, without those that lie wholly in the first ``skip`` rows.

    Only a few tasks are under way at a time, so memory does not grow with the grid.
    """
    wanted = _after(tasks(job), skip)
    if processes <= 1:
        worker = Worker(job)
        for task in wanted:
            yield worker.answer(task)
        return
    from concurrent.futures import Future, ProcessPoolExecutor

    waiting: deque[Future[Part]] = deque()
    with ProcessPoolExecutor(processes, initializer=_start, initargs=(job, os.getpid())) as pool:
        try:
            for task in wanted:
                waiting.append(pool.submit(_answer, task))
                if len(waiting) > 2 * processes + 1:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)  # what is under way ends within a block


def _after(all_tasks: Iterator[tuple[int, Task]], skip: int) -> Iterator[Task]:
    for rows, task in all_tasks:
        if skip >= rows:
            skip -= rows
            continue
        skip = 0
        yield task


def processes_for(rows: int, asked: int | None) -> int:
    """How many processes to use."""
    if asked is not None:
        return asked
    if rows < WORTH_PROCESSES:
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_worker: Worker | None = None


def _start(job: Job, parent: int) -> None:
    global _worker  # noqa: PLW0603
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted and stops the pool
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    _worker = Worker(job)


def _end_with(parent: int) -> None:
    """End this process when the one that started it was killed, which closes no queue."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _answer(task: Task) -> Part:
    if _worker is None:
        raise RuntimeError("a process of the pool was not started")
    return _worker.answer(task)
