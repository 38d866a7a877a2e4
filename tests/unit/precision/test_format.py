"""Bytes of rows and matrices: codes and every scale, zero point, outlier and index."""

from __future__ import annotations

import pytest

from kvplan.precision.format import BF16, DTYPES, FP8, FP16, FP32, GGML, WHOLE_ROW, Format


@pytest.mark.parametrize(("form", "size"), [(FP32, 512), (BF16, 256), (FP16, 256), (FP8, 128)])
def test_plain_types(form: Format, size: int) -> None:
    assert form.row_bytes(128) == size
    assert form.matrix_bytes(3, 128) == 3 * size


def test_one_scale_a_group() -> None:
    # 100 codes of 4 bits = 50 B; ceil(100 / 32) = 4 groups with 16 bits = 8 B
    assert Format("x", 4, 32, 16).row_bytes(100) == 58


def test_one_scale_a_row() -> None:
    assert Format("x", 8, WHOLE_ROW, 32).row_bytes(100) == 104  # 100 + 4


def test_one_scale_a_tensor_is_outside() -> None:
    assert Format("x", 8, 0, 0).row_bytes(100) == 100


def test_bytes_are_rounded_up() -> None:
    assert Format("x", 3).row_bytes(5) == 2  # 15 bits
    assert Format("x", 4, WHOLE_ROW, 1).row_bytes(2) == 2  # 9 bits


def test_groups_run_along_the_columns_of_a_matrix() -> None:
    # 10 * 100 codes of 4 bits = 500 B; 10 rows * 4 groups * 16 bits = 80 B
    assert Format("x", 4, 32, 16).matrix_bytes(10, 100) == 580


def test_groups_of_rows() -> None:
    # fp8 in blocks of 128 x 128: 300 * 200 = 60,000 B; 3 * 2 blocks * 4 B = 24 B
    assert Format("x", 8, 128, 32, group_rows=128).matrix_bytes(300, 200) == 60_024


def test_column_metadata() -> None:
    # 10 * 100 codes of 4 bits = 500 B, and 100 columns * 32 bits = 400 B
    assert Format("x", 4, column_bits=32).matrix_bytes(10, 100) == 900


def test_outliers_are_a_value_and_an_index() -> None:
    # 1,000 * 4 bits + 10 outliers * 32 bits = 4,320 bits
    assert Format("x", 4, outlier_permille=10).row_bytes(1000) == 540


def test_bits_per_element_hold_the_metadata() -> None:
    assert Format("x", 8, WHOLE_ROW, 32).bits_per_element(128) == 8.25  # 8 + 32/128
    assert BF16.bits_per_element() == 16


GGML_BLOCKS = {
    # elements of a block, bytes of a block (ggml-common.h)
    "q8_0": (32, 34), "q5_1": (32, 24), "q5_0": (32, 22), "q4_1": (32, 20), "q4_0": (32, 18),
    "iq4_nl": (32, 18), "q6_k": (256, 210), "q5_k": (256, 176), "q4_k": (256, 144),
    "q3_k": (256, 110), "q2_k": (256, 84),
}  # fmt: skip


def test_every_ggml_type_is_checked() -> None:
    assert set(GGML) == set(GGML_BLOCKS)


@pytest.mark.parametrize(("name", "elements", "size"), [(n, *b) for n, b in GGML_BLOCKS.items()])
def test_ggml_block(name: str, elements: int, size: int) -> None:
    form = GGML[name]
    assert form.packs == elements
    assert form.row_bytes(elements) == size
    assert form.row_bytes(4 * elements) == 4 * size
    assert form.matrix_bytes(7, 2 * elements) == 14 * size


def test_ggml_bits() -> None:
    bits = {name: form.bits_per_element(256) for name, form in GGML.items()}
    assert bits == {
        "q8_0": 8.5, "q5_1": 6.0, "q5_0": 5.5, "q4_1": 5.0, "q4_0": 4.5, "iq4_nl": 4.5,
        "q6_k": 6.5625, "q5_k": 5.5, "q4_k": 4.5, "q3_k": 3.4375, "q2_k": 2.625,
    }  # fmt: skip


def test_names_of_one_type_are_one_format() -> None:
    assert DTYPES["bfloat16"] is DTYPES["bf16"] is BF16
    assert DTYPES["float16"] is DTYPES["half"] is FP16
    assert DTYPES["float32"] is DTYPES["float"] is FP32
