"""The budget's arithmetic and the verdict at each edge, with an engine whose figures are set."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders import cache_model, deployment, tiny_model
from fake_engine import FakeEngine

from kvplan.deployment import Deployment
from kvplan.engines.base import Term
from kvplan.errors import InputError, MalformedFile
from kvplan.model.caches import FullAttention, SlidingWindow
from kvplan.planning.budget import Budget, evaluate, needed_bytes
from kvplan.planning.report import Verdict

HEAD = FullAttention(1, 128, 128)  # 512 B a token and layer: 524,288 B for 1,024 tokens
ACTIVATION = Term("activation", 500_000, 1_000_000, 2_000_000, "a test")
ENGINE = FakeEngine(10_000_000, [ACTIVATION])  # a pool of 9,000,000, or 8,000,000 carefully


def one_layer(**changes: Any) -> Deployment:
    return deployment(cache_model([(HEAD,)]), **{"device_bytes": 10_000_000, **changes})


def judge(engine: FakeEngine = ENGINE, min_headroom: float = 0.0, **changes: Any) -> Budget:
    return evaluate(engine, one_layer(**changes), min_headroom)


def test_pool_is_the_claim_less_weights_and_terms() -> None:
    model = tiny_model()  # 328,832 B of weights
    budget = evaluate(ENGINE, deployment(model, device_bytes=10_000_000), 0.0)
    assert budget.claim_bytes == 10_000_000
    assert budget.weight_bytes == 328_832
    assert budget.pool_bytes == 8_671_168  # 10,000,000 - 328,832 - 1,000,000
    assert budget.careful_pool_bytes == 7_671_168
    assert budget.reserved_bytes == budget.needed_bytes == 524_288  # 512 B * 1,024
    assert budget.headroom_bytes == 8_146_880
    assert (budget.term("activation"), budget.term("runtime")) == (1_000_000, 0)


@pytest.mark.parametrize(
    ("batch", "verdict", "limit"),
    [
        (1, Verdict.FITS, "kv_cache"),
        (15, Verdict.FITS, "kv_cache"),  # 7,864,320: within the careful 8,000,000
        (16, Verdict.TIGHT, "activation"),  # 8,388,608: only within the likely 9,000,000
        (17, Verdict.TIGHT, "activation"),  # 8,912,896
        (18, Verdict.OOM, "kv_cache"),  # 9,437,184
    ],
)
def test_verdict_by_batch(batch: int, verdict: Verdict, limit: str) -> None:
    budget = judge(batch=batch)
    assert (budget.verdict, budget.limiting_term) == (verdict, limit)
    assert budget.needed_bytes == batch * 524_288
    assert budget.fits is (verdict is not Verdict.OOM)


def test_edge_is_exact() -> None:
    exact = FakeEngine(524_288 * 3)
    assert judge(exact, batch=3).verdict is Verdict.FITS
    assert judge(exact, batch=3).headroom_bytes == 0
    assert judge(FakeEngine(524_288 * 3 - 1), batch=3).verdict is Verdict.OOM


@pytest.mark.parametrize(
    ("batch", "verdict"),
    [(13, Verdict.FITS), (14, Verdict.TIGHT)],  # 2,184,256 and 1,659,968 B left of 9,000,000
)
def test_headroom_is_a_share_of_usable_memory(batch: int, verdict: Verdict) -> None:
    budget = judge(min_headroom=0.2, batch=batch)  # 0.2 * 10,000,000
    assert budget.verdict is verdict
    assert budget.limiting_term == ("headroom" if verdict is Verdict.TIGHT else "kv_cache")


def test_what_others_hold_is_not_usable() -> None:
    # 0.2 * (10,000,000 - 1,000,000) = 1,800,000 of headroom, with 1,659,968 and 2,184,256 left
    changes = {"device_bytes": 11_000_000, "reserve_bytes": 1_000_000}
    assert judge(min_headroom=0.2, batch=14, **changes).verdict is Verdict.TIGHT
    assert judge(min_headroom=0.2, batch=13, **changes).verdict is Verdict.FITS


def test_no_pool_names_what_is_largest() -> None:
    model = tiny_model()
    small = FakeEngine(300_000)
    budget = evaluate(small, deployment(model, device_bytes=10_000_000), 0.0)
    assert (budget.verdict, budget.limiting_term) == (Verdict.OOM, "weights")
    assert budget.pool_bytes == 300_000 - 328_832
    assert budget.available_bytes == 0
    assert budget.headroom_bytes == 300_000 - 328_832 - 524_288
    heavy = FakeEngine(1_000_000, [ACTIVATION])
    budget = evaluate(heavy, deployment(model, device_bytes=10_000_000), 0.0)
    assert (budget.verdict, budget.limiting_term) == (Verdict.OOM, "activation")


def test_pool_of_nothing_is_the_weights_fault() -> None:
    d = deployment(tiny_model(), device_bytes=10_000_000)
    assert evaluate(FakeEngine(328_832), d, 0.0).limiting_term == "weights"
    assert evaluate(FakeEngine(328_833), d, 0.0).limiting_term == "kv_cache"


def test_widest_term_is_named_when_only_the_likely_figures_fit() -> None:
    terms = [ACTIVATION, Term("runtime", 0, 0, 1_500_000, "a test")]
    budget = judge(FakeEngine(10_000_000, terms), batch=17)
    assert (budget.verdict, budget.limiting_term) == (Verdict.TIGHT, "runtime")


def test_claim_must_be_free_beside_what_is_outside_it() -> None:
    context = Term("context", 100, 1_000_000, 2_000_000, "a test")
    engine = FakeEngine(9_000_000, outside=context)
    assert judge(engine).verdict is Verdict.FITS  # 9,000,000 + 1,000,000 <= 10,000,000
    refused = judge(engine, reserve_bytes=1)
    assert (refused.verdict, refused.limiting_term) == (Verdict.OOM, "gpu_memory_utilization")


def test_one_sequence_of_max_model_len_must_fit_too() -> None:
    d = one_layer().with_args(max_model_len=18_000)  # 9,216,000 B
    budget = evaluate(ENGINE, d, 0.0)
    assert (budget.verdict, budget.limiting_term) == (Verdict.OOM, "max_model_len")
    assert evaluate(ENGINE, d.with_args(max_model_len=17_000), 0.0).fits


def test_given_pool_skips_the_budget() -> None:
    d = one_layer(batch=2).with_args(kv_cache_memory_bytes=1_048_576)
    budget = evaluate(ENGINE, d, 0.0)
    assert (budget.claim_bytes, budget.pool_bytes) == (None, 1_048_576)
    assert budget.verdict is Verdict.FITS
    assert evaluate(ENGINE, d._replace(batch=3), 0.0).verdict is Verdict.OOM


def test_given_pool_judges_a_model_whose_weights_are_unknown() -> None:
    model = replace(tiny_model(), weights_unknown="vocab_size is missing")
    d = deployment(model)
    with pytest.raises(MalformedFile, match="vocab_size is missing"):
        evaluate(ENGINE, d, 0.0)
    budget = evaluate(ENGINE, d.with_args(kv_cache_memory_bytes=10**9), 0.0)
    assert budget.weight_bytes is None
    assert budget.fits


def test_blocks_are_whole_and_some_are_held() -> None:
    # blocks of 16 * 512 = 8,192 B: 1,000,000 holds 122, of which one is the engine's
    engine = FakeEngine(1_000_000, block_size=16, held_blocks=1)
    budget = judge(engine, seq_len=17)
    assert budget.available_bytes == 121 * 8192
    assert budget.reserved_bytes == 2 * 8192  # 17 tokens
    assert judge(engine, seq_len=17, batch=60).fits  # 120 blocks
    assert not judge(engine, seq_len=17, batch=61).fits  # 122


def test_shared_prefix_is_stored_once() -> None:
    layout = ENGINE.kv_layout(one_layer(), 0)
    # 5 sequences of 1,024 tokens, 1,000 of them common: 1,000 + 5 * 24 tokens
    assert needed_bytes(layout, one_layer(batch=5, prefix_tokens=1000)) == 1120 * 512
    # a prefix is no longer than the sequence
    assert needed_bytes(layout, one_layer(batch=5, prefix_tokens=9999)) == 1024 * 512


def test_prefix_is_not_shared_by_windows() -> None:
    model = cache_model([(SlidingWindow(1, 128, 128, 4096),)])
    d = deployment(model, batch=5, prefix_tokens=1000)
    assert needed_bytes(ENGINE.kv_layout(d, 0), d) == 5 * 1024 * 512


def test_replica_holds_its_part_of_the_batch() -> None:
    assert judge(batch=10, dp=4).needed_bytes == 3 * 524_288  # the fullest replica


def test_stage_that_runs_out_first_decides() -> None:
    model = cache_model([(HEAD,)] * 3)  # stages of 2 layers and of 1
    d = deployment(model, pp=2, device_bytes=10_000_000)
    assert evaluate(ENGINE, d, 0.0).stage == 0
    late = FakeEngine(
        10_000_000, last_stage_terms=[Term("activation", 0, 9_000_000, 9_000_000, "")]
    )
    budget = evaluate(late, d, 0.0)
    assert (budget.stage, budget.pool_bytes) == (1, 1_000_000)


def test_careful_end_counts_on_every_stage() -> None:
    """The stage with the most room by its likely figures can be the one that is not certain."""
    model = cache_model([(HEAD,)] * 2)
    unsure = Term("activation", 0, 0, 9_999_999, "a test")
    engine = FakeEngine(10_000_000, last_stage_terms=[unsure], block_size=16)
    first = Term("runtime", 1000, 1000, 1000, "a test")
    engine.terms = ()
    d = deployment(model, pp=2, device_bytes=10_000_000)
    assert evaluate(engine, d, 0.0).verdict is Verdict.TIGHT
    engine.terms = (first,)
    assert evaluate(engine, d, 0.0).verdict is Verdict.TIGHT


def test_beyond_64_bits_is_an_error() -> None:
    with pytest.raises(InputError, match="more than"):
        judge(batch=2**40, seq_len=2**30)
