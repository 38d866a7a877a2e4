"""``quantization_config`` → the format of each weight, and the bytes of real checkpoints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kvplan.errors import MalformedFile, UnsupportedArchitecture
from kvplan.model.model import Model
from kvplan.model.tensors import Tensor
from kvplan.precision.format import BF16, Format
from kvplan.precision.scheme import WeightScheme
from kvplan.sources.huggingface.config import read_config
from kvplan.sources.huggingface.fields import Fields
from kvplan.sources.huggingface.quantization import (
    checkpoint_scheme,
    declared_kv_format,
    with_hf_quant_config,
)

ROWS = [
    json.loads(line)
    for line in (Path(__file__).parents[3] / "data" / "quantized_checkpoints.jsonl")
    .read_text()
    .splitlines()
]
BY_MODEL = {row["model"]: row for row in ROWS}


@cache
def published(name: str) -> Model:
    row = BY_MODEL[name]
    config = with_hf_quant_config(row["config"], row["hf_quant_config"], name)
    return read_config(config, name=name, source=name)


def formats(model: Model) -> list[tuple[Tensor, Format]]:
    """Each tensor of the model with the format it is stored in."""
    pairs = [
        (tensor, model.scheme.format_for(tensor, f"model.layers.{index}.", model.dtype))
        for index, layer in enumerate(model.layers)
        for tensor in layer.tensors
    ]
    return pairs + [
        (tensor, model.scheme.format_for(tensor, "", model.dtype)) for tensor in model.outside
    ]


def scales(tensor: Tensor, form: Format) -> int:
    """Scale tensors' elements beside the weight."""
    if form.name == "fp8_block":
        return -(-tensor.rows // 128) * -(-tensor.columns // 128) * tensor.copies
    return tensor.parameters // 16 if form.name == "nvfp4" else 0


def stored_elements(model: Model) -> int:
    """Elements of a safetensors file: 4-bit codes are packed two to a byte."""
    return sum(
        tensor.parameters // (2 if form.name == "nvfp4" else 1) + scales(tensor, form)
        for tensor, form in formats(model)
    )


def test_gpt_oss_bytes_are_the_files() -> None:
    # 36 layers x 128 experts x 2880 x 2880 x 3 at 4.25 bits, the rest at 16.
    model = published("openai/gpt-oss-120b")
    assert model.weight_bytes(model.scheme) == 65_248_815_744


@pytest.mark.parametrize(
    "name",
    [
        "Qwen/Qwen3-32B-FP8",
        "MiniMaxAI/MiniMax-M2.5",
        "nvidia/Qwen3-235B-A22B-NVFP4",
        "nvidia/DeepSeek-V3.1-NVFP4",
    ],
)
def test_stored_elements_are_the_files(name: str) -> None:
    assert stored_elements(published(name)) == BY_MODEL[name]["published"]["elements"]


def test_deepseek_v3_scales_are_the_files() -> None:
    """One scale a 128 x 128 block of every linear layer, the draft layer's like the last one's."""
    model = published("deepseek-ai/DeepSeek-V3")
    counted = sum(scales(tensor, form) for tensor, form in formats(model))
    draft = sum(
        scales(tensor, model.scheme.format_for(tensor, "", model.dtype))
        for tensor in model.layers[-1].tensors
    )
    assert counted + draft == BY_MODEL[model.name]["published"]["scales"] == 41_540_496


def test_kimi_k25_is_its_files_but_for_the_image_tower() -> None:
    # Only routed experts are at 4 bits with a 16-bit scale every 32; attention, shared experts,
    # the dense layer and the head are ignored by expressions.
    model = published("moonshotai/Kimi-K2.5")
    tower = sum(tensor.rank_bytes(BF16) for tensor in model.outside if tensor.part == "vision")
    rest = 554.32 * 2**30 - (model.weight_bytes(model.scheme) - tower)
    assert 0.8e9 < rest < 1.1e9  # the tower: 0.47 G parameters at 16 bits
    wide = {tensor.part for tensor, form in formats(model) if form is BF16 and tensor.is_matrix}
    assert wide - {"vision"} == {
        "attention", "shared_experts", "mlp", "router", "embedding", "head",
    }  # fmt: skip


def test_deepseek_v4_keeps_experts_at_four_bits() -> None:
    row = BY_MODEL["deepseek-ai/DeepSeek-V4-Pro"]
    scheme = checkpoint_scheme(Fields(row["config"], "v4"), BF16)
    assert scheme.format_for(matrix("experts"), "", BF16).bits_per_element(3072) == 4.25
    assert scheme.format_for(matrix("attention"), "", BF16).name == "fp8_block"
    assert scheme.format_for(matrix("shared_experts"), "", BF16).name == "fp8_block"


def test_gemma4_nvfp4_leaves_attention_alone() -> None:
    model = published("nvidia/Gemma-4-31B-IT-NVFP4")
    by_part = {tensor.part: form.name for tensor, form in formats(model) if tensor.is_matrix}
    assert by_part["mlp"] == "nvfp4"
    assert by_part["attention"] == "bf16"
    assert model.kv_cache_dtype == "fp8_e4m3"


def test_qwen36_mixes_fp8_and_nvfp4_by_module() -> None:
    row = BY_MODEL["nvidia/Qwen3.6-27B-NVFP4"]
    q = row["config"].get("quantization_config") or row["config"]["text_config"]
    scheme = scheme_of(q)
    assert form_of(scheme, "mlp", "mlp.up_proj") == "nvfp4"
    assert form_of(scheme, "mixer", "linear_attn.in_proj_z") == "fp8"
    assert form_of(scheme, "attention", "self_attn.q_proj", layer=3) == "fp8"
    assert form_of(scheme, "mixer", "linear_attn.in_proj_a") == "bf16"  # not listed
    head = Tensor("head", "lm_head", 64, 64)
    assert scheme.format_for(head, "", BF16).name == "nvfp4"  # listed by name


def test_scout_quantises_experts_by_row() -> None:
    q = BY_MODEL["RedHatAI/Llama-4-Scout-17B-16E-Instruct-FP8-dynamic"]["config"]
    scheme = scheme_of(q["quantization_config"])
    form = scheme.format_for(matrix("experts", "feed_forward.experts.*.up_proj"), LAYER, BF16)
    assert (form.bits, form.group_size, form.metadata_bits) == (8, -1, 16)
    assert form_of(scheme, "attention", "self_attn.q_proj") == "bf16"
    assert scheme.format_for(Tensor("head", "lm_head", 8, 8), "", BF16) is BF16


LAYER = "model.layers.0."


def matrix(part: str, name: str = "x") -> Tensor:
    return Tensor(part, name, 3072, 3072)


def scheme_of(q: Mapping[str, Any], **config: Any) -> WeightScheme:
    return checkpoint_scheme(Fields({"quantization_config": q, **config}, "c"), BF16)


def form_of(scheme: WeightScheme, part: str, name: str, layer: int = 0) -> str:
    return scheme.format_for(matrix(part, name), f"model.layers.{layer}.", BF16).name


def bits(q: Mapping[str, Any], part: str = "mlp", **config: Any) -> float:
    """Bits of an element of a 4096-wide row, scales included."""
    form = scheme_of(q, **config).format_for(matrix(part), LAYER, BF16)
    return form.bits_per_element(4096)


def group(**weights: Any) -> dict[str, Any]:
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
    }


