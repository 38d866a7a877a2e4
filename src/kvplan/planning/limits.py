"""For each knob on its own: the largest, smallest or mildest value that still fits.

Every limit is solved with the very function that judges a fit. Memory needed never falls as a
batch, a length or an engine's limit grows, so the edge is found by halving, starting from the
value that the budget at hand suggests.
"""

from __future__ import annotations

from typing import NamedTuple

from kvplan.deployment import AUTO_LENGTH, Deployment, valid_tps
from kvplan.engines.base import Engine
from kvplan.errors import KvplanError
from kvplan.planning.budget import Budget, evaluate
from kvplan.planning.report import LimitsReport, Verdict
from kvplan.planning.search import largest
from kvplan.precision.kv import KvFormat
from kvplan.precision.scheme import WeightScheme, scheme_from
from kvplan.precision.weights import WEIGHT_FORMATS, WeightFormat
from kvplan.units import MAX_TOKENS

NODE_GPUS = 8
"""GPUs of the usual server, and the widest tensor parallelism suggested."""
MOST_GPUS = 64
MOST_SEQUENCES = 1 << 20


class Question(NamedTuple):
    """A deployment as asked, before the engine fills in defaults, and how to judge it."""

    engine: Engine
    asked: Deployment
    min_headroom: float

    def judge(self, asked: Deployment) -> Budget | None:
        """The budget of a changed deployment; None when the change cannot be made."""
        try:
            return evaluate(self.engine, self.engine.resolve(asked), self.min_headroom)
        except KvplanError:
            return None

    def fits(self, asked: Deployment) -> bool:
        """Whether the changed deployment fits."""
        budget = self.judge(asked)
        return budget is not None and budget.fits

    def room(self, asked: Deployment) -> int:
        """Bytes left over by the changed deployment; negative when it does not fit."""
        budget = self.judge(asked)
        if budget is None:
            return -1
        return max(0, budget.headroom_bytes) if budget.fits else min(-1, budget.headroom_bytes)


def with_fitted_length(question: Question) -> Question:
    """``max_model_len auto`` answered: the longest single sequence, up to the native context.

    Source: vLLM ``v1/core/kv_cache_planning.py`` ``_auto_fit_max_model_len``.
    """
    asked = question.asked
    if asked.args.max_model_len != AUTO_LENGTH:
        return question
    native = asked.model.max_position_embeddings or asked.seq_len
    free = asked.with_args(max_model_len=None)
    trial = question.judge(free._replace(seq_len=native, batch=asked.dp, prefix_tokens=0))
    longest = 0 if trial is None else min(native, trial.layout.longest(trial.available_bytes))
    if longest < (asked.seq_len if asked.seq_is_stated else 1):
        return question._replace(asked=free)
    fitted = free.with_args(max_model_len=longest).saying(
        assumption=f"max_model_len {longest:,}: the longest that fits, up to the native {native:,}"
    )
    seq_len = asked.seq_len if asked.seq_is_stated else longest
    return question._replace(asked=fitted._replace(seq_len=seq_len))


def solve_limits(question: Question, budget: Budget) -> LimitsReport:
    """All limits of a deployment whose budget is at hand."""
    d = budget.deployment
    args = d.args
    weights_counted = d.model.weights_unknown is None and args.kv_cache_memory_bytes is None
    kv = mildest_kv(question, d)
    weights = mildest_weights(question) if weights_counted else None
    has_engine_args = args.max_num_seqs is not None
    return LimitsReport(
        max_batch=max_batch(question, budget),
        max_seq_len=max_seq_len(question, budget),
        min_tp=min_tp(question),
        min_gpus=min_gpus(question),
        kv_cache_dtype=kv.name if kv else None,
        weight_format=weights.name if weights else None,
        max_num_seqs=_largest_arg(question, d, "max_num_seqs", d.replica_batch)
        if has_engine_args
        else None,
        max_num_batched_tokens=_largest_arg(
            question, d, "max_num_batched_tokens", args.max_num_seqs or 1
        )
        if has_engine_args
        else None,
        min_gpu_memory_utilization=_least_utilization(question, d) if has_engine_args else None,
        fits_eager=question.fits(question.asked.with_args(enforce_eager=True))
        if has_engine_args
        else None,
    )


def max_batch(question: Question, budget: Budget) -> int:
    """The most sequences of seq_len tokens that fit at once, over all replicas."""
    d = question.asked
    room = budget.available_bytes - budget.needed_bytes
    per_sequence = budget.reserved_bytes - (
        budget.layout.shared_bytes(min(d.prefix_tokens, d.seq_len)) if d.prefix_tokens else 0
    )
    guess = d.replica_batch + room // per_sequence if per_sequence > 0 else MOST_SEQUENCES

    def most(load: Deployment, limit: int) -> int:
        return largest(lambda batch: question.room(load._replace(batch=batch * d.dp)), guess, limit)

    # The engine's own limit on sequences is not what is asked here: it is raised with the batch.
    # The engine's default may take more than a lower one that was asked for, though.
    found = most(d.with_args(max_num_seqs=None), MOST_SEQUENCES)
    asked = d.args.max_num_seqs
    if asked is not None and found < asked:
        found = max(found, most(d, asked))
    return found * d.dp


