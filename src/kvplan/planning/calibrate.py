"""A start-up log against the plan for the same start: term by term, and what explains the rest."""

from __future__ import annotations

from typing import Any

from kvplan import __version__
from kvplan.calibration import Calibration, Measured, Observed
from kvplan.deployment import Deployment
from kvplan.engines.base import Engine, LogReader, Term
from kvplan.errors import KvplanError
from kvplan.planning.budget import Budget, evaluate
from kvplan.planning.fit import deployment_report
from kvplan.planning.report import DeploymentReport, Record
from kvplan.precision.scheme import scheme_from
from kvplan.precision.weights import WEIGHT_FORMATS
from kvplan.units import GIB, format_gib

SCHEMA = "kvplan.calibration_report/1"
ROUNDING = GIB // 200
"""Half of the last digit of a figure printed in GiB with two decimals."""
CLOSE = 0.06
"""A setting explains a difference when its figure comes this near to the observed one."""
_SOUND = (0.05, 20.0)
"""Ratios beyond this are a different thing measured, not a law to correct."""

_DESCRIBED = {"use_attribute_docstrings": True, "extra": "forbid"}


class ComparedTerm(Record):
    """One figure as planned and as the log has it."""

    __pydantic_config__ = _DESCRIBED

    key: str
    predicted: float
    """Bytes, or a count where the key ends in blocks, tokens or concurrency."""
    low: float | None
    high: float | None
    """The range of a measured law; null for a rule."""
    observed: float | None
    """Null where the log does not say."""
    ratio: float | None
    """Observed over predicted."""
    inside: bool | None
    """Within the range, or for a rule within the log's rounding; null where not known."""


class CalibrationReport(Record):
    """Predicted against observed for one start-up."""

    __pydantic_config__ = _DESCRIBED

    schema: str
    kvplan_version: str
    deployment: DeploymentReport
    workers: int
    """Workers whose figures the log has."""
    from_log: list[str]
    """Flags that the log answered."""
    terms: list[ComparedTerm]
    explanations: list[str]
    """What the differences come from."""
    warnings: list[str]
    assumptions: list[str]
    calibration: dict[str, Any]
    """The corrections, as --output writes them."""


def compare(
    engine: Engine, reader: LogReader, asked: Deployment, observed: Observed, stated: set[str]
) -> tuple[CalibrationReport, Calibration]:
    """The plan for ``asked`` against the log; ``stated`` are the flags that are not assumed."""
    budget = evaluate(engine, engine.resolve(asked), 0.0)
    calibration = measure(budget, observed)
    terms = _terms(engine, budget, observed)
    d = budget.deployment
    from kvplan.calibration.schema import to_document

    report = CalibrationReport(
        schema=SCHEMA,
        kvplan_version=__version__,
        deployment=deployment_report(d),
        workers=observed.workers,
        from_log=sorted(observed.flags),
        terms=terms,
        explanations=_explanations(engine, reader, budget, observed, stated),
        warnings=[*d.model.warnings, *d.warnings],
        assumptions=[*d.model.assumptions, *d.assumptions],
        calibration=to_document(calibration),
    )
    return report, calibration


def measure(b: Budget, o: Observed) -> Calibration:
    """The corrections that a log supports; a term it does not state is left to its law."""
    d = b.deployment
    activation, graphs = _term(b, "activation"), _term(b, "cuda_graph")
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
    rest, activation = rest_bytes(b, o), _term(b, "activation")
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


def _term(b: Budget, key: str) -> Term | None:
    return next((term for term in b.terms if term.key == key), None)