@pytest.mark.parametrize(
    ("q", "expected"),
    [
        ({"quant_method": "fp8", "weight_block_size": None}, 8),
        ({"quant_method": "fbgemm_fp8"}, 8 + 32 / 4096),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 4 + 20 / 128),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 64}, 4 + 20 / 64),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 8 + 24 / 4096 + 32),  # g_idx a row
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 8 + 32 / 4096),
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
            4 + 32 / 64,
        ),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, 8),
        ({"quant_algo": "FP8"}, 8),  # without quant_method, as ModelOpt's first exports
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}, 4.5),
        ({"quant_method": "modelopt", "quant_algo": "W4A16_AWQ", "group_size": 64}, 4.25),
        ({"quant_method": "modelopt", "quant_algo": "MXFP8"}, 8.25),
        (group(num_bits=4, type="int", strategy="group", group_size=128), 4.125),
        (group(num_bits=4, type="int", strategy="group", group_size=128, symmetric=False), 4.15625),
        (group(num_bits=8, type="int", strategy="channel"), 8 + 16 / 4096),
        (group(num_bits=8, type="float", strategy="tensor"), 8),
        (group(num_bits=8, type="float", strategy="channel"), 8 + 16 / 4096),
        (group(num_bits=4, type="float", strategy="tensor_group", group_size=16), 4.5),
        (
            group(num_bits=4, type="float", strategy="group", group_size=32, scale_dtype="uint8"),
            4.25,
        ),
    ],
)
def test_bits_of_each_scheme(q: dict[str, Any], expected: float) -> None:
    assert bits(q) == pytest.approx(expected)


