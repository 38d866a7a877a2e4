"""The recording rules: one name for one figure, whatever the engine calls it."""

from __future__ import annotations

from typing import Any

from kvplan.monitoring.promql import equals, number
from kvplan.monitoring.rule_question import Question
from kvplan.monitoring.series import Series

KV_USE = "kvplan:kv_use:ratio"
KV_SHARE_OF_GPU = "kvplan:kv_share_of_gpu:ratio"
RUNNING = "kvplan:requests_running:sum"
WAITING = "kvplan:requests_waiting:sum"
WAITING_FOR_KV = "kvplan:requests_waiting_for_kv:sum"
PREEMPTED = "kvplan:requests_preempted:sum"
GPU_MEMORY = "kvplan:gpu_memory_used:bytes"
GPU_USE = "kvplan:gpu_use:ratio"
PEAK = "kvplan:peak_tokens_per_s"
PLAN_TOKENS = "kvplan:plan_pool_tokens"
PLAN_CLAIM = "kvplan:plan_claim_bytes"


def records(q: Question) -> list[dict[str, Any]]:
    """Every record that this engine's metrics allow."""
    made: list[dict[str, Any]] = []

    def record(name: str, expr: str, **labels: str) -> None:
        made.append({"record": name, "expr": expr, **({"labels": labels} if labels else {})})

    def whole(name: str, function: str, series: Series | None) -> None:
        if series is not None:
            record(name, f"{function} by ({q.by}) ({series.select(q.job)})")

    def rate(name: str, series: Series | None) -> None:
        if series is not None:
            inner = f"rate({series.select(q.job)}[{q.options.window}])"
            record(q.windowed(name), f"sum by ({q.by}) ({inner})")

    m, plan = q.metrics, q.plan
    whole(KV_USE, "max", m.kv_use)
    if m.kv_use is not None and plan and q.same_engine and plan.pool_bytes and plan.usable_bytes:
        record(KV_SHARE_OF_GPU, f"{KV_USE}{{{q.job}}} * {plan.pool_bytes} / {plan.usable_bytes}")
    whole(RUNNING, "sum", m.running)
    whole(WAITING, "sum", m.waiting)
    whole(WAITING_FOR_KV, "sum", m.waiting_for_kv)
    whole(PREEMPTED, "sum", m.preempted)
    rate("preemptions:rate", m.preemptions)
    rate("prompt_tokens:rate", m.prompt_tokens)
    rate("generation_tokens:rate", m.generation_tokens)
    if m.prefix_hits is not None and m.prefix_queries is not None:
        window = q.options.window
        hits = f"sum by ({q.by}) (rate({m.prefix_hits.select(q.job)}[{window}]))"
        asked = f"sum by ({q.by}) (rate({m.prefix_queries.select(q.job)}[{window}]))"
        record(q.windowed("prefix_hits:ratio"), f"{hits} / ({asked} > 0)")
    elif m.prefix_hit_rate is not None:
        record(
            q.windowed("prefix_hits:ratio"), f"avg by ({q.by}) ({m.prefix_hit_rate.select(q.job)})"
        )
    for which in ("ttft", "tpot"):
        judged = q.judged(which)
        if judged is not None:
            expr = judged.share_above(q.by, q.options.window, q.job)
            record(q.windowed(f"{which}_above_edge:ratio"), expr, edge_seconds=f"{judged.edge:.6g}")
    _record_gpu(q, record)
    if q.options.peak_tokens_per_s is not None:
        record(PEAK, f"vector({number(q.options.peak_tokens_per_s)})", job=q.options.job)
    if plan and q.same_engine and plan.pool_tokens:
        record(PLAN_TOKENS, f"vector({plan.pool_tokens})", job=q.options.job)
    if plan and q.same_engine and plan.claim_bytes:
        record(PLAN_CLAIM, f"vector({plan.claim_bytes})", job=q.options.job)
    return made


def _record_gpu(q: Question, record: Any) -> None:
    exporter = q.options.exporter
    if exporter is None:
        return
    job = equals("job", q.options.exporter_job)
    labels = f"job, instance, {exporter.gpu_label}"
    record(GPU_MEMORY, f"max by ({labels}) ({exporter.used_bytes.select(job)})")
    over = q.options.host_label or "job"
    record(GPU_USE, f"avg by ({over}) ({exporter.use.select(job)})")
