"""Whether many loads of one configuration fit, resolved once for all that share their settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from kvplan.deployment import AUTO_LENGTH, Deployment
from kvplan.engines.base import Engine, Settled, SettlesLoads
from kvplan.errors import InputError, KvplanError
from kvplan.planning.budget import Budget, StagePool, causes, stage_budget, stage_pool
from kvplan.planning.edges import Bools, Ints
from kvplan.planning.report import Verdict
from kvplan.units import INT64_MAX, cdiv

_LARGEST_LENGTH = 1 << 40
_POOLS_KEPT = 100_000


class Bounds(NamedTuple):
    """Loads with the same settings: lengths, and sequences of one replica."""

    least_seq: int
    most_seq: int
    least_sequences: int
    most_sequences: int


class Pools(NamedTuple):
    """A resolved deployment and what each of its stages has."""

    resolved: Deployment
    stages: tuple[StagePool, ...]
    follows: bool
    """max_model_len is that of the sequence."""


class Fitting:
    """Whether loads of one configuration fit, with the pools of the settings met so far."""

    def __init__(self, engine: Engine, asked: Deployment, min_headroom: float) -> None:
        self._engine = engine
        self._asked = asked
        self._min_headroom = min_headroom
        self._settled = _settled_loads(engine, asked)
        self._pools: dict[tuple[int, int], Pools | KvplanError] = {}

    def inside(self, seq: Ints) -> Bools:
        """Lengths that the settings do not depend on."""
        s = self._settled
        return (seq >= s.min_seq_len) & (seq <= s.max_seq_len)

    def small(self, batch: Ints) -> Bools:
        """Batches that the settings do not depend on."""
        return cdiv(batch, self._asked.dp) <= self._settled.max_sequences

    def bounds(self, seq: int, batch: int) -> Bounds:
        """The loads that share the settings of this one."""
        s, sequences = self._settled, cdiv(batch, self._asked.dp)
        if not s.min_seq_len <= seq <= s.max_seq_len:
            return Bounds(seq, seq, sequences, sequences)
        if sequences > s.max_sequences:
            return Bounds(s.min_seq_len, s.max_seq_len, sequences, sequences)
        return Bounds(s.min_seq_len, s.max_seq_len, 1, s.max_sequences)

    def pools(self, seq: int, batch: int) -> Pools:
        """What there is for a load of that length and batch. Raises where it cannot be asked."""
        s, d = self._settled, self._asked
        sequences = cdiv(batch, d.dp)
        if s.min_seq_len <= seq <= s.max_seq_len:
            key = (0, sequences if sequences > s.max_sequences else 0)
        else:
            key = (seq, sequences)
        found = self._pools.get(key)
        if found is None:
            if len(self._pools) > _POOLS_KEPT:
                self._pools.clear()
            try:
                found = self._resolve(d._replace(seq_len=seq, batch=batch))
            except KvplanError as error:
                found = error
            self._pools[key] = found
        if isinstance(found, KvplanError):
            raise found
        return found

    def _resolve(self, asked: Deployment) -> Pools:
        resolved = self._engine.resolve(asked)
        stages = tuple(stage_pool(self._engine, resolved, n) for n in range(resolved.pp))
        follows = asked.args.max_model_len is None and resolved.args.max_model_len is not None
        return Pools(resolved, stages, follows)

    def __call__(self, seq: Ints, batch: Ints) -> Bools:
        """Which of the pairs fit."""
        found = np.zeros(seq.shape, dtype=bool)
        inside, small = self.inside(seq), self.small(batch)
        together = inside & small
        if together.all():
            return self._together(seq, batch)
        if together.any():
            found[together] = self._together(seq[together], batch[together])
        larger = inside & ~small
        for size in np.unique(batch[larger]):
            same = larger & (batch == size)
            found[same] = self._together(seq[same], batch[same])
        for row in np.flatnonzero(~inside):
            found[row] = self._together(seq[row : row + 1], batch[row : row + 1])[0]
        return found

    def _together(self, seq: Ints, batch: Ints) -> Bools:
        """Pairs that share their settings."""
        if not seq.size:
            return np.zeros(0, dtype=bool)
        try:
            pools = self.pools(int(seq[0]), int(batch[0]))
        except KvplanError:
            return np.zeros(seq.shape, dtype=bool)
        if not within_int64(pools, seq, batch):
            fitting = [
                _fits_exactly(pools, *pair, self._min_headroom)
                for pair in zip(seq.tolist(), batch.tolist(), strict=True)
            ]
            return np.array(fitting, dtype=bool)
        found = np.ones(seq.shape, dtype=bool)
        for budget in array_budgets(pools, seq, batch):
            for cause in causes(budget, self._min_headroom):
                if cause.verdict is Verdict.OOM:
                    found &= np.logical_not(cause.when)
        return found


def _settled_loads(engine: Engine, asked: Deployment) -> Settled:
    """What the engine says of it; nothing is settled where it says nothing or refuses."""
    nothing = Settled(1, 0, 0)
    if asked.args.max_model_len == AUTO_LENGTH or not isinstance(engine, SettlesLoads):
        return nothing
    try:
        return engine.settled(asked) or nothing
    except KvplanError:
        return nothing


def array_budgets(pools: Pools, seq: Ints, batch: Ints) -> Iterator[Budget]:
    """The budget of each stage with arrays for the load."""
    d: Any = pools.resolved._replace(seq_len=seq, batch=batch)  # type: ignore[arg-type]
    if pools.follows:
        d = d.with_args(max_model_len=seq)
    for stage, pool in enumerate(pools.stages):
        yield stage_budget(pool, d, stage)


def _fits_exactly(pools: Pools, seq: int, batch: int, min_headroom: float) -> bool:
    """One load in whole numbers of any size; more than 2**63 - 1 bytes never fit."""
    d = pools.resolved._replace(seq_len=seq, batch=batch)
    if pools.follows:
        d = d.with_args(max_model_len=seq)
    try:
        return all(
            next(c for c in causes(stage_budget(pool, d, stage), min_headroom) if c.when).verdict
            is not Verdict.OOM
            for stage, pool in enumerate(pools.stages)
        )
    except InputError:
        return False


def within_int64(pools: Pools, seq: Ints, batch: Ints) -> bool:
    """Whether no product of a piece can wrap: its largest is the last length by the last batch."""
    longest = max(int(seq.max()), pools.resolved.args.max_model_len or 0)
    sequences = cdiv(int(batch.max()), pools.resolved.dp)
    try:
        held = max(pool.layout.reserved_bytes(longest) for pool in pools.stages)
    except InputError:
        return False
    # Pool tokens are a concurrency times a length.
    return sequences * held <= INT64_MAX and longest <= _LARGEST_LENGTH
