"""KV bytes of one sequence as a small table of rows, for one length or a million.

Whatever a layer keeps, its bytes as a function of the tokens of a sequence have one form:

    bytes(n) = constant_bytes + unit_bytes * ceil(min(n, cap_tokens) / unit_tokens)

* plain attention: one unit a token, or a block of 16, without a cap;
* a sliding window: capped; a latent cache: the same with its own bytes;
* pooled or compressed keys: one unit every few tokens;
* recurrent state and cross attention: a constant.

`sequence_bytes` evaluates a table with plain operators, so that an ``int`` stays exact and an
array is evaluated at once; `largest_tokens` solves the same table for the longest sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kvplan.units import INT64_MAX, MAX_TOKENS, at_most, cdiv, checked_bytes

if TYPE_CHECKING:
    from kvplan.units import IntArray

N = TypeVar("N", int, "IntArray")


class Row(NamedTuple):
    """One term of a sequence's KV bytes."""

    unit_bytes: int
    """Bytes of one unit (a state, or a block of them) over all its layers."""
    unit_tokens: int = 1
    """Tokens that fill one unit."""
    cap_tokens: int | None = None
    """Tokens beyond which nothing more is kept; None when it grows for ever."""
    constant_bytes: int = 0
    """Bytes kept whatever the length."""

    def bytes_for(self, tokens: N) -> N:
        """Bytes this row keeps for a sequence of ``tokens``."""
        kept = tokens if self.cap_tokens is None else at_most(tokens, self.cap_tokens)
        return self.constant_bytes + self.unit_bytes * cdiv(kept, self.unit_tokens)

    def slope(self, tokens: N) -> N:
        """Bytes that one more token costs at this length, before rounding to units."""
        grows: N = tokens * 0 + (1 if self.cap_tokens is None else tokens < self.cap_tokens)
        return grows * cdiv(self.unit_bytes, self.unit_tokens)


def sequence_bytes(rows: Sequence[Row], tokens: N) -> N:
    """Bytes that a sequence of ``tokens`` keeps: an exact ``int``, or an int64 array.

    Overflow: a single answer is exact at any size and refused beyond int64; an array is checked
    once at its largest element, which bounds the others because no row falls as tokens grow.
    """
    if isinstance(tokens, int):
        largest = tokens
    else:
        tokens = tokens.astype("int64")  # a narrower array would wrap
        largest = int(tokens.max(initial=0))
    checked_bytes(sum(row.bytes_for(largest) for row in rows), "the KV cache of one sequence")
    total = tokens * 0
    for row in rows:
        total = total + row.bytes_for(tokens)
    return total


def slope_bytes(rows: Sequence[Row], tokens: N) -> N:
    """Bytes per further token at this length."""
    total = tokens * 0
    for row in rows:
        total = total + row.slope(tokens)
    return total


def largest_tokens(rows: Sequence[Row], budget_bytes: int, limit: int = MAX_TOKENS) -> int:
    """The longest sequence, up to ``limit``, whose bytes are within the budget; 0 when none is.

    The table never falls as tokens grow, so the answer is the last length on the near side of
    one edge, which halving finds exactly in at most 40 evaluations.
    """
    budget_bytes = min(budget_bytes, INT64_MAX)

    def bytes_at(tokens: int) -> int:
        return sum(row.bytes_for(tokens) for row in rows)

    if bytes_at(1) > budget_bytes:
        return 0
    if bytes_at(limit) <= budget_bytes:
        return limit
    fits, fails = 1, limit
    while fails - fits > 1:
        middle = (fits + fails) // 2
        if bytes_at(middle) <= budget_bytes:
            fits = middle
        else:
            fails = middle
    return fits