def max_seq_len(question: Question, budget: Budget) -> int:
    """The longest sequences of which the batch fits; 0 when no length does."""
    d = question.asked
    guess = budget.layout.longest(budget.available_bytes // max(1, d.replica_batch))
    free = d.with_args(max_model_len=None)
    return largest(lambda tokens: question.room(free._replace(seq_len=tokens)), guess, MAX_TOKENS)


def min_tp(question: Question) -> int | None:
    """The smallest tensor-parallel size that fits, with the asked pipeline and data parallelism."""
    d = question.asked
    for tp in valid_tps(d.model, NODE_GPUS):
        if question.fits(d._replace(tp=tp)):
            return tp
    return None


def min_gpus(question: Question) -> int | None:
    """The fewest GPUs for one replica: tensor parallelism within a server, pipeline beyond it."""
    asked = question.asked._replace(dp=1, ep=1)
    tps = valid_tps(asked.model, NODE_GPUS)
    shapes = sorted(
        (tp * pp, pp, tp) for tp in tps for pp in (1, 2, 4, 8) if pp == 1 or tp == tps[-1]
    )
    for gpus, pp, tp in shapes:
        if gpus <= MOST_GPUS and question.fits(asked._replace(tp=tp, pp=pp)):
            return gpus
    return None


def mildest_kv(question: Question, resolved: Deployment) -> KvFormat | None:
    """The KV format of least measured quality cost that fits; one that costs nothing is kept."""
    if resolved.kv.quality_cost == 0.0 and question.fits(question.asked):
        return resolved.kv
    for form in by_mildness(list(question.engine.kv_formats(resolved))):
        if question.fits(question.asked._replace(kv=form, kv_is_stated=True)):
            return form
    return None


def by_mildness(forms: list[KvFormat]) -> list[KvFormat]:
    """Formats from mild to harsh: by measured cost, those never measured last and by bits."""
    return sorted(
        forms,
        key=lambda form: (
            form.quality_cost is None,
            form.quality_cost if form.quality_cost is not None else -form.bits,
        ),
    )


def mildest_weights(question: Question) -> WeightFormat | WeightScheme | None:
    """The weight format of least measured quality cost that fits; the checkpoint's own first."""
    d = question.asked
    if question.fits(d):
        return d.scheme
    for form in weights_by_mildness(d):
        if question.fits(d._replace(scheme=scheme_from(form), weights_are_stated=True)):
            return form
    return None


def weights_by_mildness(d: Deployment) -> list[WeightFormat]:
    """Narrower weight formats that this GPU has kernels for, from mild to harsh."""
    capability = d.gpu.compute_capability
    usable = [
        form
        for form in WEIGHT_FORMATS.values()
        if form.form.bits < d.scheme.form.bits
        and form.min_capability is not None
        and (capability is None or capability >= form.min_capability)
    ]
    return sorted(usable, key=lambda form: (form.quality_cost is None, form.quality_cost or 0.0))


def _largest_arg(question: Question, resolved: Deployment, name: str, least: int) -> int | None:
    current = getattr(resolved.args, name)
    if current is None:  # an engine without this argument
        return None
    found = largest(
        lambda value: question.room(resolved.with_args(**{name: value})), current, MOST_SEQUENCES
    )
    return found if found >= least else None


def _least_utilization(question: Question, resolved: Deployment) -> float | None:
    """The smallest share of the GPU that fits, in hundredths.

    The pool grows with the share, but too large a share refuses to start, or leaves too little
    beside the claim: the largest one that does neither is the best there is, and from it the share
    is lowered as far as it fits.
    """
    if resolved.args.kv_cache_memory_bytes is not None or resolved.total_bytes is None:
        return None

    def at(hundredths: int) -> Deployment:
        return resolved.with_args(gpu_memory_utilization=hundredths / 100)

    def starts(hundredths: int) -> int:
        budget = question.judge(at(hundredths))
        if budget is None or budget.limiting_term == "gpu_memory_utilization":
            return -1
        beside = {term.key for term in budget.terms if not term.in_claim}
        return -1 if budget.verdict is Verdict.OOM and budget.limiting_term in beside else 1

    best = largest(starts, 98, 100)
    if best == 0 or question.room(at(best)) < 0:
        return None
    spare = question.room(at(best)) * 100 // resolved.total_bytes
    lowered = largest(lambda less: question.room(at(best - less)), spare, best - 1)
    return (best - lowered) / 100
