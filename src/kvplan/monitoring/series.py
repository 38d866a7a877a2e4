"""What an engine exports, as data: series, histograms and their edges.

An engine's module in `monitoring/engines/` fills in one `Metrics`; rules, dashboard and live check
read it and never name an engine themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kvplan.monitoring.promql import equals, matches, number, select

Matcher = tuple[str, str]
"""A label and the value that picks the part meant."""


class Series(NamedTuple):
    """One exported name, with the labels that pick the part meant."""

    name: str
    labels: tuple[Matcher, ...] = ()
    scale: float = 1.0
    """Exported units in one of ours: 2**20 for a figure in MiB."""

    def select(self, *matchers: str) -> str:
        """The PromQL selector, with further matchers as written by `promql`."""
        chosen = select(self.name, *matchers, *(equals(*label) for label in self.labels))
        return chosen if self.scale == 1 else f"{chosen} * {number(self.scale)}"


class Histogram(NamedTuple):
    """Latencies in seconds, known only at the histogram's edges."""

    name: str
    edges: tuple[float, ...]
    counts: str
    """What one observation is: ``requests`` or ``gaps between tokens``."""
    option: str | None = None
    """The engine option that sets the edges, ``{edges}`` left to fill in; None: there is none."""
    joiner: str = ", "
    labels: tuple[Matcher, ...] = ()

    def edge(self, seconds: float) -> float | None:
        """The threshold itself where it is an edge, else the next one above; None beyond the last.

        What lies above that edge is above the threshold for certain; what lies between the two is
        not seen.
        """
        return next((edge for edge in self.edges if edge >= seconds * (1 - 1e-9)), None)

    def is_exact(self, seconds: float) -> bool:
        """Whether the threshold is an edge."""
        edge = self.edge(seconds)
        return edge is not None and abs(edge - seconds) <= seconds * 1e-9

    def with_edge(self, seconds: float) -> str | None:
        """The engine option that keeps the edges and adds this one."""
        if self.option is None:
            return None
        edges = sorted({*self.edges, seconds})
        return self.option.replace("{edges}", self.joiner.join(f"{edge:g}" for edge in edges))

    def bucket(self, edge: float, *matchers: str) -> str:
        """The selector of observations at or below ``edge``."""
        labels = (equals(*label) for label in self.labels)
        return select(f"{self.name}_bucket", *matchers, *labels, matches("le", edge_pattern(edge)))

    def every(self, *matchers: str) -> str:
        """The selector of all observations."""
        labels = (equals(*label) for label in self.labels)
        return select(f"{self.name}_count", *matchers, *labels)


def edge_pattern(edge: float) -> str:
    """A regular expression for ``edge`` as an exporter may write it: ``1`` and ``1.0``, and the
    long decimals of a geometric series by their first six."""
    text = f"{edge:.6f}".rstrip("0").rstrip(".")
    if float(text) != edge:
        return f"{edge:.6f}"[:-1].replace(".", r"\.") + "[0-9]*"
    digits = text.replace(".", r"\.")
    return f"{digits}0*" if "." in text else rf"{digits}(\.0+)?"


class PoolInfo(NamedTuple):
    """A series that states the pool in its labels, as numbers in text."""

    name: str
    blocks: str
    tokens: str | None = None


class Metrics(NamedTuple):
    """Everything that rules, dashboard and live check can ask of an engine at one version."""

    engine: str
    title: str
    """Engine and version in words."""
    source: str
    """Where the names were read."""
    kv_use: Series | None = None
    """Share of the pool held by running requests, 0 to 1."""
    running: Series | None = None
    waiting: Series | None = None
    waiting_for_kv: Series | None = None
    """Requests that wait for capacity; None: the engine does not tell why they wait."""
    preemptions: Series | None = None
    """A counter."""
    preempted: Series | None = None
    """A gauge of requests set aside just now, where there is no counter."""
    prompt_tokens: Series | None = None
    generation_tokens: Series | None = None
    prefix_hits: Series | None = None
    prefix_queries: Series | None = None
    prefix_hit_rate: Series | None = None
    ttft: Histogram | None = None
    tpot: Histogram | None = None
    pool_info: PoolInfo | None = None
    pool_blocks: Series | None = None
    pool_tokens: Series | None = None
    memory: tuple[tuple[str, Series], ...] = ()
    """What the engine says about GPU memory: (part, bytes)."""
    group: tuple[str, ...] = ("instance",)
    """Labels beside ``job`` that tell one server's series from another's."""
    model_label: str | None = None
    path: str = "/metrics"
    plan_engines: tuple[str, ...] = ()
    """The planned engines whose pool is the one exported here."""
    absent: tuple[tuple[str, str], ...] = ()
    """What it does not export, and what stands nearest."""
    notes: tuple[str, ...] = ()

    def names(self) -> set[str]:
        """Every exported name that a query may use."""
        return set(self._names())

    def _names(self) -> Iterator[str]:
        for part in (*self, *(series for _, series in self.memory)):
            if isinstance(part, Series):
                yield part.name
            elif isinstance(part, Histogram):
                yield from (f"{part.name}_{end}" for end in ("bucket", "sum", "count"))
            elif isinstance(part, PoolInfo):
                yield part.name
