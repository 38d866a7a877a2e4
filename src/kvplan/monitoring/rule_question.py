"""What rules are made from: the engine's metrics, the policy, the plan, and names of jobs."""

from __future__ import annotations

from typing import NamedTuple

from kvplan.monitoring.exporters import Exporter
from kvplan.monitoring.latency import Judged, judge_at
from kvplan.monitoring.plan import Plan
from kvplan.monitoring.promql import equals
from kvplan.monitoring.series import Metrics
from kvplan.policy import Policy


class RuleOptions(NamedTuple):
    """How the rules find their series and where their constants come from."""

    job: str
    exporter: Exporter | None = None
    exporter_job: str = ""
    window: str = "5m"
    host_label: str | None = None
    """A label that engine and exporter series share, such as a node's name."""
    exact_edges: bool = False
    """The engine was started with the option that puts an edge at each target."""
    peak_tokens_per_s: float | None = None
    peak_source: str = ""
    runbook: str = "docs/runbook.md"


class Question(NamedTuple):
    """All that the rules are made from."""

    metrics: Metrics
    policy: Policy
    plan: Plan | None
    options: RuleOptions

    @property
    def job(self) -> str:
        """The matcher of the engine's series."""
        return equals("job", self.options.job)

    @property
    def by(self) -> str:
        """The labels that every recorded series of a server keeps."""
        return ", ".join(("job", *self.metrics.group))

    @property
    def same_engine(self) -> bool:
        """Whether the plan is for the engine that is watched, so that pools are comparable."""
        return self.plan is not None and self.plan.engine in self.metrics.plan_engines

    def windowed(self, name: str) -> str:
        """A record's name with its window, as ``kvplan:preemptions:rate5m``."""
        return f"kvplan:{name}{self.options.window}"

    def judged(self, which: str) -> Judged | None:
        """Where the target of ``ttft`` or ``tpot`` is judged."""
        histogram = self.metrics.ttft if which == "ttft" else self.metrics.tpot
        if histogram is None:
            return None
        limits = self.policy.monitoring
        target = limits.ttft_ms if which == "ttft" else limits.tpot_ms
        return judge_at(histogram, target, edge_added=self.options.exact_edges)
