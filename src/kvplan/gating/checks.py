"""What is judged against a fixed limit: calibration, a perplexity ceiling, speed under load."""

from __future__ import annotations

from kvplan.gating.decision import Answer, TaskReport
from kvplan.gating.results import Evaluation, Kind
from kvplan.policy import MonitoringPolicy, QualityPolicy


def calibration_checks(candidate: Evaluation, q: QualityPolicy) -> list[TaskReport]:
    """The figures of a calibration or distillation step, where the candidate's files state them."""
    stated = candidate.calibration
    found = []
    if "calibration_samples" in stated:
        samples, least = stated["calibration_samples"], q.min_calibration_samples
        found.append(
            _fixed("calibration", "samples", f"at least {least:,} samples", None, samples,
                   samples >= least, least)
        )  # fmt: skip
    if "kv_mse" in stated:
        error, limit = stated["kv_mse"], q.max_kv_mse
        found.append(
            _fixed("calibration", "KV-matching MSE", f"below {limit:g}", None, error,
                   error < limit, limit)
        )  # fmt: skip
    if "quantisation_error" in stated:
        error, limit = stated["quantisation_error"], q.max_quantisation_error
        found.append(
            _fixed("calibration", "quantisation error", f"below {limit:.3g} as a share", None,
                   error, error < limit, limit)
        )  # fmt: skip
    return found


def ceiling_checks(candidate: Evaluation, q: QualityPolicy) -> list[TaskReport]:
    """Each perplexity of the candidate against the absolute ceiling."""
    limit = q.perplexity_ceiling
    return [
        _fixed(score.task, score.metric, f"absolute ceiling {limit:g}", None, score.value,
               score.value <= limit, limit)
        for score in candidate.scores.values()
        if score.kind is Kind.PERPLEXITY
    ]  # fmt: skip


def bench_checks(
    baseline: Evaluation, candidate: Evaluation, limits: MonitoringPolicy
) -> list[TaskReport]:
    """Speed in two runs of ``vllm bench serve``: throughput against the baseline's, latencies
    against their targets where the baseline kept them."""
    before, after = baseline.bench, candidate.bench
    found = []
    if "output_throughput" in before and "output_throughput" in after:
        was, now = before["output_throughput"], after["output_throughput"]
        found.append(
            _fixed("bench serve", "output_throughput", f"at least {limits.min_throughput:g} of the "
                   "baseline's", was, now, now >= limits.min_throughput * was,
                   limits.min_throughput * was)
        )  # fmt: skip
    for metric, target in (("mean_ttft_ms", limits.ttft_ms), ("mean_tpot_ms", limits.tpot_ms)):
        if metric in before and metric in after:
            was, now = before[metric], after[metric]
            kept = now <= target or was > target
            note = "the baseline is above it as well" if was > target else ""
            found.append(
                _fixed(
                    "bench serve", metric, f"at most {target:g} ms", was, now, kept, target, note
                )
            )
    return found


def _fixed(
    task: str,
    metric: str,
    rule: str,
    before: float | None,
    now: float,
    kept: bool,
    limit: float,
    note: str = "",
) -> TaskReport:
    return TaskReport(
        task=task,
        metric=metric,
        rule=rule,
        answer=Answer.KEEP if kept else Answer.ROLL_BACK,
        baseline=before,
        candidate=now,
        loss=None,
        limit=limit,
        low=None,
        high=None,
        p_value=None,
        samples=None,
        samples_needed=None,
        method="a fixed limit",
        note=note,
    )
