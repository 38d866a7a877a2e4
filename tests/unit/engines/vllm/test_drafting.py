"""Draft models and MTP layers: their weights as a term, their layers in the block planner."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from builders import TINY_LAYER, TINY_OUTSIDE, cache_model, config_model, tiny_model

from kvplan.deployment import Deployment
from kvplan.engines import load_engine
from kvplan.errors import InputError, UnsupportedCombination
from kvplan.model.caches import Recurrent, SlidingWindow
from kvplan.model.model import Model
from kvplan.planning.budget import evaluate
from kvplan.question import build_deployment

ENGINE = load_engine("vllm")
PAGE = 16 * 2 * (16 + 16) * 2
"""A block of 16 tokens of one layer of the tiny model: 2 heads of 16 + 16 elements in bf16."""
GLM: dict[str, Any] = {
    "model_type": "glm4_moe", "num_hidden_layers": 3, "hidden_size": 64, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 128, "vocab_size": 128,
    "moe_intermediate_size": 32, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "n_shared_experts": 1, "first_k_dense_replace": 1, "num_nextn_predict_layers": 1,
    "max_position_embeddings": 4096, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
}  # fmt: skip
GLM_LAYER = 2 * 64 * 64 + 2 * 32 * 64 + 4 * 3 * 32 * 64 + 3 * 32 * 64 + 4 * 64 + 4 + 2 * 64
"""q and o, k and v, four experts, the shared one, router and its bias, two norms."""
GLM_BESIDE = 64 * 128 + 3 * 64
"""eh_proj [64, 128] and three norms."""


def proposing(model: Model | str, draft: Model | None = None, **flags: Any) -> Deployment:
    asked = {"gpu": "h100-sxm", "seq": "2k", "speculative_tokens": 3, **flags}
    return ENGINE.resolve(build_deployment(model, **asked)._replace(draft=draft))


def draft_bytes(d: Deployment, stage: int = 0) -> int | None:
    terms = [term for term in ENGINE.overheads(d, stage) if term.key == "draft"]
    assert all(term.low == term.likely == term.high for term in terms)
    return terms[0].likely if terms else None


def proposal(d: Deployment) -> dict[str, Any]:
    line = ENGINE.flags(d)
    found: dict[str, Any] = json.loads(line[line.index("--speculative-config") + 1])
    return found


def said(d: Deployment) -> str:
    return " ".join((*d.assumptions, *d.warnings))


def test_a_draft_model_has_weights_and_layers() -> None:
    d = proposing(tiny_model(), tiny_model(num_hidden_layers=2))
    assert draft_bytes(d) == 2 * (2 * TINY_LAYER + TINY_OUTSIDE)
    assert ENGINE.kv_layout(d, 0).block_bytes == (4 + 2) * PAGE
    assert proposal(d) == {"method": "draft_model", "model": "tiny", "num_speculative_tokens": 3}
    assert "draft model tiny: weights and reserved KV cache are counted" in said(d)


def test_tp_divides_it_as_it_divides_the_target() -> None:
    """q, k, v, o and the MLP by half, norms whole; the table and the head by half."""
    d = proposing(tiny_model(), tiny_model(num_hidden_layers=2), tp=2)
    halves = 2 * (TINY_LAYER - 2 * 64) // 2 + (TINY_OUTSIDE - 64) // 2
    assert draft_bytes(d) == 2 * (halves + 2 * 2 * 64 + 64)
    assert ENGINE.kv_layout(d, 0).block_bytes == (4 + 2) * PAGE // 2


def test_however_many_tokens_it_proposes() -> None:
    draft = tiny_model(num_hidden_layers=2)
    d = proposing(tiny_model(), draft, speculative_tokens=1)
    assert draft_bytes(d) == draft_bytes(proposing(tiny_model(), draft, speculative_tokens=7))


def test_the_pool_is_smaller_by_the_weights() -> None:
    plain = evaluate(ENGINE, proposing(tiny_model()), 0.0)
    drafted = evaluate(ENGINE, proposing(tiny_model(), tiny_model(num_hidden_layers=2)), 0.0)
    assert plain.pool_bytes - drafted.pool_bytes == 2 * (2 * TINY_LAYER + TINY_OUTSIDE)
    # 2,048 tokens in 128 blocks, of six layers instead of four.
    assert (plain.needed_bytes, drafted.needed_bytes) == (128 * 4 * PAGE, 128 * 6 * PAGE)


def test_windows_of_a_draft_have_a_group_of_their_own() -> None:
    """Four full layers and two windows of the same page: three groups of two layers."""
    windows = cache_model([(SlidingWindow(2, 16, 16, 512),)] * 2, heads=4, vocab_size=128)
    d = proposing(tiny_model(), windows, max_num_batched_tokens=2048)
    layout = ENGINE.kv_layout(d, 0)
    assert [(group.kind, group.layers) for group in layout.groups] == [
        ("full", 2), ("full", 2), ("sliding_window", 2),
    ]  # fmt: skip
    assert layout.block_bytes == 2 * PAGE
    # One stage with scheduling ahead: two batches of 2,048 tokens in flight.
    assert layout.rows[2].cap_tokens == 511 + 2 * 2048


def test_drafts_that_are_refused() -> None:
    draft = tiny_model()
    with pytest.raises(InputError, match="vLLM wants them equal"):
        proposing(tiny_model(), tiny_model(vocab_size=256))
    with pytest.raises(UnsupportedCombination, match="--pp"):
        proposing(tiny_model(), draft, pp=2)
    with pytest.raises(UnsupportedCombination, match=r"vLLM 0\.30"):
        proposing(tiny_model(), draft, engine="vllm@0.30")
    with pytest.raises(UnsupportedCombination, match="--tp 8"):
        proposing(tiny_model(num_attention_heads=8), draft, tp=8)
    states = build_deployment("falcon-mamba-7b", gpu="h100-sxm").model
    assert isinstance(states.groups[0].cache, Recurrent)
    with pytest.raises(UnsupportedCombination, match="recurrent"):
        proposing(replace(states, name="target"), states)


@pytest.mark.parametrize("engine", ["none", "transformers"])
def test_engines_without_drafts_say_so(engine: str) -> None:
    d = build_deployment(tiny_model(), gpu="h100-sxm", engine=engine, speculative_tokens=2)
    resolved = load_engine(engine).resolve(d._replace(draft=tiny_model()))
    assert resolved.draft is None
    assert "has no --draft-model" in said(resolved)


def test_mtp_layers_are_like_the_last_layer() -> None:
    d = proposing(config_model(GLM))
    assert draft_bytes(d) == 2 * (GLM_LAYER + GLM_BESIDE)
    assert ENGINE.kv_layout(d, 0).block_bytes == (3 + 1) * PAGE
    assert proposal(d) == {"method": "mtp", "num_speculative_tokens": 3}
    assert "MTP layers: weights and reserved KV cache are counted" in said(d)


def test_as_many_as_the_model_states() -> None:
    d = proposing(config_model({**GLM, "num_nextn_predict_layers": 2}))
    assert draft_bytes(d) == 2 * 2 * (GLM_LAYER + GLM_BESIDE)
    assert ENGINE.kv_layout(d, 0).block_bytes == (3 + 2) * PAGE


def test_the_projection_is_whole_on_every_rank() -> None:
    """tp 2: matrices of attention and experts by half; router, norms and eh_proj whole."""
    whole = 4 * 64 + 4 + 2 * 64
    d = proposing(config_model(GLM), tp=2)
    assert draft_bytes(d) == 2 * ((GLM_LAYER - whole) // 2 + whole + GLM_BESIDE)


def test_a_draft_model_goes_before_mtp_layers() -> None:
    d = proposing(config_model(GLM), tiny_model(num_hidden_layers=2))
    assert draft_bytes(d) == 2 * (2 * TINY_LAYER + TINY_OUTSIDE)
    assert ENGINE.kv_layout(d, 0).block_bytes == (3 + 2) * PAGE


def test_deepseek_v3() -> None:
    """61 + 1 layers of 576 elements in bf16, in blocks of the latent backend."""
    d = proposing("deepseek-v3", gpu="h200-sxm", tp=8)
    layout = ENGINE.kv_layout(d, 0)
    assert layout.block_bytes == 62 * 576 * 2 * (layout.block_size or 0)
    last = ENGINE.weight_bytes(proposing("deepseek-v3", gpu="h200-sxm", tp=8), 0)
    assert 0 < (draft_bytes(d) or 0) - 2 * (7168 * 14_336 + 3 * 7168) < last // 40


@pytest.mark.parametrize(
    ("model", "flags"),
    [
        ("glm-5", {"gpu": "h200-sxm", "gpus": 16, "tp": 16}),
        (config_model(GLM), {"pp": 2}),
        (config_model(GLM), {"engine": "vllm@0.30"}),
    ],
)
def test_mtp_layers_that_are_not_known_are_said_not_to_be_counted(
    model: Any, flags: dict[str, Any]
) -> None:
    d = proposing(model, **flags)
    assert draft_bytes(d) is None
    assert any("MTP layers" in text and "not counted" in text for text in d.warnings)
    assert proposal(d)["method"] == "ngram"


def test_ngrams_take_nothing() -> None:
    d = proposing(tiny_model())
    assert draft_bytes(d) is None
    assert ENGINE.kv_layout(d, 0).block_bytes == 4 * PAGE
    assert proposal(d) == {"method": "ngram", "num_speculative_tokens": 3}
    assert "n-grams" in said(d)
    silent = ENGINE.resolve(build_deployment(tiny_model(), gpu="h100-sxm", seq="2k"))
    assert "speculative" not in said(silent)
    assert "--speculative-config" not in ENGINE.flags(silent)


def test_a_projection_that_tp_divides() -> None:
    """Qwen3.5: a full-attention layer of 64 wide, ``fc`` [64, 128] by half at tp 2."""
    config = {
        **GLM, "model_type": "qwen3_5_text", "layer_types": ["linear_attention"] * 2
        + ["full_attention"], "linear_num_value_heads": 4, "linear_num_key_heads": 2,
        "linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4,
        "mtp_num_hidden_layers": 1,
    }  # fmt: skip
    # q with its gate, k and v, o, the MLP; norms of 16 for queries and keys and two of 64.
    divided = 2 * 64 * 64 + 2 * 32 * 64 + 64 * 64 + 3 * 128 * 64
    whole = 2 * 16 + 2 * 64
    for tp in (1, 2):
        d = proposing(config_model(config), tp=tp)
        assert draft_bytes(d) == 2 * ((divided + 64 * 128) // tp + whole + 3 * 64)
    quantised = proposing(config_model(config), weights="fp8")
    assert draft_bytes(quantised) is None
    assert any("MTP layers" in text for text in quantised.warnings)
