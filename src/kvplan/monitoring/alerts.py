"""The alerts: what is wrong, how bad it is, and what to do about it from the plan's own options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvplan.monitoring import records as names
from kvplan.monitoring.advice import more_room, runbook_link
from kvplan.monitoring.latency import ms
from kvplan.monitoring.promql import as_text, differs, equals, matches, select, whole_numbers
from kvplan.monitoring.rule_question import Question
from kvplan.units import format_gib

Rules = list[dict[str, Any]]
_PERCENT = "{{ $value | humanizePercentage }}"
_NUMBER = "{{ $value | humanize }}"

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


class _Writer:
    """Collects the alerts that can be written and the reasons why others cannot."""

    def __init__(self, question: Question) -> None:
        self.q = question
        self.made: Rules = []
        self.left_out: list[str] = []
        self.who = (
            "{{ $labels.instance }}"
            if "instance" in question.metrics.group
            else "{{ $labels.job }}"
        )

    def alert(
        self, name: str, severity: str, expr: str, hold: str, summary: str, *, action: str
    ) -> None:
        annotations = {
            "summary": summary,
            "action": as_text(action),
            "runbook_url": runbook_link(name, self.q.options.runbook),
        }
        if self.q.plan is not None:
            annotations["plan"] = as_text(self.q.plan.words())
        self.made.append(
            {
                "alert": name,
                "expr": expr,
                "for": hold,
                "labels": {"severity": severity, "engine": self.q.metrics.engine},
                "annotations": annotations,
            }
        )

    def omit(self, name: str, why: str) -> None:
        self.left_out.append(f"{name}: {why}")


def alerts(question: Question) -> tuple[Rules, list[str]]:
    """Every alert that the metrics, the plan and the options allow, and why the others are not."""
    writer = _Writer(question)
    steps: tuple[Callable[[_Writer], None], ...] = (
        _pool, _preemptions, _waiting, _latencies, _throughput, _prefix, _memory, _drift, _offload,
        _down,
    )  # fmt: skip
    for step in steps:
        step(writer)
    return writer.made, writer.left_out


def _near_full(w: _Writer) -> str:
    return f"{names.KV_USE}{{{w.q.job}}} > {w.q.policy.monitoring.near_full:g}"


def _with(w: _Writer, condition: str) -> str:
    return f" and on ({w.q.by}) {condition}"


def _pool(w: _Writer) -> None:
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
        f"{w.who}: {_PERCENT} of the KV pool in use{of}, warning above {limits.max_pool_use:.0%}",
        action="Normal on a saturated server; look at the queue before anything else. "
        + more_room(plan),
    )
    if w.q.metrics.waiting is None:
        w.omit("KvPoolNearlyFull", "the engine exports no queue")
        return
    w.alert(
        "KvPoolNearlyFull",
        "critical",
        _near_full(w) + _with(w, f"{names.WAITING}{{{w.q.job}}} > 0"),
        "5m",
        f"{w.who}: {_PERCENT} of the KV pool in use{of} while requests wait, "
        f"critical above {limits.near_full:.0%}",
        action=more_room(plan),
    )


def _preemptions(w: _Writer) -> None:
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
        "KvPreemptions", "warning", expr, "2m", f"{w.who}: {_NUMBER} {unit}",
        action=more_room(w.q.plan),
    )  # fmt: skip


def _waiting(w: _Writer) -> None:
    if w.q.metrics.waiting is None:
        w.omit("RequestsWaiting", "the engine exports no queue")
        return
    w.alert(
        "RequestsWaiting",
        "warning",
        f"{names.WAITING}{{{w.q.job}}} > 0",
        "10m",
        f"{w.who}: {_NUMBER} requests waiting for 10 minutes",
        action="A full pool: " + more_room(w.q.plan) + " A pool with room: raise max_num_seqs.",
    )


def _latencies(w: _Writer) -> None:
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
            f"{w.who}: {_PERCENT} of {judged.histogram.counts} above {ms(judged.edge)} {label} "
            f"(target {ms(judged.target)}{edge}; {(1 - share) * 100:.3g}% of them may be)",
            action=judged.words() + (
                " Shorten the queue or the prompts (prefix caching, chunked prefill)."
                if which == "ttft"
                else " Fewer sequences at once, narrower weights, or more tensor parallelism."
            ),
        )  # fmt: skip


def _throughput(w: _Writer) -> None:
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
            + _with(w, f"{names.WAITING}{{{w.q.job}}} > 0"),
            "10m",
            f"{w.who}: {_NUMBER} tokens/s while requests wait, below {limit:.0%} of the peak of "
            f"{peak:,g} tokens/s",
            action="Look for preemptions, long prompts that crowd out decoding, and a GPU that "
            "throttles.",
        )


def _prefix(w: _Writer) -> None:
    m, least = w.q.metrics, w.q.policy.monitoring.min_prefix_hits
    if m.prefix_hit_rate is None and (m.prefix_hits is None or m.prefix_queries is None):
        w.omit("PrefixCacheHitsLow", "the engine exports no prefix-cache hits")
        return
    hits = f"{w.q.windowed('prefix_hits:ratio')}{{{w.q.job}}} < {least:g}"
    busy = f"{names.RUNNING}{{{w.q.job}}} > 0"
    w.alert(
        "PrefixCacheHitsLow",
        "info",
        hits + (_with(w, busy) if m.running is not None else ""),
        "30m",
        f"{w.who}: {_PERCENT} of prompt tokens found in the prefix cache, expected {least:.0%}",
        action="Put what prompts share at their front and route a user to the same replica; "
        "ignore it where prompts share nothing.",
    )


def _memory(w: _Writer) -> None:
    plan, exporter = w.q.plan, w.q.options.exporter
    if exporter is None:
        w.omit("GpuMemoryAbovePlan, GpuExporterDown", "no --exporter was named")
        return
    if plan is None or not w.q.same_engine or plan.claim_bytes is None or plan.device_bytes is None:
        w.omit("GpuMemoryAbovePlan", "there is no plan of this engine that states its claim")
        return
    allowance = int(plan.device_bytes * w.q.policy.monitoring.max_memory_over_plan)
    w.alert(
        "GpuMemoryAbovePlan",
        "warning",
        f"{names.GPU_MEMORY}{{{equals('job', w.q.options.exporter_job)}}} "
        f"> {plan.claim_bytes + allowance}",
        "10m",
        f"GPU {{{{ $labels.{exporter.gpu_label} }}}} on {{{{ $labels.instance }}}}: "
        "{{ $value | humanize1024 }}B used, "
        f"above the plan's claim of {format_gib(plan.claim_bytes)} plus {format_gib(allowance)}",
        action="Another process holds memory on this GPU, or the engine claims more than planned: "
        "compare nvidia-smi with the engine's flags, then plan with --reserve.",
    )


def _drift(w: _Writer) -> None:
    plan, m = w.q.plan, w.q.metrics
    if plan is None:
        w.omit("PlanDrift", "no plan was given")
        return
    if not w.q.same_engine:
        w.omit("PlanDrift", f"the plan is for engine {plan.engine}, whose pool is not this one's")
        return
    drift = w.q.policy.monitoring.max_plan_drift
    conditions, tolerated = [], []
    for figure, planned, series, label in (
        ("blocks", plan.pool_blocks, m.pool_blocks, m.pool_info and m.pool_info.blocks),
        ("tokens", plan.pool_tokens, m.pool_tokens, m.pool_info and m.pool_info.tokens),
    ):
        if planned is None or (series is None and label is None):
            continue
        low, high = plan.tolerated(planned, drift)
        tolerated.append(f"{planned:,} {figure} ({low:,} to {high:,} tolerated)")
        if series is not None:
            value = f"max by ({w.q.by}) ({series.select(w.q.job)})"
            conditions += [f"{value} < {low}", f"{value} > {high}"]
        elif label is not None and m.pool_info is not None:
            kept = [m.pool_info.blocks, *([m.pool_info.tokens] if m.pool_info.tokens else [])]
            number = matches(label, "[0-9]+"), differs(label, whole_numbers(low, high))
            conditions.append(
                f"max by (job, instance, {', '.join(kept)}) "
                f"({select(m.pool_info.name, w.q.job, *number)})"
            )
    if not conditions:
        w.omit("PlanDrift", "the engine exports no size of its pool, or the plan has none")
        return
    shown = "{{ $value | humanize }} in the pool"
    if m.pool_info is not None:
        shown = f"{{{{ $labels.{m.pool_info.blocks} }}}} KV blocks"
        if m.pool_info.tokens:
            shown += f" or {{{{ $labels.{m.pool_info.tokens} }}}} tokens"
    w.alert(
        "PlanDrift",
        "warning",
        " or ".join(conditions),
        "5m",
        f"{w.who}: {shown}, where the plan has {' and '.join(tolerated)}",
        action="The engine runs with other flags, another version or a fuller GPU than planned: "
        + (f"start it with: {' '.join(plan.flags)}" if plan.flags else "compare its flags."),
    )


def _offload(w: _Writer) -> None:
    m, options, limits = w.q.metrics, w.q.options, w.q.policy.monitoring
    if options.exporter is None or m.kv_use is None or m.waiting is None:
        why = "no --exporter was named" if options.exporter is None else "there is no KV use"
        w.omit("OffloadWorthTrying", why)
        return
    waiting = names.WAITING if m.waiting_for_kv is None else names.WAITING_FOR_KV
    host = options.host_label
    use = f"{names.GPU_USE}{{}} < {limits.offload_below_gpu_use:g}"
    use = use.replace("{}", "" if host else f"{{{equals('job', options.exporter_job)}}}")
    if host:
        by = f"{w.q.by}, {host}"
        near = f"max by ({by}) ({m.kv_use.select(w.q.job)}) > {limits.near_full:g}"
        series = m.waiting_for_kv or m.waiting
        queue = f"sum by ({by}) ({series.select(w.q.job)}) > 0"
        expr = f"{near} and on ({by}) {queue} and on ({host}) {use}"
    else:
        expr = _near_full(w) + _with(w, f"{waiting}{{{w.q.job}}} > 0") + f" and on () {use}"
    w.alert(
        "OffloadWorthTrying",
        "info",
        expr,
        "10m",
        f"{w.who}: {_PERCENT} of the KV pool in use and requests waiting for it, while GPUs are "
        f"used less than {limits.offload_below_gpu_use:.0%}",
        action="Memory limits, not arithmetic: offload KV to the host (vLLM: "
        "--kv-offloading-size), or take a narrower KV format. " + more_room(w.q.plan),
    )


def _down(w: _Writer) -> None:
    job = w.q.options.job
    w.alert(
        "EngineDown",
        "critical",
        f"up{{{equals('job', job)}}} == 0 or absent(up{{{equals('job', job)}}})",
        "1m",
        "{{ $labels.job }} {{ $labels.instance }}: no metrics page for 1 minute",
        action="The engine is down, still loading, or started without its metrics. "
        "An out-of-memory kill shows in the engine's log: compare it with kvplan fit.",
    )
    exporter = w.q.options.exporter
    if exporter is None:
        return
    up = equals("job", w.q.options.exporter_job)
    expr = f"up{{{up}}} == 0 or absent(up{{{up}}})"
    if exporter.collected is not None:
        expr += f" or {exporter.collected.select(up)} == 0"
    w.alert(
        "GpuExporterDown",
        "warning",
        expr,
        "5m",
        f"{exporter.title} {{{{ $labels.instance }}}}: no GPU figures for 5 minutes",
        action="Restart the exporter; GPU memory and GPU use are not watched meanwhile.",
    )
