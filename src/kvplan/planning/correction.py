"""A calibration applied to a budget: imported only when a deployment has one."""

from __future__ import annotations

from kvplan.calibration import Calibration
from kvplan.deployment import Deployment
from kvplan.engines.base import Term
from kvplan.units import cdiv

_SAID = "measured on this GPU (calibration)"


def corrected_weights(size: int, d: Deployment, c: Calibration) -> int:
    """Weights by the measured ratio, where it was measured on the same weights."""
    if c.weights is None or not same_weights(c, d):
        return size
    return round(size * c.weights.ratio)


def corrected_terms(terms: tuple[Term, ...], d: Deployment, c: Calibration) -> tuple[Term, ...]:
    """Terms by the measured ratios.

    A corrected law keeps half of its range around the corrected figure: the offset of this machine
    is known, what remains is how the law carries over to another configuration. The runtime is
    absolute, and stands where as many GPUs talk to each other as when it was measured.
    """
    ratios = {"activation": c.activation, "cuda_graph": c.cuda_graph}
    found = []
    for term in terms:
        measured = ratios.get(term.key)
        if measured is not None and term.likely:
            found.append(_scaled(term, measured.ratio))
        elif term.key == "runtime" and c.runtime_bytes is not None and same_ranks(c, d):
            size = c.runtime_bytes
            found.append(term._replace(low=size, likely=size, high=size, source=_SAID))
        else:
            found.append(term)
    return tuple(found)


def same_weights(c: Calibration, d: Deployment) -> bool:
    """The weights were measured on this very model in this format and division."""
    return same_ranks(c, d) and (c.model, c.weight_format) == (d.model.name, d.scheme.name)


def same_ranks(c: Calibration, d: Deployment) -> bool:
    """As many GPUs talk to each other as when it was measured."""
    return (c.tp, c.pp) == (d.tp, d.pp)


def said(c: Calibration, d: Deployment) -> str:
    """The assumption that a calibrated answer rests on."""
    parts = []
    if c.device_bytes is not None and d.device_bytes == c.device_bytes:
        parts.append("device total")
    if c.weights is not None and same_weights(c, d):
        parts.append(f"weights x {c.weights.ratio:.3f}")
    if c.activation is not None:
        parts.append(f"activation x {c.activation.ratio:.3f}")
    if c.cuda_graph is not None:
        parts.append(f"CUDA graphs x {c.cuda_graph.ratio:.3f}")
    if c.runtime_bytes is not None and same_ranks(c, d):
        parts.append("runtime")
    what = ", ".join(parts) or "nothing that applies here"
    return (
        f"calibrated by a start of {c.model} on {c.gpu}, {c.engine} {c.engine_version}, tp {c.tp}: "
        f"{what}"
    )


def _scaled(term: Term, ratio: float) -> Term:
    likely = round(term.likely * ratio)
    low = likely - round((term.likely - term.low) * ratio) // 2
    high = likely + cdiv(round((term.high - term.likely) * ratio), 2)
    source = f"{term.source}; x {ratio:.3f} as measured on this GPU (calibration)"
    return term._replace(low=max(0, low), likely=likely, high=high, source=source)
