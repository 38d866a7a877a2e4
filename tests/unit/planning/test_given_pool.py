"""A pool that the user gives, beside weights that leave no room for it; and limits under a low
max_num_seqs."""

from __future__ import annotations

import pytest

from kvplan.planning.fit import fit
from kvplan.planning.report import FitReport, Verdict
from kvplan.question import build_deployment
from kvplan.units import GIB


def planned(model: str, **flags: object) -> FitReport:
    return fit(build_deployment(model, **flags))


@pytest.mark.parametrize(
    ("model", "pool", "verdict", "term"),
    [
        # 671e9 parameters at 8 bits are 625 GiB on a GPU of 79
        ("deepseek-v3", "10GiB", Verdict.OOM, "kv_cache_memory"),
        # the pool alone is more than the GPU has
        ("llama-3.1-8b", "100GiB", Verdict.OOM, "kv_cache_memory"),
        # 15 GiB of weights beside 10 of pool and a few of overheads
        ("llama-3.1-8b", "10GiB", Verdict.FITS, "kv_cache"),
    ],
)
def test_a_given_pool_is_held_against_the_gpu(
    model: str, pool: str, verdict: Verdict, term: str
) -> None:
    report = planned(model, gpu="h100-sxm", seq="8k", kv_cache_memory=pool)
    assert report.verdict == verdict
    assert report.limiting_term == term


def test_a_given_pool_that_only_just_may_fit_is_tight() -> None:
    weights = 8_030_261_248 * 2
    free = planned("llama-3.1-8b", gpu="h100-sxm", seq="8k", kv_cache_memory="10GiB")
    low = sum(term.low_bytes for term in free.memory.terms)
    likely = sum(term.likely_bytes for term in free.memory.terms)
    total = free.memory.usable_bytes
    assert total is not None
    pool = total - weights - (low + likely) // 2
    report = planned("llama-3.1-8b", gpu="h100-sxm", seq="8k", kv_cache_memory=pool)
    assert pool > 50 * GIB
    assert (report.verdict, report.limiting_term) == (Verdict.TIGHT, "kv_cache_memory")


def test_a_batch_that_fits_is_within_the_largest_batch() -> None:
    """Logits of 1,024 sequences with 32 draft tokens take more than the GPU has; those of 8 do
    not, and 8 GiB of KV cache beside 15 GiB of weights fit."""
    report = planned(
        "llama-3.1-8b", gpu="h100-sxm", seq="8k", batch=8, max_num_seqs=8, speculative_tokens=32
    )
    assert report.verdict == Verdict.FITS
    assert report.limits is not None
    assert report.limits.max_batch >= 8


def test_the_term_that_leaves_no_room_is_named() -> None:
    report = planned(
        "llama-3.1-8b", gpu="h100-sxm", seq="8k",
        engine_arg=["max_loras=2048", "max_lora_rank=512"],
    )  # fmt: skip
    assert report.limiting_term == "lora"
    assert "lora takes" in report.reason
