"""One configuration at many lengths and batches, by the functions that answer a single one.

An engine's settings, and with them the pool, depend on the load only beyond the lengths and
batches that it calls settled (`engines.base.Settled`). So a grid is cut into pieces that share
one resolved deployment; within a piece, seq_len and batch of that deployment become arrays, and
`budget.stage_budget`, `budget.causes` and the sections of the fit report are evaluated on them.
A load with settings of its own is a piece by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from kvplan.deployment import AUTO_LENGTH, Deployment
from kvplan.engines import load_engine
from kvplan.engines.base import Engine, Settled
from kvplan.errors import InputError, KvplanError
from kvplan.planning.budget import Budget, StagePool, causes, stage_budget, stage_pool
from kvplan.planning.edges import Bools, Ints, largest_each, longest_each
from kvplan.planning.fit import judge
from kvplan.planning.limits import MOST_SEQUENCES, Question, max_batch, max_seq_len
from kvplan.planning.piece import Piece, answer_rows, array_rows, error_rows
from kvplan.planning.report import Verdict
from kvplan.policy import Policy
from kvplan.units import INT64_MAX, MAX_TOKENS, cdiv

LIMITS = frozenset({"max_batch", "max_seq_len"})
"""Columns that are solved for: left out when nobody asks for them."""
_LARGEST_LENGTH = 1 << 40


class Pools(NamedTuple):
    """A resolved deployment and what each of its stages has."""

    resolved: Deployment
    stages: tuple[StagePool, ...]
    follows: bool
    """max_model_len is that of the sequence."""


class LoadSweep:
    """One configuration, to be asked at arrays of seq_len and batch."""

    def __init__(self, asked: Deployment, policy: Policy, *, limits: bool = True) -> None:
        self.asked = asked
        self.policy = policy
        self._limits = limits
        self._engine = load_engine(asked.engine)
        self._fits = _Fitting(self._engine, asked, policy.min_headroom)
        free = asked.with_args(max_num_seqs=None)
        self._fits_batch = self._same_or_new(free)
        self._fits_length = self._same_or_new(asked.with_args(max_model_len=None))
        self._lengths_solved: dict[bytes, Ints] = {}

    def _same_or_new(self, asked: Deployment) -> _Fitting:
        if asked == self.asked:
            return self._fits
        return _Fitting(self._engine, asked, self.policy.min_headroom)

    def pieces(self, seq: Ints, batch: Ints) -> Iterator[Piece]:
        """The rows of ``seq`` by ``batch``: a column by a row (all pairs), or two columns (pairs).

        Together the pieces cover every row once; each says which.
        """
        paired = batch.shape[1] == 1 and batch.shape[0] == seq.shape[0]
        if paired:
            yield from self._paired(seq[:, 0], batch[:, 0])
            return
        lengths, sequences = seq[:, 0], batch[0]
        inside, small = self._fits.inside(lengths), self._fits.small(sequences)
        rows, columns = np.flatnonzero(inside), np.flatnonzero(small)
        if rows.size and columns.size:
            yield from self._settled(seq[rows], batch[:, columns], rows, columns)
        for column in np.flatnonzero(~small) if rows.size else ():
            one = np.array([column])
            yield from self._settled(seq[rows], batch[:, one], rows, one)
        for row in np.flatnonzero(~inside):
            for column in range(sequences.size):
                where = (np.array([row]), np.array([column]))
                yield self._single(int(lengths[row]), int(sequences[column]), *where)

    def _paired(self, seq: Ints, batch: Ints) -> Iterator[Piece]:
        inside, small = self._fits.inside(seq), self._fits.small(batch)
        column = np.array([0])
        together = np.flatnonzero(inside & small)
        if together.size:
            where = (together, column)
            yield from self._settled(seq[together, None], batch[together, None], *where)
        larger = inside & ~small
        for size in np.unique(batch[larger]):
            same = np.flatnonzero(larger & (batch == size))
            yield from self._settled(seq[same, None], batch[same, None], same, column)
        for row in np.flatnonzero(~inside):
            yield self._single(int(seq[row]), int(batch[row]), np.array([row]), column)

    def _single(self, seq: int, batch: int, rows: Ints, columns: Ints) -> Piece:
        """A load with settings of its own, answered as `fit` answers it."""
        asked = self.asked._replace(seq_len=seq, batch=batch)
        try:
            question, budget = judge(asked, self.policy)
            found = answer_rows(question, budget, self.policy)
            if self._limits:
                found["max_batch"] = max_batch(question, budget)
                found["max_seq_len"] = max_seq_len(question, budget)
        except KvplanError as error:
            found = error_rows(asked, error)
        return Piece(rows, columns, found)

    def _settled(self, seq: Ints, batch: Ints, rows: Ints, columns: Ints) -> Iterator[Piece]:
        """Loads that share their settings, all at once."""
        try:
            pools = self._fits.pools(int(seq[0, 0]), int(batch.flat[0]))
        except KvplanError as error:
            asked = self.asked._replace(seq_len=seq, batch=batch)  # type: ignore[arg-type]
            yield Piece(rows, columns, error_rows(asked, error))
            return
        if not _within_int64(pools, seq, batch):
            for i, row in enumerate(rows):
                for j, column in enumerate(columns):
                    where = (np.array([row]), np.array([column]))
                    yield self._single(int(seq[i, 0]), int(_at(batch, i, j)), *where)
            return
        budgets = list(_array_budgets(pools, seq, batch))
        question = Question(self._engine, self.asked, self.policy.min_headroom)
        found = array_rows(question, budgets, self.policy)
        if self._limits:
            found["max_batch"] = self._max_batch(pools, seq)
            found["max_seq_len"] = self._max_seq_len(pools, batch)
        yield Piece(rows, columns, found)

    def _max_batch(self, pools: Pools, seq: Ints) -> Ints:
        """`limits.max_batch` of each length."""
        d, lengths = pools.resolved, seq[:, 0]
        pool = pools.stages[0]
        held = pool.layout.reserved_bytes(lengths)
        shared = pool.layout.shared_bytes(np.minimum(lengths, d.prefix_tokens))
        spare = pool.layout.available_bytes(pool.pool_bytes) - shared
        guess = np.where(held > shared, spare // np.maximum(held - shared, 1), MOST_SEQUENCES)
        found = largest_each(
            lambda which, value: self._fits_batch(lengths[which], value * d.dp),
            guess,
            MOST_SEQUENCES,
        )
        return (found * d.dp)[:, None]

    def _max_seq_len(self, pools: Pools, batch: Ints) -> Ints:
        """`limits.max_seq_len` of each batch."""
        key = batch.tobytes()
        if key not in self._lengths_solved:
            if len(self._lengths_solved) > 64:
                self._lengths_solved.clear()
            self._lengths_solved[key] = self._solve_lengths(pools, batch.ravel())
        return self._lengths_solved[key].reshape(batch.shape)

    def _solve_lengths(self, pools: Pools, batch: Ints) -> Ints:
        """Each distinct batch once."""
        sizes, back = np.unique(batch, return_inverse=True)
        d, layout = pools.resolved, pools.stages[0].layout
        available = layout.available_bytes(pools.stages[0].pool_bytes)
        longest = layout.longest(available)
        guess = np.zeros_like(sizes)
        if longest:
            budget = np.minimum(available // cdiv(sizes, d.dp), layout.reserved_bytes(longest))
            guess = longest_each(layout.reserved_bytes, budget, longest + 1)
        found = largest_each(
            lambda which, value: self._fits_length(value, sizes[which]), guess, MAX_TOKENS
        )
        return found[back]


class _Fitting:
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
            if len(self._pools) > 100_000:
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
        if not _within_int64(pools, seq, batch):
            fitting = [
                _fits_exactly(pools, *pair, self._min_headroom)
                for pair in zip(seq.tolist(), batch.tolist(), strict=True)
            ]
            return np.array(fitting, dtype=bool)
        found = np.ones(seq.shape, dtype=bool)
        for budget in _array_budgets(pools, seq, batch):
            for cause in causes(budget, self._min_headroom):
                if cause.verdict is Verdict.OOM:
                    found &= np.logical_not(cause.when)
        return found


def _settled_loads(engine: Engine, asked: Deployment) -> Settled:
    """What the engine says of it; nothing is settled where it says nothing or refuses."""
    nothing = Settled(1, 0, 0)
    if asked.args.max_model_len == AUTO_LENGTH:
        return nothing
    try:
        said: Settled | None = getattr(engine, "settled", lambda _: None)(asked)
    except KvplanError:
        return nothing
    return said or nothing


def _array_budgets(pools: Pools, seq: Ints, batch: Ints) -> Iterator[Budget]:
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


def _within_int64(pools: Pools, seq: Ints, batch: Ints) -> bool:
    """Whether no product of a piece can wrap: its largest is the last length by the last batch."""
    longest = max(int(seq.max()), pools.resolved.args.max_model_len or 0)
    sequences = cdiv(int(batch.max()), pools.resolved.dp)
    try:
        held = max(pool.layout.reserved_bytes(longest) for pool in pools.stages)
    except InputError:
        return False
    # Pool tokens are a concurrency times a length.
    return sequences * held <= INT64_MAX and longest <= _LARGEST_LENGTH


def _at(batch: Ints, row: int, column: int) -> int:
    return int(batch[row, 0] if batch.shape[0] > 1 else batch[0, column])
