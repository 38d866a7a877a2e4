"""The result of ``vllm bench serve --save-result``, a flat JSON object, and the peak in it.

No engine exports its peak, so a benchmark of the same server gives it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from kvplan.errors import MalformedFile

_NEEDED = ("output_throughput", "request_throughput")


def is_bench(document: Mapping[str, Any]) -> bool:
    """Whether a document is such a result. Source: vLLM ``vllm/benchmarks/serve.py``."""
    return all(isinstance(document.get(key), (int, float)) for key in _NEEDED)


def bench_figures(document: Mapping[str, Any]) -> dict[str, float]:
    """Its finite single figures by name."""
    return {
        name: float(value)
        for name, value in document.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    }


def peak_from(path: str) -> float:
    """Tokens a second that the server gave over the whole of a ``vllm bench serve`` run.

    ``output_throughput``, the mean of a saturated run, and not ``max_output_tokens_per_s``, its
    best second: a five-minute mean of a healthy server stays below 80 % of that one.
    """
    from kvplan.evaluation_files import read_large_json

    document = read_large_json(path)
    if not isinstance(document, dict) or not is_bench(document):
        raise MalformedFile(
            path,
            "is not a result of vllm bench serve: it has no output_throughput",
            hint="Write one with: vllm bench serve ... --save-result",
        )
    peak = bench_figures(document).get("output_throughput", 0.0)
    if peak <= 0:
        raise MalformedFile(path, "output_throughput is not above 0: did every request fail?")
    return peak
