"""Weight formats: bits with their metadata, the parts they touch, and how one is asked for."""

from __future__ import annotations

import pytest

from kvplan.errors import InputError
from kvplan.precision.weights import WEIGHT_FORMATS, weight_format

MATRIX_BYTES = {
    # a [4,096, 4,096] matrix: 16,777,216 weights
    "fp32": 67_108_864,
    "bf16": 33_554_432,
    "fp16": 33_554_432,
    "fp8": 16_793_600,  # 16,777,216 + 4,096 rows * 4 B
    "fp8_block": 16_781_312,  # 16,777,216 + 32 * 32 blocks * 4 B
    "int8": 16_785_408,  # 16,777,216 + 4,096 rows * 2 B
    "awq": 8_716_288,  # 4.15625 bits: 8,388,608 + 4,096 * 32 groups * 20 bits
    "gptq": 8_732_672,  # as awq, + 4,096 columns * 32 bits of g_idx
    "w4a16": 8_650_752,  # 4.125 bits: 8,388,608 + 131,072 groups * 2 B
    "nvfp4": 9_437_184,  # 4.5 bits: 8,388,608 + 1,048,576 groups * 1 B
    "mxfp4": 8_912_896,  # 4.25 bits: 8,388,608 + 524,288 groups * 1 B
    "nf4": 9_437_184,  # 4.5 bits: 8,388,608 + 262,144 groups * 4 B
    "q8_0": 17_825_792,  # 524,288 blocks * 34 B
    "q6_k": 13_762_560,  # 65,536 blocks * 210 B
    "q5_k": 11_534_336,  # 65,536 * 176
    "q5_0": 11_534_336,  # 524,288 * 22
    "q4_k": 9_437_184,  # 65,536 * 144
    "q4_0": 9_437_184,  # 524,288 * 18
}


def test_every_format_is_checked() -> None:
    assert set(WEIGHT_FORMATS) == set(MATRIX_BYTES)


@pytest.mark.parametrize("name", MATRIX_BYTES)
def test_bytes_of_a_matrix(name: str) -> None:
    assert WEIGHT_FORMATS[name].form.matrix_bytes(4096, 4096) == MATRIX_BYTES[name]


def test_awq_is_4_156_bits() -> None:
    assert WEIGHT_FORMATS["awq"].form.bits_per_element(4096) == 4.15625  # 4 + 16/128 + 4/128


def test_parts_that_each_kind_touches() -> None:
    linear = {"attention", "mlp", "experts", "shared_experts", "mixer"}
    for name in ("fp8", "fp8_block", "int8", "awq", "gptq", "w4a16", "nvfp4", "nf4"):
        assert WEIGHT_FORMATS[name].parts == linear  # embeddings, head and router stay at 16 bits
    assert WEIGHT_FORMATS["mxfp4"].parts == {"experts"}  # as gpt-oss ships it
    for name in ("bf16", "q8_0", "q4_k"):
        assert WEIGHT_FORMATS[name].parts == linear | {"embedding", "head", "router"}


@pytest.mark.parametrize(
    ("text", "name"),
    [("awq", "awq"), ("AWQ", "awq"), (" fp8 ", "fp8"), ("fp8_e4m3", "fp8"), ("bfloat16", "bf16"),
     ("int4", "awq"), ("w8a8", "int8"), ("bnb", "nf4")],
)  # fmt: skip
def test_asked_for(text: str, name: str) -> None:
    assert weight_format(text).name == name


@pytest.mark.parametrize("text", ["", "int5", "q4", "k=q8_0,v=q4_0", "auto"])
def test_not_a_format(text: str) -> None:
    with pytest.raises(InputError, match="--weights") as caught:
        weight_format(text)
    assert (caught.value.hint or "").startswith("Try: ")


def test_every_format_carries_its_source() -> None:
    for name, form in WEIGHT_FORMATS.items():
        assert form.name == form.form.name == name
        assert form.source
        assert form.quality_note
