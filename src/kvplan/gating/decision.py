"""One task's answer: keep, roll back, or undecided, with the statistics behind it.

A loss is kept when the whole interval is within the policy's limit, and rolled back when it is
above the limit and not by chance. Everything else is undecided: more samples would tell.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import NamedTuple

from kvplan.gating.results import Kind, Score, is_binary
from kvplan.gating.statistics import (
    Interval,
    loss_from_errors,
    paired_binary_loss,
    paired_mean_loss,
    paired_samples,
    unpaired_loss,
    unpaired_samples,
    wilson,
)
from kvplan.planning.report import Record
from kvplan.policy import QualityPolicy


class Answer(StrEnum):
    """What to do."""

    KEEP = "keep"
    ROLL_BACK = "roll_back"
    UNDECIDED = "undecided"


class TaskReport(Record):
    """One figure of both runs, compared."""

    task: str
    metric: str
    rule: str
    """The policy's limit in words."""
    answer: Answer
    baseline: float | None
    candidate: float | None
    loss: float | None
    """In points for a score, as a share of the baseline for a ratio; positive is worse."""
    limit: float | None
    low: float | None
    """Lower end of the loss's confidence interval; null where the files give no uncertainty."""
    high: float | None
    p_value: float | None
    samples: int | None
    samples_needed: int | None
    """Samples that would show a loss as large as the limit; null where it was decided."""
    method: str
    note: str


class Effect(NamedTuple):
    """A loss against its limit, both on the same scale."""

    loss: float
    limit: float
    interval: Interval | None
    needed: int | None = None
    note: str = ""


def compare(base: Score, cand: Score, q: QualityPolicy) -> TaskReport:
    """The answer for one figure that both runs have."""
    if base.shots is not None and cand.shots is not None and base.shots != cand.shots:
        note = f"{base.shots} examples in the prompt before, {cand.shots} now: not comparable"
        return _report(base, cand, "", Answer.UNDECIDED, None, note)
    if base.kind is Kind.OTHER:
        return _report(base, cand, "shown, not judged", Answer.KEEP, None, "lower is better")
    if base.kind is Kind.HALLUCINATION:
        return _share_at_most(base, cand, q)
    if base.kind is Kind.SCORE:
        rule = f"loses at most {q.max_drop * 100:.3g} points"
        return _decide(base, cand, rule, _score_effect(base, cand, q))
    if base.value <= 0 or cand.value <= 0:
        return _report(base, cand, "", Answer.UNDECIDED, None, "not above 0: no ratio can be taken")
    if base.kind is Kind.PERPLEXITY:
        rule = f"perplexity at most {q.max_perplexity_ratio:g} x the baseline's"
        return _decide(base, cand, rule, _perplexity_effect(base, cand, q))
    least = q.min_bleu if base.kind is Kind.BLEU else q.min_longbench
    rule = f"at least {least:g} of the baseline's"
    return _decide(base, cand, rule, _ratio_effect(base, cand, least, q))


def not_evaluated(base: Score) -> TaskReport:
    """The answer for a figure that only the baseline has."""
    note = "the candidate was not evaluated on it; leave it out with --task, or evaluate it"
    report = _report(base, base, "", Answer.UNDECIDED, None, note)
    return report.but(candidate=None)


def _decide(base: Score, cand: Score, rule: str, effect: Effect) -> TaskReport:
    interval = effect.interval
    if interval is None:
        if base.kind is Kind.SCORE:
            answer = Answer.UNDECIDED
        else:
            answer = Answer.KEEP if effect.loss <= effect.limit + 1e-12 else Answer.ROLL_BACK
    elif interval.high <= effect.limit:
        answer = Answer.KEEP
    elif effect.loss > effect.limit and interval.low > 0:
        answer = Answer.ROLL_BACK
    else:
        answer = Answer.UNDECIDED
    return _report(base, cand, rule, answer, effect, effect.note)


def _score_effect(base: Score, cand: Score, q: QualityPolicy) -> Effect:
    """Points lost; percentages and marks are brought to shares first."""
    scale = max(base.scale, cand.scale)
    p1, p2 = base.value / scale, cand.value / scale
    pairs = _pairs(base, cand)
    needed = unpaired_samples(min(p1, 1.0), q.max_drop, q.confidence, q.power) if p1 <= 1 else None
    if pairs:
        full = max(1.0, *(Score("", "", max(pair), Kind.SCORE).scale for pair in pairs))
        differences = [(a - b) / full for a, b in pairs]
        loss = sum(differences) / len(differences)
        if all(value in {0.0, 1.0} for pair in pairs for value in pair):
            lost = sum(a > b for a, b in pairs)
            won = sum(a < b for a, b in pairs)
            share = (lost + won) / len(pairs)
            return Effect(
                loss, q.max_drop, paired_binary_loss(lost, won, len(pairs), q.confidence),
                paired_samples(share, q.max_drop, q.confidence, q.power),
                f"{lost} answers lost and {won} won of {len(pairs):,}",
            )  # fmt: skip
        interval = paired_mean_loss(differences, q.confidence)
        return Effect(loss, q.max_drop, interval, _wider(interval, loss, len(pairs), q.max_drop))
    loss = p1 - p2
    if base.size and cand.size and is_binary(base.metric) and 0 <= p2 <= 1 and 0 <= p1 <= 1:
        interval = unpaired_loss(p1, base.size, p2, cand.size, q.confidence)
        return Effect(loss, q.max_drop, interval, needed, "no per-sample results: not paired")
    if base.stderr is not None and cand.stderr is not None:
        errors = base.stderr / scale, cand.stderr / scale
        interval = loss_from_errors(loss, *errors, q.confidence)
        return Effect(loss, q.max_drop, interval, needed, "no per-sample results: not paired")
    return Effect(loss, q.max_drop, None, needed, "the files state no number of samples")


