"""Spans of rows, evaluated: configurations are built once and kept while their rows last."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from kvplan.deployment import Deployment
from kvplan.errors import KvplanError
from kvplan.planning.piece import Coded, Piece, error_cells
from kvplan.planning.sweep import LIMITS, LoadSweep
from kvplan.policy import Policy, load_policy
from kvplan.question import build_deployment, settings_of
from kvplan.sources import load_model
from kvplan.sweeping.columns import FLAG_COLUMNS
from kvplan.sweeping.grid import Configuration, Grid, Resolved, Span

_KEPT = 64
_FLAG_NAMES = [column.name for column in FLAG_COLUMNS]


class Block(NamedTuple):
    """Rows as columns: ``rows`` lengths by ``columns`` batches, in this order."""

    rows: int
    columns: int
    cells: dict[str, Any]
    """One value for all, or an array of shape (rows, 1), (1, columns) or (rows, columns)."""

    @property
    def size(self) -> int:
        """Rows of the table."""
        return self.rows * self.columns

    def flat(self, name: str) -> list[Any]:
        """One column as plain values, row by row."""
        cell = self.cells[name]
        if isinstance(cell, Coded):
            cell = cell.words()
        if not isinstance(cell, np.ndarray):
            return [cell] * self.size
        values: list[Any] = np.broadcast_to(cell, (self.rows, self.columns)).ravel().tolist()
        return values

    def masked(self, mask: Any) -> Block:
        """Only the rows where ``mask``, of the block's shape, is true."""
        shape = (self.rows, self.columns)
        mask = np.broadcast_to(mask, shape)
        if mask.all():
            return self

        def kept(cell: Any) -> Any:
            if isinstance(cell, Coded):
                return cell._replace(codes=np.broadcast_to(cell.codes, shape)[mask][:, None])
            if isinstance(cell, np.ndarray):
                return np.broadcast_to(cell, shape)[mask][:, None]
            return cell

        cells = {name: kept(cell) for name, cell in self.cells.items()}
        return Block(int(mask.sum()), 1, cells)


