"""The metrics of llama.cpp's server, which need ``--metrics``.

Read in ``tools/server/README.md`` (2026-05). Its KV gauges were removed in May 2025 (pull request
13660), and no request since has brought one back.
"""

from __future__ import annotations

from kvplan.monitoring.engines._versions import no_version
from kvplan.monitoring.series import Metrics, Series


def metrics(version: str | None) -> Metrics:
    """What llama-server exports: slots and token counters."""
    no_version("llamacpp", version, "2026-05")
    return Metrics(
        engine="llamacpp",
        plan_engines=("llamacpp",),
        title="llama.cpp server (2026-05)",
        source="tools/server/README.md",
        running=Series("llamacpp:requests_processing"),
        waiting=Series("llamacpp:requests_deferred"),
        prompt_tokens=Series("llamacpp:prompt_tokens_total"),
        generation_tokens=Series("llamacpp:tokens_predicted_total"),
        absent=(
            ("KV use", "removed in May 2025; llamacpp:n_past_max is the longest context seen"),
            ("time to first token", "not exported"),
            ("time per output token", "only a mean: llamacpp:predicted_tokens_seconds"),
            ("preemptions", "a slot keeps its context: there are none"),
            ("prefix-cache hits", "not exported"),
            ("the pool's size", "not exported; the log prints it at start"),
        ),
        notes=("llama-server exports metrics only with --metrics.",),
    )