def _terms(engine: Engine, b: Budget, o: Observed) -> list[ComparedTerm]:
    d, layout = b.deployment, b.layout
    found = [
        _rule("device_bytes", d.total_bytes, o.device_bytes),
        _rule("claim_bytes", b.claim_bytes, o.claim_bytes),
        _rule("weight_bytes", b.weight_bytes, o.weight_bytes, slack=0.02),
    ]
    activation, graphs = _term(b, "activation"), _term(b, "cuda_graph")
    if (
        activation is not None
        and graphs is not None
        and graphs.in_claim
        and (o.activation_holds_graphs and not d.args.enforce_eager)
    ):
        both = Term(
            "activation_and_graph_estimate",
            activation.low + graphs.low,
            activation.likely + graphs.likely,
            activation.high + graphs.high,
            "",
        )
        found.append(_law(both, o.activation_bytes))
    else:
        if activation is not None:
            found.append(_law(activation, o.activation_bytes))
        if graphs is not None:
            graph_bytes = o.graph_estimate_bytes if graphs.in_claim else o.graph_bytes
            found.append(_law(graphs, None if graph_bytes is None else max(0, graph_bytes)))
    found += [_law(term, o.runtime_bytes) for term in b.terms if term.key == "runtime"]
    rest = rest_bytes(b, o)
    if o.activation_bytes is None and rest is not None:
        held = [term for term in b.terms if term.in_claim]
        low, likely, high = (
            sum(getattr(term, end) for term in held) for end in ("low", "likely", "high")
        )
        found.append(_law(Term("rest", low, likely, high, ""), rest))
    if b.claim_bytes is not None:
        likely, careful = b.pool_bytes, b.careful_pool_bytes
        friendly = likely + sum(t.likely - t.low for t in b.terms if t.in_claim)
        pool = Term("kv_pool", careful, likely, friendly, "")
        found.append(_law(pool, o.pool_bytes))
    if o.pool_bytes is not None and o.pool_bytes > 0:
        found += _from_logged_pool(engine, b, o, o.pool_bytes)
    else:
        figures = engine.pool_figures(d, layout, b.pool_bytes)
        found.append(_rule("pool_blocks", layout.pool_blocks(b.pool_bytes), o.pool_blocks))
        found.append(_rule("pool_tokens", figures.tokens, o.pool_tokens))
        found.append(_rule("max_concurrency", figures.max_concurrency, o.max_concurrency))
    if o.needed_bytes is not None:
        reserved = layout.reserved_bytes(d.args.max_model_len or d.seq_len)
        found.append(_rule("needed_bytes", reserved, o.needed_bytes))
    return [term for term in found if term is not None]


def _from_logged_pool(
    engine: Engine, b: Budget, o: Observed, pool: int
) -> list[ComparedTerm | None]:
    """Blocks and tokens of the pool that the log states: rules, so only its rounding is left."""
    d, layout = b.deployment, b.layout
    at, low, high = (
        engine.pool_figures(d, layout, max(0, size))
        for size in (pool, pool - ROUNDING, pool + ROUNDING)
    )
    return [
        _between(
            "blocks_of_logged_pool",
            layout.pool_blocks(pool),
            layout.pool_blocks(max(0, pool - ROUNDING)),
            layout.pool_blocks(pool + ROUNDING),
            o.pool_blocks,
        ),
        _between("tokens_of_logged_pool", at.tokens, low.tokens, high.tokens, o.pool_tokens),
        _between(
            "concurrency_of_logged_pool",
            at.max_concurrency,
            None if low.max_concurrency is None else low.max_concurrency - 0.005,
            None if high.max_concurrency is None else high.max_concurrency + 0.005,
            o.max_concurrency,
        ),
    ]


def _rule(
    key: str, predicted: float | None, observed: float | None, slack: float = 0.0
) -> ComparedTerm | None:
    if predicted is None:
        return None
    inside = None
    if observed is not None:
        room = predicted * slack + (2 * ROUNDING if key.endswith("bytes") else 0.005)
        inside = abs(observed - predicted) <= room
    return _compared(key, predicted, None, None, observed, inside)


def _law(term: Term, observed: int | None) -> ComparedTerm:
    inside = None
    if observed is not None:
        inside = term.low - 2 * ROUNDING <= observed <= term.high + 2 * ROUNDING
    return _compared(f"{term.key}_bytes", term.likely, term.low, term.high, observed, inside)


def _between(
    key: str,
    predicted: float | None,
    low: float | None,
    high: float | None,
    observed: float | None,
) -> ComparedTerm | None:
    if predicted is None or low is None or high is None:
        return None
    inside = None if observed is None else low <= observed <= high
    return _compared(key, predicted, low, high, observed, inside)


def _compared(
    key: str,
    predicted: float,
    low: float | None,
    high: float | None,
    observed: float | None,
    inside: bool | None,
) -> ComparedTerm:
    return ComparedTerm(
        key=key,
        predicted=predicted,
        low=low,
        high=high,
        observed=observed,
        ratio=observed / predicted if observed is not None and predicted > 0 else None,
        inside=inside,
    )


def _explanations(
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
    activation = _term(b, "activation")
    if activation is not None and o.activation_bytes is not None:
        expected = activation.likely
        graphs = _term(b, "cuda_graph")
        if graphs is not None and graphs.in_claim and o.activation_holds_graphs:
            expected += graphs.likely
        said += _activation_said(engine, reader, b, o, stated, expected)
    rest = rest_bytes(b, o)
    if o.activation_bytes is None and rest is not None:
        expected = sum(term.likely for term in b.terms if term.in_claim)
        said += _activation_said(engine, reader, b, o, stated, expected, rest)
    runtime = _term(b, "runtime")
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
    term = _term(b, key)
    return term.likely if term is not None and term.in_claim else None
