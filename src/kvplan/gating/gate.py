"""The rollback decision over every task of two runs, and what rolls it back."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import NamedTuple

from kvplan import __version__
from kvplan.errors import InputError, nearest_names
from kvplan.gating.checks import bench_checks, calibration_checks, ceiling_checks
from kvplan.gating.decision import Answer, TaskReport, compare, not_evaluated
from kvplan.gating.results import Evaluation, Kind, Score
from kvplan.gating.rollback import rollback_flags, rollback_room
from kvplan.monitoring.plan import Plan
from kvplan.planning.report import Record
from kvplan.policy import Policy

SCHEMA = "kvplan.gate/1"


class GateReport(Record):
    """Keep the candidate, or go back to 16 bits and every token."""

    schema: str
    kvplan_version: str
    baseline: str
    candidate: str
    answer: Answer
    reason: str
    """The answer in one sentence."""
    confidence: float
    """Of every interval and test."""
    tasks: list[TaskReport]
    rollback_flags: list[str]
    """What starts the engine with a 16-bit KV cache that keeps every token."""
    rollback_room: str
    """Whether the plan has room for it; empty where no plan was given."""
    warnings: list[str]


class Options(NamedTuple):
    """What is asked beyond the two runs."""

    tasks: tuple[str, ...] = ()
    """Patterns of the tasks to judge; empty: all."""
    perplexity_ceiling: bool = False
    engine: str = "vllm"
    plan: Plan | None = None


def gate(
    baseline: Evaluation, candidate: Evaluation, policy: Policy, options: Options
) -> GateReport:
    """Judge every figure that the baseline has, and answer for all of them."""
    quality = policy.quality
    reports = _tasks(baseline, candidate, policy, options)
    reports += calibration_checks(candidate, quality)
    reports += bench_checks(baseline, candidate, policy.monitoring)
    if options.perplexity_ceiling:
        reports += ceiling_checks(candidate, quality)
    if not reports:
        raise InputError(
            f"{baseline.path} and {candidate.path} have no task in common",
            hint=f"The first has {_named(baseline)}; the second has {_named(candidate)}.",
        )
    answer = _overall(reports)
    return GateReport(
        schema=SCHEMA,
        kvplan_version=__version__,
        baseline=baseline.path,
        candidate=candidate.path,
        answer=answer,
        reason=_reason(answer, reports),
        confidence=quality.confidence,
        tasks=reports,
        rollback_flags=rollback_flags(options.engine),
        rollback_room=rollback_room(options.plan) if options.plan is not None else "",
        warnings=[*baseline.warnings, *candidate.warnings],
    )


def _tasks(
    baseline: Evaluation, candidate: Evaluation, policy: Policy, options: Options
) -> list[TaskReport]:
    names = sorted({task for task, _ in baseline.scores})
    for pattern in options.tasks:
        if not any(fnmatchcase(name, pattern) for name in names):
            near = nearest_names(pattern, names) or names[:8]
            raise InputError(
                f"--task {pattern!r}: the baseline has no such task",
                hint=f"It has: {', '.join(near)}",
            )

    def asked(task: str) -> bool:
        return not options.tasks or any(fnmatchcase(task, p) for p in options.tasks)

    found = []
    for key, base in baseline.scores.items():
        if not asked(base.task) or base.kind is Kind.OTHER:
            continue
        cand = candidate.scores.get(key)
        found.append(not_evaluated(base) if cand is None else compare(base, cand, policy.quality))
    if all(report.candidate is None for report in found):
        return []
    return [*found, *_longbench_average(baseline, candidate, asked, policy)]


def _longbench_average(
    baseline: Evaluation, candidate: Evaluation, asked: Callable[[str], bool], policy: Policy
) -> list[TaskReport]:
    """The benchmark's own figure: the mean over its tasks, where several are in both runs."""
    both = [
        (base, candidate.scores[key])
        for key, base in baseline.scores.items()
        if base.kind is Kind.LONGBENCH and key in candidate.scores and asked(base.task)
    ]
    if len(both) < 2:
        return []
    means = (sum(pair[side].value for pair in both) / len(both) for side in (0, 1))
    base, cand = (Score("longbench", "average", value, Kind.LONGBENCH) for value in means)
    return [compare(base, cand, policy.quality)]


def _overall(reports: list[TaskReport]) -> Answer:
    answers = {report.answer for report in reports}
    if Answer.ROLL_BACK in answers:
        return Answer.ROLL_BACK
    return Answer.UNDECIDED if Answer.UNDECIDED in answers else Answer.KEEP


def _reason(answer: Answer, reports: list[TaskReport]) -> str:
    named = [f"{r.task} {r.metric}" for r in reports if r.answer is answer]
    shown = ", ".join(named[:4]) + (f" and {len(named) - 4} more" if len(named) > 4 else "")
    if answer is Answer.KEEP:
        return f"every figure is within the policy's limits: {shown}"
    if answer is Answer.ROLL_BACK:
        tested = all(r.low is not None for r in reports if r.answer is answer)
        return f"{shown}: worse than the policy allows" + (", and not by chance" if tested else "")
    needed = [r.samples_needed for r in reports if r.answer is answer and r.samples_needed]
    more = f"; the hardest needs about {max(needed):,} samples" if needed else ""
    return f"too few samples to tell for {shown}{more}"


def _named(evaluation: Evaluation) -> str:
    names = sorted({task for task, _ in evaluation.scores})
    return ", ".join(names[:6]) + ("..." if len(names) > 6 else "") or "no scores"