def _perplexity_effect(base: Score, cand: Score, q: QualityPolicy) -> Effect:
    """The logarithm of the ratio, which is a difference of mean log-likelihoods."""
    loss, limit = math.log(cand.value / base.value), math.log(q.max_perplexity_ratio)
    losses = _log_losses(base, cand)
    if losses:
        interval = paired_mean_loss(losses, q.confidence)
        return Effect(loss, limit, interval, _wider(interval, loss, len(losses), limit))
    return Effect(loss, limit, None, None, "one figure over the whole text: compared as it stands")


def _log_losses(base: Score, cand: Score) -> list[float]:
    """Each document's share of the log of the ratio; their mean is the whole of it."""
    before, after = base.samples or {}, cand.samples or {}
    if not before or before.keys() != after.keys():
        return []
    rows: list[tuple[float, float]] = []
    for key, a in before.items():
        b = after[key]
        if isinstance(a, tuple) and isinstance(b, tuple):
            if a[1] != b[1] or a[1] <= 0:
                return []
            rows.append((a[0] - b[0], a[1]))
        elif isinstance(a, float) and isinstance(b, float):
            rows.append((a - b, 1.0))
        else:
            return []
    mean_weight = sum(weight for _, weight in rows) / len(rows)
    return [difference / mean_weight for difference, _ in rows]


def _ratio_effect(base: Score, cand: Score, least: float, q: QualityPolicy) -> Effect:
    loss, limit = math.log(base.value / cand.value), -math.log(least) if least > 0 else math.inf
    if base.stderr is not None and cand.stderr is not None:
        errors = base.stderr / base.value, cand.stderr / cand.value
        return Effect(loss, limit, loss_from_errors(loss, *errors, q.confidence))
    return Effect(loss, limit, None, None, "no sample counts are stated: compared as it stands")


def _share_at_most(base: Score, cand: Score, q: QualityPolicy) -> TaskReport:
    """The candidate's own share against a ceiling; the baseline is shown beside it."""
    scale, limit = cand.scale, q.max_hallucination
    share = cand.value / scale
    rule = f"at most {limit:.3g} of the answers"
    if not cand.size or not 0 <= share <= 1:
        answer = Answer.KEEP if share <= limit else Answer.ROLL_BACK
        note = "no number of samples is stated: compared as it stands"
        return _report(base, cand, rule, answer, Effect(share, limit, None), note)
    low, high = wilson(share * cand.size, cand.size, q.confidence)
    interval = Interval(low, high, "Wilson's interval of the candidate")
    answer = Answer.UNDECIDED
    if high <= limit:
        answer = Answer.KEEP
    elif low > limit:
        answer = Answer.ROLL_BACK
    return _report(base, cand, rule, answer, Effect(share, limit, interval), "")


def _pairs(base: Score, cand: Score) -> list[tuple[float, float]]:
    """Each sample's figure in both runs; empty unless they are the same samples."""
    before, after = base.samples or {}, cand.samples or {}
    if not before or before.keys() != after.keys():
        return []
    pairs = [(a, after[key]) for key, a in before.items()]
    plain = [(a, b) for a, b in pairs if isinstance(a, float) and isinstance(b, float)]
    return plain if len(plain) == len(pairs) else []


def _wider(interval: Interval, loss: float, count: int, limit: float) -> int | None:
    """Samples at which an interval of this spread would fit between no loss and the limit."""
    half = max(interval.high - loss, loss - interval.low)
    return math.ceil(count * (half / limit) ** 2) if limit > 0 and math.isfinite(half) else None


def _report(
    base: Score, cand: Score, rule: str, answer: Answer, effect: Effect | None, note: str
) -> TaskReport:
    counts = [score.size for score in (base, cand) if score.size]
    interval = effect.interval if effect else None
    as_share = base.kind in {Kind.PERPLEXITY, Kind.BLEU, Kind.LONGBENCH}

    def shown(value: float) -> float:
        """A logarithm of a ratio as the share that was lost."""
        if not as_share:
            return value
        return math.expm1(value) if base.kind is Kind.PERPLEXITY else -math.expm1(-value)

    return TaskReport(
        task=base.task,
        metric=base.metric,
        rule=rule,
        answer=answer,
        baseline=base.value,
        candidate=cand.value,
        loss=shown(effect.loss) if effect else None,
        limit=shown(effect.limit) if effect else None,
        low=shown(interval.low) if interval else None,
        high=shown(interval.high) if interval else None,
        p_value=interval.p_value if interval else None,
        samples=min(counts) if counts else None,
        samples_needed=effect.needed if effect and answer is Answer.UNDECIDED else None,
        method=interval.method if interval else "",
        note=note,
    )
