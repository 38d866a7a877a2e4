"""SGLang's metrics, which need ``--enable-metrics``.

Read in ``sglang/srt/observability/metrics_collector.py`` of the released package 0.5.23.
"""

from __future__ import annotations

from kvplan.monitoring.engines._versions import series_only
from kvplan.monitoring.series import Histogram, Metrics, Series

TTFT_EDGES = (
    0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0,
    400.0,
)  # fmt: skip
TPOT_EDGES = (
    0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2,
    0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0,
)  # fmt: skip
_GB = 2.0**30
"""The collector's "GB" are ``bytes / (1 << 30)``."""


def metrics(version: str | None) -> Metrics:
    """What SGLang exports; its names are known for the 0.5 series."""
    notes = series_only("sglang", version, "0.5", "0.5.23")
    return Metrics(
        engine="sglang",
        plan_engines=("sglang",),
        title=f"SGLang {version or '0.5.23'}",
        source="sglang/srt/observability/metrics_collector.py",
        kv_use=Series("sglang:token_usage"),
        running=Series("sglang:num_running_reqs"),
        waiting=Series("sglang:num_queue_reqs"),
        preemptions=Series("sglang:num_retracted_requests_total"),
        prompt_tokens=Series("sglang:prompt_tokens_total"),
        generation_tokens=Series("sglang:generation_tokens_total"),
        prefix_hit_rate=Series("sglang:cache_hit_rate"),
        ttft=Histogram(
            "sglang:time_to_first_token_seconds", TTFT_EDGES, "requests",
            option="--bucket-time-to-first-token {edges}", joiner=" ",
        ),
        tpot=Histogram(
            "sglang:inter_token_latency_seconds", TPOT_EDGES, "gaps between tokens",
            option="--bucket-inter-token-latency {edges}", joiner=" ",
        ),
        pool_blocks=Series("sglang:num_pages"),
        pool_tokens=Series("sglang:max_total_num_tokens"),
        memory=(
            ("weights", Series("sglang:weight_memory_usage_gb", scale=_GB)),
            ("KV pool", Series("sglang:kv_cache_memory_usage_gb", scale=_GB)),
            ("graphs", Series("sglang:graph_memory_usage_gb", scale=_GB)),
        ),
        group=("instance", "model_name"),
        model_label="model_name",
        absent=(("the reason for waiting", "SGLang does not tell; a full pool stands in"),),
        notes=("SGLang exports metrics only with --enable-metrics.", *notes),
    )  # fmt: skip
