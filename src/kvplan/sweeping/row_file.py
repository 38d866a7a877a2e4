"""``--from rows.csv``: rows that the user has, whose columns are named as the flags.

Their other columns are passed on as they are. The file is read twice: once to find every fault
before anything is written, once to be answered.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from kvplan.errors import InputError, MalformedFile, SourceError
from kvplan.hardware.profiles import load_gpu
from kvplan.question import BY_NAME as FLAGS_BY_NAME
from kvplan.question import parse_flags
from kvplan.sources import load_model
from kvplan.sweeping.columns import BY_NAME as COLUMNS
from kvplan.sweeping.grid import Configuration, Resolved

MODEL = "model"
_ALIASES = {
    "seq_len": "seq", "kv_cache_dtype": "kv", "weight_format": "weights", "page_size": "block_size",
    "gpu_count": "gpus", "reserve_bytes": "reserve",
}  # fmt: skip
VERSION = "engine_version"
_LONGEST_CELL = 1 << 20

Row = tuple[Configuration, int | None, int]


class RowFile(NamedTuple):
    """A checked file of rows."""

    path: str
    header: tuple[str, ...]
    inputs: Mapping[int, str]
    """The flag (or model, or engine_version) of each column that is one."""
    kept: tuple[int, ...]
    """Columns to pass on."""
    rows: int
    defaults: Mapping[str, Any]
    """Flags of the command line, for every row."""
    model: str | None

    @property
    def stated(self) -> list[str]:
        """Flags that the file or the command line gives."""
        return [*self.inputs.values(), *self.defaults]

    @property
    def kept_names(self) -> list[str]:
        """Names of the columns to pass on."""
        return [self.header[number] for number in self.kept]


def open_rows(path: str, model: str | None, defaults: Mapping[str, Any]) -> RowFile:
    """Check a file of rows from its first line to its last."""
    lines = _records(path)
    header = next(lines, None)
    if header is None:
        raise MalformedFile(path, "is empty; expected a line of column names")
    names = [name.strip() for name in header]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise MalformedFile(path, f"has two columns named {', '.join(map(repr, twice))}", line=1)
    inputs = {number: flag for number, name in enumerate(names) if (flag := _flag(name))}
    for flag in sorted(set(inputs.values())):
        same = [names[n] for n, other in inputs.items() if other == flag]
        if len(same) > 1:
            raise MalformedFile(path, f"has two columns for one flag: {' and '.join(same)}", line=1)
    taken = set(inputs.values())
    if MODEL not in taken and model is None:
        raise InputError(
            f"--from {path}: no column is named model, and no MODEL was given",
            hint=f"Its columns: {', '.join(names)[:300]}",
        )
    if "gpu" not in taken and "gpu" not in defaults:
        raise InputError(f"--from {path}: no column is named gpu, and there is no --gpu")
    kept = tuple(n for n, name in enumerate(names) if n not in inputs and name not in COLUMNS)
    found = RowFile(path, tuple(names), inputs, kept, 0, defaults, model)
    return found._replace(rows=_checked(found))


def read_rows(file: RowFile) -> Iterator[tuple[Row, list[str]]]:
    """Each row as a configuration with its load, and the cells to pass on."""
    lines = _records(file.path)
    next(lines)
    for cells in lines:
        yield _row(file, cells), [cells[number] for number in file.kept]


def _checked(file: RowFile) -> int:
    """The number of rows. Raises for the first that cannot be read, by its line."""
    good: set[tuple[int, str]] = set()
    names: set[tuple[str, str]] = set()
    reader = _records(file.path)
    next(reader)
    count = 0
    for count, cells in enumerate(reader, 1):
        line = count + 1
        if len(cells) != len(file.header):
            raise MalformedFile(
                file.path,
                f"row {line} has {len(cells)} cells where the header has {len(file.header)}",
                line=line,
            )
        for number, flag in file.inputs.items():
            text = cells[number]
            if (number, text) in good or not text.strip():
                continue
            try:
                _check_cell(flag, text.strip())
            except InputError as error:
                raise MalformedFile(
                    file.path, f"row {line}, {file.header[number]}: {error.message}",
                    hint=error.hint, line=line,
                ) from None  # fmt: skip
            good.add((number, text))
            if len(good) > 1_000_000:
                good.clear()
        places = {flag: number for number, flag in file.inputs.items()}
        for flag, fallback in ((MODEL, file.model), ("gpu", file.defaults.get("gpu"))):
            said = cells[places[flag]].strip() if flag in places else ""
            if not (said or fallback):
                raise MalformedFile(file.path, f"row {line} names no {flag}", line=line)
            names.add((flag, said or str(fallback)))
    if not count:
        raise MalformedFile(file.path, "has no rows below its header")
    for flag, name in sorted(names):
        load_gpu(name) if flag == "gpu" else load_model(name)
    return count


def _check_cell(flag: str, text: str) -> None:
    if flag in {MODEL, VERSION}:
        return
    parse_flags({flag: _value(flag, text)})


def _value(flag: str, text: str) -> Any:
    if FLAGS_BY_NAME[flag].repeats:
        return text.split(";")
    if FLAGS_BY_NAME[flag].parse is None:
        return text.lower() in {"1", "true", "yes"}
    return text


def _row(file: RowFile, cells: list[str]) -> Row:
    flags = dict(file.defaults)
    model, version = file.model, ""
    for number, flag in file.inputs.items():
        text = cells[number].strip()
        if not text:
            continue
        if flag == MODEL:
            model = text
        elif flag == VERSION:
            version = text
        else:
            flags[flag] = _value(flag, text)
            if _key(file.header[number]) == "weight_format":
                flags[flag] = Resolved(text)
    if version and "@" not in str(flags.get("engine", "")):
        flags["engine"] = f"{flags.get('engine', 'vllm')}@{version}"
    values = parse_flags({name: flags.pop(name) for name in ("seq", "batch") if name in flags})
    seq = values.get("seq")
    if seq is not None and ("input_tokens" in flags or "output_tokens" in flags):
        flags["seq"], seq = seq, None
    return Configuration(str(model), flags), seq, values.get("batch", 1)


def _flag(name: str) -> str | None:
    """What a column is, if it is an input: a flag's name however it is spelt."""
    key = _key(name)
    if key in {MODEL, VERSION}:
        return key
    key = _ALIASES.get(key, key)
    return key if key in FLAGS_BY_NAME else None


def _key(name: str) -> str:
    return name.lower().lstrip("-").replace("-", "_")


def _records(path: str) -> Iterator[list[str]]:
    """The records of a CSV file in UTF-8, one at a time."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            csv.field_size_limit(_LONGEST_CELL)
            try:
                for record in reader:
                    if any("\0" in cell for cell in record):
                        raise _not_utf8(path)
                    if record:
                        yield record
            except csv.Error as error:
                raise MalformedFile(
                    path,
                    f"is not valid CSV at line {reader.line_num}: {error}",
                    hint="A quote inside a cell is written twice, and the cell stands in quotes.",
                    line=reader.line_num,
                ) from None
    except UnicodeDecodeError:
        raise _not_utf8(path) from None
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror}") from error


def _not_utf8(path: str) -> MalformedFile:
    return MalformedFile(
        path,
        "is not UTF-8 text; it may be UTF-16, as some spreadsheets save",
        hint="Save it as CSV in UTF-8.",
    )
