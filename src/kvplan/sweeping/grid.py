"""A cartesian grid: configurations in a fixed order, each with the same lengths and batches."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from kvplan.engines import load_engine
from kvplan.errors import InputError, nearest_names
from kvplan.hardware.profiles import load_gpu
from kvplan.precision.kv import AUTO, kv_format
from kvplan.precision.weights import weight_format
from kvplan.question import BY_NAME, DEFAULT_ENGINE, FLAGS
from kvplan.sources import load_model
from kvplan.sweeping.axes import Values, read_axis, split_list
from kvplan.sweeping.settings import read_settings

MOST_ROWS = 100_000_000
_LOAD = ("seq", "batch")
_FIRST = ("gpu", "engine")
"""Vary slowest after the model; the other flags follow in the order of the help."""


_MOST_SPANS = 256
"""Configurations that one block may hold, however few rows each has."""


class Resolved(str):
    """A weight format as a sweep writes it, which may be the checkpoint's own."""

    __slots__ = ()


class Configuration(NamedTuple):
    """A model with every flag but the load."""

    model: str
    flags: dict[str, Any]


class Axis(NamedTuple):
    """One thing that varies between configurations."""

    name: str
    """A flag, ``model``, or ``set`` and ``engine_arg`` with their field."""
    values: Values


class Grid:
    """All combinations of the axes; rows are numbered from 0, the batch varying fastest."""

    def __init__(self, axes: Sequence[Axis], lengths: Values | None, batches: Values) -> None:
        self.axes = list(axes)
        self.lengths = lengths
        """None: each model's native context, or what its flags make of it."""
        self.batches = batches
        self.configurations = math.prod(len(axis.values) for axis in axes)
        self.rows_each = len(batches) * (1 if lengths is None else len(lengths))
        self.rows = self.configurations * self.rows_each

    def configuration(self, number: int) -> Configuration:
        """The configuration of that number: the last axis varies fastest."""
        chosen: list[tuple[str, Any]] = []
        for axis in reversed(self.axes):
            number, place = divmod(number, len(axis.values))
            chosen.append((axis.name, axis.values[place]))
        flags: dict[str, Any] = {}
        model = ""
        for name, value in reversed(chosen):
            flag, _, field = name.partition(".")
            if flag == "model":
                model = str(value)
            elif field:
                flags.setdefault(flag, []).append(f"{field}={value}")
            else:
                flags[flag] = value
        return Configuration(model, flags)

    def stated(self) -> list[str]:
        """The flags that were given."""
        return [axis.name.partition(".")[0] for axis in self.axes]


def read_grid(models: Sequence[str], flags: Mapping[str, Any]) -> Grid:
    """The grid that lists and ranges of the flags describe.

    Names are looked up at once, so that a misspelt one is an error and not a column of them.
    """
    names = [name for text in models for name in _models(text)]
    if not names:
        raise InputError("no model was named", hint="kvplan sweep llama-3.1-8b --gpu h100-sxm …")
    given = {name: value for name, value in flags.items() if value not in (None, False, (), [])}
    for name in given:
        if name not in BY_NAME:
            near = ", ".join(nearest_names(name, BY_NAME) or BY_NAME)
            raise InputError(f"{name!r} is not a flag", hint=f"Nearest: {near}")
    if "gpu" not in given:
        raise InputError("no GPU was named", hint="Add --gpu, such as --gpu h100-sxm,l40s.")
    axes = [Axis("model", list(dict.fromkeys(names)))]
    order = [*_FIRST, *(flag.name for flag in FLAGS if flag.name not in _FIRST)]
    loads: dict[str, Values] = {}
    for name in order:
        if name not in given:
            continue
        found = _axes(name, given[name])
        if name in _LOAD:
            loads[name] = found[0].values
        else:
            axes += found
    if "seq" in loads and ("input_tokens" in given or "output_tokens" in given):
        axes.append(Axis("seq", loads.pop("seq")))  # each length is checked against the parts
    grid = Grid(axes, loads.get("seq"), loads.get("batch", [1]))
    _check_size(grid)
    _look_up(axes)
    return grid


