"""Bounded reading of evaluation results, which are larger than configurations and less tidy.

Unlike a model's configuration, a result may hold ``NaN`` (lm-evaluation-harness writes it for a
metric that could not be computed): it is read as no figure, never as a number.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator
from typing import Any

from kvplan.errors import MalformedFile, SourceError
from kvplan.files import read_text
from kvplan.units import MIB

MAX_RESULT_BYTES = 256 * MIB
MAX_LINE_BYTES = 16 * MIB
"""Longest line of a per-sample file: one document with its prompt and answer."""


def read_large_json(path: str) -> Any:
    """The JSON document in a file of at most `MAX_RESULT_BYTES`; what is not a number is None."""
    text = read_text(path, MAX_RESULT_BYTES)
    if not text.strip():
        raise MalformedFile(path, "is empty; expected JSON")
    try:
        return json.loads(text, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        raise MalformedFile(
            path, f"is not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from None
    except RecursionError:
        raise MalformedFile(path, "is nested too deeply to be a result") from None
    except ValueError:  # an integer of more than sys.get_int_max_str_digits() digits
        raise MalformedFile(path, "holds a number too long to be a score") from None


def _no_number(_: str) -> None:
    return None


def read_json_lines(path: str) -> Iterator[dict[str, Any]]:
    """The objects of a JSON-lines file, one at a time, so that its size is not kept in memory."""
    try:
        if not os.path.isfile(path):  # opening a named pipe would wait for its other end
            raise MalformedFile(path, "is not a regular file")
        if os.path.getsize(path) > MAX_RESULT_BYTES:
            raise MalformedFile(path, f"is more than {MAX_RESULT_BYTES // MIB} MiB")
        with open(path, "rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES + 1), b""), 1):
                if len(line) > MAX_LINE_BYTES:
                    raise MalformedFile(path, f"line {number:,} is more than 16 MiB")
                if line.strip():
                    yield _line(line, path, number)
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror}") from error


def _line(line: bytes, path: str, number: int) -> dict[str, Any]:
    try:
        value = json.loads(line, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise MalformedFile(path, f"line {number:,} is not a JSON object") from None
    if not isinstance(value, dict):
        raise MalformedFile(path, f"line {number:,} is not a JSON object")
    return value


def read_table(path: str) -> list[dict[str, str]]:
    """The rows of a CSV file by its header, which may be of any case."""
    text = read_text(path, MAX_RESULT_BYTES)
    try:
        reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        names = [(name or "").strip().lower() for name in reader.fieldnames or ()]
        if not any(names):
            raise MalformedFile(path, "has no header line")
        reader.fieldnames = names
        rows = []
        for row in reader:
            if None in row:
                raise MalformedFile(
                    path, f"line {reader.line_num:,} has more cells than the header"
                )
            rows.append({name: (value or "").strip() for name, value in row.items()})
    except csv.Error as error:
        raise MalformedFile(path, f"is not a CSV table: {error}") from None
    return rows
