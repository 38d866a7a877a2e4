"""The rollback decision over every task of two runs, and what rolls it back."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

from kvplan import __version__
from kvplan.errors import InputError, nearest_names
from kvplan.gating.checks import bench_checks, calibration_checks, ceiling_checks
from kvplan.gating.decision import Answer, TaskReport, compare
from kvplan.gating.results import Evaluation, Kind
from kvplan.gating.rollback import rollback_flags, rollback_room
from kvplan.monitoring.plan import Plan
from kvplan.planning.report import Document
from kvplan.policy import Policy

SCHEMA = "kvplan.gate/1"

_DESCRIBED = {"use_attribute_docstrings": True, "extra": "forbid"}


@dataclass(frozen=True, eq=False, repr=False, match_args=False)
class GateReport(Document):
    """Keep the candidate, or go back to 16 bits and every token."""

    __pydantic_config__ = _DESCRIBED

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
    reports, warnings = _tasks(baseline, candidate, policy, options)
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
        warnings=[*baseline.warnings, *candidate.warnings, *warnings],
    )


def _tasks(
    baseline: Evaluation, candidate: Evaluation, policy: Policy, options: Options
) -> tuple[list[TaskReport], list[str]]:
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

    found, warnings, missing = [], [], []
    for key, base in baseline.scores.items():
        cand = candidate.scores.get(key)
        if not asked(base.task):
            continue
        if cand is None:
            missing.append(f"{base.task} {base.metric}")
        elif base.kind is not Kind.OTHER or options.tasks:
            found.append(compare(base, cand, policy.quality))
    if missing and found:
        shown = ", ".join(missing[:5]) + ("..." if len(missing) > 5 else "")
        warnings.append(f"the candidate was not evaluated on {len(missing)}: {shown}")
    averages = [report for report in found if report.rule.startswith("at least")]
    if len(averages) > 1:
        warnings.append(f"{len(averages)} ratio tasks are judged one by one")
    return found, warnings


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
        return f"{shown}: worse than the policy allows, and not by chance"
    needed = [r.samples_needed for r in reports if r.answer is answer and r.samples_needed]
    more = f"; the hardest needs about {max(needed):,} samples" if needed else ""
    return f"too few samples to tell for {shown}{more}"


def _named(evaluation: Evaluation) -> str:
    names = sorted({task for task, _ in evaluation.scores})
    return ", ".join(names[:6]) + ("..." if len(names) > 6 else "") or "no scores"