def _models(text: str) -> list[str]:
    return [text] if os.path.exists(text) else split_list(text, "MODEL")


def _axes(name: str, value: Any) -> list[Axis]:
    """The axes of one flag."""
    flag = BY_NAME[name]
    texts = [str(item) for item in value] if isinstance(value, (list, tuple)) else [str(value)]
    if flag.repeats:
        settings = read_settings(name, texts)
        return [Axis(f"{name}.{field}", values) for field, values in settings.items()]
    if flag.parse is None:
        values = [_switch(text, flag.option) for text in texts]
        return [Axis(name, list(dict.fromkeys(values)))]
    return [Axis(name, read_axis(name, texts))]


def _switch(text: str, option: str) -> bool:
    if text.lower() not in {"true", "false", "1", "0", "yes", "no"}:
        raise InputError(f"{option} {text!r} is neither true nor false")
    return text.lower() in {"true", "1", "yes"}


def _check_size(grid: Grid) -> None:
    if grid.rows <= MOST_ROWS:
        return
    sizes = [(axis.name, len(axis.values)) for axis in grid.axes]
    sizes += [("seq", len(grid.lengths or [0])), ("batch", len(grid.batches))]
    longest = sorted(sizes, key=lambda pair: -pair[1])[:2]
    shown = " x ".join(f"{name} {count:,}" for name, count in sizes if count > 1)
    raise InputError(
        f"the grid has {grid.rows:,} rows ({shown}); at most {MOST_ROWS:,} are made",
        hint=f"Narrow --{longest[0][0]}: a step as in 1k..1M:8k, or a factor as in 1..1024:x2.",
    )


def _look_up(axes: Sequence[Axis]) -> None:
    """Find every name now. Raises for those that no combination could use."""
    chosen = {axis.name: axis.values for axis in axes}
    for ref in chosen["gpu"]:
        load_gpu(str(ref))
    for engine in chosen.get("engine", [DEFAULT_ENGINE]):
        load_engine(str(engine).partition("@")[0].strip().lower())
    for name, parse in (("kv", kv_format), ("weights", weight_format)):
        for text in chosen.get(name, []):
            if text != AUTO:
                parse(str(text))
    if not any(axis.name.startswith("set.") for axis in axes):
        for ref in chosen["model"]:
            for assume, revision in product(
                chosen.get("assume", [None]), chosen.get("revision", [None])
            ):
                load_model(str(ref), assume=assume, overrides={}, revision=revision)  # type: ignore[arg-type]


class Span(NamedTuple):
    """Neighbouring rows of one configuration: lengths and batches by their places."""

    configuration: int
    lengths: tuple[int, int]
    batches: tuple[int, int]

    @property
    def rows(self) -> int:
        """How many."""
        return (self.lengths[1] - self.lengths[0]) * (self.batches[1] - self.batches[0])


def spans(grid: Grid, block_rows: int) -> Iterator[list[Span]]:
    """All rows in order, in blocks of about that many."""
    lengths = 1 if grid.lengths is None else len(grid.lengths)
    batches = len(grid.batches)
    waiting: list[Span] = []
    held = 0
    for number in range(grid.configurations):
        for start, stop, first, last in _rectangles(lengths, batches, block_rows):
            span = Span(number, (start, stop), (first, last))
            if waiting and (held + span.rows > block_rows or len(waiting) >= _MOST_SPANS):
                yield waiting
                waiting, held = [], 0
            waiting.append(span)
            held += span.rows
    if waiting:
        yield waiting


def _rectangles(lengths: int, batches: int, block_rows: int) -> Iterator[tuple[int, int, int, int]]:
    """Pieces of one configuration's rows, in order."""
    if batches > block_rows:
        for row in range(lengths):
            for first in range(0, batches, block_rows):
                yield row, row + 1, first, min(first + block_rows, batches)
        return
    step = max(1, block_rows // batches)
    for start in range(0, lengths, step):
        yield start, min(start + step, lengths), 0, batches
