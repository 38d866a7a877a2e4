"""What a real start-up measured, as plain data: observed in a log, and kept to correct later plans.

A calibration corrects the measured laws of one GPU and engine. Rules that are exact (bytes of a
block, blocks of a sequence) are never touched by it. How it is applied is in `planning.correction`,
how a file of it is read in `calibration.schema`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

SCHEMA = "kvplan.calibration/1"


class Observed(NamedTuple):
    """What one start-up printed; sizes in bytes on one GPU, None where no line says.

    With several workers it is the one with the least KV cache, which decides for all.
    """

    model: str | None = None
    """A hub id; never a path."""
    flags: dict[str, Any] = {}  # noqa: RUF012  (never changed)
    """Flags of the question that the log answers, by name: tp, max_model_len, engine…"""
    workers: int = 1
    device_bytes: int | None = None
    free_bytes: int | None = None
    """Free when the engine took its baseline."""
    claim_bytes: int | None = None
    weight_bytes: int | None = None
    runtime_bytes: int | None = None
    activation_bytes: int | None = None
    activation_holds_graphs: bool = False
    """The figure may contain the estimate of the graphs, which no line states by itself."""
    graph_estimate_bytes: int | None = None
    """Taken from the pool before capture."""
    graph_bytes: int | None = None
    """As captured; negative where capture freed memory."""
    pool_bytes: int | None = None
    pool_blocks: int | None = None
    pool_tokens: int | None = None
    max_concurrency: float | None = None
    needed_bytes: int | None = None
    """KV of one sequence of max_model_len, where the engine refused to start for it."""
    longest: int | None = None
    """The longest length that it said would start."""
    cold_compile: bool = False
    """Kernels were compiled in this start, which some versions charge as activation."""


class Measured(NamedTuple):
    """One law's correction: observed over predicted, and the two figures."""

    ratio: float
    observed_bytes: int
    predicted_bytes: int


class Calibration(NamedTuple):
    """Corrections from one start-up, for one GPU and engine."""

    gpu: str
    engine: str
    engine_version: str
    model: str
    weight_format: str
    tp: int
    pp: int
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    device_bytes: int | None = None
    weights: Measured | None = None
    activation: Measured | None = None
    cuda_graph: Measured | None = None
    runtime_bytes: int | None = None
