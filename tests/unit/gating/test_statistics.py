"""Statistics against published examples and arithmetic written out."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.gating.statistics import (
    loss_from_errors,
    mcnemar,
    paired_binary_loss,
    paired_mean_loss,
    paired_samples,
    two_sided,
    unpaired_loss,
    unpaired_samples,
    wilson,
    z_of,
)


def test_normal_quantile_and_tail() -> None:
    assert z_of(0.95) == pytest.approx(1.959964, abs=1e-6)
    assert two_sided(1.959964) == pytest.approx(0.05, abs=1e-6)


@pytest.mark.parametrize(
    ("r", "n", "low", "high"),
    [
        # Newcombe 1998, Statistics in Medicine 17:857, table I, method 3 (score).
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_against_newcombes_table(r: int, n: int, low: float, high: float) -> None:
    assert wilson(r, n, 0.95) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize(
    ("a", "m", "b", "n", "low", "high"),
    [
        # Newcombe 1998, Statistics in Medicine 17:873, table II, method 10.
        (56, 70, 48, 80, 0.0524, 0.3339),
        (9, 10, 3, 10, 0.1705, 0.8090),
        (5, 56, 0, 29, -0.0381, 0.1926),
    ],
)
def test_unpaired_against_newcombes_table(
    a: int, m: int, b: int, n: int, low: float, high: float
) -> None:
    found = unpaired_loss(a / m, m, b / n, n, 0.95)
    assert (found.low, found.high) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize(
    ("lost", "won", "p"),
    [
        (0, 0, 1.0),
        (5, 5, 1.0),  # 2 x P(X <= 5 of 10) is above 1
        (5, 0, 2 / 32),  # 2 x 1/2**5
        (6, 1, 2 * (1 + 7) / 128),  # 2 x (C(7,0) + C(7,1)) / 2**7
        (1, 6, 2 * (1 + 7) / 128),
    ],
)
def test_mcnemar_by_hand(lost: int, won: int, p: float) -> None:
    assert mcnemar(lost, won) == pytest.approx(p)


def test_mcnemar_beyond_the_exact_sum_goes_on_as_before() -> None:
    assert mcnemar(2_600, 2_400) == pytest.approx(mcnemar(2_601, 2_400), rel=0.1)


def test_paired_answers_by_hand() -> None:
    """40 lost, 10 won of 1,000: (40.5 - 10.5) / 1002 and its Wald interval."""
    found = paired_binary_loss(40, 10, 1000, 0.95)
    loss = 30 / 1002
    error = math.sqrt(51 - 900 / 1002) / 1002
    assert found.low == pytest.approx(loss - 1.959964 * error, abs=1e-6)
    assert found.high == pytest.approx(loss + 1.959964 * error, abs=1e-6)


def test_paired_means_are_the_same_each_time() -> None:
    losses = [math.sin(n) + 0.1 for n in range(500)]
    first, again = paired_mean_loss(losses, 0.95), paired_mean_loss(losses, 0.95)
    assert first == again
    mean = sum(losses) / 500
    error = math.sqrt(sum((x - mean) ** 2 for x in losses) / 499 / 500)
    assert first.low == pytest.approx(mean - 1.96 * error, abs=0.2 * error)
    assert first.high == pytest.approx(mean + 1.96 * error, abs=0.2 * error)


def test_paired_means_at_the_edges() -> None:
    assert paired_mean_loss([0.0] * 10, 0.95)[:2] == (0.0, 0.0)
    assert paired_mean_loss([0.5] * 10, 0.95)[:2] == (0.5, 0.5)
    alone = paired_mean_loss([0.5], 0.95)
    assert alone.low == -math.inf
    assert alone.high == math.inf


def test_errors_add_as_squares() -> None:
    found = loss_from_errors(0.02, 0.03, 0.04, 0.95)  # sqrt(9 + 16) = 5
    assert (found.low, found.high) == pytest.approx((0.02 - 0.097998, 0.02 + 0.097998), abs=1e-5)


def test_samples_to_see_two_points() -> None:
    """p 0.72 against 0.70: (1.95996 sqrt(2 x 0.71 x 0.29) + 0.84162 sqrt(0.4116))**2 / 0.0004."""
    root = 1.959964 * math.sqrt(2 * 0.71 * 0.29) + 0.8416212 * math.sqrt(0.72 * 0.28 + 0.7 * 0.3)
    assert unpaired_samples(0.72, 0.02, 0.95, 0.8) == math.ceil(root**2 / 0.0004)
    assert 8_000 <= unpaired_samples(0.72, 0.02, 0.95, 0.8) <= 8_100


def test_pairs_need_fewer() -> None:
    """5 % of the answers change: (1.95996 sqrt(0.05) + 0.84162 sqrt(0.0496))**2 / 0.0004."""
    root = 1.959964 * math.sqrt(0.05) + 0.8416212 * math.sqrt(0.05 - 0.0004)
    assert paired_samples(0.05, 0.02, 0.95, 0.8) == math.ceil(root**2 / 0.0004)
    assert paired_samples(0.05, 0.02, 0.95, 0.8) < 1_000


@settings(max_examples=50)
@given(st.integers(0, 300), st.integers(0, 300), st.integers(0, 5000))
def test_an_interval_holds_its_loss(lost: int, won: int, same: int) -> None:
    total = max(1, lost + won + same)
    found = paired_binary_loss(lost, won, total, 0.95)
    assert found.low <= (lost - won) / total * (total / (total + 2)) <= found.high
    assert 0 <= mcnemar(lost, won) <= 1
