"""Watching one server: a page now and then, compared with the plan and the policy."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from kvplan import __version__
from kvplan.monitoring.check import Finding, Health, Judge, judge, verdict
from kvplan.monitoring.engines import load_metrics
from kvplan.monitoring.fetch import Unreachable, fetch
from kvplan.monitoring.page import Samples, detect, parse_page
from kvplan.monitoring.plan import Plan
from kvplan.monitoring.prometheus_api import Prometheus
from kvplan.monitoring.reading import SINCE_START, Before, Reading, read, targets
from kvplan.monitoring.series import Metrics
from kvplan.planning.report import Record, fields_of
from kvplan.policy import MonitoringPolicy

SCHEMA = "kvplan.watch/1"
_HISTORY = 60
_OVER_TIME = {"preempted", "ttft_share_above", "tpot_share_above", "prefix_hits"}


class Observation(Record):
    """One look at a server: what ``kvplan monitor watch --once --format json`` prints."""

    schema: str
    kvplan_version: str
    url: str
    engine: str | None
    """Engine and version whose names the page has; null when it is down."""
    verdict: Health
    reason: str
    """The verdict in one sentence."""
    reading: Reading | None
    findings: list[Finding]
    plan: str | None
    """The plan it was compared with, in one line."""


class Watched(NamedTuple):
    """What is watched and what it is compared with."""

    url: str
    limits: MonitoringPolicy
    engine: str | None = None
    plan: Plan | None = None
    prometheus: Prometheus | None = None
    peak_tokens_per_s: float | None = None
    timeout: float = 10.0


@dataclass
class Watcher:
    """Looks at a server again and again and remembers what rates and lines need."""

    watched: Watched
    history: dict[str, deque[float]] = field(default_factory=dict)
    _before: tuple[Samples, float] | None = None
    _metrics: Metrics | None = None

    def look(self) -> Observation:
        """One look. A server that is down is an answer; a page that is no metrics is an error."""
        w = self.watched
        try:
            page = fetch(w.url, timeout=w.timeout)
        except Unreachable as error:
            self._before = None
            hint = f" {error.hint}" if error.hint else ""
            return self._observation(Health.DOWN, error.message + hint, None, [])
        now = time.monotonic()
        samples = parse_page(page.text, w.url)
        if self._metrics is None:
            self._metrics = load_metrics(w.engine) if w.engine else detect(samples, w.url)
        judged = targets(samples, self._metrics, w.limits)
        before = Before(self._before[0], now - self._before[1]) if self._before else None
        reading = read(samples, self._metrics, judged, before)
        if w.prometheus is not None:
            reading = w.prometheus.over(reading, self._metrics, judged)
        self._before = (samples, now)
        self._remember(reading)
        findings = judge(reading, Judge(w.limits, self._metrics, w.plan, w.peak_tokens_per_s))
        health = verdict(findings)
        reason = findings[0].message if health is not Health.OK else _all_well(reading)
        return self._observation(health, reason, reading, findings)

    def every(self, interval: float, count: int | None) -> Iterator[Observation]:
        """Looks, ``interval`` seconds apart, ``count`` of them or without end."""
        done = 0
        while count is None or done < count:
            if done:
                time.sleep(interval)
            yield self.look()
            done += 1

    def _observation(
        self, health: Health, reason: str, reading: Reading | None, findings: list[Finding]
    ) -> Observation:
        known = self._metrics if reading is not None else None
        return Observation(
            schema=SCHEMA,
            kvplan_version=__version__,
            url=self.watched.url,
            engine=known.title if known else None,
            verdict=health,
            reason=reason,
            reading=reading,
            findings=findings,
            plan=self.watched.plan.words() if self.watched.plan else None,
        )

    def _remember(self, reading: Reading) -> None:
        since_start = reading.basis == SINCE_START
        for name, value in fields_of(reading).items():
            if since_start and name in _OVER_TIME:  # another figure than the next ones
                continue
            if isinstance(value, (int, float)):
                self.history.setdefault(name, deque(maxlen=_HISTORY)).append(float(value))


def _all_well(reading: Reading) -> str:
    if reading.kv_use is None:
        return f"{reading.running or 0:,g} running, {reading.waiting or 0:,g} waiting"
    return (
        f"{reading.kv_use:.1%} of the KV pool in use, {reading.running or 0:,g} running, "
        f"{reading.waiting or 0:,g} waiting"
    )
