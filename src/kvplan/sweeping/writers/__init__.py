"""Formats of a sweep: one module each, found by its name in this folder.

A module named ``<name>_writer`` has one of

* ``header(names, excel)``, ``lines(block, keys, names)`` and ``BREAKS_IN_QUOTES``: text that grows
  row by row; or
* ``MOST_ROWS`` and ``document(blocks, keys, columns)``: the bytes of a whole document; or
* ``workbook(file, job)``: a document of its own that recomputes, made from the job itself.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

FORMATS = ("csv", "jsonl", "parquet", "markdown", "table", "xlsx")
LINE_FORMATS = frozenset({"csv", "jsonl"})
BINARY_FORMATS = frozenset({"parquet", "xlsx"})


def load_writer(name: str) -> ModuleType:
    """The module of a format."""
    return import_module(f"{__name__}.{name}_writer")


class Kept(str):
    """A cell of the user's own file: passed on as it is."""

    __slots__ = ()
