"""The corrections that a start-up log supports: its figures over the planned ones."""

from __future__ import annotations

from kvplan.calibration import Calibration, Measured, Observed
from kvplan.engines.base import Term
from kvplan.planning.budget import Budget
from kvplan.units import GIB

ROUNDING = GIB // 200
"""Half of the last digit of a figure printed in GiB with two decimals."""
_SOUND = (0.05, 20.0)
"""Ratios beyond this are a different thing measured, not a law to correct."""


def measure(b: Budget, o: Observed) -> Calibration:
    """The corrections that a log supports; a term it does not state is left to its law."""
    d = b.deployment
    activation, graphs = term_of(b, "activation"), term_of(b, "cuda_graph")
    in_claim = graphs is not None and graphs.in_claim
    graph_bytes = o.graph_estimate_bytes if in_claim else o.graph_bytes
    together = in_claim and o.activation_holds_graphs and not d.args.enforce_eager
    if together and activation is not None and graphs is not None:
        # One figure for both: both are corrected alike.
        both = _measured(o.activation_bytes, activation.likely + graphs.likely)
        by_activation = by_graphs = both
    else:
        by_activation = _measured(o.activation_bytes, activation.likely if activation else 0)
        by_graphs = _measured(graph_bytes, graphs.likely if graphs else 0)
    if o.activation_bytes is None:
        by_activation = _from_rest(b, o)
    runtime = o.runtime_bytes
    return Calibration(
        gpu=d.gpu.name,
        engine=d.engine,
        engine_version=d.engine_version or "unknown",
        model=d.model.name,
        weight_format=d.scheme.name,
        tp=d.tp,
        pp=d.pp,
        max_num_seqs=d.args.max_num_seqs,
        max_num_batched_tokens=d.args.max_num_batched_tokens,
        device_bytes=o.device_bytes or None,
        weights=_measured(o.weight_bytes, b.weight_bytes or 0),
        activation=by_activation,
        cuda_graph=by_graphs,
        runtime_bytes=None if runtime is None or runtime < 0 else runtime,
    )


def rest_bytes(b: Budget, o: Observed) -> int | None:
    """What a log without an activation line leaves for it: claim - weights - pool."""
    claim = b.claim_bytes if o.claim_bytes is None else o.claim_bytes
    if claim is None or o.weight_bytes is None or o.pool_bytes is None:
        return None
    return claim - o.weight_bytes - o.pool_bytes


def _from_rest(b: Budget, o: Observed) -> Measured | None:
    """The activation's correction from what is left, all other terms at their likely figures."""
    rest, activation = rest_bytes(b, o), term_of(b, "activation")
    if rest is None or activation is None:
        return None
    others = 0
    for term in b.terms:
        seen = {"runtime": o.runtime_bytes, "cuda_graph": o.graph_estimate_bytes}.get(term.key)
        if term.in_claim and term is not activation:
            others += term.likely if seen is None else seen
    return _measured(rest - others, activation.likely)


def _measured(observed: int | None, predicted: int) -> Measured | None:
    if observed is None or observed <= 0 or predicted <= 0:
        return None
    ratio = observed / predicted
    if not _SOUND[0] <= ratio <= _SOUND[1]:
        return None
    return Measured(round(ratio, 4), observed, predicted)


def term_of(b: Budget, key: str) -> Term | None:
    return next((term for term in b.terms if term.key == key), None)
