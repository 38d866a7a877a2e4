"""vLLM's metrics, by version.

Read in ``vllm/engine/metrics.py`` (V0) and ``vllm/v1/metrics/loggers.py`` (V1) of the released
packages 0.6.6, 0.7.3, 0.8.5, 0.9.2, 0.10.2, 0.11.0, 0.15.0, 0.17.0, 0.19.0, 0.20.0, 0.22.0, 0.24.0
to 0.30.0 and 0.33.0. A change that falls between two of them is put at the later one. Counters are
registered without ``_total`` and scraped with it.
"""

from __future__ import annotations

from kvplan.engines.vllm.versions import parse, said
from kvplan.monitoring.series import Histogram, Metrics, PoolInfo, Series

_NEW_KV_NAMES = (0, 11)
"""``gpu_cache_usage_perc`` and ``gpu_prefix_cache_*``: deprecated in 0.9, hidden from 0.11.0. Until
0.10 both engines still export them, and V0 exports nothing else, so they serve that far."""
_GAPS = (0, 11)
"""``time_per_output_token_seconds`` to 0.10, ``inter_token_latency_seconds`` after it."""
_PREFIX_COUNTERS = (0, 8)
"""V1's counters; V0 (0.6, 0.7) has a gauge, ``gpu_prefix_cache_hit_rate``."""
_REASONS = (0, 20)
_TOKENS_IN_INFO = (0, 24)
_CUSTOM_EDGES = (0, 33)

TTFT_EDGES = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
TPOT_EDGES = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
)  # fmt: skip


def metrics(version: str | None) -> Metrics:
    """What vLLM of this version exports."""
    v = parse(version)
    new = v >= _NEW_KV_NAMES
    prefix = "prefix_cache" if new else "gpu_prefix_cache"
    counters = v >= _PREFIX_COUNTERS
    absent = [("GPU memory", "vLLM exports none: take an exporter's")]
    if v < _REASONS:
        absent.append(
            (
                "the reason for waiting",
                f"vLLM exports it from {said(_REASONS)}; a full pool stands in",
            )
        )
    return Metrics(
        engine="vllm",
        plan_engines=("vllm",),
        title=f"vLLM {said(v)}",
        source="vllm/v1/metrics/loggers.py" if counters else "vllm/engine/metrics.py",
        kv_use=Series("vllm:kv_cache_usage_perc" if new else "vllm:gpu_cache_usage_perc"),
        running=Series("vllm:num_requests_running"),
        waiting=Series("vllm:num_requests_waiting"),
        waiting_for_kv=Series("vllm:num_requests_waiting_by_reason", (("reason", "capacity"),))
        if v >= _REASONS
        else None,
        preemptions=Series("vllm:num_preemptions_total"),
        prompt_tokens=Series("vllm:prompt_tokens_total"),
        generation_tokens=Series("vllm:generation_tokens_total"),
        prefix_hits=Series(f"vllm:{prefix}_hits_total") if counters else None,
        prefix_queries=Series(f"vllm:{prefix}_queries_total") if counters else None,
        prefix_hit_rate=None if counters else Series("vllm:gpu_prefix_cache_hit_rate"),
        ttft=Histogram(
            "vllm:time_to_first_token_seconds",
            TTFT_EDGES,
            "requests",
            option=_option("time_to_first_token") if v >= _CUSTOM_EDGES else None,
        ),
        tpot=Histogram(
            f"vllm:{'inter_token_latency' if v >= _GAPS else 'time_per_output_token'}_seconds",
            TPOT_EDGES,
            "gaps between tokens",
            option=_option("inter_token_latency") if v >= _CUSTOM_EDGES else None,
        ),
        pool_info=PoolInfo(
            "vllm:cache_config_info",
            blocks="num_gpu_blocks",
            tokens="kv_cache_size_tokens" if v >= _TOKENS_IN_INFO else None,
        ),
        group=("instance", "model_name"),
        model_label="model_name",
        absent=tuple(absent),
    )


def _option(family: str) -> str:
    """The list replaces the family's own. Source: ``vllm/config/observability.py`` of 0.33.0."""
    return f"--custom-histogram-buckets '{{\"{family}\": [{{edges}}]}}'"
