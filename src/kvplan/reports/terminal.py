"""Where a report is printed: how wide, in colour or not, and with which characters.

rich is imported only when there is colour, so that output to a pipe or a file stays quick. It
chooses what the terminal can show (16, 256 or all colours) and writes the codes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

from kvplan.reports.layout import Line

NARROWEST, WIDEST, USUAL = 40, 160, 80

_STYLES = {
    "fits": "bold black on #4cc38a",
    "tight": "bold black on #f5c451",
    "oom": "bold white on #d6455d",
    "good": "#4cc38a",
    "warn": "#f5c451",
    "bad": "#f2647c",
    "heading": "bold",
    "rule": "#6b7280",
    "title": "#9aa3b2",
    "label": "#9aa3b2",
    "dim": "#9aa3b2",
    "strong": "bold",
    "asked": "bold underline",
    "code": "#8fb8ff",
    "weights": "#5b8def",
    "activation": "#f0a35e",
    "cuda_graph": "#b38df0",
    "runtime": "#56c7c7",
    "term": "#d98fbf",
    "needed": "#4cc38a",
    "over": "#d6455d",
    "free": "#2f7d5b",
    "outside": "#6b7280",
    "full": "#5b8def",
    "sliding_window": "#4cc38a",
    "chunked_local": "#f0a35e",
    "latent": "#b38df0",
    "indexer": "#d98fbf",
    "recurrent": "#56c7c7",
    "cross_attention": "#f5c451",
    "compressed": "#b38df0",
    "compressor_state": "#f5c451",
    "shared": "#6b7280",
}
"""What the styles of `layout` look like."""

_ASCII = str.maketrans("█▓░▚▞▒▙▟·─▶", "#=-%&+~^.->")
"""Stand-ins of one column for a terminal that cannot show the characters of the reports."""


class Screen(NamedTuple):
    """What a report may use."""

    width: int
    colour: bool
    unicode: bool


def screen(to_file: bool = False) -> Screen:
    """The screen behind stdout, or a plain one of 80 columns for a file or a pipe.

    ``COLUMNS`` overrides the width, ``NO_COLOR`` (set to anything) takes colour away and
    ``FORCE_COLOR`` brings it back where stdout is no terminal.
    """
    from shutil import get_terminal_size

    width = get_terminal_size((USUAL, 24)).columns
    if not os.environ.get("COLUMNS") and (to_file or not _is_terminal()):
        width = USUAL
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    return Screen(
        max(NARROWEST, min(WIDEST, width)),
        not to_file and _wants_colour(),
        to_file or encoding.lower().replace("-", "").startswith("utf"),
    )


def _is_terminal() -> bool:
    try:
        return sys.stdout.isatty()
    except (AttributeError, ValueError):  # replaced or closed by whoever runs us
        return False


def _wants_colour() -> bool:
    """Source: https://no-color.org and https://force-color.org; the first wins over the second."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return _is_terminal() and os.environ.get("TERM") not in {"dumb", "unknown"}


def to_text(lines: Sequence[Line], on: Screen) -> str:
    """The lines as text for that screen."""
    if on.colour:
        return _coloured(lines, on)
    text = "".join("".join(span.text for span in line).rstrip() + "\n" for line in lines)
    return text if on.unicode else text.translate(_ASCII)


def _coloured(lines: Sequence[Line], on: Screen) -> str:
    from rich.console import Console
    from rich.text import Text

    console = Console(force_terminal=True, width=on.width, highlight=False, markup=False)
    if console.color_system is None:  # a forced colour where the terminal is not known
        console = Console(
            force_terminal=True, width=on.width, highlight=False, markup=False,
            color_system="standard",
        )  # fmt: skip
    with console.capture() as captured:
        for line in lines:
            text = Text(no_wrap=True, overflow="ignore", end="")
            for span in line:
                shown = span.text if on.unicode else span.text.translate(_ASCII)
                text.append(shown, style=_STYLES.get(span.style) if span.style else None)
            text.rstrip()
            console.print(text, crop=False, soft_wrap=True)
    return captured.get()
