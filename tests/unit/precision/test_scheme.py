"""Which format each weight is stored in, and what a checkpoint says it left alone."""

from __future__ import annotations

import pytest

from kvplan.model.tensors import Tensor
from kvplan.precision.format import BF16, FP8
from kvplan.precision.scheme import ModuleRules, WeightScheme, plain_scheme, scheme_from
from kvplan.precision.weights import LINEAR_PARTS, WEIGHT_FORMATS

Q_PROJ = Tensor("attention", "self_attn.q_proj", 64, 64)
BIAS = Tensor("attention", "self_attn.q_proj.bias", 64)
EMBEDDING = Tensor("embedding", "model.embed_tokens", 128, 64)
EXPERT = Tensor("experts", "mlp.experts.*.up_proj", 128, 64, copies=8)
PREFIX = "model.layers.3."


def fp8(*left_alone: str) -> WeightScheme:
    return WeightScheme("fp8", FP8, LINEAR_PARTS, ModuleRules(left_alone))


def test_linear_layers_are_quantised_and_the_rest_is_not() -> None:
    scheme = fp8()
    assert scheme.format_for(Q_PROJ, PREFIX, BF16) is FP8
    assert scheme.format_for(EXPERT, PREFIX, BF16) is FP8
    assert scheme.format_for(BIAS, PREFIX, BF16) is BF16  # vectors never are
    assert scheme.format_for(EMBEDDING, "", BF16) is BF16


def test_mxfp4_touches_only_experts() -> None:
    scheme = scheme_from(WEIGHT_FORMATS["mxfp4"])
    assert scheme.format_for(EXPERT, PREFIX, BF16).name == "mxfp4"
    assert scheme.format_for(Q_PROJ, PREFIX, BF16) is BF16


def test_gguf_types_touch_the_embedding() -> None:
    scheme = scheme_from(WEIGHT_FORMATS["q8_0"])
    assert scheme.format_for(EMBEDDING, "", BF16).name == "q8_0"


def test_plain_checkpoint_is_in_its_dtype() -> None:
    scheme = plain_scheme(BF16)
    assert scheme.format_for(Q_PROJ, PREFIX, BF16) is BF16
    assert not scheme.names_layers


@pytest.mark.parametrize(
    ("left_alone", "form"),
    [
        ("self_attn", BF16),
        ("model.layers.3.self_attn.q_proj", BF16),
        ("q_proj", BF16),
        ("model.layers.3", BF16),
        ("model.layers.4", FP8),
        ("mlp", FP8),
        ("q", FP8),  # a whole part of the path, not the beginning of one
        ("lm_head", FP8),
    ],
)
def test_modules_left_alone_stay_at_16_bits(left_alone: str, form: object) -> None:
    assert fp8(left_alone).format_for(Q_PROJ, PREFIX, BF16) is form


def test_a_list_by_number_tells_layers_apart() -> None:
    assert fp8("model.layers.3.mlp").names_layers
    assert not fp8("lm_head").names_layers
