"""A reading judged by the policy and the plan: findings, and one verdict for a probe."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from kvplan.monitoring.advice import more_room
from kvplan.monitoring.plan import Plan
from kvplan.monitoring.reading import SINCE_START, Reading
from kvplan.monitoring.series import Metrics
from kvplan.planning.report import Record
from kvplan.policy import MonitoringPolicy


class Health(StrEnum):
    """How the server does, from best to worst."""

    OK = "ok"
    WARNING = "warning"
    CRITICAL = "critical"
    DOWN = "down"


class Severity(StrEnum):
    """How bad a finding is; info changes no verdict."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class Finding(Record):
    """One thing that is not as it should be."""

    alert: str
    """The alert of the same name, and its section in the runbook."""
    severity: Severity
    message: str
    action: str


def _found(alert: str, severity: Severity, message: str, action: str) -> Finding:
    return Finding(alert=alert, severity=severity, message=message, action=action)


class Judge(NamedTuple):
    """What a reading is compared with."""

    limits: MonitoringPolicy
    metrics: Metrics
    plan: Plan | None = None
    peak_tokens_per_s: float | None = None


def verdict(findings: list[Finding]) -> Health:
    """The worst of the findings."""
    severities = {finding.severity for finding in findings}
    if Severity.CRITICAL in severities:
        return Health.CRITICAL
    return Health.WARNING if Severity.WARNING in severities else Health.OK


def judge(reading: Reading, by: Judge) -> list[Finding]:
    """Everything that is not as it should be, the worst first."""
    found = [
        *_pool(reading, by),
        *_preemptions(reading, by),
        *_latencies(reading, by),
        *_throughput(reading, by),
        *_prefix(reading, by),
        *_drift(reading, by),
    ]
    order = list(reversed(Severity))
    return sorted(found, key=lambda finding: order.index(finding.severity))


def _pool(r: Reading, by: Judge) -> list[Finding]:
    found = []
    limits, room = by.limits, more_room(by.plan)
    queue = r.waiting or 0
    if r.kv_use is not None and r.kv_use > limits.near_full and queue > 0:
        found.append(
            _found(
                "KvPoolNearlyFull", Severity.CRITICAL,
                f"{r.kv_use:.1%} of the KV pool in use while {queue:,g} requests wait "
                f"(limit {limits.near_full:.0%})", room,
            )
        )  # fmt: skip
    elif r.kv_use is not None and r.kv_use > limits.max_pool_use:
        found.append(
            _found(
                "KvPoolUseHigh", Severity.WARNING,
                f"{r.kv_use:.1%} of the KV pool in use (limit {limits.max_pool_use:.0%})",
                f"Normal on a saturated server; look at the queue first. {room}",
            )
        )  # fmt: skip
    if queue > 0:
        found.append(
            _found("RequestsWaiting", Severity.WARNING, f"{queue:,g} requests waiting",
                    f"A full pool: {room} A pool with room: raise max_num_seqs.")
        )  # fmt: skip
    return found


def _preemptions(r: Reading, by: Judge) -> list[Finding]:
    if not r.preempted:
        return []
    if by.metrics.preemptions is None:
        told, severity = f"{r.preempted:,g} requests paused for lack of KV cache", Severity.WARNING
    elif r.basis == SINCE_START:
        told, severity = f"{r.preempted:,g} preemptions {SINCE_START}", Severity.INFO
    else:
        told, severity = f"{r.preempted:,.3g} preemptions a second, {r.basis}", Severity.WARNING
    return [_found("KvPreemptions", severity, told, more_room(by.plan))]


def _latencies(r: Reading, by: Judge) -> list[Finding]:
    found = []
    allowed = 1 - by.limits.slo_share
    severity = Severity.INFO if r.basis == SINCE_START else Severity.WARNING
    for name, words, share, edge, target in (
        ("TtftAboveTarget", "time to first token", r.ttft_share_above, r.ttft_edge_ms,
         by.limits.ttft_ms),
        ("TpotAboveTarget", "time per output token", r.tpot_share_above, r.tpot_edge_ms,
         by.limits.tpot_ms),
    ):  # fmt: skip
        if share is None or edge is None or share <= allowed + 1e-12:
            continue
        told = f"{share:.1%} above {edge:.4g} ms {words}, {r.basis} ({allowed * 100:.3g}% may be)"
        if abs(edge - target) > target * 1e-9:
            told += f"; the target is {target:g} ms, where this server has no histogram edge"
        found.append(_found(name, severity, told, "Fewer sequences at once, or a faster setup."))
    return found


def _throughput(r: Reading, by: Judge) -> list[Finding]:
    peak, rate = by.peak_tokens_per_s, r.generation_tokens_per_s
    if peak is None or rate is None or not r.waiting or rate >= by.limits.min_throughput * peak:
        return []
    told = (
        f"{rate:,.0f} tokens/s while requests wait, below {by.limits.min_throughput:.0%} of the "
        f"peak of {peak:,g}"
    )
    action = "Look for preemptions, long prompts, and a GPU that throttles."
    return [_found("ThroughputBelowPeak", Severity.WARNING, told, action)]


def _prefix(r: Reading, by: Judge) -> list[Finding]:
    if r.prefix_hits is None or not r.running or r.prefix_hits >= by.limits.min_prefix_hits:
        return []
    told = f"{r.prefix_hits:.1%} of prompt tokens found in the prefix cache, {r.basis}"
    action = "Put what prompts share at their front; ignore it where they share nothing."
    return [_found("PrefixCacheHitsLow", Severity.INFO, told, action)]


def _drift(r: Reading, by: Judge) -> list[Finding]:
    plan = by.plan
    if plan is None or plan.engine not in by.metrics.plan_engines:
        return []
    found = []
    for figure, running, planned in (
        ("blocks", r.pool_blocks, plan.pool_blocks),
        ("tokens", r.pool_tokens, plan.pool_tokens),
    ):
        if running is None or planned is None:
            continue
        low, high = plan.tolerated(planned, by.limits.max_plan_drift)
        if not low <= running <= high:
            found.append(
                f"{running:,} {figure}, planned {planned:,} ({low:,} to {high:,} tolerated)"
            )
    if not found:
        return []
    action = "Other flags, another version or a fuller GPU than planned."
    if plan.flags:
        action += f" The plan starts it with: {' '.join(plan.flags)}"
    return [_found("PlanDrift", Severity.WARNING, "KV pool: " + "; ".join(found), action)]