class Evaluator:
    """Evaluates spans of a grid, or rows of a file, into blocks of the wanted columns."""

    def __init__(self, policy_path: str | None, wanted: Sequence[str]) -> None:
        self._policy: Policy = load_policy(policy_path)
        self._wanted = list(wanted)
        self._limits = not LIMITS.isdisjoint(wanted)
        self._sweeps: OrderedDict[tuple[object, ...], LoadSweep | KvplanError] = OrderedDict()
        self._models: dict[tuple[object, ...], Any] = {}

    def grid_blocks(self, grid: Grid, spans: Sequence[Span]) -> Iterator[Block]:
        """One block for each span."""
        for span in spans:
            configuration = grid.configuration(span.configuration)
            batches = _numbers(grid.batches, *span.batches)[None, :]
            lengths = None
            if grid.lengths is not None:
                lengths = _numbers(grid.lengths, *span.lengths)[:, None]
            yield self._block(configuration, lengths, batches)

    def row_block(self, rows: Sequence[tuple[Configuration, int | None, int]]) -> Block:
        """Rows in any order as one block; neighbours of one configuration are evaluated at once."""
        order = sorted(range(len(rows)), key=lambda n: (_key(rows[n][0]), rows[n][1] is None))
        cells: dict[str, Any] = {name: np.empty((len(rows), 1), object) for name in self._wanted}
        for _, group in groupby(order, lambda n: (_key(rows[n][0]), rows[n][1] is None)):
            places = list(group)
            lengths = None
            if rows[places[0]][1] is not None:
                lengths = np.array([rows[n][1] for n in places], dtype=np.int64)[:, None]
            batches = np.array([rows[n][2] for n in places], dtype=np.int64)[:, None]
            if lengths is None:
                block = self._block(rows[places[0]][0], None, batches.T)
            else:
                block = self._block(rows[places[0]][0], lengths, batches)
            for name in self._wanted:
                cells[name][places, 0] = block.flat(name)
        return Block(len(rows), 1, cells)

    def _block(self, configuration: Configuration, lengths: Any, batches: Any) -> Block:
        columns = 1 if lengths is not None and len(batches) > 1 else batches.shape[1]
        rows = 1 if lengths is None else len(lengths)
        shape = (rows, columns)
        sweep = self._sweep(configuration, length=None if lengths is None else int(lengths[0, 0]))
        if isinstance(sweep, KvplanError):
            cells = _as_typed(configuration) | error_cells(sweep)
            cells |= {"seq_len": cells.get("seq_len") if lengths is None else lengths}
            cells |= {"batch": batches}
        else:
            if lengths is None:
                lengths = np.array([[sweep.asked.seq_len]], dtype=np.int64)
            pieces = list(sweep.pieces(lengths, batches))
            cells = _joined(pieces, shape, self._wanted)
        flags = configuration.flags
        for name in _FLAG_NAMES:
            if name in flags and name in self._wanted:
                value = flags[name]
                cells[name] = ";".join(value) if isinstance(value, list) else value
        return Block(rows, columns, {name: cells.get(name) for name in self._wanted})

    def _sweep(self, configuration: Configuration, length: int | None) -> LoadSweep | KvplanError:
        """The configuration, ready to be asked; the error where it cannot be built.

        ``length`` is any of those to come: a length that is asked for differs from none at all.
        """
        key = (length is None, *_key(configuration))
        found = self._sweeps.get(key)
        if found is None:
            try:
                found = LoadSweep(
                    self.deployment(configuration, length), self._policy, limits=self._limits
                )
            except KvplanError as error:
                found = error
            self._sweeps[key] = found
            if len(self._sweeps) > _KEPT:
                self._sweeps.popitem(last=False)
        return found

    def deployment(self, configuration: Configuration, length: int | None) -> Deployment:
        """The deployment that a configuration asks for. Raises where it cannot be built."""
        flags = dict(configuration.flags)
        if length is not None:
            flags["seq"] = length
        settings = settings_of(flags.get("set", ()), "--set")
        assume, revision = flags.get("assume"), flags.pop("revision", None)
        key = (configuration.model, assume, revision, tuple(sorted(settings.items())))
        if key not in self._models:
            self._models[key] = load_model(
                configuration.model, assume=assume, overrides=settings, revision=revision
            )
        model = self._models[key]
        weights = flags.get("weights")
        if isinstance(weights, Resolved) and weights == model.scheme.name:
            del flags["weights"]  # the checkpoint's own, which a format of its name may not be
        return build_deployment(model, **flags)


def _key(configuration: Configuration) -> tuple[object, ...]:
    flags = sorted(configuration.flags.items())
    return (configuration.model, *(f"{name}={value}" for name, value in flags))


def _numbers(values: Sequence[object], start: int, stop: int) -> Any:
    part = values[start:stop]
    if isinstance(part, range):
        return np.arange(part.start, part.stop, part.step, dtype=np.int64)
    return np.array(part, dtype=np.int64)


def _as_typed(configuration: Configuration) -> dict[str, Any]:
    """What can be said of a configuration that cannot be built: what was asked for."""
    flags = configuration.flags
    engine, _, version = str(flags.get("engine", "vllm")).partition("@")
    names = ("gpu", "tp", "pp", "dp", "ep", "dcp", "mean_seq", "prefix_tokens", "block_size",
             "max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization")  # fmt: skip
    cells = {name: flags.get(name) for name in names}
    product = math.prod(flags.get(name, 1) for name in ("tp", "pp", "dp"))
    return cells | {
        "model": configuration.model,
        "engine": engine,
        "engine_version": version or None,
        "gpu_count": flags.get("gpus", product),
        "weight_format": flags.get("weights"),
        "kv_cache_dtype": flags.get("kv"),
        "seq_len": flags.get("seq"),
    }


def _joined(pieces: list[Piece], shape: tuple[int, int], wanted: Sequence[str]) -> dict[str, Any]:
    """The pieces of a block put together."""
    first = pieces[0]
    if len(pieces) == 1:
        return first.cells
    cells: dict[str, Any] = {}
    for name in wanted:
        whole = np.empty(shape, dtype=object)
        for piece in pieces:
            cell = piece.cells.get(name)
            cell = cell.words() if isinstance(cell, Coded) else cell
            whole[np.ix_(piece.rows, piece.columns)] = cell
        cells[name] = whole
    return cells
