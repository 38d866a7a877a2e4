"""One deployment against the memory it would have: the arithmetic that every answer rests on.

    claim - weights - activation - graphs - runtime = pool
    needed = batch * reserved bytes of a sequence - a shared prefix counted once

`evaluate` is the only place where these are put together; limits, options and the matrix call it
with changed deployments, so they can never disagree with `fit`. It has two halves: `stage_pool` is
what a rank has, whatever is asked of it, and `stage_budget` what is asked, written with plain
operators: a sweep calls it with a deployment whose lengths and batches are arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from kvplan.deployment import Deployment
from kvplan.engines.base import Engine, KvLayout, Term
from kvplan.planning.report import SEVERITY, Verdict
from kvplan.units import at_most, checked_bytes

if TYPE_CHECKING:
    from numpy import bool_
    from numpy.typing import NDArray

    from kvplan.units import N

    When = bool | NDArray[bool_]


class Budget(NamedTuple):
    """The budget of one rank: that of the pipeline stage which runs out first."""

    deployment: Deployment
    stage: int
    claim_bytes: int | None
    """None when the user gives the pool."""
    weight_bytes: int | None
    """None when the pool is given and the weights cannot be counted."""
    terms: tuple[Term, ...]
    layout: KvLayout
    pool_bytes: int
    """Memory left for the KV cache with every term at its likely figure."""
    careful_pool_bytes: int
    """The same with every term at its high end."""
    reserved_bytes: int
    """One sequence."""
    needed_bytes: int
    """The batch of one replica."""
    verdict: Verdict
    limiting_term: str
    beside_bytes: int | None = None
    """Memory beside the claim and the context, for terms that the claim does not hold; None when
    the user gives the pool."""

    @property
    def available_bytes(self) -> int:
        """What sequences can use of the pool."""
        return self.layout.available_bytes(self.pool_bytes)

    @property
    def headroom_bytes(self) -> int:
        """What is left over; negative when it does not fit."""
        if self.pool_bytes <= 0:
            return self.pool_bytes - self.needed_bytes
        return self.available_bytes - self.needed_bytes

    @property
    def fits(self) -> bool:
        """Fits or fits tightly."""
        return self.verdict is not Verdict.OOM

    def term(self, key: str) -> int:
        """The likely bytes of a term; 0 when the engine has none."""
        return sum(term.likely for term in self.terms if term.key == key)


class StagePool(NamedTuple):
    """What one rank of a stage has for the KV cache, whatever is asked of it."""

    claim_bytes: int | None
    weight_bytes: int | None
    terms: tuple[Term, ...]
    layout: KvLayout
    pool_bytes: int
    careful_pool_bytes: int
    beside_bytes: int | None


class Cause(NamedTuple):
    """A verdict and the term that decides it, with the condition for it."""

    when: When
    verdict: Verdict
    limiting_term: str


def evaluate(engine: Engine, deployment: Deployment, min_headroom: float) -> Budget:
    """The budget and verdict of a resolved deployment; ``min_headroom`` is a share of usable.

    The figures are those of the stage that holds least; the verdict is the worst of all stages,
    because one with more room can be the one whose terms are not certain.
    """
    stages = []
    for stage in range(deployment.pp):
        pool = stage_pool(engine, deployment, stage)
        budget = stage_budget(pool, deployment, stage)
        cause = next(cause for cause in causes(budget, min_headroom) if cause.when)
        stages.append(budget._replace(verdict=cause.verdict, limiting_term=cause.limiting_term))
    least = min(stages, key=_room)
    worst = max((least, *stages), key=lambda budget: SEVERITY[budget.verdict])
    return least._replace(verdict=worst.verdict, limiting_term=worst.limiting_term)


def _room(budget: Budget) -> tuple[int, int]:
    """How much a stage can hold: vLLM and its kind take the fewest blocks over all ranks."""
    blocks = budget.layout.pool_blocks(budget.pool_bytes)
    return (budget.headroom_bytes if blocks is None else blocks, budget.headroom_bytes)


def stage_pool(engine: Engine, d: Deployment, stage: int) -> StagePool:
    """What a rank of a stage of a resolved deployment has: nothing here depends on the load but
    through the engine's settings."""
    terms = tuple(engine.overheads(d, stage))
    if d.calibration is not None:
        from kvplan.planning.correction import corrected_terms

        terms = corrected_terms(terms, d, d.calibration)
    layout = engine.kv_layout(d, stage)
    given = d.args.kv_cache_memory_bytes
    if given is not None:
        known = d.model.weights_unknown is None
        weights = _weights(engine, d, stage) if known else None
        return StagePool(None, weights, terms, layout, given, given, None)
    weights = _weights(engine, d, stage)
    claim = engine.claim(d)
    left = claim.size_bytes - weights
    outside = claim.outside.likely if claim.outside else 0
    return StagePool(
        claim.size_bytes,
        weights,
        terms,
        layout,
        left - sum(term.likely for term in terms if term.in_claim),
        left - sum(term.high for term in terms if term.in_claim),
        d.usable_bytes - claim.size_bytes - outside,
    )


