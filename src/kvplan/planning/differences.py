"""What the difference between a start-up log and its plan comes from, in words."""

from __future__ import annotations

from kvplan.calibration import Observed
from kvplan.deployment import Deployment
from kvplan.engines.base import Engine, LogReader
from kvplan.errors import KvplanError
from kvplan.planning.budget import Budget
from kvplan.planning.measuring import ROUNDING, rest_bytes, term_of
from kvplan.precision.scheme import scheme_from
from kvplan.precision.weights import WEIGHT_FORMATS
from kvplan.units import GIB, format_gib

CLOSE = 0.06
"""A setting explains a difference when its figure comes this near to the observed one."""


def explanations(
    engine: Engine, reader: LogReader, b: Budget, o: Observed, stated: set[str]
) -> list[str]:
    """The assumptions that the log speaks against, with what it says instead."""
    d = b.deployment
    said = []
    profile = d.total_bytes if d.device_bytes is None else None
    total = o.device_bytes
    if None not in (total, profile) and abs((total or 0) - (profile or 0)) > 2 * ROUNDING:
        said.append(
            f"the log reports {format_gib(total or 0)} of device memory, the profile of "
            f"{d.gpu.name} has {format_gib(profile or 0)}"
        )
    if o.weight_bytes is not None and b.weight_bytes:
        said += _weights_said(d, b.weight_bytes, o.weight_bytes)
    activation = term_of(b, "activation")
    if activation is not None and o.activation_bytes is not None:
        expected = activation.likely
        graphs = term_of(b, "cuda_graph")
        if graphs is not None and graphs.in_claim and o.activation_holds_graphs:
            expected += graphs.likely
        said += _activation_said(engine, reader, b, o, stated, expected)
    rest = rest_bytes(b, o)
    if o.activation_bytes is None and rest is not None:
        expected = sum(term.likely for term in b.terms if term.in_claim)
        said += _activation_said(engine, reader, b, o, stated, expected, rest)
    runtime = term_of(b, "runtime")
    if runtime is not None and (o.runtime_bytes or 0) > runtime.high + 2 * ROUNDING:
        said.append(
            f"runtime memory of {format_gib(o.runtime_bytes or 0)} is beyond all that was measured "
            "for so many GPUs: another process on the device, or buffers of expert parallelism"
        )
    if o.graph_estimate_bytes is not None and o.graph_bytes is not None:
        more = o.graph_estimate_bytes - o.graph_bytes
        if more > GIB // 2:
            said.append(
                f"CUDA graphs were estimated {format_gib(more)} above what capture took: the KV "
                "cache could be that much larger"
            )
    if o.workers > 1:
        said.append(
            f"{o.workers} workers: the figures are those of the one with the least KV cache, "
            "which decides the blocks of all"
        )
    return said + _pool_said(b, o)


def _weights_said(d: Deployment, predicted: int, observed: int) -> list[str]:
    ratio = observed / predicted
    if abs(ratio - 1) <= 0.02:
        return []
    words = f"weights are {ratio:.3f} of the planned {format_gib(predicted)}"
    for form in WEIGHT_FORMATS.values():
        if form.name == d.scheme.name:
            continue
        try:
            other = d.model.weight_bytes(scheme_from(form), d.split, 0)
        except KvplanError:
            continue
        if abs(observed / other - 1) <= 0.02:
            return [f"{words}: {form.name} weights would be {format_gib(other)} (--weights)"]
    if ratio > 1:
        return [f"{words}: temporaries of loading, or a format that the kernels repack"]
    return [f"{words}: the checkpoint is quantised otherwise, or parts of it are not loaded"]


def _activation_said(
    engine: Engine,
    reader: LogReader,
    b: Budget,
    o: Observed,
    stated: set[str],
    expected: int,
    rest: int | None = None,
) -> list[str]:
    """Settings that would bring the activation to what was observed; with ``rest``, of all terms
    together, since the log states no single one."""
    observed = (o.activation_bytes or 0) if rest is None else rest
    what = "activation" if rest is None else "activation and the rest together"
    if expected <= 0 or abs(observed / expected - 1) <= 0.05:
        return []
    if o.cold_compile and observed > expected:
        return [
            "kernels were compiled in this start, which can be charged as activation: start "
            "again with the warm cache and calibrate by that"
        ]
    nearest: tuple[float, str] | None = None
    if not {"max_num_seqs", "max_num_batched_tokens"} <= stated:
        for words, changed in reader.other_settings(b.deployment):
            if any(name in words.split() for name in stated):
                continue
            try:
                terms = engine.overheads(engine.resolve(changed), b.stage)
            except KvplanError:
                continue
            likely = sum(
                term.likely
                for term in terms
                if term.key == "activation"
                or (rest is not None and term.in_claim)
                or (term.key == "cuda_graph" and term.in_claim and o.activation_holds_graphs)
            )
            off = abs(observed / likely - 1) if likely else 1.0
            if off <= CLOSE and (nearest is None or off < nearest[0]):
                nearest = (off, words)
    size, planned = format_gib(observed), format_gib(expected)
    if nearest is not None:
        return [f"{what} of {size} instead of {planned}: {nearest[1]} would explain it"]
    args = b.deployment.args
    return [
        f"{what} of {size} instead of {planned}, with max_num_seqs {args.max_num_seqs} and "
        f"max_num_batched_tokens {args.max_num_batched_tokens}: no default explains it; another "
        "sampler, an encoder's profile or a compilation may"
    ]


def _pool_said(b: Budget, o: Observed) -> list[str]:
    """Which term the difference of the pool comes from."""
    if o.pool_bytes is None or b.claim_bytes is None:
        return []
    off = o.pool_bytes - b.pool_bytes
    if abs(off) <= 0.02 * b.claim_bytes:
        return []
    parts = {
        "claim": (o.claim_bytes, b.claim_bytes, 1),
        "weights": (o.weight_bytes, b.weight_bytes, -1),
        "activation": (o.activation_bytes, _likely(b, "activation"), -1),
        "CUDA graphs": (o.graph_estimate_bytes, _likely(b, "cuda_graph"), -1),
        "runtime": (o.runtime_bytes, _likely(b, "runtime"), -1),
    }
    rest, held = rest_bytes(b, o), [term.likely for term in b.terms if term.in_claim]
    if o.activation_bytes is None:
        parts["activation and the rest"] = (rest, sum(held), -1)
    shares = {
        name: sign * (seen - planned)
        for name, (seen, planned, sign) in parts.items()
        if seen is not None and planned is not None
    }
    words = f"the pool is {format_gib(abs(off))} {'larger' if off > 0 else 'smaller'} than planned"
    if not shares:
        return [f"{words}; the log has no line that says by which term"]
    name = max(shares, key=lambda key: shares[key] * (1 if off > 0 else -1))
    return [f"{words}, {format_gib(abs(shares[name]))} of it by the {name}"]


def _likely(b: Budget, key: str) -> int | None:
    term = term_of(b, key)
    return term.likely if term is not None and term.in_claim else None
