"""TensorRT-LLM's metrics behind Triton.

Read in the README of triton-inference-server/tensorrtllm_backend (2026-07). One name carries many
figures, told apart by a label.
"""

from __future__ import annotations

from kvplan.monitoring.engines._versions import no_version
from kvplan.monitoring.series import Metrics, Series


def _requests(kind: str) -> Series:
    return Series("nv_trt_llm_request_metrics", (("request_type", kind),))


def _blocks(kind: str) -> Series:
    return Series("nv_trt_llm_kv_cache_block_metrics", (("kv_cache_block_type", kind),))


def metrics(version: str | None) -> Metrics:
    """What the backend exports: gauges of the batcher, no latencies and no token counters."""
    no_version("triton", version, "2026-07")
    return Metrics(
        engine="triton",
        plan_engines=("tensorrt-llm",),
        title="Triton with the TensorRT-LLM backend (2026-07)",
        source="README of triton-inference-server/tensorrtllm_backend",
        kv_use=_blocks("fraction"),
        running=_requests("active"),
        waiting=_requests("waiting"),
        pool_blocks=_blocks("max"),
        group=("instance", "model"),
        model_label="model",
        absent=(
            ("time to first token", "not exported; trtllm-serve has it"),
            ("time per output token", "not exported; trtllm-serve has it"),
            ("throughput", "no token counter is exported"),
            ("preemptions", "not exported"),
            ("prefix-cache hits", "not exported"),
            ("the reason for waiting", "not exported; a full pool stands in"),
        ),
    )
