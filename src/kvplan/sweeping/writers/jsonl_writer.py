"""JSON Lines: an object a row, null is unknown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from kvplan.sweeping.blocks import Block
from kvplan.sweeping.lines import block_lines

BREAKS_IN_QUOTES = False


def header(names: Sequence[str], excel: bool) -> str:  # noqa: ARG001
    """Every line names its own cells."""
    return ""


def lines(block: Block, keys: Sequence[str], names: Sequence[str]) -> str:
    """The rows of a block."""
    fronts = [f"{json.dumps(name, ensure_ascii=False)}: " for name in names]
    before = [("{" if number == 0 else ", ") + front for number, front in enumerate(fronts)]
    return block_lines(block, keys, before, "}\n", encode)


def encode(value: Any) -> str:
    """One value."""
    return json.dumps(value, ensure_ascii=False)
