"""One deployment against the memory it would have: the arithmetic that every answer rests on.

    claim - weights - activation - graphs - runtime = pool
    needed = batch * reserved bytes of a sequence - a shared prefix counted once

`evaluate` is the only place where these are put together; limits, options, the matrix and sweeps
call it with changed deployments, so they can never disagree with `fit`.
"""

from __future__ import annotations

from typing import NamedTuple

from kvplan.deployment import Deployment
from kvplan.engines.base import Engine, KvLayout, Term
from kvplan.planning.report import Verdict
from kvplan.units import checked_bytes


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


def evaluate(engine: Engine, deployment: Deployment, min_headroom: float) -> Budget:
    """The budget and verdict of a resolved deployment; ``min_headroom`` is a share of usable.

    The figures are those of the stage that holds least; the verdict is the worst of all stages,
    because one with more room can be the one whose terms are not certain.
    """
    stages = [
        _stage_budget(engine, deployment, stage, min_headroom) for stage in range(deployment.pp)
    ]
    least = min(stages, key=_room)
    worst = max((least, *stages), key=lambda budget: _SEVERITY[budget.verdict])
    return least._replace(verdict=worst.verdict, limiting_term=worst.limiting_term)


_SEVERITY = {Verdict.FITS: 0, Verdict.TIGHT: 1, Verdict.OOM: 2}


def _room(budget: Budget) -> tuple[int, int]:
    """How much a stage can hold: vLLM and its kind take the fewest blocks over all ranks."""
    blocks = budget.layout.pool_blocks(budget.pool_bytes)
    return (budget.headroom_bytes if blocks is None else blocks, budget.headroom_bytes)


def _stage_budget(engine: Engine, d: Deployment, stage: int, min_headroom: float) -> Budget:
    terms = tuple(engine.overheads(d, stage))
    if d.calibration is not None:
        from kvplan.planning.correction import corrected_terms

        terms = corrected_terms(terms, d, d.calibration)
    layout = engine.kv_layout(d, stage)
    reserved = layout.reserved_bytes(d.seq_len)
    needed = needed_bytes(layout, d)
    given = d.args.kv_cache_memory_bytes
    if given is not None:
        weights = None
        if d.model.weights_unknown is None:
            weights = _weights(engine, d, stage)
        draft = Budget(
            d, stage, None, weights, terms, layout, given, given, reserved, needed, Verdict.OOM, ""
        )
        starts = True
    else:
        weights = _weights(engine, d, stage)
        claim = engine.claim(d)
        left = claim.size_bytes - weights
        draft = Budget(
            d,
            stage,
            claim.size_bytes,
            weights,
            terms,
            layout,
            left - sum(term.likely for term in terms if term.in_claim),
            left - sum(term.high for term in terms if term.in_claim),
            reserved,
            needed,
            Verdict.OOM,
            "",
        )
        beside = d.usable_bytes - claim.size_bytes - (claim.outside.likely if claim.outside else 0)
        draft = draft._replace(beside_bytes=beside)
        starts = beside >= 0
    verdict, limiting = _judge(draft, starts=starts, min_headroom=min_headroom)
    return draft._replace(verdict=verdict, limiting_term=limiting)


def _weights(engine: Engine, d: Deployment, stage: int) -> int:
    weights = engine.weight_bytes(d, stage)
    if d.calibration is None:
        return weights
    from kvplan.planning.correction import corrected_weights

    return corrected_weights(weights, d, d.calibration)


def needed_bytes(layout: KvLayout, d: Deployment) -> int:
    """KV bytes of one replica's batch: each sequence in full, a shared prefix once."""
    reserved = layout.reserved_bytes(d.seq_len)
    shared = layout.shared_bytes(min(d.prefix_tokens, d.seq_len)) if d.prefix_tokens else 0
    total = d.replica_batch * reserved - (d.replica_batch - 1) * shared
    return checked_bytes(total, f"the KV cache of {d.batch:,} sequences")


def _judge(b: Budget, *, starts: bool, min_headroom: float) -> tuple[Verdict, str]:
    """The verdict and the term that decides it."""
    if not starts:
        return Verdict.OOM, "gpu_memory_utilization"
    short = _shortfall(b, b.pool_bytes)
    if short is not None:
        return Verdict.OOM, short
    beside = [term for term in b.terms if not term.in_claim]
    if b.beside_bytes is not None and sum(term.likely for term in beside) > b.beside_bytes:
        return Verdict.OOM, max(beside, key=lambda term: term.likely).key
    if b.beside_bytes is not None and sum(term.high for term in beside) > b.beside_bytes:
        return Verdict.TIGHT, max(beside, key=lambda term: term.high).key
    if _shortfall(b, b.careful_pool_bytes) is not None:
        inside = [term for term in b.terms if term.in_claim]
        widest = max(inside, key=lambda term: term.high - term.likely)
        return Verdict.TIGHT, widest.key
    d = b.deployment
    # A pool that the user gives is all there is to have headroom in.
    whole = d.args.kv_cache_memory_bytes or (d.usable_bytes if d.total_bytes is not None else 0)
    if b.headroom_bytes < min_headroom * whole:
        return Verdict.TIGHT, "headroom"
    return Verdict.FITS, "kv_cache"


def _shortfall(b: Budget, pool_bytes: int) -> str | None:
    """What a pool of that size runs out of; None when it is enough."""
    if pool_bytes <= 0:
        parts = {term.key: term.high for term in b.terms if term.in_claim}
        parts["weights"] = b.weight_bytes or 0
        return max(parts, key=lambda key: parts[key])
    blocks = b.layout.pool_blocks(pool_bytes)
    if blocks is not None and blocks < b.layout.least_blocks:
        return "max_num_seqs"
    available = b.layout.available_bytes(pool_bytes)
    max_model_len = b.deployment.args.max_model_len
    if max_model_len is not None and b.layout.reserved_bytes(max_model_len) > available:
        return "kv_cache" if max_model_len == b.deployment.seq_len else "max_model_len"
    return "kv_cache" if b.needed_bytes > available else None
