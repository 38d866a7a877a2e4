"""A hand-made report: every figure is chosen, so that what is printed of it can be foretold."""

from __future__ import annotations

from typing import Any, TypeVar

from kvplan.planning.report import (
    SCHEMA,
    DeploymentReport,
    FitReport,
    GroupReport,
    KvCacheReport,
    LimitsReport,
    MatrixReport,
    MatrixRow,
    MemoryReport,
    ModelReport,
    OptionReport,
    RecommendedReport,
    Record,
    SpeedReport,
    TermReport,
    Verdict,
    fields_of,
)

GIB = 1024**3

ESCAPE = "\x1b"

R = TypeVar("R", bound=Record)


def make(kind: type[R], *values: object) -> R:
    """A record from its values in the order of its fields."""
    return kind(**dict(zip(kind.__annotations__, values, strict=False)))


def changed(record: R, **changes: object) -> R:
    """``record`` with other values for some fields."""
    return type(record)(**{**fields_of(record), **changes})


def fits(**changes: Any) -> FitReport:
    """16 GiB of a 20 GiB pool on a GPU of 40 GiB: 12 of weights, 1 of activation, 4 unclaimed.

    claim 36 = 12 weights + 1 activation + 2 graphs + 1 runtime + 20 pool; 40 - 36 = 4 unclaimed.
    """
    report = FitReport(
        schema=SCHEMA,
        kvplan_version="0.1.0",
        deployment=DeploymentReport(
            model="some-model",
            model_source="a test",
            architecture="llama",
            gpu="a-gpu",
            gpu_count=1,
            tp=1,
            pp=1,
            dp=1,
            ep=1,
            engine="vllm",
            engine_version="0.33",
            weight_format="bf16",
            kv_cache_dtype="bf16",
            seq_len=32768,
            batch=4,
            block_size=16,
            max_model_len=32768,
            max_num_seqs=256,
            max_num_batched_tokens=2048,
            gpu_memory_utilization=0.9,
        ),
        verdict=Verdict.FITS,
        limiting_term="kv_cache",
        reason="16.00 GiB of KV cache for 4 x 32,768 tokens in 20.00 GiB of pool: 4.00 GiB left",
        kv_cache=KvCacheReport(
            bytes_per_token=131072,
            logical_bytes_per_sequence=4 * GIB,
            reserved_bytes_per_sequence=4 * GIB,
            needed_bytes=16 * GIB,
            blocks_per_sequence=2048,
            page_bytes=2097152,
            pool_bytes=20 * GIB,
            pool_blocks=10240,
            pool_tokens=163840,
            max_concurrency=5.0,
            mean_concurrency=None,
            page_waste_bytes=3932160,
            groups=[
                make(GroupReport, "full", 16, 131072, 0, None),
                make(GroupReport, "sliding_window", 16, 131072, 0, 1024),
            ],
        ),
        memory=MemoryReport(
            device_bytes=40 * GIB,
            usable_bytes=40 * GIB,
            claim_bytes=36 * GIB,
            weight_bytes=12 * GIB,
            activation_bytes=1 * GIB,
            cuda_graph_bytes=2 * GIB,
            runtime_bytes=1 * GIB,
            kv_pool_bytes=20 * GIB,
            kv_needed_bytes=16 * GIB,
            headroom_bytes=4 * GIB,
            kv_share=0.4,
            pool_use=0.8,
            terms=[
                make(TermReport, "activation", GIB // 2, GIB, 2 * GIB, "a measured law"),
                make(TermReport, "cuda_graph", 0, 2 * GIB, 3 * GIB, "another law"),
                make(TermReport, "runtime", GIB, GIB, GIB, "exact"),
            ],
        ),
        model=make(ModelReport, 6_738_415_616, 6_738_415_616, None, 131072),
        speed=SpeedReport(),
        limits=LimitsReport(
            max_batch=5,
            max_seq_len=40960,
            min_tp=1,
            min_gpus=1,
            kv_cache_dtype="bf16",
            weight_format="bf16",
            max_num_seqs=2048,
            max_num_batched_tokens=8192,
            min_gpu_memory_utilization=0.8,
            fits_eager=True,
        ),
        recommended=RecommendedReport(
            batch=5,
            batch_reason="as many as the pool holds",
            window=None,
            window_reason="none: it fits with every token kept",
            block_size=16,
            block_size_reason="the smallest wastes least",
            kv_bits=16.0,
            kv_cache_dtype="bf16",
            kv_reason="it fits at this precision",
        ),
        options=[],
        matrix=make(
            MatrixReport,
            [8192, 32768],
            [make(MatrixRow, "bf16", 16.0, [20, 5]), make(MatrixRow, "q8_0", 8.5, [37, 9])],
        ),
        flags=["vllm", "serve", "some-model", "--max-model-len", "32768"],
        warnings=["beyond the native context"],
        assumptions=["block_size 16: the default"],
    )
    return changed(report, **changes)


def oom(**changes: Any) -> FitReport:
    """The same with 24 GiB needed: 4 more than the pool, and two ways out."""
    plain = fits()
    report = changed(
        plain,
        verdict=Verdict.OOM,
        reason="24.00 GiB of KV cache for 6 x 32,768 tokens, but only 20.00 GiB of pool",
        deployment=changed(plain.deployment, batch=6),
        kv_cache=changed(plain.kv_cache, needed_bytes=24 * GIB),
        memory=changed(
            plain.memory, kv_needed_bytes=24 * GIB, headroom_bytes=-4 * GIB, pool_use=1.2
        ),
        options=[
            make(
                OptionReport,
                "--tp 2", 12 * GIB, 12, Verdict.FITS, "no loss of quality", "more GPUs",
                ["vllm", "serve", "some-model", "--tensor-parallel-size", "2"],
            ),
            make(
                OptionReport,
                "--kv fp8_e4m3", 12 * GIB, 10, Verdict.TIGHT,
                "GSM8K 0.9181 against 0.9168 | within noise", "SGLang documentation", [],
            ),
        ],
    )  # fmt: skip
    return changed(report, **changes)


def tight(**changes: Any) -> FitReport:
    """1 GiB left: less than a twentieth of 40."""
    plain = fits()
    report = changed(
        plain,
        verdict=Verdict.TIGHT,
        limiting_term="headroom",
        reason="19.00 GiB of KV cache for 4 x 32,768 tokens in 20.00 GiB of pool: 1.00 GiB left",
        memory=changed(plain.memory, kv_needed_bytes=19 * GIB, headroom_bytes=GIB, pool_use=0.95),
        options=[
            make(OptionReport, "--tp 2", 9 * GIB, 12, Verdict.FITS, "no loss", "more GPUs", []),
        ],
    )
    return changed(report, **changes)


def evaluate(text: str) -> float:
    """What arithmetic as kvplan writes it comes to: x for times, commas in thousands, units."""
    import ast
    import math
    import re

    plain = re.sub(r"(?<=\d),(?=\d{3})", "", text)
    plain = re.sub(r"(?<![A-Za-z])x(?![A-Za-z])", "*", plain)
    known = {"ceil": math.ceil, "floor": math.floor, "min": min, "max": max}
    plain = re.sub(r"[A-Za-z]+", lambda word: word[0] if word[0] in known else "", plain)
    code = compile(ast.parse(plain.strip(), mode="eval"), text, "eval")
    value: float = eval(code, {"__builtins__": {}}, known)
    return value
