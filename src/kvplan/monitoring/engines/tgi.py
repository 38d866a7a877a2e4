"""The metrics of Hugging Face's text-generation-inference, which is in maintenance.

Read in its ``docs/source/reference/metrics.md`` and router (2026-01).
"""

from __future__ import annotations

from kvplan.monitoring.engines._versions import no_version
from kvplan.monitoring.series import Histogram, Metrics, Series

EDGES = tuple(0.0001 * 1.5**k for k in range(1, 36))
"""All duration histograms share them: 0.15 ms to 146 s."""


def metrics(version: str | None) -> Metrics:
    """What TGI exports: no KV gauge, no time to first token, no model label."""
    no_version("tgi", version, "2026-01")
    return Metrics(
        engine="tgi",
        plan_engines=("tgi",),
        title="text-generation-inference (2026-01)",
        source="docs/source/reference/metrics.md",
        running=Series("tgi_batch_current_size"),
        waiting=Series("tgi_queue_size"),
        prompt_tokens=Series("tgi_request_input_length_sum"),
        generation_tokens=Series("tgi_request_generated_tokens_sum"),
        tpot=Histogram(
            "tgi_request_mean_time_per_token_duration", EDGES, "requests (their mean gap)"
        ),
        absent=(
            ("KV use", "not exported; tgi_batch_current_max_tokens is the batch's budget"),
            (
                "time to first token",
                "not exported; tgi_request_queue_duration and the prefill part of "
                "tgi_batch_inference_duration lie nearest, but two histograms do not add up to one",
            ),
            ("preemptions", "not exported"),
            ("prefix-cache hits", "not exported"),
            ("the pool's size", "not exported"),
        ),
    )
