"""One number format: code bits, and the metadata that every group of elements carries.

Scales are never free: `q8_0` stores a 16-bit scale per 32 elements (8.5 bits an element), a
per-token-head format a 32-bit scale per head row (8.25 bits at head size 128), `nvfp4` an 8-bit
scale per 16 elements (4.5 bits). A planner that leaves them out calls "fits" what does not.
"""

from __future__ import annotations

from typing import NamedTuple

from kvplan.units import cdiv

WHOLE_ROW = -1
"""``group_size`` of a format with one scale per row (per head and token, or output channel)."""


class Format(NamedTuple):
    """A way to store numbers."""

    name: str
    bits: int
    """Bits of one element's code."""
    group_size: int = 0
    """Elements of a row that share metadata; 0 when one scale serves a whole tensor (its few
    bytes live outside the cache), `WHOLE_ROW` for one a row."""
    metadata_bits: int = 0
    """Scale and zero point of one group."""
    group_rows: int = 1
    """Rows that share a group: 128 for DeepSeek's 128 x 128 fp8 blocks."""
    outlier_permille: int = 0
    """Elements in 1,000 kept apart as a 16-bit value with a 16-bit index."""
    column_bits: int = 0
    """Metadata of one input column of a whole matrix: GPTQ's 32-bit ``g_idx``."""
    packs: int = 1
    """A row must be a multiple of this many elements, else the format cannot hold it."""
    rope: Format | None = None
    """The format of a latent cache's rotary part where it differs (fp8_ds_mla keeps bf16)."""

    def row_bytes(self, elements: int) -> int:
        """Bytes of one row of ``elements``, rounded up to a whole byte.

        ``ceil((elements * bits + groups * metadata_bits + outliers * 32) / 8)``, with
        ``groups = ceil(elements / group_size)``.
        """
        return self.matrix_bytes(1, elements)

    def matrix_bytes(self, rows: int, columns: int) -> int:
        """Bytes of a ``[rows, columns]`` matrix whose groups run along the columns."""
        bits = rows * columns * self.bits
        if self.metadata_bits:
            per_row = 1 if self.group_size == WHOLE_ROW else cdiv(columns, self.group_size)
            bits += cdiv(rows, self.group_rows) * per_row * self.metadata_bits
        if self.outlier_permille:
            bits += cdiv(rows * columns * self.outlier_permille * 32, 1000)
        return cdiv(bits + self.column_bits * columns, 8)

    def bits_per_element(self, row: int = 128) -> float:
        """Mean bits of an element in a row of ``row``, metadata included."""
        return self.row_bytes(row) * 8 / row


FP32 = Format("fp32", 32)
BF16 = Format("bf16", 16)
FP16 = Format("fp16", 16)
FP8 = Format("fp8", 8)

DTYPES = {
    "float32": FP32, "fp32": FP32, "float": FP32,
    "bfloat16": BF16, "bf16": BF16,
    "float16": FP16, "fp16": FP16, "half": FP16,
    "float8_e4m3fn": FP8, "fp8": FP8,
}  # fmt: skip
"""Plain number types by the names that PyTorch, Hugging Face and the engines use."""


def ggml(name: str, block: int, block_bytes: int, bits: int) -> Format:
    """A GGML block type: ``block`` elements in ``block_bytes``; the rest of a block is metadata.

    Source: ggml/src/ggml-common.h ``block_q8_0`` and kin (34 bytes for 32 elements, and so on).
    """
    return Format(name, bits, block, block_bytes * 8 - block * bits, packs=block)


GGML = {
    fmt.name: fmt
    for fmt in (
        ggml("q8_0", 32, 34, 8),
        ggml("q5_1", 32, 24, 5),
        ggml("q5_0", 32, 22, 5),
        ggml("q4_1", 32, 20, 4),
        ggml("q4_0", 32, 18, 4),
        ggml("iq4_nl", 32, 18, 4),
        ggml("q6_k", 256, 210, 6),
        ggml("q5_k", 256, 176, 5),
        ggml("q4_k", 256, 144, 4),
        ggml("q3_k", 256, 110, 3),
        ggml("q2_k", 256, 84, 2),
    )
}
"""GGML block types with their true sizes."""
