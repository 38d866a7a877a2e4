"""GGML's tensor types and GGUF's file types.

Source: libggml-base of llama.cpp 0c1e57098 (``ggml_type_size``, ``ggml_blck_size``), which is right
where the Python package ``gguf`` differs (Q8_1 is 36 bytes, Q2_0 exists).
"""

from __future__ import annotations

from kvplan.precision.format import Format, ggml

# id, name, elements of a block, bytes of a block, bits of one code
_TYPES = (
    (0, "f32", 1, 4, 32), (1, "f16", 1, 2, 16), (2, "q4_0", 32, 18, 4),
    (3, "q4_1", 32, 20, 4), (6, "q5_0", 32, 22, 5), (7, "q5_1", 32, 24, 5),
    (8, "q8_0", 32, 34, 8), (9, "q8_1", 32, 36, 8), (10, "q2_k", 256, 84, 2),
    (11, "q3_k", 256, 110, 3), (12, "q4_k", 256, 144, 4), (13, "q5_k", 256, 176, 5),
    (14, "q6_k", 256, 210, 6), (15, "q8_k", 256, 292, 8), (16, "iq2_xxs", 256, 66, 2),
    (17, "iq2_xs", 256, 74, 2), (18, "iq3_xxs", 256, 98, 3), (19, "iq1_s", 256, 50, 1),
    (20, "iq4_nl", 32, 18, 4), (21, "iq3_s", 256, 110, 3), (22, "iq2_s", 256, 82, 2),
    (23, "iq4_xs", 256, 136, 4), (24, "i8", 1, 1, 8), (25, "i16", 1, 2, 16),
    (26, "i32", 1, 4, 32), (27, "i64", 1, 8, 64), (28, "f64", 1, 8, 64),
    (29, "iq1_m", 256, 56, 1), (30, "bf16", 1, 2, 16), (34, "tq1_0", 256, 54, 1),
    (35, "tq2_0", 256, 66, 2), (39, "mxfp4", 32, 17, 4), (40, "nvfp4", 64, 36, 4),
    (41, "q1_0", 128, 18, 1), (42, "q2_0", 64, 18, 2),
)  # fmt: skip

TYPES: dict[int, Format] = {
    number: ggml(name, block, size, bits) for number, name, block, size, bits in _TYPES
}
"""A tensor's type number → its format."""

FILE_TYPES = {
    0: "f32", 1: "f16", 2: "q4_0", 3: "q4_1", 7: "q8_0", 8: "q5_0",
    9: "q5_1", 10: "q2_k", 11: "q3_k_s", 12: "q3_k_m", 13: "q3_k_l", 14: "q4_k_s",
    15: "q4_k_m", 16: "q5_k_s", 17: "q5_k_m", 18: "q6_k", 19: "iq2_xxs", 20: "iq2_xs",
    21: "q2_k_s", 22: "iq3_xs", 23: "iq3_xxs", 24: "iq1_s", 25: "iq4_nl", 26: "iq3_s",
    27: "iq3_m", 28: "iq2_s", 29: "iq2_m", 30: "iq4_xs", 31: "iq1_m", 32: "bf16",
    36: "tq1_0", 37: "tq2_0", 38: "mxfp4", 39: "nvfp4", 40: "q1_0", 41: "q2_0",
}  # fmt: skip
"""``general.file_type`` → the name that people call the mix by."""
