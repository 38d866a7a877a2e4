"""Cells as people read them: GiB for bytes, thousands in groups, shares in percent."""

from __future__ import annotations

from typing import Any

from kvplan.sweeping.columns import TEXT, Column
from kvplan.units import GIB

USUAL = (
    "model", "gpu", "tp", "pp", "kv_cache_dtype", "seq_len", "batch", "reserved_bytes_per_sequence",
    "needed_bytes", "pool_bytes", "headroom_bytes", "verdict", "limiting_term", "max_batch",
    "max_seq_len", "error",
)  # fmt: skip
"""Columns that a page has room for, where nobody chooses."""
MOST_ROWS = 2000


def title(column: Column) -> str:
    """A heading with its unit."""
    if column.unit == "bytes":
        return column.name.removesuffix("_bytes").replace("_bytes_", "_") + " (GiB)"
    return column.name + (" (%)" if column.unit == "share" else "")


def shown(column: Column, value: Any) -> str:
    """A cell in words."""
    if value is None:
        return ""
    if column.kind == TEXT:
        return str(value)
    if column.unit == "bytes":
        digits = 2 if abs(value) * 200 >= GIB or value == 0 else 6
        return f"{value / GIB:,.{digits}f}"
    if column.unit == "share":
        return f"{value:.1%}".rstrip("%")
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
