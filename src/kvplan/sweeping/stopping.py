"""Ctrl-C between two blocks of rows and never within one, so that every row stands whole."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stops_between() -> Iterator[Callable[[], None]]:
    """A function to call between blocks: it raises the interrupt that came meanwhile.

    A second one is raised at once, for a reader that has stopped reading.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    came = False

    def note(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        nonlocal came
        if came:
            raise KeyboardInterrupt
        came = True

    def check() -> None:
        if came:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, note)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, before)
