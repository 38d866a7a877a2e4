"""The few statistics that a rollback needs, each with its source; plain arithmetic.

Effects are losses: positive is worse. An interval is for the loss of the candidate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

BOOTSTRAP_SEED = 20_240
BOOTSTRAP_RESAMPLES = 4_000
_MOST_FOR_BOOTSTRAP = 50_000
"""Beyond this many pairs the mean's normal distribution is as good and much quicker."""
_MOST_FOR_EXACT = 5_000


class Interval(NamedTuple):
    """A confidence interval and the probability of a difference as large by chance."""

    low: float
    high: float
    method: str
    p_value: float | None = None


def z_of(confidence: float) -> float:
    """The two-sided normal quantile: 1.96 for 0.95."""
    return NormalDist().inv_cdf(0.5 + confidence / 2)


def wilson(successes: float, total: int, confidence: float) -> tuple[float, float]:
    """The score interval of a proportion. Source: Wilson 1927, JASA 22:209."""
    z = z_of(confidence)
    share = successes / total
    spread = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    middle = share + z * z / (2 * total)
    scale = 1 + z * z / total
    return max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)


def unpaired_loss(p1: float, n1: int, p2: float, n2: int, confidence: float) -> Interval:
    """Interval of ``p1 - p2`` from two separate samples.

    Source: Newcombe 1998, Statistics in Medicine 17:873, method 10: the Wilson limits combined. The
    p value is of the pooled two-proportion z test.
    """
    low1, high1 = wilson(p1 * n1, n1, confidence)
    low2, high2 = wilson(p2 * n2, n2, confidence)
    loss = p1 - p2
    pooled = (p1 * n1 + p2 * n2) / (n1 + n2)
    error = math.sqrt(pooled * (1 - pooled) * (1 / n1 + 1 / n2))
    return Interval(
        loss - math.hypot(p1 - low1, high2 - p2),
        loss + math.hypot(high1 - p1, p2 - low2),
        "unpaired: Newcombe's interval",
        two_sided(loss / error) if error else 1.0,
    )


def mcnemar(lost: int, won: int) -> float:
    """Two-sided p value of ``lost`` against ``won`` where only changed answers count.

    Source: McNemar 1947, Psychometrika 12:153, exact by the binomial of one half; beyond
    5,000 changed answers the normal approximation with Edwards's correction (1948).
    """
    changed = lost + won
    if changed == 0:
        return 1.0
    if changed > _MOST_FOR_EXACT:
        return two_sided(max(0.0, abs(lost - won) - 1) / math.sqrt(changed))
    tail: int = sum(math.comb(changed, k) for k in range(min(lost, won) + 1))
    return min(1.0, float(2 * tail / 2**changed))


def paired_binary_loss(lost: int, won: int, total: int, confidence: float) -> Interval:
    """Interval of ``(lost - won) / total``: answers right before and wrong now, less the reverse.

    Source: Agresti and Min 2005, Biometrics 61:515: Wald's interval after adding one half to each
    of the four cells.
    """
    b, c, n = lost + 0.5, won + 0.5, total + 2
    loss = (b - c) / n
    error = math.sqrt((b + c) - (b - c) ** 2 / n) / n
    half = z_of(confidence) * error
    return Interval(
        loss - half, loss + half, "paired: exact McNemar test, Agresti-Min interval",
        mcnemar(lost, won),
    )  # fmt: skip


def paired_mean_loss(losses: Sequence[float], confidence: float) -> Interval:
    """Interval of the mean of per-sample losses, by the percentile bootstrap.

    Source: Efron and Tibshirani 1993, chapter 13. The seed is fixed: the same files give the same
    answer. The p value is of the normal z test of the mean.
    """
    import numpy as np

    values = np.asarray(losses, dtype=np.float64)
    mean = float(values.mean())
    error = float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.inf
    p_value = two_sided(mean / error) if 0 < error < math.inf else (1.0 if mean == 0 else 0.0)
    if error == 0:
        return Interval(mean, mean, "paired: every sample alike", p_value)
    if len(values) > _MOST_FOR_BOOTSTRAP or error == math.inf:
        half = z_of(confidence) * error
        return Interval(mean - half, mean + half, "paired: normal interval", p_value)
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    step = max(1, 2_000_000 // len(values))
    means: list[float] = []
    while len(means) < BOOTSTRAP_RESAMPLES:
        rows = min(step, BOOTSTRAP_RESAMPLES - len(means))
        picks = rng.integers(0, len(values), size=(rows, len(values)))
        means += values[picks].mean(axis=1).tolist()
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return Interval(float(low), float(high), "paired: bootstrap, fixed seed", p_value)


def loss_from_errors(loss: float, error1: float, error2: float, confidence: float) -> Interval:
    """Interval of a difference of two separate means from their standard errors."""
    error = math.hypot(error1, error2)
    half = z_of(confidence) * error
    p_value = two_sided(loss / error) if error else (1.0 if loss == 0 else 0.0)
    return Interval(loss - half, loss + half, "unpaired: standard errors", p_value)


def two_sided(z: float) -> float:
    """Two-sided p value of a normal deviate."""
    return math.erfc(abs(z) / math.sqrt(2))


def unpaired_samples(p1: float, drop: float, confidence: float, power: float) -> int:
    """Samples in each arm to see ``p1`` fall by ``drop``.

    Source: Fleiss, Levin and Paik 2003, Statistical Methods for Rates and Proportions, eq. 4.14,
    without continuity correction.
    """
    p2 = max(0.0, p1 - drop)
    delta = p1 - p2
    if delta <= 0:
        return 0
    mean = (p1 + p2) / 2
    root = z_of(confidence) * math.sqrt(2 * mean * (1 - mean)) + NormalDist().inv_cdf(
        power
    ) * math.sqrt(p1 * (1 - p1) + p2 * (1 - p2))
    return math.ceil((root / delta) ** 2)


def paired_samples(changed: float, drop: float, confidence: float, power: float) -> int:
    """Pairs to see a net loss of ``drop`` where a share ``changed`` of the answers differs.

    Source: Connor 1987, Biometrics 43:207.
    """
    changed = max(changed, drop)
    if drop <= 0 or changed <= 0:
        return 0
    root = z_of(confidence) * math.sqrt(changed) + NormalDist().inv_cdf(power) * math.sqrt(
        max(0.0, changed - drop * drop)
    )
    return math.ceil((root / drop) ** 2)
