"""The metric names of each engine, as data: one module an engine, its name what ``--engine`` takes.

Each has a function ``metrics(version)``; ``version`` is None for the newest known.
"""

from __future__ import annotations

import os
from importlib import import_module

from kvplan.errors import InputError, nearest_names
from kvplan.monitoring.series import Metrics

ALIASES = {
    "trtllm": "tensorrt-llm",
    "trtllm-serve": "tensorrt-llm",
    "tensorrt-llm-triton": "triton",
    "llama.cpp": "llamacpp",
    "llama-server": "llamacpp",
    "text-generation-inference": "tgi",
}


def engine_names() -> list[str]:
    """The engines whose metrics are known."""
    folder = os.path.dirname(os.path.abspath(__file__))
    stems = {name.removesuffix(".py") for name in os.listdir(folder) if not name.startswith("_")}
    return sorted(stem.replace("_", "-") for stem in stems)


def split_engine(text: str) -> tuple[str, str | None]:
    """Name and version of ``vllm@0.20``; the version is None where it is left out."""
    name, _, version = text.strip().lower().partition("@")
    name = ALIASES.get(name, name)
    known = engine_names()
    if name not in known:
        raise InputError(
            f"--engine {text!r}: kvplan does not know the metrics of this engine",
            hint=f"It knows those of: {', '.join(nearest_names(name, known) or known)}.",
        )
    return name, version or None


def load_metrics(text: str) -> Metrics:
    """What ``--engine NAME[@VERSION]`` exports."""
    name, version = split_engine(text)
    module = import_module(f"{__name__}.{name.replace('-', '_')}")
    metrics: Metrics = module.metrics(version)
    return metrics