def test_double_quantisation_stores_8_bit_scales() -> None:
    q = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}
    form = scheme_of({"quant_method": "bitsandbytes", **q}).form
    assert form.matrix_bytes(4096, 16384) * 8 / (4096 * 16384) == 4 + 8 / 64 + 32 / (64 * 256)


def test_several_groups_choose_by_module() -> None:
    scheme = scheme_of(
        {
            "quant_method": "compressed-tensors",
            "ignore": ["lm_head", "re:.*mlp.gate$"],
            "config_groups": {
                "group_0": {
                    "targets": [r"re:.*self_attn\.(q|k|v|o)_proj"],
                    "weights": {"num_bits": 8, "type": "float", "strategy": "channel"},
                },
                "group_1": {
                    "targets": ["Linear"],
                    "weights": {"num_bits": 4, "type": "int", "group_size": 32},
                },
            },
        }
    )
    assert form_of(scheme, "attention", "self_attn.k_proj") == "fp8"
    assert form_of(scheme, "mlp", "mlp.up_proj") == "int4"
    assert form_of(scheme, "router", "mlp.gate") == "bf16"


def test_mixed_precision_is_by_list_alone() -> None:
    scheme = scheme_of(
        {
            "quant_method": "modelopt",
            "quant_algo": "MIXED_PRECISION",
            "exclude_modules": ["lm_head"],
            "quantized_layers": {
                "language_model.model.layers.0.block_sparse_moe.experts.0.w1": {
                    "quant_algo": "NVFP4", "group_size": 16,
                },
                "language_model.model.layers.0.self_attn.k_proj": {"quant_algo": "MXFP8"},
            },
        }
    )  # fmt: skip
    assert form_of(scheme, "experts", "mlp.experts.*.gate_proj") == "nvfp4"
    assert form_of(scheme, "attention", "self_attn.k_proj") == "mxfp8"
    assert form_of(scheme, "attention", "self_attn.k_proj", layer=1) == "bf16"


def test_gptq_dynamic_skips_and_changes_modules() -> None:
    scheme = scheme_of(
        {
            "quant_method": "gptq", "bits": 4, "group_size": 128,
            "dynamic": {r"-:.*\.down_proj": {}, r"+:.*\.up_proj": {"bits": 8}},
        }
    )  # fmt: skip
    assert form_of(scheme, "mlp", "mlp.down_proj") == "bf16"
    assert scheme.format_for(matrix("mlp", "mlp.up_proj"), LAYER, BF16).bits == 8
    assert scheme.format_for(matrix("mlp", "mlp.gate_proj"), LAYER, BF16).bits == 4


def test_a_conversion_of_v4_keeps_the_rest_in_fp8() -> None:
    """Its ignored modules are those that keep the original's fp8, not 16 bits."""
    q = {
        "quant_method": "fp8", "weight_block_size": [128, 128], "moe_quant_algo": "NVFP4",
        "quant_algo": "MIXED_PRECISION", "ignore": ["*.attn.*", "head"],
    }  # fmt: skip
    scheme = scheme_of(q, expert_dtype="fp4")
    assert form_of(scheme, "experts", "ffn.experts") == "nvfp4"
    assert form_of(scheme, "attention", "self_attn.q_a_proj") == "fp8_block"


