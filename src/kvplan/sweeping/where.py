"""``--where``: comparisons of columns, read by a small parser and never run as code.

    verdict == fits and headroom_bytes > 1GiB
    (gpu == l40s or tp >= 4) and not seq_len < 32k

Words are ``and``, ``or``, ``not`` and brackets; a value is a number (with a size such as ``1GiB``
for bytes, or ``32k`` for counts), a word, or a text in quotes. An unknown cell compares false.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from kvplan.errors import InputError, nearest_names
from kvplan.planning.piece import Coded
from kvplan.sweeping.blocks import Block
from kvplan.sweeping.columns import BY_NAME, TEXT
from kvplan.units import parse_size, parse_tokens

_TOKEN = re.compile(
    r"\s*(?:(?P<op>==|!=|<=|>=|<|>)|(?P<bracket>[()])|'(?P<single>[^']*)'|\"(?P<double>[^\"]*)\""
    r"|(?P<word>[A-Za-z0-9_.@+/:-]+))"
)
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_DEEPEST = 50

Test = Callable[[Block], Any]


class Where(NamedTuple):
    """A filter of rows."""

    columns: frozenset[str]
    test: Test

    def __call__(self, block: Block) -> Any:
        """Which rows of the block pass: a bool, or an array of its shape."""
        return self.test(block)


def parse_where(text: str) -> Where:
    """The filter that the text describes."""
    parser = _Parser(text)
    test = parser.either(0)
    if parser.kind is not None:
        raise parser.fault("and, or, or the end")
    return Where(frozenset(parser.columns), test)


class _Parser:
    """Recursive descent over the tokens of one text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.columns: set[str] = set()
        self._place = 0
        self.kind: str | None = None
        self.word = ""
        self._next()

    def _next(self) -> None:
        rest = self.text[self._place :]
        match = _TOKEN.match(rest)
        if match is None:
            if rest.strip():
                self.word = rest.strip()[0]
                raise self.fault("a column, a comparison or a value")
            self.kind, self.word = None, ""
            return
        self.kind = match.lastgroup
        self.word = match[self.kind or "word"]
        self._place += match.end()

    def fault(self, wanted: str) -> InputError:
        found = repr(self.word) if self.word else "the end"
        return InputError(
            f"--where {self.text!r}: {found} where {wanted} was expected",
            hint="For example: --where 'verdict == fits and headroom_bytes > 1GiB'",
        )

    def either(self, depth: int) -> Test:
        test = self._both(depth)
        while self.kind == "word" and self.word == "or":
            self._next()
            test = _any(test, self._both(depth))
        return test

    def _both(self, depth: int) -> Test:
        test = self._single(depth)
        while self.kind == "word" and self.word == "and":
            self._next()
            test = _all(test, self._single(depth))
        return test

    def _single(self, depth: int) -> Test:
        if depth > _DEEPEST:
            raise InputError("--where is nested too deeply")
        if self.kind == "word" and self.word == "not":
            self._next()
            inner = self._single(depth + 1)
            return lambda block: np.logical_not(inner(block))
        if self.kind == "bracket" and self.word == "(":
            self._next()
            test = self.either(depth + 1)
            if self.word != ")":
                raise self.fault("a closing bracket")
            self._next()
            return test
        return self._comparison()

    def _comparison(self) -> Test:
        name = self.word
        if self.kind != "word":
            raise self.fault("a column")
        if name not in BY_NAME:
            near = ", ".join(nearest_names(name, BY_NAME) or ["all are in docs/sweep.md"])
            raise InputError(f"--where: {name!r} is not a column", hint=f"Nearest: {near}")
        self._next()
        if self.kind != "op":
            raise self.fault("a comparison (== != < <= > >=)")
        sign = self.word
        self._next()
        if self.kind not in {"word", "single", "double"}:
            raise self.fault("a value")
        value = self._value(name, sign)
        self._next()
        self.columns.add(name)
        return lambda block: _compared(block.cells.get(name), _COMPARE[sign], value)

    def _value(self, name: str, sign: str) -> object:
        column = BY_NAME[name]
        if column.kind == TEXT:
            if sign not in {"==", "!="}:
                raise InputError(f"--where: {name} is text: compare it with == or !=")
            return self.word
        try:
            return float(self.word) if "." in self.word else int(self.word)
        except ValueError:
            parse = parse_size if column.unit == "bytes" else parse_tokens
            return parse(self.word, f"--where {name}")


def _any(a: Test, b: Test) -> Test:
    return lambda block: np.logical_or(a(block), b(block))


def _all(a: Test, b: Test) -> Test:
    return lambda block: np.logical_and(a(block), b(block))


def _compared(cell: Any, compare: Callable[[Any, Any], Any], value: object) -> Any:
    if isinstance(cell, Coded):
        passing = np.array([compare(label, value) for label in cell.labels], dtype=bool)
        return passing[cell.codes]
    if isinstance(cell, np.ndarray) and cell.dtype != object:
        return compare(cell, value)
    if isinstance(cell, np.ndarray):
        each = [item is not None and bool(compare(item, value)) for item in cell.ravel()]
        return np.array(each, dtype=bool).reshape(cell.shape)
    return cell is not None and bool(compare(cell, value))
