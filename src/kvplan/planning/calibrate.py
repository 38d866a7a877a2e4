"""A start-up log against the plan for the same start: term by term, and what explains the rest."""

from __future__ import annotations

from typing import Any

from kvplan import __version__
from kvplan.calibration import Calibration, Observed
from kvplan.deployment import Deployment
from kvplan.engines.base import Engine, LogReader, Term
from kvplan.planning.budget import Budget, evaluate
from kvplan.planning.differences import explanations
from kvplan.planning.fit import deployment_report
from kvplan.planning.measuring import ROUNDING, measure, rest_bytes, term_of
from kvplan.planning.report import DeploymentReport, Record

SCHEMA = "kvplan.calibration_report/1"


class ComparedTerm(Record):
    """One figure as planned and as the log has it."""

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
        explanations=explanations(engine, reader, budget, observed, stated),
        warnings=[*d.model.warnings, *d.warnings],
        assumptions=[*d.model.assumptions, *d.assumptions],
        calibration=to_document(calibration),
    )
    return report, calibration


def _terms(engine: Engine, b: Budget, o: Observed) -> list[ComparedTerm]:
    d, layout = b.deployment, b.layout
    found = [
        _rule("device_bytes", d.total_bytes, o.device_bytes),
        _rule("claim_bytes", b.claim_bytes, o.claim_bytes),
        _rule("weight_bytes", b.weight_bytes, o.weight_bytes, slack=0.02),
    ]
    activation, graphs = term_of(b, "activation"), term_of(b, "cuda_graph")
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
