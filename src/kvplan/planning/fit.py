"""Does it fit? The budget of a deployment, turned into the report that people and machines read."""

from __future__ import annotations

from kvplan import __version__
from kvplan.deployment import Deployment, check_lengths, check_split
from kvplan.engines import load_engine
from kvplan.model.rows import sequence_bytes, slope_bytes
from kvplan.planning.budget import Budget, evaluate
from kvplan.planning.cautions import warnings_of as warnings_of
from kvplan.planning.limits import Question, solve_limits, with_fitted_length
from kvplan.planning.matrix import context_matrix
from kvplan.planning.options import options
from kvplan.planning.recommended import page_waste_bytes, recommend
from kvplan.planning.report import (
    SCHEMA,
    DeploymentReport,
    FitReport,
    GroupReport,
    KvCacheReport,
    MemoryReport,
    ModelReport,
    SpeedReport,
    TermReport,
    Verdict,
)
from kvplan.policy import Policy, load_policy
from kvplan.units import format_gib


def fit(asked: Deployment, policy: Policy | None = None) -> FitReport:
    """Judge a deployment and say what would make it fit."""
    policy = policy or load_policy()
    question, budget = judge(asked, policy)
    limits = solve_limits(question, budget)
    found = [] if budget.verdict is Verdict.FITS else options(question, budget, limits, policy)
    d = budget.deployment
    return FitReport(
        schema=SCHEMA,
        kvplan_version=__version__,
        deployment=deployment_report(d),
        verdict=budget.verdict,
        limiting_term=budget.limiting_term,
        reason=reason_of(budget),
        kv_cache=kv_cache_report(question, budget),
        memory=memory_report(budget),
        model=ModelReport(
            parameters=d.model.parameters,
            active_parameters=d.model.active_parameters,
            checkpoint_bytes=d.model.checkpoint.size_bytes,
            max_position_embeddings=d.model.max_position_embeddings,
        ),
        speed=SpeedReport(),
        limits=limits,
        recommended=recommend(question, budget, limits, found, policy),
        options=found,
        matrix=context_matrix(question, budget),
        flags=question.engine.flags(d),
        warnings=[*d.model.warnings, *d.warnings, *warnings_of(budget, policy)],
        assumptions=[*d.model.assumptions, *d.assumptions],
    )


def judge(asked: Deployment, policy: Policy) -> tuple[Question, Budget]:
    """The budget of a deployment with its verdict, and the question that limits are asked of."""
    check_split(asked)
    check_lengths(asked)
    engine = load_engine(asked.engine)
    question = with_fitted_length(Question(engine, asked, policy.min_headroom))
    return question, evaluate(engine, engine.resolve(question.asked), policy.min_headroom)


def deployment_report(d: Deployment) -> DeploymentReport:
    """The question as understood."""
    return DeploymentReport(
        model=d.model.name,
        model_source=d.model.source,
        architecture=d.model.model_type,
        gpu=d.gpu.name,
        gpu_count=d.gpus,
        tp=d.tp,
        pp=d.pp,
        dp=d.dp,
        ep=d.ep,
        engine=d.engine,
        engine_version=d.engine_version,
        weight_format=d.scheme.name,
        kv_cache_dtype=d.kv.name,
        seq_len=d.seq_len,
        batch=d.batch,
        block_size=d.args.block_size,
        max_model_len=d.args.max_model_len,
        max_num_seqs=d.args.max_num_seqs,
        max_num_batched_tokens=d.args.max_num_batched_tokens,
        gpu_memory_utilization=d.args.gpu_memory_utilization,
    )


def kv_cache_report(question: Question, b: Budget) -> KvCacheReport:
    """The KV cache of one GPU."""
    d, layout = b.deployment, b.layout
    longest = d.seq_len if d.args.max_model_len is None else d.args.max_model_len
    logical = d.model.logical_rows(d.kv, d.split, b.stage)
    figures = question.engine.pool_figures(d, layout, b.pool_bytes)
    mean = None
    if d.mean_seq is not None:
        held = layout.reserved_bytes(d.mean_seq)
        mean = d.dp * b.available_bytes / held if held else None
    return KvCacheReport(
        bytes_per_token=slope_bytes(logical, d.seq_len),
        logical_bytes_per_sequence=sequence_bytes(logical, d.seq_len),
        reserved_bytes_per_sequence=b.reserved_bytes,
        needed_bytes=b.needed_bytes,
        blocks_per_sequence=layout.sequence_blocks(longest),
        page_bytes=layout.block_bytes,
        pool_bytes=max(0, b.pool_bytes),
        pool_blocks=layout.pool_blocks(b.pool_bytes),
        pool_tokens=figures.tokens,
        max_concurrency=figures.max_concurrency,
        mean_concurrency=mean,
        page_waste_bytes=page_waste_bytes(layout, d.replica_batch),
        groups=_groups(d),
    )


