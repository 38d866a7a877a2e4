"""Finding the edge of what fits, in few evaluations.

Memory that is left falls as a batch, a length or an engine's limit grows, nearly on a straight
line. So the edge is sought where the line through two known points crosses zero, and halving in
between makes sure of it: a handful of evaluations instead of the forty of halving alone.
"""

from __future__ import annotations

from collections.abc import Callable

REFUSED = -1
"""Room of a value that cannot be asked for at all: it says nothing of how far off it is."""


def largest(room: Callable[[int], int], guess: int, limit: int) -> int:
    """The largest value from 1 to ``limit`` whose room is not negative; 0 when none is.

    ``room`` must not rise with the value. Exact whatever the guess; a good one costs two
    evaluations, one on each side of the edge.
    """
    guess = max(1, min(guess, limit))
    spare = room(guess)
    if spare < 0:
        return _narrow(room, 0, None, guess, spare)
    low, step = guess, 1
    while low < limit:
        value = min(low + step, limit)
        found = room(value)
        if found < 0:
            return _narrow(room, low, spare, value, found)
        fallen = spare - found
        step = max(2 * step, found * (value - low) // fallen + 1) if fallen > 0 else 8 * step
        low, spare = value, found
    return limit


def _narrow(room: Callable[[int], int], low: int, spare: int | None, high: int, short: int) -> int:
    """The edge between ``low``, which fits, and ``high``, which does not."""
    straight = True
    while high - low > 1:
        value = (low + high) // 2
        if straight and spare is not None and short < REFUSED:
            value = low + (high - low) * spare // (spare - short)
            value = min(max(value, low + 1), high - 1)
        straight = not straight
        found = room(value)
        if found < 0:
            high, short = value, found
        else:
            low, spare = value, found
    return low
