"""A progress bar on stderr, where someone is looking at it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

WORTH_A_BAR = 50_000
"""Rows below which a sweep is over before a bar is drawn."""


@contextmanager
def progress(rows: int) -> Iterator[Callable[[int], None]]:
    """A function to tell how many more rows are done."""
    if rows < WORTH_A_BAR or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    columns = (TextColumn("rows"), BarColumn(), MofNCompleteColumn(), Remaining())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("rows", total=rows)
        yield lambda done: bar.advance(task, done)
