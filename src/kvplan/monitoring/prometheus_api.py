"""Rates of the last minutes from a Prometheus server, asked through its HTTP API."""

from __future__ import annotations

import math
from typing import Any, NamedTuple
from urllib.parse import quote

from kvplan.errors import SourceError
from kvplan.files import parse_json_object
from kvplan.monitoring.fetch import check_url, fetch
from kvplan.monitoring.promql import equals
from kvplan.monitoring.reading import Reading, Targets
from kvplan.monitoring.series import Metrics, Series


class Prometheus(NamedTuple):
    """A Prometheus server and the series of one engine in it."""

    url: str
    instance: str
    window: str = "5m"
    timeout: float = 10.0

    def value(self, expr: str) -> float | None:
        """The value of an expression that gives one number; None where there are no series."""
        where = f"{self.url.rstrip('/')}/api/v1/query?query={quote(expr, safe='')}"
        page = fetch(where, flag="--prometheus", timeout=self.timeout)
        document = parse_json_object(page.text, self.url)
        if document.get("status") != "success":
            raise SourceError(f"{self.url} refused a query: {str(document.get('error'))[:200]!r}")
        return _first_value(document, self.url)

    def over(self, reading: Reading, metrics: Metrics, judged: Targets) -> Reading:
        """``reading`` with its rates and shares of the last minutes; as it was where Prometheus
        has no series of this instance."""
        check_url(self.url, "--prometheus")
        up = self.value(f"max(up{{{self._here}}})")
        if up is None:
            return reading
        rates: dict[str, Any] = {
            "preempted": self._rate(metrics.preemptions) if metrics.preemptions else None,
            "generation_tokens_per_s": self._rate(metrics.generation_tokens),
            "prefix_hits": self._prefix(metrics),
        }
        for name, at in (("ttft", judged.ttft), ("tpot", judged.tpot)):
            if at is not None:
                rates[f"{name}_share_above"] = self.value(
                    at.share_above("instance", self.window, self._here)
                )
        if metrics.preemptions is None:
            rates["preempted"] = reading.preempted
        if metrics.prefix_hits is None:
            rates["prefix_hits"] = reading.prefix_hits
        return reading.but(basis=f"the last {self.window} by Prometheus", **rates)

    @property
    def _here(self) -> str:
        return equals("instance", self.instance)

    def _rate(self, series: Series | None) -> float | None:
        if series is None:
            return None
        return self.value(f"sum(rate({series.select(self._here)}[{self.window}]))")

    def _prefix(self, metrics: Metrics) -> float | None:
        hits, asked = self._rate(metrics.prefix_hits), self._rate(metrics.prefix_queries)
        return hits / asked if hits is not None and asked else None


def _first_value(document: dict[str, Any], where: str) -> float | None:
    try:
        result = document["data"]["result"]
        if not result:
            return None
        value = float(result[0]["value"][1])
    except (KeyError, IndexError, TypeError, ValueError):
        raise SourceError(f"{where} gave an answer that is not Prometheus's") from None
    return value if math.isfinite(value) else None
