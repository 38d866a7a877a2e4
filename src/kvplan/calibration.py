"""What a real start-up measured, as plain data: observed in a log, and kept to correct later plans.

A calibration corrects the measured laws of one GPU and engine. Rules that are exact (bytes of a
block, blocks of a sequence) are never touched by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kvplan.units import cdiv

if TYPE_CHECKING:
    from kvplan.deployment import Deployment
    from kvplan.engines.base import Term

SCHEMA = "kvplan.calibration/1"


class Settings(NamedTuple):
    """What a log states of the engine's configuration; None where it says nothing."""

    version: str | None = None
    model: str | None = None
    """A hub id, or the last part of a path."""
    model_is_path: bool = False
    max_model_len: int | None = None
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    gpu_memory_utilization: float | None = None
    block_size: int | None = None
    kv_cache_dtype: str | None = None
    quantization: str | None = None
    enforce_eager: bool | None = None
    prefix_caching: bool | None = None
    expert_parallel: bool | None = None
    v1: bool | None = None


class Observed(NamedTuple):
    """What one start-up printed; sizes in bytes on one GPU, None where no line says.

    With several workers it is the one with the least KV cache, which decides for all.
    """

    settings: Settings = Settings()
    workers: int = 1
    device_bytes: int | None = None
    free_bytes: int | None = None
    """Free when the engine took its baseline."""
    claim_bytes: int | None = None
    weight_bytes: int | None = None
    runtime_bytes: int | None = None
    activation_bytes: int | None = None
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

    source: str
    """The file's path."""
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

    def same_model(self, d: Deployment) -> bool:
        """The weights were measured on this very model in this format and division."""
        mine = (self.model, self.weight_format, self.tp, self.pp)
        return mine == (d.model.name, d.scheme.name, d.tp, d.pp)

    def same_ranks(self, d: Deployment) -> bool:
        """As many GPUs talk to each other as when it was measured."""
        return (self.tp, self.pp) == (d.tp, d.pp)


def corrected_weights(size: int, d: Deployment) -> int:
    """Weights by the measured ratio, where it was measured on the same weights."""
    c = d.calibration
    if c is None or c.weights is None or not c.same_model(d):
        return size
    return round(size * c.weights.ratio)


def corrected_terms(terms: tuple[Term, ...], d: Deployment) -> tuple[Term, ...]:
    """Terms by the measured ratios.

    A law that is corrected keeps half of its range around the corrected figure: the offset of this
    machine is known, what remains is how the law carries over to another configuration.
    """
    c = d.calibration
    if c is None:
        return terms
    ratios = {"activation": c.activation, "cuda_graph": c.cuda_graph}
    found = []
    for term in terms:
        measured = ratios.get(term.key)
        if measured is not None and term.likely:
            found.append(_scaled(term, measured.ratio))
        elif term.key == "runtime" and c.runtime_bytes is not None and c.same_ranks(d):
            size = c.runtime_bytes
            found.append(term._replace(low=size, likely=size, high=size, source=_SAID))
        else:
            found.append(term)
    return tuple(found)


_SAID = "measured on this GPU (calibration)"


def _scaled(term: Term, ratio: float) -> Term:
    likely = round(term.likely * ratio)
    low = likely - round((term.likely - term.low) * ratio) // 2
    high = likely + cdiv(round((term.high - term.likely) * ratio), 2)
    source = f"{term.source}; x {ratio:.3f} as measured on this GPU (calibration)"
    return term._replace(low=max(0, low), likely=likely, high=high, source=source)


def said(c: Calibration, d: Deployment) -> str:
    """The assumption that a calibrated answer rests on."""
    parts = []
    if c.device_bytes is not None and d.device_bytes == c.device_bytes:
        parts.append("device total")
    if c.weights is not None and c.same_model(d):
        parts.append(f"weights x {c.weights.ratio:.3f}")
    if c.activation is not None:
        parts.append(f"activation x {c.activation.ratio:.3f}")
    if c.cuda_graph is not None:
        parts.append(f"CUDA graphs x {c.cuda_graph.ratio:.3f}")
    if c.runtime_bytes is not None and c.same_ranks(d):
        parts.append("runtime")
    what = ", ".join(parts) or "nothing that applies here"
    return (
        f"calibrated by a start of {c.model} on {c.gpu}, {c.engine} {c.engine_version}, tp {c.tp}: "
        f"{what}"
    )
