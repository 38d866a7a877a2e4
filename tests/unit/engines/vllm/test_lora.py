"""LoRA slots: rank x (input + output) elements of every linear layer on a rank, worked out."""

from __future__ import annotations

from typing import Any

import pytest
from builders import tiny_model

from kvplan.deployment import Deployment
from kvplan.engines import load_engine
from kvplan.engines.base import Term
from kvplan.errors import InputError, UnsupportedCombination
from kvplan.planning.budget import evaluate
from kvplan.question import build_deployment

ENGINE = load_engine("vllm")
SLOTS = ["max_loras=2", "max_lora_rank=8"]
TWO_SLOTS = 2 * 8 * 2
"""Bytes of two slots of rank 8 in bf16, for each element of input and output."""
LAYER = 128 + 2 * 96 + 128 + 3 * 192
"""q 64 + 64, k and v 64 + 32, o 64 + 64, gate, up and down 64 + 128."""
TABLE = 128 + 64
"""A pair at the embedding, and one at the logits: vocabulary and hidden size."""


def resolved(model: Any = None, **flags: Any) -> Deployment:
    asked = {"gpu": "h100-sxm", "seq": "2k", "engine_arg": SLOTS, **flags}
    return ENGINE.resolve(build_deployment(model or tiny_model(), **asked))


def lora(d: Deployment, stage: int = 0) -> Term | None:
    return next((term for term in ENGINE.overheads(d, stage) if term.key == "lora"), None)


def size(d: Deployment, stage: int = 0) -> int:
    term = lora(d, stage)
    assert term is not None
    assert term.low == term.likely == term.high
    return term.likely


def test_one_gpu() -> None:
    assert size(resolved()) == TWO_SLOTS * (4 * LAYER + 2 * TABLE)


def test_the_half_that_tp_divides() -> None:
    """B of q, k, v, gate and up; A of o and down; tables whole."""
    layer = (64 + 32) + 2 * (64 + 16) + (32 + 64) + 2 * (64 + 64) + (64 + 64)
    assert size(resolved(tp=2)) == TWO_SLOTS * (4 * layer + 2 * TABLE)


def test_kv_heads_that_ranks_copy() -> None:
    """At tp 4 each rank holds one of two key-value heads of 16."""
    layer = (64 + 16) + 2 * (64 + 16) + (16 + 64) + 2 * (64 + 32) + (32 + 64)
    assert size(resolved(tp=4)) == TWO_SLOTS * (4 * layer + 2 * TABLE)


def test_stages_hold_their_layers_and_one_table_each() -> None:
    d = resolved(pp=2)
    assert [size(d, stage) for stage in (0, 1)] == [TWO_SLOTS * (2 * LAYER + TABLE)] * 2


def test_a_class_without_embedding_modules() -> None:
    assert size(resolved(tiny_model(model_type="qwen2"))) == TWO_SLOTS * 4 * LAYER


def mixtral() -> Any:
    return tiny_model(model_type="mixtral", num_local_experts=4, num_experts_per_tok=2)


def test_every_expert_has_a_pair_and_so_has_the_router() -> None:
    layer = 128 + 2 * 96 + 128 + (64 + 4) + 4 * 3 * (64 + 128)
    assert size(resolved(mixtral())) == TWO_SLOTS * (4 * layer + 2 * TABLE)


def test_experts_that_are_spread_are_whole() -> None:
    """tp 2 and ep 2: two experts a rank, undivided."""
    layer = (64 + 32) + 2 * (64 + 16) + (32 + 64) + (64 + 4) + 2 * 3 * (64 + 128)
    assert size(resolved(mixtral(), tp=2, ep=2)) == TWO_SLOTS * (4 * layer + 2 * TABLE)


def test_the_pool_is_smaller_by_the_slots() -> None:
    plain = evaluate(ENGINE, resolved(engine_arg=[]), 0.0)
    slots = evaluate(ENGINE, resolved(), 0.0)
    difference = TWO_SLOTS * (4 * LAYER + 2 * TABLE)
    assert plain.pool_bytes - slots.pool_bytes == difference
    assert plain.careful_pool_bytes - slots.careful_pool_bytes == difference


@pytest.mark.parametrize(
    ("given", "slots", "rank"),
    [
        (["max_loras=3"], 3, 16),
        (["enable_lora=true"], 1, 16),
        (["max_lora_rank=64"], 1, 64),
        (["max_lora_rank=64", "max_loras=4"], 4, 64),
    ],
)
def test_what_is_left_out_is_the_engines_default(given: list[str], slots: int, rank: int) -> None:
    d = resolved(engine_arg=given)
    assert size(d) == slots * rank * 2 * (4 * LAYER + 2 * TABLE)
    line = ENGINE.flags(d)
    at = line.index("--enable-lora")
    assert line[at + 1 : at + 5] == ["--max-loras", str(slots), "--max-lora-rank", str(rank)]


@pytest.mark.parametrize("given", [[], ["enable_lora=false"], ["fully_sharded_loras=false"]])
def test_nothing_without_lora(given: list[str]) -> None:
    d = resolved(engine_arg=given)
    assert lora(d) is None
    assert "--enable-lora" not in ENGINE.flags(d)


def test_what_is_not_modelled_is_refused() -> None:
    with pytest.raises(UnsupportedCombination, match="fully_sharded_loras"):
        resolved(engine_arg=[*SLOTS, "fully_sharded_loras=true"])
    with pytest.raises(UnsupportedCombination, match=r"vLLM 0\.30"):
        resolved(engine="vllm@0.30")
    with pytest.raises(UnsupportedCombination, match="gpt_oss"):
        resolved("gpt-oss-20b")
    with pytest.raises(UnsupportedCombination, match="258,048"):
        resolved(tiny_model(vocab_size=258_112))
    with pytest.raises(InputError, match="max_lora_rank=9"):
        resolved(engine_arg=["max_lora_rank=9"])
    with pytest.raises(InputError, match="enable_lora=perhaps"):
        resolved(engine_arg=["enable_lora=perhaps"])