def stage_budget(pool: StagePool, d: Deployment, stage: int) -> Budget:
    """A rank's pool and what the deployment asks of it; the verdict is left open."""
    return Budget(
        deployment=d,
        stage=stage,
        claim_bytes=pool.claim_bytes,
        weight_bytes=pool.weight_bytes,
        terms=pool.terms,
        layout=pool.layout,
        pool_bytes=pool.pool_bytes,
        careful_pool_bytes=pool.careful_pool_bytes,
        reserved_bytes=pool.layout.reserved_bytes(d.seq_len),
        needed_bytes=needed_bytes(pool.layout, d),
        verdict=Verdict.OOM,
        limiting_term="",
        beside_bytes=pool.beside_bytes,
    )


def _weights(engine: Engine, d: Deployment, stage: int) -> int:
    weights = engine.weight_bytes(d, stage)
    if d.calibration is None:
        return weights
    from kvplan.planning.correction import corrected_weights

    return corrected_weights(weights, d, d.calibration)


def needed_bytes(layout: KvLayout, d: Deployment) -> int:
    """KV bytes of one replica's batch: each sequence in full, a shared prefix once.

    A deployment of arrays is checked by whoever made them: see `planning.sweep`.
    """
    total = held_bytes(layout, d.seq_len, d.replica_batch, d.prefix_tokens)
    if isinstance(total, int):
        return checked_bytes(total, f"the KV cache of {d.batch:,} sequences")
    return total


def held_bytes(layout: KvLayout, seq_len: N, sequences: N, prefix_tokens: int) -> N:
    """KV bytes of so many sequences of one length."""
    total = sequences * layout.reserved_bytes(seq_len)
    if not prefix_tokens:
        return total
    return total - (sequences - 1) * layout.shared_bytes(at_most(seq_len, prefix_tokens))


def causes(b: Budget, min_headroom: float) -> Iterator[Cause]:
    """What may decide the verdict, in order: the first whose condition holds does. The last one's
    always does."""
    if b.beside_bytes is not None and b.beside_bytes < 0:
        yield Cause(True, Verdict.OOM, "gpu_memory_utilization")
        return
    over, may_be_over = _given_pool_is_over(b)
    if over:
        yield Cause(True, Verdict.OOM, "kv_cache_memory")
        return
    for when, term in _shortfalls(b, b.pool_bytes):
        yield Cause(when, Verdict.OOM, term)
    yield Cause(may_be_over, Verdict.TIGHT, "kv_cache_memory")
    beside = [term for term in b.terms if not term.in_claim]
    if b.beside_bytes is not None and beside:
        likely = max(beside, key=lambda term: term.likely)
        yield Cause(sum(t.likely for t in beside) > b.beside_bytes, Verdict.OOM, likely.key)
        high = max(beside, key=lambda term: term.high)
        yield Cause(sum(t.high for t in beside) > b.beside_bytes, Verdict.TIGHT, high.key)
    if b.careful_pool_bytes != b.pool_bytes:
        inside = [term for term in b.terms if term.in_claim]
        widest = max(inside, key=lambda term: term.high - term.likely)
        for when, _ in _shortfalls(b, b.careful_pool_bytes):
            yield Cause(when, Verdict.TIGHT, widest.key)
    d = b.deployment
    # A pool that the user gives is all there is to have headroom in.
    whole = d.args.kv_cache_memory_bytes or (d.usable_bytes if d.total_bytes is not None else 0)
    yield Cause(b.headroom_bytes < min_headroom * whole, Verdict.TIGHT, "headroom")
    # What could not be counted may be what does not fit.
    left_out = bool(d.model.left_out) and d.args.kv_cache_memory_bytes is None
    yield Cause(left_out, Verdict.TIGHT, "weights")
    yield Cause(True, Verdict.FITS, "kv_cache")


def _given_pool_is_over(b: Budget) -> tuple[bool, bool]:
    """Whether a pool that the user gives and what lies beside it are more than the GPU has: at the
    least that the rest may take, and as it is likely. Unknown weights are not judged."""
    given, d = b.deployment.args.kv_cache_memory_bytes, b.deployment
    if given is None or d.total_bytes is None or b.weight_bytes is None:
        return False, False
    held = given + b.weight_bytes
    least, likely = sum(t.low for t in b.terms), sum(t.likely for t in b.terms)
    return held + least > d.usable_bytes, held + likely > d.usable_bytes


def _shortfalls(b: Budget, pool_bytes: int) -> Iterator[tuple[When, str]]:
    """What a pool of that size may run out of, in order."""
    if pool_bytes <= 0:
        parts = {term.key: term.high for term in b.terms if term.in_claim}
        parts["weights"] = b.weight_bytes or 0
        yield True, max(parts, key=lambda key: parts[key])
        return
    blocks = b.layout.pool_blocks(pool_bytes)
    if blocks is not None and blocks < b.layout.least_blocks:
        yield True, "max_num_seqs"
        return
    available = b.layout.available_bytes(pool_bytes)
    d = b.deployment
    longest = d.args.max_model_len
    if longest is not None and longest is not d.seq_len:
        # Where both are the same the batch says it all, and the term is kv_cache.
        too_long = b.layout.reserved_bytes(longest) > available
        yield too_long & (d.seq_len != longest), "max_model_len"
    yield b.needed_bytes > available, "kv_cache"
