"""Alerts on the GPU and the plan: memory, drift, offload, and exporters that went silent."""

from __future__ import annotations

from kvplan.monitoring import records as names
from kvplan.monitoring.advice import more_room
from kvplan.monitoring.alert_writer import PERCENT, Writer, and_with, near_full
from kvplan.monitoring.promql import differs, equals, matches, select, whole_numbers
from kvplan.units import format_gib


def _memory(w: Writer) -> None:
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


def _drift(w: Writer) -> None:
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


def _offload(w: Writer) -> None:
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
        expr = near_full(w) + and_with(w, f"{waiting}{{{w.q.job}}} > 0") + f" and on () {use}"
    w.alert(
        "OffloadWorthTrying",
        "info",
        expr,
        "10m",
        f"{w.who}: {PERCENT} of the KV pool in use and requests waiting for it, while GPUs are "
        f"used less than {limits.offload_below_gpu_use:.0%}",
        action="Memory limits, not arithmetic: offload KV to the host (vLLM: "
        "--kv-offloading-size), or take a narrower KV format. " + more_room(w.q.plan),
    )


def _down(w: Writer) -> None:
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


PLAN_ALERTS = (_memory, _drift, _offload, _down)
