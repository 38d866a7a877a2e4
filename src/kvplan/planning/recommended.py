"""Recommended batch, window, block size and KV bits, each with its reason."""

from __future__ import annotations

from kvplan.deployment import Deployment
from kvplan.engines.base import KvLayout
from kvplan.model.caches import SlidingWindow
from kvplan.planning.budget import Budget
from kvplan.planning.limits import Question, by_mildness
from kvplan.planning.report import LimitsReport, OptionReport, RecommendedReport, Verdict
from kvplan.policy import Policy
from kvplan.precision.kv import KvFormat
from kvplan.units import format_gib


def recommend(
    question: Question,
    budget: Budget,
    limits: LimitsReport,
    options: list[OptionReport],
    policy: Policy,
) -> RecommendedReport:
    """What to run this model with, on these GPUs, at this length."""
    d = budget.deployment
    form, kv_reason = _kv(question, budget, policy)
    batch, batch_reason = _batch(d, limits)
    window, window_reason = _window(d, budget, options)
    return RecommendedReport(
        batch=batch,
        batch_reason=batch_reason,
        window=window,
        window_reason=window_reason,
        block_size=d.args.block_size,
        block_size_reason=_block_size(question, d, budget),
        kv_bits=form.bits,
        kv_cache_dtype=form.name,
        kv_reason=kv_reason,
    )


def page_waste_bytes(layout: KvLayout, sequences: int) -> int:
    """Bytes of last blocks that hold no token, on average.

    A sequence's last block is half empty: ``(block - 1) / 2`` tokens in each group that still
    grows. Source: PagedAttention, arXiv 2309.06180, section 4.2.
    """
    return sum(
        sequences * row.unit_bytes * (row.unit_tokens - 1) // (2 * row.unit_tokens)
        for row in layout.rows
        if row.unit_bytes
    )


def _batch(d: Deployment, limits: LimitsReport) -> tuple[int, str]:
    if limits.max_batch == 0:
        return 0, "not even one sequence fits"
    sequences = d.args.max_num_seqs
    if (
        sequences is not None
        and limits.max_batch > sequences * d.dp
        and sequences > d.replica_batch
    ):
        return (
            sequences * d.dp,
            f"the engine's max_num_seqs; memory would hold {limits.max_batch:,}",
        )
    return limits.max_batch, f"as many sequences of {d.seq_len:,} tokens as the pool holds"


def _window(d: Deployment, budget: Budget, options: list[OptionReport]) -> tuple[int | None, str]:
    native = sorted(
        {g.cache.sliding_window for g in d.model.groups if isinstance(g.cache, SlidingWindow)}
    )
    if native:
        layers = sum(g.layers for g in d.model.groups if isinstance(g.cache, SlidingWindow))
        return native[-1], f"the model's own, in {layers} of {d.model.num_hidden_layers} layers"
    for option in options:
        if option.change.startswith("--window"):
            return None, f"{option.change} would fit, but the model was not trained with it"
    if budget.fits:
        return None, "none: it fits with every token kept"
    return None, "none: a milder change fits, or no window would help"


def _block_size(question: Question, d: Deployment, budget: Budget) -> str:
    sizes = question.engine.block_sizes(d)
    if d.args.block_size is None or not sizes:
        return "no blocks: every token counts by itself"
    waste = page_waste_bytes(budget.layout, d.replica_batch)
    held = d.replica_batch
    of = "the last block of 1 sequence" if held == 1 else f"the last blocks of {held:,} sequences"
    said = f"expected waste {format_gib(waste)} in {of}"
    if d.args.block_size == min(sizes):
        return f"the smallest the engine takes here wastes least; {said}"
    return f"{said}; the smallest the engine takes here is {min(sizes)}"


def _kv(question: Question, budget: Budget, policy: Policy) -> tuple[KvFormat, str]:
    """The asked format when it fits with headroom, else the mildest of 4 to 8 bits that does."""
    d = budget.deployment
    if budget.verdict is Verdict.FITS:
        return d.kv, "it fits at this precision"
    for form in by_mildness(list(question.engine.kv_formats(d))):
        bits = min(form.k.bits, form.v.bits)
        if form.bits >= d.kv.bits or not policy.min_kv_bits <= bits <= policy.max_kv_bits:
            continue
        changed = question.judge(question.asked._replace(kv=form, kv_is_stated=True))
        # Where it fits tightly already, only a format that makes it sure is worth its cost.
        helps = changed is not None and (
            changed.verdict is Verdict.FITS if budget.fits else changed.fits
        )
        if helps:
            return form, f"the mildest that fits; measured: {form.quality_note}"
    if budget.verdict is Verdict.TIGHT:
        return d.kv, "it fits, tightly, and no narrower format alone makes it sure"
    return d.kv, "no KV format alone makes it fit"
