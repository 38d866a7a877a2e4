"""Formulas with their numbers put in: working out what is written gives what is printed."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import pytest
from builders import GIB, TINY_KV_BYTES, cache_model, deployment, gpu, tiny_model
from report_builders import evaluate

from kvplan.deployment import Deployment
from kvplan.model.caches import (
    Cache,
    ChunkedLocal,
    Compressed,
    CompressorState,
    CrossAttention,
    FullAttention,
    Indexer,
    Latent,
    Recurrent,
    SlidingWindow,
)
from kvplan.model.rows import Row
from kvplan.planning.fit import fit
from kvplan.precision.kv import KV_FORMATS, KvFormat, kv_format
from kvplan.precision.scheme import scheme_from
from kvplan.precision.weights import WEIGHT_FORMATS
from kvplan.reports.formula import Formula
from kvplan.reports.formulas import formulas
from kvplan.reports.state_formula import format_row, state_formula
from kvplan.reports.weight_formula import part_expression, weight_parts

BF16 = KV_FORMATS["bf16"]


def result(formula: Formula) -> float:
    """The first number of the printed result."""
    found = re.match(r"-?[\d,]+(?:\.\d+)?", formula.result)
    assert found is not None, formula
    return float(found[0].replace(",", ""))


def check(formula: Formula) -> None:
    digits = 2 if formula.result.endswith("x") else 0
    assert round(evaluate(formula.numbers), digits) == result(formula), formula


def test_plain_attention_reads_as_in_a_paper() -> None:
    formula = state_formula(FullAttention(32, 128, 128), BF16, 1, 32)
    assert formula.name == "32 layers of full attention"
    assert formula.numbers == "32 layers x ceil(32 / 1) heads x (128 + 128) x 2 B"
    assert formula.result == "524,288 B/token"
    assert "arXiv 2305.13245" in formula.source


def test_window_says_where_it_ends() -> None:
    formula = state_formula(SlidingWindow(8, 128, 128, 4096), BF16, 4, 32)
    assert formula.formula.endswith("for at most 4,096 tokens")
    assert formula.numbers == "32 layers x ceil(8 / 4) heads x (128 + 128) x 2 B"
    assert formula.result == "32,768 B/token"


def test_latent_is_one_vector_that_tp_does_not_divide() -> None:
    formula = state_formula(Latent(512, 64), BF16, 8, 61)
    assert formula.numbers == "61 layers x (512 + 64) x 2 B"
    assert formula.result == "70,272 B/token"
    assert "not divided by tp" in formula.formula


def test_scales_are_in_the_arithmetic() -> None:
    # 128 codes of 4 bits and one scale of 32: (512 + 32) / 8 = 68 bytes.
    row = format_row(KV_FORMATS["int4_per_token_head"].k, 128)
    assert row.text == "ceil((128 x 4 + 1 x 32) bits / 8)"
    assert row.value == evaluate(row.text) == 68
    # q8_0: 4 blocks of 32 codes with 16 bits of scale each: (1,024 + 64) / 8 = 136.
    row = format_row(KV_FORMATS["q8_0"].k, 128)
    assert row.text == "ceil((128 x 8 + ceil(128 / 32) x 16) bits / 8)"
    assert row.value == evaluate(row.text) == 136


CACHES: list[Cache] = [
    FullAttention(7, 128, 96),
    SlidingWindow(8, 64, 64, 1024),
    ChunkedLocal(8, 128, 128, 8192),
    Latent(512, 64),
    Compressed(512, 64, 4),
    Compressed(512, 64, 1, 128),
    CompressorState(1024, 128),
    Indexer(128),
    Indexer(64, 4),
    Indexer(128, is_fp8=False),
    Recurrent("mamba2", 4352, 4, 524288, 64, groups=1, group_channels=256),
    CrossAttention(20, 64, 64, 1500),
]


@pytest.mark.parametrize("tp", [1, 2, 8])
@pytest.mark.parametrize("cache", CACHES, ids=lambda cache: cache.kind)
def test_every_kind_in_every_format_adds_up(cache: Cache, tp: int) -> None:
    for kv in (*KV_FORMATS.values(), kv_format("k=q8_0,v=q4_0")):
        formula = state_formula(cache, kv, tp, 5)
        check(formula)
        row = cache.row(kv, tp, 5)
        assert result(formula) == (row.unit_bytes or row.constant_bytes)
        assert "bytes of one state" not in formula.formula


class Unheard(NamedTuple):
    """A kind of cache that kvplan does not know yet."""

    kind: str = "unheard_of"

    def state_bytes(self, kv: KvFormat, tp: int = 1) -> int:
        """Bytes of one state."""
        return 77

    def row(self, kv: KvFormat, tp: int = 1, layers: int = 1) -> Row:
        """Every token stays."""
        return Row(77 * layers)


def test_unknown_kind_is_given_by_its_size() -> None:
    formula = state_formula(Unheard(), BF16, 1, 3)  # type: ignore[arg-type]
    assert formula == Formula(
        "3 layers of unheard of", "layers x bytes of one state", "3 layers x 77 B", "231 B/token"
    )


class Odd(FullAttention):
    """Attention whose rows are not what the usual formula says."""

    def row(self, kv: KvFormat, tp: int = 1, layers: int = 1) -> Row:
        """A byte more in each layer."""
        return Row((self.state_bytes(kv, tp) + 1) * layers)


def test_arithmetic_that_does_not_lead_to_the_figure_is_not_written() -> None:
    formula = state_formula(Odd(1, 8, 8), BF16, 1, 3)
    assert formula.numbers == "3 layers x 33 B"
    assert formula.result == "99 B/token"


def lines(d: Deployment) -> dict[str, Formula]:
    found = formulas(fit(d), d)
    for formula in found:
        check(formula)
    return {formula.name: formula for formula in found}


def test_bare_formula_of_a_tiny_model() -> None:
    by_name = lines(deployment(batch=3))
    assert by_name["largest batch"].result == "163,839 sequences"
    logical = by_name["one sequence, logical"]
    assert logical.numbers == f"{TINY_KV_BYTES} B x 1,024"
    assert logical.result == "524,288 B (<0.01 GiB)"
    assert by_name["KV cache needed"].numbers == "3 x 524,288 B"
    # 4 layers of (64*64 + 32*64 + 32*64 + 64*64) = 12,288 elements of attention.
    assert by_name["weights: attention"].numbers == "49,152 elements x 2 B"
    assert by_name["weights"].result == "328,832 B (<0.01 GiB)"


def vllm(**changes: Any) -> Deployment:
    return deployment(**{"engine": "vllm", "seq_len": 4096, **changes})


def test_engine_figures_of_a_tiny_model() -> None:
    by_name = lines(vllm())
    assert by_name["blocks of a sequence"].numbers == "ceil(4,096 / 16)"
    assert by_name["blocks of a sequence"].result == "256 blocks"
    assert by_name["one sequence, reserved"].numbers == "256 blocks x 8,192 B"
    assert by_name["claim"].numbers == f"ceil({80 * GIB:,} B x 0.92)"
    assert {"KV pool", "concurrency", "tokens of the pool", "headroom"} <= set(by_name)
    assert by_name["headroom"].source == "1 block is held back"


def test_activation_law_has_its_numbers() -> None:
    # 2,048 tokens a step and 256 sequences on 40 GiB: 14 B x 256 x 128 of logits is less than
    # the MLP's 2,048 x 2 B x (3 x 128 + 4 x 64).
    by_name = lines(vllm(gpu=gpu(40.0)))
    law = by_name["activation peak"]
    assert law.numbers == "2,048 tokens x 2 B x (3 x ceil(128 / 1) + 4 x 64)"
    assert law.formula.startswith("MLP: ")
    assert "seen from" in law.source


def test_given_pool_needs_no_claim() -> None:
    args = vllm().args._replace(kv_cache_memory_bytes=GIB)
    by_name = lines(vllm(args=args))
    assert "claim" not in by_name
    assert by_name["blocks of the pool"].numbers == f"floor({GIB:,} B / 8,192 B)"


def test_shared_prefix_is_counted_once() -> None:
    by_name = lines(vllm(batch=3, prefix_tokens=1024))
    # 256 blocks a sequence, of which 64 are shared: 3 x 256 - 2 x 64 blocks of 8,192 B.
    assert by_name["KV cache needed"].numbers == "3 x 2,097,152 B - 2 x 524,288 B"


def test_no_room_gives_a_pool_of_nothing_and_a_negative_headroom() -> None:
    # 1 GiB at 0.92 is less than CUDA graphs and the rest take at their likely figures.
    d = vllm(model=tiny_model(vocab_size=4_000_000), gpu=gpu(1.0))
    by_name = lines(d)
    assert by_name["KV pool"].result == "0 B (0.00 GiB)"
    assert result(by_name["KV pool"]) == 0


@pytest.mark.parametrize("kv", ["bf16", "kivi-4", "q8_0"])
def test_mixed_caches_add_up_under_the_bare_formula(kv: str) -> None:
    caches = [(FullAttention(8, 128, 128),), (SlidingWindow(8, 128, 128, 512),)] * 3
    model = cache_model(caches, weights_unknown=None)
    lines(deployment(model, kv=KV_FORMATS[kv], seq_len=5000))


@pytest.mark.parametrize("name", sorted(WEIGHT_FORMATS))
@pytest.mark.parametrize(("tp", "pp", "stage"), [(1, 1, 0), (2, 1, 0), (2, 2, 0), (2, 2, 1)])
@pytest.mark.parametrize("tied", [False, True])
def test_parts_add_up_to_the_weights(name: str, tp: int, pp: int, stage: int, tied: bool) -> None:
    from kvplan.model.model import Split

    model = tiny_model(tie_word_embeddings=tied)
    scheme = scheme_from(WEIGHT_FORMATS[name])
    parts = weight_parts(model, scheme, tp, pp, 1, stage)
    assert sum(part.size_bytes for part in parts) == model.weight_bytes(
        scheme, Split(tp, pp), stage
    )
    for part in parts:
        assert evaluate(part_expression(part)) == part.size_bytes
