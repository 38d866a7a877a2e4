"""The largest, smallest or mildest value of each knob on its own, against trying them all."""

from __future__ import annotations

from typing import Any

import pytest
from builders import cache_model, deployment, tiny_model
from fake_engine import FakeEngine

from kvplan.deployment import Deployment
from kvplan.engines import load_engine
from kvplan.engines.base import Term
from kvplan.model.caches import FullAttention
from kvplan.planning.budget import evaluate
from kvplan.planning.limits import (
    Question,
    by_mildness,
    max_batch,
    max_seq_len,
    mildest_kv,
    min_gpus,
    min_tp,
    solve_limits,
)
from kvplan.planning.report import LimitsReport
from kvplan.precision.kv import KV_FORMATS
from kvplan.question import build_deployment

MODEL = cache_model([(FullAttention(4, 128, 128),)], heads=8)  # 2,048 B a token


def ask(engine: FakeEngine, **changes: Any) -> Question:
    return Question(engine, deployment(MODEL, **{"device_bytes": 10**12, **changes}), 0.0)


def limits(question: Question) -> LimitsReport:
    return solve_limits(question, evaluate(question.engine, question.asked, 0.0))


def largest_batch(question: Question) -> int:
    return max_batch(question, evaluate(question.engine, question.asked, 0.0))


def longest(question: Question) -> int:
    return max_seq_len(question, evaluate(question.engine, question.asked, 0.0))


@pytest.mark.parametrize("pool", [0, 1, 2_097_151, 2_097_152, 10_000_000, 999_999_999])
@pytest.mark.parametrize("batch", [1, 7, 5000])
def test_largest_batch(pool: int, batch: int) -> None:
    # a sequence of 1,024 tokens has 2,048 * 1,024 = 2,097,152 B, whatever batch is asked about
    assert largest_batch(ask(FakeEngine(pool), batch=batch)) == pool // 2_097_152


@pytest.mark.parametrize("pool", [2047, 2048, 10_000_000])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("seq_len", [1, 1024, 10**6])
def test_longest_sequence(pool: int, batch: int, seq_len: int) -> None:
    question = ask(FakeEngine(pool), batch=batch, seq_len=seq_len)
    assert longest(question) == pool // batch // 2048


def test_limits_in_blocks() -> None:
    # blocks of 16 * 2,048 = 32,768 B; 10,000,000 holds 305, of which one is the engine's
    question = ask(FakeEngine(10_000_000, block_size=16, held_blocks=1), seq_len=100)
    assert largest_batch(question) == 43  # 304 // 7
    assert longest(question) == 4864  # 304 * 16


def test_largest_batch_over_replicas() -> None:
    question = ask(FakeEngine(10_000_000), dp=3)
    assert largest_batch(question) == 12  # 4 on each of 3


def test_largest_batch_with_a_shared_prefix() -> None:
    # 1,000 tokens once, 24 a sequence: (4,882 - 1,000) // 24 = 161 of 10,000,000 // 2,048 tokens
    assert largest_batch(ask(FakeEngine(10_000_000), prefix_tokens=1000)) == 161


def test_smallest_tp() -> None:
    # 2,097,152 B of KV by tp: 2,097,152, 1,048,576, 524,288, and no less beyond the 4 heads
    assert min_tp(ask(FakeEngine(2_097_152))) == 1
    assert min_tp(ask(FakeEngine(2_097_151))) == 2
    assert min_tp(ask(FakeEngine(1_000_000))) == 4
    assert min_tp(ask(FakeEngine(524_287))) is None


def test_fewest_gpus() -> None:
    deep = cache_model([(FullAttention(4, 128, 128),)] * 8, heads=8)  # 16,777,216 B

    def fewest(pool: int) -> int | None:
        return min_gpus(Question(FakeEngine(pool), deployment(deep, device_bytes=10**12), 0.0))

    assert fewest(16_777_216) == 1
    assert fewest(8_388_608) == 2
    assert fewest(4_194_304) == 4  # one head a rank
    assert fewest(2_097_152) == 16  # tp 8 saves no more: two stages of it
    assert fewest(1_048_576) == 32
    assert fewest(524_288) == 64
    assert fewest(524_287) is None


def test_mildest_kv_format() -> None:
    formats = ["q4_0", "bf16", "fp8_e4m3", "nvfp4"]

    def mildest(pool: int) -> str | None:
        question = ask(FakeEngine(pool, formats=formats))
        form = mildest_kv(question, question.asked)
        return form.name if form else None

    # 4 heads * 1,024 tokens * 512, 256, 144 B a pair; costs 0, 0.1, 1.0, 2.2 %
    assert mildest(2_097_152) == "bf16"
    assert mildest(2_097_151) == "fp8_e4m3"
    assert mildest(1_048_575) == "nvfp4"  # as small as q4_0, and milder
    assert mildest(589_823) is None


