"""The live view: each figure with its limit and a line of its last values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kvplan.monitoring.check import Health
from kvplan.monitoring.plan import Plan
from kvplan.monitoring.watch import Observation, Watcher
from kvplan.policy import MonitoringPolicy

if TYPE_CHECKING:
    from rich.console import RenderableType

_BARS = "▁▂▃▄▅▆▇█"
_ASCII_BARS = "_.:-=+*#"
_COLOURS = {"ok": "#4cc38a", "warning": "#f5c451", "critical": "#f2647c", "down": "#f2647c"}


class Row(NamedTuple):
    """One figure of the view."""

    key: str
    title: str
    show: Callable[[float], str]
    limit: str = ""
    top: float | None = None
    """What the line's full height means; None: the highest of its values."""


def sparkline(
    values: Iterable[float], top: float | None = None, *, ascii_only: bool = False
) -> str:
    """A character a value, from the lowest bar for 0 to the highest for ``top``."""
    points = list(values)
    bars = _ASCII_BARS if ascii_only else _BARS
    height = top if top is not None else max(points, default=0.0)
    if height <= 0:
        return bars[0] * len(points)
    steps = len(bars) - 1
    return "".join(bars[min(steps, max(0, round(value / height * steps)))] for value in points)


def rows(limits: MonitoringPolicy, plan: Plan | None) -> Sequence[Row]:
    """The figures with what they are compared with."""
    largest = f"plan {plan.max_batch:,}" if plan else ""
    pool = f"plan {plan.pool_tokens:,}" if plan and plan.pool_tokens else ""
    expected = f"from {limits.min_prefix_hits:.0%}"
    allowed = f"up to {(1 - limits.slo_share) * 100:.3g}%"
    return (
        Row("kv_use", "KV pool in use", _percent,
            f"warn {limits.max_pool_use:.0%}, full {limits.near_full:.0%}", 1.0),
        Row("running", "running", _count, largest),
        Row("waiting", "waiting", _count, "0"),
        Row("waiting_for_kv", "waiting for capacity", _count, "0"),
        Row("preempted", "preemptions", _count, "0"),
        Row("generation_tokens_per_s", "tokens/s", _whole),
        Row("prefix_hits", "prefix-cache hits", _percent, expected, 1.0),
        Row("ttft_share_above", "TTFT above target", _percent, allowed, 1.0),
        Row("tpot_share_above", "TPOT above target", _percent, allowed, 1.0),
        Row("pool_tokens", "pool tokens", _whole,
            pool),
    )  # fmt: skip


def _percent(value: float) -> str:
    return f"{value:.1%}"


def _count(value: float) -> str:
    return f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def view(watcher: Watcher, seen: Observation, *, ascii_only: bool = False) -> RenderableType:
    """The view as Rich draws it; words from the server are text, never markup."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    head = Text()
    head.append(f" {seen.verdict.upper()} ", style=f"bold black on {_COLOURS[seen.verdict]}")
    head.append(f"  {_plain(seen.reason)}")
    lines: list[RenderableType] = [
        head,
        Text(f"{seen.engine or 'engine unknown'}  {seen.url}", "dim"),
    ]
    if seen.plan:
        lines.append(Text(f"plan: {_plain(seen.plan)}", "dim"))
    if seen.reading is not None:
        table = Table(box=None, pad_edge=False)
        for title in ("figure", "now", "limit", "lately"):
            table.add_column(title, justify="right" if title == "now" else "left")
        for row in rows(watcher.watched.limits, watcher.watched.plan):
            value = getattr(seen.reading, row.key)
            if value is not None:
                line = sparkline(watcher.history.get(row.key, ()), row.top, ascii_only=ascii_only)
                table.add_row(row.title, row.show(value), row.limit, Text(line, "#8fb8ff"))
        lines += [table, Text(f"rates and shares: {seen.reading.basis}", "dim")]
    for finding in seen.findings:
        colour = _COLOURS.get(finding.severity, "#9aa3b2")
        lines.append(Text(f"{finding.severity} {finding.alert}: {_plain(finding.message)}", colour))
    return Group(*lines)


def one_line(seen: Observation) -> str:
    """A look in one line, for a log."""
    return f"{seen.verdict.upper()}  {_plain(seen.reason)}\n"


def report(seen: Observation) -> str:
    """A look as text: the verdict, its findings, and what to do."""
    lines = [f"{seen.verdict.upper()}  {_plain(seen.reason)}"]
    lines.append(f"{seen.engine or 'engine unknown'}  {seen.url}")
    if seen.plan:
        lines.append(f"plan: {_plain(seen.plan)}")
    for finding in seen.findings:
        lines.append(f"- {finding.severity} {finding.alert}: {_plain(finding.message)}")
        if finding.severity != "info":
            lines.append(f"  {_plain(finding.action)}")
    if seen.reading is not None:
        lines.append(f"rates and shares: {seen.reading.basis}")
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def worse_than(health: Health, limit: str) -> bool:
    """Whether a probe fails: at critical, or at warning already where that is asked."""
    failing = {Health.CRITICAL, Health.DOWN}
    return health in (failing | {Health.WARNING} if limit == "warning" else failing)