@pytest.mark.parametrize(
    "q",
    [
        {"quant_method": "quark"},
        {"quant_method": None},
        {"bits": 4},
        {"quant_method": "modelopt", "quant_algo": "FP3"},
        {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"},
        {"quant_method": "bitsandbytes"},
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "x"},
        {"quant_method": "compressed-tensors"},
        {"quant_method": "compressed-tensors", "sparsity_config": {"format": "sparse-24-bitmask"}},
        {**group(num_bits=8, type="int"), "format": "marlin-24"},
        group(num_bits=5, type="int"),
        group(num_bits=16, type="float"),
        {"quant_method": "fp8", "ignored_layers": ["re:(?=x)y"]},
        {
            "quant_method": "compressed-tensors",
            "config_groups": {"g": {"targets": ["LlamaMLP"], "weights": {"num_bits": 8}}},
        },
    ],
)
def test_a_scheme_not_understood_is_named(q: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedArchitecture, match=r"c: .*not a weight format kvplan knows"):
        scheme_of(q)


@pytest.mark.parametrize(
    "q",
    [
        {"quant_method": 7},
        {"quant_method": "fp8", "weight_block_size": [128]},
        {"quant_method": "fp8", "weight_block_size": [0, 128]},
        {"quant_method": "awq"},
        {"quant_method": "awq", "bits": "4", "group_size": 128},
        {"quant_method": "fp8", "modules_to_not_convert": [7]},
        {"quant_method": "fp8", "modules_to_not_convert": "lm_head"},
        {"quant_method": "compressed-tensors", "config_groups": []},
    ],
)
def test_a_malformed_scheme_is_refused(q: dict[str, Any]) -> None:
    with pytest.raises(MalformedFile):
        scheme_of(q)


def test_an_unknown_scheme_leaves_the_kv_cache_standing() -> None:
    config = {**BY_MODEL["Qwen/Qwen3-32B-FP8"]["config"]}
    config["quantization_config"] = {"quant_method": "quark"}
    model = read_config(config, name="q", source="q")
    assert model.weights_unknown is not None
    assert "quark" in model.weights_unknown
    assert model.groups[0].layers == 64


@pytest.mark.parametrize(
    ("stated", "name", "is_known"),
    [
        ({"kv_cache_quant_algo": "FP8"}, "fp8_e4m3", True),
        ({"kv_cache_quant_algo": "NVFP4"}, "nvfp4", True),
        ({"kv_cache_quant_algo": None, "kv_cache_scheme": None}, None, True),
        ({"kv_cache_scheme": {"num_bits": 8, "type": "float", "dynamic": False}}, "fp8_e4m3", True),
        ({"kv_cache_scheme": "FP8"}, "fp8_e4m3", True),
        ({"kv_cache_scheme": {"num_bits": 8, "type": "int"}}, None, False),
        ({"kv_cache_quant_algo": "INT8"}, None, False),
        ({"kv_cache_scheme": [1]}, None, False),
    ],
)
def test_declared_kv_formats(stated: dict[str, Any], name: str | None, is_known: bool) -> None:
    found, warning = declared_kv_format(Fields({"quantization_config": stated}, "c"))
    assert found == name
    assert (warning is None) is is_known


def test_hf_quant_config_counts_only_where_the_config_is_silent() -> None:
    beside = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    assert with_hf_quant_config({}, None, "p") == {}
    filled = with_hf_quant_config({"a": 1}, beside, "p")
    assert filled["quantization_config"]["quant_method"] == "modelopt"
    stated = {"quantization_config": {"quant_method": "fp8"}}
    assert with_hf_quant_config(stated, beside, "p") is stated
    nested = {"text_config": {"quantization_config": {"quant_method": "fp8"}}}
    assert with_hf_quant_config(nested, beside, "p") is nested
    with pytest.raises(MalformedFile, match="p: quantization"):
        with_hf_quant_config({}, {"quantization": []}, "p")


def test_long_lists_are_applied_quickly() -> None:
    """22,000 modules by name, asked for every tensor of 61 layers."""
    names = [
        f"model.layers.{layer}.mlp.experts.{expert}.up_proj"
        for layer in range(61)
        for expert in range(360)
    ]
    scheme = scheme_of({"quant_method": "fp8", "modules_to_not_convert": names})
    assert form_of(scheme, "experts", "mlp.experts.*.up_proj", layer=60) == "bf16"
    assert form_of(scheme, "experts", "mlp.experts.*.up_proj", layer=61) == "fp8"