def _groups(d: Deployment) -> list[GroupReport]:
    """The logical groups of the whole model, with the bytes of their layers on one rank."""
    groups = []
    for cache, layers in d.model.groups:
        row = cache.row(d.kv, d.tp, layers)
        groups.append(
            GroupReport(
                kind=cache.kind,
                layers=layers,
                bytes_per_token=-(-row.unit_bytes // row.unit_tokens),
                constant_bytes=row.constant_bytes,
                window=row.cap_tokens,
            )
        )
    return groups


def memory_report(b: Budget) -> MemoryReport:
    """The budget of the GPU that decides."""
    d = b.deployment
    total = d.total_bytes
    usable = None if total is None else d.usable_bytes
    pool = max(0, b.pool_bytes)
    return MemoryReport(
        device_bytes=total,
        usable_bytes=usable,
        claim_bytes=b.claim_bytes,
        weight_bytes=b.weight_bytes,
        activation_bytes=b.term("activation"),
        cuda_graph_bytes=b.term("cuda_graph"),
        runtime_bytes=b.term("runtime"),
        kv_pool_bytes=pool,
        kv_needed_bytes=b.needed_bytes,
        headroom_bytes=b.headroom_bytes,
        kv_share=b.needed_bytes / usable if usable else None,
        pool_use=b.needed_bytes / pool if pool else None,
        terms=[
            TermReport(
                key=term.key,
                low_bytes=term.low,
                likely_bytes=term.likely,
                high_bytes=term.high,
                source=term.source,
                in_claim=term.in_claim,
            )
            for term in b.terms
        ],
    )


def reason_of(b: Budget) -> str:
    """The verdict in one sentence with the figures that decide it."""
    d = b.deployment
    need = f"{format_gib(b.needed_bytes)} of KV cache for {d.batch:,} x {d.seq_len:,} tokens"
    if b.limiting_term == "gpu_memory_utilization":
        return (
            f"the engine would not start: it claims {format_gib(b.claim_bytes or 0)} of "
            f"{format_gib(d.usable_bytes)}, and its context needs to be free beside that"
        )
    if b.limiting_term == "kv_cache_memory":
        rest = (b.weight_bytes or 0) + sum(term.likely for term in b.terms)
        return (
            f"the given pool of {format_gib(b.pool_bytes)} beside {format_gib(rest)} of weights "
            f"and overheads, on a GPU of {format_gib(d.usable_bytes)}"
        )
    if b.pool_bytes <= 0:
        weights = format_gib(b.weight_bytes or 0)
        claim = format_gib(b.claim_bytes or 0)
        most = next((t for t in b.terms if t.key == b.limiting_term), None)
        what = f"weights take {weights}"
        if most is not None:
            what = f"{most.key} takes {format_gib(most.likely)} and weights {weights}"
        return f"no room for any KV cache: {what} of the {claim} that can be used"
    beside = next((t for t in b.terms if t.key == b.limiting_term and not t.in_claim), None)
    if beside is not None:
        size, room = beside.likely, format_gib(max(0, b.beside_bytes or 0))
        if b.verdict is Verdict.TIGHT:
            size = beside.high
        return (
            f"{beside.key} may need {format_gib(size)} beside what the engine claims, where only "
            f"{room} is left; {need}"
        )
    have = f"{format_gib(b.available_bytes)} of pool"
    if b.limiting_term == "max_num_seqs":
        return (
            f"the engine would not start: {d.args.max_num_seqs:,} sequences at once need a block "
            f"each, and the {have} is {b.layout.pool_blocks(b.pool_bytes) or 0:,} blocks"
        )
    if b.limiting_term == "max_model_len":
        return f"one sequence of max_model_len {d.args.max_model_len:,} is more than the {have}"
    if b.verdict is Verdict.OOM:
        return f"{need}, but only {have}"
    if b.limiting_term == "headroom":
        return f"{need} in {have}: {format_gib(b.headroom_bytes)} left"
    if b.limiting_term == "weights":
        return f"{need} in {have}, without the weights of its {' and '.join(d.model.left_out)}"
    if b.verdict is Verdict.TIGHT:
        return f"{need} in {have}, but not at the careful end of {b.limiting_term}"
    return f"{need} in {have}: {format_gib(b.headroom_bytes)} left"
