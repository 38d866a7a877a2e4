"""`planning.search.largest` for many questions at once: the same edges, found together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def largest_each(fits: Callable[[Ints, Ints], Bools], guess: Ints, limit: int) -> Ints:
    """For each question the largest value from 1 to ``limit`` that fits; 0 where none does.

    ``fits`` takes numbers of questions and a value for each. What fits must go on fitting at
    smaller values. Steps outwards from the guess double until they cross the edge, and halving
    finds it in between; a good guess costs two evaluations.
    """
    guess = np.clip(guess, 1, limit)
    everyone = np.arange(guess.size)
    fitting = fits(everyone, guess)
    low = np.where(fitting, guess, 0)
    high = np.where(fitting, limit + 1, guess)
    _step_up(fits, low, high, everyone[fitting], limit)
    _step_down(fits, low, high, everyone[~fitting])
    open_ = everyone[high - low > 1]
    while open_.size:
        middle = (low[open_] + high[open_]) // 2
        good = fits(open_, middle)
        low[open_] = np.where(good, middle, low[open_])
        high[open_] = np.where(good, high[open_], middle)
        open_ = open_[high[open_] - low[open_] > 1]
    return low


def _step_up(
    fits: Callable[[Ints, Ints], Bools], low: Ints, high: Ints, growing: Ints, limit: int
) -> None:
    step = 1
    growing = growing[low[growing] < limit]
    while growing.size:
        probe = np.minimum(low[growing] + step, limit)
        good = fits(growing, probe)
        low[growing[good]] = probe[good]
        high[growing[~good]] = probe[~good]
        growing = growing[good & (probe < limit)]
        step *= 2


def _step_down(fits: Callable[[Ints, Ints], Bools], low: Ints, high: Ints, falling: Ints) -> None:
    step = 1
    falling = falling[high[falling] > 1]
    while falling.size:
        probe = np.maximum(high[falling] - step, 1)
        good = fits(falling, probe)
        low[falling[good]] = probe[good]
        high[falling[~good]] = probe[~good]
        falling = falling[~good & (probe > 1)]
        step *= 2


def longest_each(bytes_at: Callable[[Ints], Ints], budget: Ints, limit: int) -> Ints:
    """For each budget the longest length whose bytes are within it, by halving on the table."""
    low, high = np.zeros_like(budget), np.full_like(budget, limit)
    while int((high - low).max(initial=0)) > 1:
        middle = (low + high) // 2
        good = bytes_at(middle) <= budget
        low, high = np.where(good, middle, low), np.where(good, high, middle)
    return low
