"""NVIDIA Dynamo's own metrics: a frontend for latencies, workers for the cache.

Read in ``docs/observability/metrics.md``, ``DASHBOARD_METRICS.md`` and ``lib/llm/src/http/service/
metrics.rs`` (2026). Its engines export theirs as well: for those take their rules beside these.
"""

from __future__ import annotations

from kvplan.monitoring.engines._versions import no_version
from kvplan.monitoring.series import Histogram, Metrics, Series


def log_edges(low: float, high: float, count: int) -> tuple[float, ...]:
    """Edges spaced evenly in the logarithm, to two significant figures; the first is 0."""
    ratio = (high / low) ** (1 / (count - 1))
    return (0.0, *(float(f"{low * ratio**k:.2g}") for k in range(1, count)))


def metrics(version: str | None) -> Metrics:
    """What the frontend and the decode workers export."""
    no_version("dynamo", version, "2026")
    return Metrics(
        engine="dynamo",
        plan_engines=("vllm", "sglang", "tensorrt-llm"),
        title="Dynamo (2026)",
        source="docs/observability/metrics.md",
        kv_use=Series("dynamo_component_gpu_cache_usage_percent"),
        running=Series("dynamo_frontend_inflight_requests"),
        waiting=Series("dynamo_frontend_queued_requests"),
        prompt_tokens=Series("dynamo_frontend_input_sequence_tokens_sum"),
        generation_tokens=Series("dynamo_frontend_output_sequence_tokens_sum"),
        ttft=Histogram(
            "dynamo_frontend_time_to_first_token_seconds", log_edges(0.001, 480.0, 18), "requests",
            option=None,
        ),
        tpot=Histogram(
            "dynamo_frontend_inter_token_latency_seconds", log_edges(0.001, 2.0, 13),
            "gaps between tokens", option=None,
        ),
        pool_blocks=Series("dynamo_component_total_blocks"),
        group=(),
        absent=(
            ("preemptions", "the workers' engines export them"),
            ("prefix-cache hits", "the workers' engines export them"),
            ("the reason for waiting", "not exported; a full pool stands in"),
        ),
        notes=(
            "The queue is the frontend's and the cache the workers': they are joined by job, so "
            "scrape both under one.",
            "Only decode workers export the cache; the usage runs from 0 to 1 despite its name.",
            "Its edges are computed from DYN_METRICS_TTFT_{MIN,MAX,COUNT} and DYN_METRICS_ITL_*; "
            "these rules count with the defaults, and no setting puts one edge at will.",
        ),
    )  # fmt: skip
