"""CSV (RFC 4180): numbers only, empty is unknown, text that no spreadsheet runs as a formula."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvplan.reports.csv_report import cell
from kvplan.sweeping.blocks import Block
from kvplan.sweeping.lines import block_lines
from kvplan.sweeping.writers import Kept

END = "\r\n"
_QUOTED = frozenset(',"\r\n')
BREAKS_IN_QUOTES = True
BOM = "\ufeff"


def header(names: Sequence[str], excel: bool) -> str:
    """The first line; Excel reads UTF-8 by its mark."""
    return (BOM if excel else "") + ",".join(_quoted(name) for name in names) + END


def lines(block: Block, keys: Sequence[str], names: Sequence[str]) -> str:  # noqa: ARG001
    """The rows of a block."""
    before = ["", *[","] * (len(keys) - 1)]
    return block_lines(block, keys, before, END, encode)


def encode(value: Any) -> str:
    """One cell; the user's own are only quoted, never changed."""
    return _quoted(value if isinstance(value, Kept) else str(cell(value)))


def _quoted(text: str) -> str:
    if _QUOTED.isdisjoint(text):
        return text
    return '"' + text.replace('"', '""') + '"'
