"""The alerts: what is wrong, how bad it is, and what to do about it from the plan's own options."""

from __future__ import annotations

from collections.abc import Callable

from kvplan.monitoring import records as names
from kvplan.monitoring.advice import more_room
from kvplan.monitoring.alert_writer import NUMBER, PERCENT, Rules, Writer, and_with, near_full
from kvplan.monitoring.latency import ms
from kvplan.monitoring.plan_alerts import PLAN_ALERTS
from kvplan.monitoring.rule_question import Question
from kvplan.units import format_gib

ALERTS = (
    "KvPoolUseHigh",
    "KvPoolNearlyFull",
    "KvPreemptions",
    "RequestsWaiting",
    "TtftAboveTarget",
    "TpotAboveTarget",
    "ThroughputBelowPeak",
    "PrefixCacheHitsLow",
    "GpuMemoryAbovePlan",
    "PlanDrift",
    "OffloadWorthTrying",
    "EngineDown",
    "GpuExporterDown",
)
"""Every alert; each has a section of that name in the runbook."""


def alerts(question: Question) -> tuple[Rules, list[str]]:
    """Every alert that the metrics, the plan and the options allow, and why the others are not."""
    writer = Writer(question)
    steps: tuple[Callable[[Writer], None], ...] = (
        _pool, _preemptions, _waiting, _latencies, _throughput, _prefix, *PLAN_ALERTS,
    )  # fmt: skip
    for step in steps:
        step(writer)
    return writer.made, writer.left_out


def _pool(w: Writer) -> None:
    limits, plan = w.q.policy.monitoring, w.q.plan
    if w.q.metrics.kv_use is None:
        w.omit("KvPoolUseHigh, KvPoolNearlyFull", "the engine exports no KV use")
        return
    of = ""
    if plan and w.q.same_engine and plan.pool_bytes:
        tokens = f" or {plan.pool_tokens:,} tokens" if plan.pool_tokens else ""
        of = f" (planned: {format_gib(plan.pool_bytes)}{tokens} a GPU)"
    w.alert(
        "KvPoolUseHigh",
        "warning",
        f"{names.KV_USE}{{{w.q.job}}} > {limits.max_pool_use:g}",
        "15m",
        f"{w.who}: {PERCENT} of the KV pool in use{of}, warning above {limits.max_pool_use:.0%}",
        action="Normal on a saturated server; look at the queue before anything else. "
        + more_room(plan),
    )
    if w.q.metrics.waiting is None:
        w.omit("KvPoolNearlyFull", "the engine exports no queue")
        return
    w.alert(
        "KvPoolNearlyFull",
        "critical",
        near_full(w) + and_with(w, f"{names.WAITING}{{{w.q.job}}} > 0"),
        "5m",
        f"{w.who}: {PERCENT} of the KV pool in use{of} while requests wait, "
        f"critical above {limits.near_full:.0%}",
        action=more_room(plan),
    )


def _preemptions(w: Writer) -> None:
    m = w.q.metrics
    if m.preemptions is not None:
        rate = w.q.windowed("preemptions:rate")
        expr, unit = (
            f"{rate}{{{w.q.job}}} > 0",
            "requests preempted a second, each to be computed again",
        )
    elif m.preempted is not None:
        expr, unit = f"{names.PREEMPTED}{{{w.q.job}}} > 0", "requests paused for lack of KV cache"
    else:
        w.omit("KvPreemptions", "the engine exports no preemptions")
        return
    w.alert(
        "KvPreemptions", "warning", expr, "2m", f"{w.who}: {NUMBER} {unit}",
        action=more_room(w.q.plan),
    )  # fmt: skip


def _waiting(w: Writer) -> None:
    if w.q.metrics.waiting is None:
        w.omit("RequestsWaiting", "the engine exports no queue")
        return
    w.alert(
        "RequestsWaiting",
        "warning",
        f"{names.WAITING}{{{w.q.job}}} > 0",
        "10m",
        f"{w.who}: {NUMBER} requests waiting for 10 minutes",
        action="A full pool: " + more_room(w.q.plan) + " A pool with room: raise max_num_seqs.",
    )


def _latencies(w: Writer) -> None:
    share = w.q.policy.monitoring.slo_share
    for which, name, label in (
        ("ttft", "TtftAboveTarget", "time to first token"),
        ("tpot", "TpotAboveTarget", "time per output token"),
    ):
        judged = w.q.judged(which)
        if judged is None:
            known = w.q.metrics.ttft if which == "ttft" else w.q.metrics.tpot
            why = "its histogram ends below the target" if known else f"it exports no {label}"
            w.omit(name, why)
            continue
        edge = "" if judged.exact else ", the next histogram edge above it"
        w.alert(
            name,
            "warning",
            f"{w.q.windowed(f'{which}_above_edge:ratio')}{{{w.q.job}}} > {1 - share:.6g}",
            "5m",
            f"{w.who}: {PERCENT} of {judged.histogram.counts} above {ms(judged.edge)} {label} "
            f"(target {ms(judged.target)}{edge}; {(1 - share) * 100:.3g}% of them may be)",
            action=judged.words() + (
                " Shorten the queue or the prompts (prefix caching, chunked prefill)."
                if which == "ttft"
                else " Fewer sequences at once, narrower weights, or more tensor parallelism."
            ),
        )  # fmt: skip


def _throughput(w: Writer) -> None:
    limit, peak = w.q.policy.monitoring.min_throughput, w.q.options.peak_tokens_per_s
    if w.q.metrics.generation_tokens is None or w.q.metrics.waiting is None:
        w.omit("ThroughputBelowPeak", "the engine exports no generated tokens, or no queue")
    elif peak is None:
        w.omit(
            "ThroughputBelowPeak",
            "no engine exports its peak: give --peak-tokens-per-s, or --peak-from a result of "
            "vllm bench serve",
        )
    else:
        rate = w.q.windowed("generation_tokens:rate")
        w.alert(
            "ThroughputBelowPeak",
            "warning",
            f"{rate}{{{w.q.job}}} < on (job) group_left () ({limit:g} * {names.PEAK}{{{w.q.job}}})"
            + and_with(w, f"{names.WAITING}{{{w.q.job}}} > 0"),
            "10m",
            f"{w.who}: {NUMBER} tokens/s while requests wait, below {limit:.0%} of the peak of "
            f"{peak:,g} tokens/s",
            action="Look for preemptions, long prompts that crowd out decoding, and a GPU that "
            "throttles.",
        )


def _prefix(w: Writer) -> None:
    m, least = w.q.metrics, w.q.policy.monitoring.min_prefix_hits
    if m.prefix_hit_rate is None and (m.prefix_hits is None or m.prefix_queries is None):
        w.omit("PrefixCacheHitsLow", "the engine exports no prefix-cache hits")
        return
    hits = f"{w.q.windowed('prefix_hits:ratio')}{{{w.q.job}}} < {least:g}"
    busy = f"{names.RUNNING}{{{w.q.job}}} > 0"
    w.alert(
        "PrefixCacheHitsLow",
        "info",
        hits + (and_with(w, busy) if m.running is not None else ""),
        "30m",
        f"{w.who}: {PERCENT} of prompt tokens found in the prefix cache, expected {least:.0%}",
        action="Put what prompts share at their front and route a user to the same replica; "
        "ignore it where prompts share nothing.",
    )
