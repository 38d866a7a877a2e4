"""TensorRT-LLM's metrics from ``trtllm-serve``, at ``/prometheus/metrics``.

Read in ``tensorrt_llm/metrics/collector.py`` of 2026 (commit 050f80de).
"""

from __future__ import annotations

from kvplan.monitoring.engines._versions import no_version
from kvplan.monitoring.engines.vllm import TPOT_EDGES, TTFT_EDGES
from kvplan.monitoring.series import Histogram, Metrics, Series


def metrics(version: str | None) -> Metrics:
    """What trtllm-serve exports; its edges are vLLM's."""
    no_version("tensorrt-llm", version, "2026")
    return Metrics(
        engine="tensorrt-llm",
        plan_engines=("tensorrt-llm",),
        title="TensorRT-LLM (trtllm-serve, 2026)",
        source="tensorrt_llm/metrics/collector.py",
        kv_use=Series("trtllm_kv_cache_utilization"),
        running=Series("trtllm_num_requests_running"),
        waiting=Series("trtllm_num_requests_waiting"),
        preempted=Series("trtllm_num_paused_requests"),
        prompt_tokens=Series("trtllm_prompt_tokens_total"),
        generation_tokens=Series("trtllm_generation_tokens_total"),
        prefix_hit_rate=Series("trtllm_kv_cache_hit_rate"),
        ttft=Histogram(
            "trtllm_time_to_first_token_seconds", TTFT_EDGES, "requests",
            option="prometheus_metrics_config: {time_to_first_token_buckets: [{edges}]}",
        ),
        tpot=Histogram(
            "trtllm_time_per_output_token_seconds", TPOT_EDGES, "requests (their mean gap)",
            option="prometheus_metrics_config: {time_per_output_token_buckets: [{edges}]}",
        ),
        pool_blocks=Series("trtllm_kv_cache_max_blocks"),
        memory=(("all", Series("trtllm_gpu_memory_usage_bytes")),),
        group=("instance", "model_name"),
        model_label="model_name",
        path="/prometheus/metrics",
        absent=(
            ("a preemption counter", "TensorRT-LLM exports the requests paused just now"),
            ("the reason for waiting", "TensorRT-LLM does not tell; a full pool stands in"),
        ),
        notes=("Under Dynamo the prefix was trtllm: before it became trtllm_.",),
    )  # fmt: skip
