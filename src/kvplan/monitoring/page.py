"""A metrics page, parsed by Prometheus's own client, and the figures of one engine on it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from kvplan.errors import MissingExtra, SourceError
from kvplan.monitoring.engines import engine_names, load_metrics
from kvplan.monitoring.series import Histogram, Metrics, Series

_MOST_SAMPLES = 500_000
_LONGEST_LINE = 64 * 1024
"""vLLM's longest, with every cache setting as a label, is about 3 KiB. The parser's time grows with
the square of a line's length."""

Labels = dict[str, str]


class Samples:
    """The samples of a page by name."""

    def __init__(self, by_name: dict[str, list[tuple[Labels, float]]]) -> None:
        self._by_name = by_name

    def names(self) -> set[str]:
        """Every sample's name."""
        return set(self._by_name)

    def of(self, series: Series) -> list[float]:
        """The finite values of a series, in our units."""
        return [
            value * series.scale
            for labels, value in self._by_name.get(series.name, ())
            if all(labels.get(label) == wanted for label, wanted in series.labels)
            and math.isfinite(value)
        ]

    def labels(self, name: str) -> list[Labels]:
        """The labels of each sample of a name."""
        return [labels for labels, _ in self._by_name.get(name, ())]

    def total(self, series: Series | None) -> float | None:
        """All its samples together; None where there are none."""
        values = self.of(series) if series is not None else []
        return sum(values) if values else None

    def highest(self, series: Series | None) -> float | None:
        """The highest of its samples; None where there are none."""
        values = self.of(series) if series is not None else []
        return max(values) if values else None

    def at_or_below(self, histogram: Histogram, edge: float) -> float | None:
        """Observations in the bucket of this edge; None where the page has no such edge."""
        found = [
            value
            for labels, value in self._by_name.get(f"{histogram.name}_bucket", ())
            if _same_edge(labels.get("le", ""), edge) and math.isfinite(value)
        ]
        return sum(found) if found else None

    def observations(self, histogram: Histogram) -> float | None:
        """All observations; None where the page has no such histogram."""
        return self.total(Series(f"{histogram.name}_count"))


def _same_edge(text: str, edge: float) -> bool:
    try:
        return math.isclose(float(text), edge, rel_tol=1e-6)
    except ValueError:
        return False


def parse_page(text: str, where: str) -> Samples:
    """The samples of a page in Prometheus's text format."""
    try:
        from prometheus_client.parser import text_string_to_metric_families
    except ImportError:
        raise MissingExtra("monitor", "reading a metrics page") from None

    longest = max(map(len, text.split("\n")))
    if longest > _LONGEST_LINE:
        raise SourceError(
            f"{where} has a line of {longest:,} characters, which no metrics page has"
        )
    by_name: dict[str, list[tuple[Labels, float]]] = {}
    count = 0
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                count += 1
                if count > _MOST_SAMPLES:
                    raise SourceError(f"{where} has more than {_MOST_SAMPLES:,} samples")
                by_name.setdefault(sample.name, []).append((sample.labels, float(sample.value)))
    except (ValueError, IndexError, KeyError, AttributeError, RecursionError) as error:
        raise SourceError(
            f"{where} is not a metrics page in Prometheus's text format: {_short(error)}",
            hint="Open it in a browser: it should start with lines such as # HELP.",
        ) from None
    if not by_name:
        raise SourceError(f"{where} holds no metrics")
    return Samples(by_name)


def _short(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 120 else text[:117] + "..."


class Detected(NamedTuple):
    """The engine whose names are on a page."""

    metrics: Metrics
    score: int


def detect(samples: Samples, where: str) -> Metrics:
    """The engine, at the newest version, of which the page has the most names."""
    names = samples.names()
    found = [Detected(metrics, len(metrics.names() & names)) for metrics in _candidates()]
    best = max(found, key=lambda entry: entry.score)
    if best.score == 0:
        raise SourceError(
            f"{where} has no metrics of an engine that kvplan knows",
            hint=f"It knows: {', '.join(engine_names())}. A worker's page, or the router's?",
        )
    return best.metrics


def _candidates() -> Iterator[Metrics]:
    """Every engine; of vLLM each version at which a name changed, the newest first."""
    for name in engine_names():
        if name == "vllm":
            for version in ("0.33", "0.20", "0.11", "0.8", "0.6"):
                yield load_metrics(f"vllm@{version}")
        else:
            yield load_metrics(name)
