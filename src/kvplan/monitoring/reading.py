"""The figures of one moment, from one page, from two in a row, or from Prometheus."""

from __future__ import annotations

import math
from typing import NamedTuple

from kvplan.monitoring.latency import Judged, judge_at
from kvplan.monitoring.page import Samples
from kvplan.monitoring.series import Histogram, Metrics, PoolInfo, Series
from kvplan.planning.report import Record
from kvplan.policy import MonitoringPolicy

SINCE_START = "since the engine started"


class Reading(Record):
    """What the server shows; null where its engine does not export it."""

    basis: str
    """The time that rates and shares are over: since the start, between pages, or Prometheus's."""
    kv_use: float | None = None
    """Share of the KV pool held by running requests."""
    running: float | None = None
    waiting: float | None = None
    waiting_for_kv: float | None = None
    preempted: float | None = None
    """Preemptions a second; since the start, their number."""
    generation_tokens_per_s: float | None = None
    """Null for a single page: a counter alone is no rate."""
    prefix_hits: float | None = None
    """Share of prompt tokens."""
    ttft_share_above: float | None = None
    ttft_edge_ms: float | None = None
    """The histogram edge that is judged."""
    tpot_share_above: float | None = None
    tpot_edge_ms: float | None = None
    pool_blocks: int | None = None
    pool_tokens: int | None = None


class Before(NamedTuple):
    """An earlier page of the same server."""

    samples: Samples
    seconds: float
    """How long ago it was."""


def edges_on_page(samples: Samples, histogram: Histogram | None) -> Histogram | None:
    """The histogram with the edges that this server has, which may be its own choice."""
    if histogram is None:
        return None
    edges = set()
    for labels in samples.labels(f"{histogram.name}_bucket"):
        try:
            edge = float(labels.get("le", ""))
        except ValueError:
            continue
        if math.isfinite(edge):
            edges.add(edge)
    return histogram._replace(edges=tuple(sorted(edges))) if edges else None


class Targets(NamedTuple):
    """Where the latencies of this server are judged; None where they cannot be."""

    ttft: Judged | None
    tpot: Judged | None


def targets(samples: Samples, metrics: Metrics, limits: MonitoringPolicy) -> Targets:
    """The targets of the policy at this server's own edges."""

    def at(histogram: Histogram | None, target_ms: float) -> Judged | None:
        known = edges_on_page(samples, histogram)
        return judge_at(known, target_ms, edge_added=False) if known is not None else None

    return Targets(at(metrics.ttft, limits.ttft_ms), at(metrics.tpot, limits.tpot_ms))


def read(
    samples: Samples, metrics: Metrics, judged: Targets, before: Before | None = None
) -> Reading:
    """The figures of a page, its rates since an earlier one where there is one."""
    blocks, tokens = _pool(samples, metrics)
    ttft, tpot = judged
    return Reading(
        basis=SINCE_START if before is None else f"the last {before.seconds:.3g} s",
        kv_use=samples.highest(metrics.kv_use),
        running=samples.total(metrics.running),
        waiting=samples.total(metrics.waiting),
        waiting_for_kv=samples.total(metrics.waiting_for_kv),
        preempted=_preempted(samples, metrics, before),
        generation_tokens_per_s=_rate(samples, metrics.generation_tokens, before),
        prefix_hits=_prefix(samples, metrics, before),
        ttft_share_above=_share(samples, ttft, before),
        ttft_edge_ms=ttft.edge * 1000 if ttft else None,
        tpot_share_above=_share(samples, tpot, before),
        tpot_edge_ms=tpot.edge * 1000 if tpot else None,
        pool_blocks=blocks,
        pool_tokens=tokens,
    )


def _grown(samples: Samples, series: Series | None, before: Before | None) -> float | None:
    """A counter's growth since the earlier page; its value where there is none or it was reset."""
    now = samples.total(series)
    then = before.samples.total(series) if before is not None else None
    if now is None or then is None or then > now:
        return now
    return now - then


def _rate(samples: Samples, series: Series | None, before: Before | None) -> float | None:
    if before is None or before.seconds <= 0:
        return None
    grown = _grown(samples, series, before)
    return None if grown is None else grown / before.seconds


def _preempted(samples: Samples, metrics: Metrics, before: Before | None) -> float | None:
    if metrics.preemptions is None:
        return samples.total(metrics.preempted)
    if before is None:
        return samples.total(metrics.preemptions)
    return _rate(samples, metrics.preemptions, before)


def _prefix(samples: Samples, metrics: Metrics, before: Before | None) -> float | None:
    if metrics.prefix_hit_rate is not None:
        return samples.highest(metrics.prefix_hit_rate)
    hits = _grown(samples, metrics.prefix_hits, before)
    asked = _grown(samples, metrics.prefix_queries, before)
    return hits / asked if hits is not None and asked else None


def _share(samples: Samples, judged: Judged | None, before: Before | None) -> float | None:
    """The share of observations above the edge; None where there were none."""
    if judged is None:
        return None
    below, every = _counted(samples, judged)
    if before is not None:
        below_then, every_then = _counted(before.samples, judged)
        if every_then <= every and below_then <= below:
            below, every = below - below_then, every - every_then
    return min(1.0, max(0.0, 1 - below / every)) if every > 0 else None


def _counted(samples: Samples, judged: Judged) -> tuple[float, float]:
    below = samples.at_or_below(judged.histogram, judged.edge)
    every = samples.observations(judged.histogram)
    return below or 0.0, every or 0.0


def _pool(samples: Samples, metrics: Metrics) -> tuple[int | None, int | None]:
    if metrics.pool_info is not None:
        return _pool_from_labels(samples, metrics.pool_info)
    blocks = samples.highest(metrics.pool_blocks)
    tokens = samples.highest(metrics.pool_tokens)
    return None if blocks is None else int(blocks), None if tokens is None else int(tokens)


def _pool_from_labels(samples: Samples, info: PoolInfo) -> tuple[int | None, int | None]:
    for labels in samples.labels(info.name):
        blocks, tokens = (_whole(labels.get(name or "", "")) for name in (info.blocks, info.tokens))
        if blocks is not None:
            return blocks, tokens
    return None, None


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 15 else None