def test_order_of_mildness() -> None:
    names = ["nuq2-1%", "nvfp4", "fp8_e5m2", "bf16", "int8_per_token_head", "fp8_e4m3"]
    forms = by_mildness([KV_FORMATS[name] for name in names])
    # by measured cost 0, 0.1, 1.0, 6.9; those never measured last, the wider (8.25 bits) first
    assert [form.name for form in forms] == [
        "bf16", "fp8_e4m3", "nvfp4", "nuq2-1%", "int8_per_token_head", "fp8_e5m2",
    ]  # fmt: skip


def test_mildest_weights() -> None:
    model = tiny_model()
    question = Question(FakeEngine(10**9), deployment(model, device_bytes=10**12), 0.0)
    assert limits(question).weight_format == "bf16"  # the checkpoint's own fits
    # 328,832 B at 16 bits; fp8: 147,456 B of linear layers and a float32 scale each of their rows,
    # 4 * (64 + 32 + 32 + 64 + 128 + 128 + 64) * 4 B = 8,192, and 33,920 B left at 16 bits
    # fp8_block, of the same cost, has one scale each of 28 matrices instead: 181,488 B
    for pool, name in (
        (328_832, "bf16"),
        (328_831, "fp8"),
        (189_568, "fp8"),
        (189_567, "fp8_block"),
    ):
        short = Question(
            FakeEngine(pool + 512), deployment(model, device_bytes=10**12, seq_len=1), 0.0
        )
        assert limits(short).weight_format == name


def test_engine_arguments_have_no_limit_where_an_engine_has_none() -> None:
    found = limits(ask(FakeEngine(10_000_000)))
    assert found.max_num_seqs is None
    assert found.max_num_batched_tokens is None
    assert found.min_gpu_memory_utilization is None
    assert found.fits_eager is None


class Hungry(FakeEngine):
    """Takes 1,000 B for each sequence and 10 for each token of a step, and its share of 10 MB."""

    def overheads(self, deployment: Deployment, stage: int) -> tuple[Term, ...]:
        args = deployment.args
        size = 1000 * (args.max_num_seqs or 0) + 10 * (args.max_num_batched_tokens or 0)
        graphs = 0 if args.enforce_eager else 3_000_000
        return (
            Term("activation", size, size, size, "a test"),
            Term("cuda_graph", graphs, graphs, graphs, "a test"),
        )

    def claim(self, deployment: Deployment):  # type: ignore[no-untyped-def]
        share = deployment.args.gpu_memory_utilization or 1.0
        return self.claimed._replace(size_bytes=int(self.claimed.size_bytes * share))


def hungry(**args: Any) -> LimitsReport:
    asked = ask(Hungry(10_000_000)).asked.with_args(
        **{
            "max_num_seqs": 100,
            "max_num_batched_tokens": 1000,
            "gpu_memory_utilization": 0.9,
            **args,
        }
    )
    return limits(Question(Hungry(10_000_000), asked, 0.0))


def test_engine_arguments_on_their_own() -> None:
    # 0.9 * 10,000,000 less 3,000,000 of graphs, 100,000 + 10,000 of steps, 2,097,152 of KV
    # leaves 3,792,848: 3,792 more sequences or 379,284 more tokens
    found = hungry()
    assert found.max_num_seqs == 3892
    assert found.max_num_batched_tokens == 380_284
    # 5,207,152 of 10,000,000: 0.5207, rounded up to a hundredth
    assert found.min_gpu_memory_utilization == 0.53
    assert found.fits_eager is True


def test_engine_arguments_that_would_have_to_shrink() -> None:
    # 5,000 sequences leave -1,107,152; 3,892 of them would fit
    found = hungry(max_num_seqs=5000)
    assert found.max_num_seqs == 3892
    assert found.fits_eager is True  # 3,000,000 of graphs are enough
    # 9,000 leave -5,107,152: eager mode alone is not enough
    assert hungry(max_num_seqs=9000).fits_eager is False


def test_engine_argument_for_which_nothing_fits() -> None:
    found = hungry(gpu_memory_utilization=0.3)  # 3,000,000: graphs alone take it
    assert found.max_num_seqs is None
    assert found.max_num_batched_tokens is None
    assert found.min_gpu_memory_utilization == 0.53


def test_least_share_where_graphs_need_room_beside_the_claim() -> None:
    """Too large a share leaves the graphs nothing: the least one is sought below those."""
    model = build_deployment("llama-3.1-8b", gpu="h100-sxm", seq="32k", engine="vllm@0.10")
    question = Question(load_engine("vllm"), model, 0.05)
    budget = evaluate(question.engine, question.engine.resolve(model), 0.05)
    assert budget.fits
    found = solve_limits(question, budget).min_gpu_memory_utilization
    assert found is not None
    assert question.fits(model.with_args(gpu_memory_utilization=found))
    assert not question.fits(model.with_args(gpu_memory_utilization=found - 0.01))


def test_a_16_bit_cache_that_fits_is_the_mildest() -> None:
    """float16 and bfloat16 cost the same; the model's own is not changed for the other."""
    asked = build_deployment("llama-7b", gpu="a100-80g-sxm", seq="2k", engine="none")
    question = Question(load_engine("none"), asked, 0.05)
    assert mildest_kv(question, asked) is KV_FORMATS["fp16"]
