"""Latencies against a target, as far as a histogram can tell.

A quantile that falls inside a wide bucket is invented by interpolation: with the edges 0.1 s and
0.25 s, ``histogram_quantile(0.95)`` gives about 0.235 s whether the requests took 0.11 s or 0.24 s.
So the share of observations above an edge is judged, and the edge is named.
"""

from __future__ import annotations

from typing import NamedTuple

from kvplan.monitoring.series import Histogram


class Judged(NamedTuple):
    """A target in seconds and the edge it is judged at."""

    histogram: Histogram
    target: float
    edge: float
    exact: bool
    option: str | None
    """The engine option that would make it exact; None where it is, or where there is none."""

    def share_above(self, by: str, window: str, *matchers: str) -> str:
        """The share of observations above the edge; no value where there were none."""
        below = f"sum by ({by}) (rate({self.histogram.bucket(self.edge, *matchers)}[{window}]))"
        every = f"sum by ({by}) (rate({self.histogram.every(*matchers)}[{window}]))"
        return f"1 - {below} / ({every} > 0)"

    def words(self) -> str:
        """What is judged, and what is not seen."""
        name = self.histogram.name
        if self.exact:
            return f"{name} has an edge at the target of {ms(self.target)}: the share is exact."
        told = (
            f"{name} has no edge at the target of {ms(self.target)}: the share above the next "
            f"edge, {ms(self.edge)}, is judged, and what lies between the two is not seen."
        )
        if self.option:
            return f"{told} Start the engine with {self.option} and use --exact-edges here."
        return told


def judge_at(histogram: Histogram, target_ms: float, *, edge_added: bool) -> Judged | None:
    """Where a target is judged; None when it is beyond the last edge."""
    target = target_ms / 1000
    if edge_added:
        return Judged(histogram, target, target, True, None)
    edge = histogram.edge(target)
    if edge is None:
        return None
    exact = histogram.is_exact(target)
    option = None if exact else histogram.with_edge(target)
    return Judged(histogram, target, target if exact else edge, exact, option)


def ms(seconds: float) -> str:
    """``0.2`` as ``200 ms``."""
    return f"{seconds * 1000:.4g} ms"
