"""One configuration at many lengths and batches, by the functions that answer a single one.

An engine's settings, and with them the pool, depend on the load only beyond the lengths and
batches that it calls settled (`engines.base.Settled`). So a grid is cut into pieces that share
one resolved deployment; within a piece, seq_len and batch of that deployment become arrays, and
`budget.stage_budget`, `budget.causes` and the sections of the fit report are evaluated on them.
A load with settings of its own is a piece by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from kvplan.deployment import Deployment
from kvplan.engines import load_engine
from kvplan.errors import KvplanError
from kvplan.planning.edges import Bools, Ints, largest_each, longest_each
from kvplan.planning.fit import judge
from kvplan.planning.fitting import Fitting, Pools, array_budgets, within_int64
from kvplan.planning.limits import MOST_SEQUENCES, Question, max_batch, max_seq_len
from kvplan.planning.piece import Piece, answer_rows, array_rows, error_rows
from kvplan.policy import Policy
from kvplan.units import MAX_TOKENS, cdiv

LIMITS = frozenset({"max_batch", "max_seq_len"})
"""Columns that are solved for: left out when nobody asks for them."""
_SOLUTIONS_KEPT = 256


class LoadSweep:
    """One configuration, to be asked at arrays of seq_len and batch."""

    def __init__(self, asked: Deployment, policy: Policy, *, limits: bool = True) -> None:
        self.asked = asked
        self.policy = policy
        self._limits = limits
        self._engine = load_engine(asked.engine)
        self._fits = Fitting(self._engine, asked, policy.min_headroom)
        free = asked.with_args(max_num_seqs=None)
        self._fits_batch = self._same_or_new(free)
        self._fits_length = self._same_or_new(asked.with_args(max_model_len=None))
        self._limits_solved: dict[tuple[str, bytes], Ints] = {}

    def _same_or_new(self, asked: Deployment) -> Fitting:
        if asked == self.asked:
            return self._fits
        return Fitting(self._engine, asked, self.policy.min_headroom)

    def pieces(self, seq: Ints, batch: Ints) -> Iterator[Piece]:
        """The rows of ``seq`` by ``batch``: a column by a row (all pairs), or two columns (pairs).

        Together the pieces cover every row once; each says which.
        """
        paired = batch.shape[1] == 1 and batch.shape[0] == seq.shape[0]
        if paired:
            yield from self._paired(seq[:, 0], batch[:, 0])
            return
        lengths, sequences = seq[:, 0], batch[0]
        inside, small = self._inside(lengths), self._fits.small(sequences)
        rows, columns = np.flatnonzero(inside), np.flatnonzero(small)
        if rows.size and columns.size:
            yield from self._settled(seq[rows], batch[:, columns], rows, columns)
        for column in np.flatnonzero(~small) if rows.size else ():
            one = np.array([column])
            yield from self._settled(seq[rows], batch[:, one], rows, one)
        for row in np.flatnonzero(~inside):
            for column in np.arange(sequences.size):
                where = (np.array([row]), np.array([column]))
                yield self._single(int(lengths[row]), int(sequences[column]), *where)

    def _inside(self, seq: Ints) -> Bools:
        """Lengths that share their settings; `deployment.check_lengths` refuses shorter ones."""
        least = max(self.asked.prefix_tokens, self.asked.mean_seq or 0)
        return self._fits.inside(seq) & (seq >= least)

    def _paired(self, seq: Ints, batch: Ints) -> Iterator[Piece]:
        inside, small = self._inside(seq), self._fits.small(batch)
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
        if rows.size * columns.size == 1:  # arrays of one cost more than numbers
            yield self._single(int(seq[0, 0]), int(batch.flat[0]), rows, columns)
            return
        try:
            pools = self._fits.pools(int(seq[0, 0]), int(batch.flat[0]))
        except KvplanError as error:
            asked = self.asked._replace(seq_len=seq, batch=batch)  # type: ignore[arg-type]
            yield Piece(rows, columns, error_rows(asked, error))
            return
        if not within_int64(pools, seq, batch):
            for i, row in enumerate(rows):
                for j, column in enumerate(columns):
                    where = (np.array([row]), np.array([column]))
                    yield self._single(int(seq[i, 0]), int(_at(batch, i, j)), *where)
            return
        budgets = list(array_budgets(pools, seq, batch))
        question = Question(self._engine, self.asked, self.policy.min_headroom)
        found = array_rows(question, budgets, self.policy)
        if self._limits:
            found["max_batch"] = self._max_batch(pools, seq)
            found["max_seq_len"] = self._max_seq_len(pools, batch)
        yield Piece(rows, columns, found)

    def _max_batch(self, pools: Pools, seq: Ints) -> Ints:
        """`limits.max_batch` of each length."""
        return self._solved(self._solve_batches, pools, seq)

    def _max_seq_len(self, pools: Pools, batch: Ints) -> Ints:
        """`limits.max_seq_len` of each batch."""
        return self._solved(self._solve_lengths, pools, batch)

    def _solved(self, solve: Callable[[Pools, Ints], Ints], pools: Pools, asked: Ints) -> Ints:
        """Limits of each value of an array, kept because neighbouring pieces ask the same."""
        key = (solve.__name__, asked.tobytes())
        found = self._limits_solved.get(key)
        if found is None:
            if len(self._limits_solved) > _SOLUTIONS_KEPT:
                self._limits_solved.clear()
            values, back = np.unique(asked.ravel(), return_inverse=True)
            found = self._limits_solved[key] = solve(pools, values)[back]
        return found.reshape(asked.shape)

    def _solve_batches(self, pools: Pools, lengths: Ints) -> Ints:
        dp, prefix = pools.resolved.dp, pools.resolved.prefix_tokens
        pool = pools.stages[0]
        held = pool.layout.reserved_bytes(lengths)
        shared = pool.layout.shared_bytes(np.minimum(lengths, prefix))
        spare = pool.layout.available_bytes(pool.pool_bytes) - shared
        guess = np.where(held > shared, spare // np.maximum(held - shared, 1), MOST_SEQUENCES)

        def most(fits: Fitting, limit: int) -> Ints:
            return largest_each(lambda which, value: fits(lengths[which], value * dp), guess, limit)

        found = most(self._fits_batch, MOST_SEQUENCES)
        asked = self.asked.args.max_num_seqs
        if asked is not None and (found < asked).any():
            found = np.maximum(found, most(self._fits, asked))
        return found * dp

    def _solve_lengths(self, pools: Pools, sizes: Ints) -> Ints:
        layout = pools.stages[0].layout
        available = layout.available_bytes(pools.stages[0].pool_bytes)
        longest = layout.longest(available)
        guess = np.zeros_like(sizes)
        if longest:
            each = available // cdiv(sizes, pools.resolved.dp)
            budget = np.minimum(each, layout.reserved_bytes(longest))
            guess = longest_each(layout.reserved_bytes, budget, longest + 1)
        return largest_each(
            lambda which, value: self._fits_length(value, sizes[which]), guess, MAX_TOKENS
        )


def _at(batch: Ints, row: int, column: int) -> int:
    return int(batch[row, 0] if batch.shape[0] > 1 else batch[0, column])
