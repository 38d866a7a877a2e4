"""The panels of the dashboard, group by group; what the engine does not export is not drawn."""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.monitoring.latency import Judged, ms
from kvplan.monitoring.panels import YELLOW, Panel, Query, Threshold, bad, good, warn
from kvplan.monitoring.promql import equals, matches, number
from kvplan.monitoring.rule_question import Question
from kvplan.monitoring.series import Series

_RATE = "$__rate_interval"


class _Maker:
    """Panels for one question; what the engine does not export is told instead of drawn."""

    def __init__(self, question: Question) -> None:
        self.q = question
        m = question.metrics
        self.by = ", ".join(m.group) or "job"
        self.legend = " ".join(f"{{{{{label}}}}}" for label in (m.group or ("job",)))
        self.selectors = [question.job]
        if "instance" in m.group:
            self.selectors.append(matches("instance", "$instance"))
        if m.model_label in m.group and m.model_label:
            self.selectors.append(matches(m.model_label, "$model"))

    def pick(self, series: Series) -> str:
        return series.select(*self.selectors)

    def gauge(self, series: Series, function: str = "sum") -> str:
        return f"{function} by ({self.by}) ({self.pick(series)})"

    def rate(self, series: Series) -> str:
        return f"sum by ({self.by}) (rate({self.pick(series)}[{_RATE}]))"


def panels(question: Question) -> list[Panel]:
    """Every panel that this engine's metrics allow."""
    make = _Maker(question)
    groups = (_pool, _requests, _latencies, _throughput, _prefix, _memory)
    return [panel for group in groups for panel in group(make)]


def _pool(make: _Maker) -> list[Panel]:
    m, limits = make.q.metrics, make.q.policy.monitoring
    if m.kv_use is None:
        return []
    lines = (warn(limits.max_pool_use), bad(limits.near_full))
    use = make.gauge(m.kv_use, "max")
    told = (
        f"Share of the pool held by running requests. Yellow from {limits.max_pool_use:.0%}, red "
        f"from {limits.near_full:.0%}; a saturated server that works well is above 90 %."
    )
    found = [
        Panel("KV pool in use", told, "percentunit", [Query(use, make.legend)], lines, 6, 6, "stat",
              maximum=1),
        Panel("KV pool in use over time", told, "percentunit", [Query(use, make.legend)], lines, 18,
              6, maximum=1),
    ]  # fmt: skip
    plan = make.q.plan
    if plan and make.q.same_engine and plan.pool_tokens and plan.replicas:
        tokens = [
            Query(f"{use} * {plan.pool_tokens}", f"used by {make.legend}, at the plan's pool"),
            Query(f"vector({plan.pool_tokens})", "pool of the plan"),
        ]
        if m.pool_tokens is not None:
            tokens.append(Query(make.gauge(m.pool_tokens, "max"), f"pool of {make.legend}"))
        found.append(
            Panel("KV tokens against the plan", "Tokens in the pool; the red line is the plan's.",
                  "short", tokens, (bad(plan.pool_tokens),))
        )  # fmt: skip
    return found


def _requests(make: _Maker) -> list[Panel]:
    m = make.q.metrics
    queries = [
        Query(make.gauge(series), f"{word} {make.legend}")
        for word, series in (
            ("running", m.running),
            ("waiting", m.waiting),
            ("waiting for capacity", m.waiting_for_kv),
            ("preempted", m.preempted),
        )
        if series is not None
    ]
    if m.preemptions is not None:
        queries.append(Query(make.rate(m.preemptions), f"preempted a second {make.legend}"))
    told = "A queue beside a full pool waits for memory; beside an empty one, for max_num_seqs."
    lines: Sequence[Threshold] = ()
    if make.q.plan is not None and make.q.plan.max_batch:
        lines = (warn(make.q.plan.max_batch),)
        told += f" The line is the plan's largest batch, {make.q.plan.max_batch:,}."
    return [Panel("Requests", told, "short", queries, lines)] if queries else []


def _latencies(make: _Maker) -> list[Panel]:
    found = []
    for which, title in (("ttft", "Time to first token"), ("tpot", "Time per output token")):
        judged = make.q.judged(which)
        if judged is not None:
            found += _latency(make, judged, title)
    return found


def _latency(make: _Maker, judged: Judged, title: str) -> list[Panel]:
    name = judged.histogram.name
    picked = [*make.selectors]
    buckets = Series(f"{name}_bucket", judged.histogram.labels).select(*picked)
    total = Series(f"{name}_sum", judged.histogram.labels).select(*picked)
    every = judged.histogram.every(*picked)
    by_edge = f"sum by ({make.by}, le) (rate({buckets}[{_RATE}]))"
    mean = (
        f"sum by ({make.by}) (rate({total}[{_RATE}])) / sum by ({make.by}) (rate({every}[{_RATE}]))"
    )
    share = make.q.policy.monitoring.slo_share
    return [
        Panel(
            title,
            f"Target {ms(judged.target)} (red). Quantiles are interpolated inside a bucket: "
            "between two edges their value is a guess, the panel beside this one is not.",
            "s",
            [
                Query(f"histogram_quantile(0.5, {by_edge})", f"median {make.legend}"),
                Query(f"histogram_quantile(0.95, {by_edge})", f"95 % {make.legend}"),
                Query(mean, f"mean {make.legend}"),
            ],
            (bad(judged.target),),
        ),
        Panel(
            f"{title}: share above {ms(judged.edge)}",
            f"{judged.words()} At most {(1 - share) * 100:.3g}% may be above it (red).",
            "percentunit",
            [Query(judged.share_above(make.by, _RATE, *picked), make.legend)],
            (bad(round(1 - share, 9)),),
        ),
    ]


def _throughput(make: _Maker) -> list[Panel]:
    m = make.q.metrics
    queries = [
        Query(make.rate(series), f"{word} {make.legend}")
        for word, series in (("generated", m.generation_tokens), ("prompt", m.prompt_tokens))
        if series is not None
    ]
    if not queries:
        return []
    told = "Tokens a second."
    lines: Sequence[Threshold] = ()
    peak, least = make.q.options.peak_tokens_per_s, make.q.policy.monitoring.min_throughput
    if peak is not None:
        told += (
            f" Peak {peak:,g} (red), {least:.0%} of it (yellow); below it is a fault only in load."
        )
        lines = (warn(peak * least), bad(peak))
        queries.append(Query(f"vector({number(peak)})", "peak"))
    return [Panel("Throughput against the plan", told, "short", queries, lines)]


def _prefix(make: _Maker) -> list[Panel]:
    m, least = make.q.metrics, make.q.policy.monitoring.min_prefix_hits
    if m.prefix_hits is not None and m.prefix_queries is not None:
        expr = f"{make.rate(m.prefix_hits)} / ({make.rate(m.prefix_queries)} > 0)"
    elif m.prefix_hit_rate is not None:
        expr = make.gauge(m.prefix_hit_rate, "avg")
    else:
        return []
    told = f"Share of prompt tokens found in the prefix cache; expected: {least:.0%} and more."
    return [
        Panel("Prefix-cache hits", told, "percentunit", [Query(expr, make.legend)], (good(least),),
              maximum=1, below=YELLOW)
    ]  # fmt: skip


def _memory(make: _Maker) -> list[Panel]:
    """The ledger of one GPU: the plan's parts stacked, and what is measured beside them."""
    found, plan, exporter = [], make.q.plan, make.q.options.exporter
    if plan and make.q.same_engine and plan.weight_bytes and plan.pool_bytes and plan.claim_bytes:
        rest = plan.claim_bytes - plan.weight_bytes - plan.pool_bytes
        parts = (("weights", plan.weight_bytes), ("KV pool", plan.pool_bytes), ("rest", rest))
        found.append(
            Panel("GPU memory ledger of the plan",
                  "One GPU. Rest: activations, graphs, runtime. The line is the engine's claim.",
                  "bytes", [Query(f"vector({size})", name) for name, size in parts],
                  (bad(plan.claim_bytes),), stacked=True)
        )  # fmt: skip
    measured: list[Query] = []
    if exporter is not None:
        job = equals("job", make.q.options.exporter_job)
        used = f"max by (instance, {exporter.gpu_label}) ({exporter.used_bytes.select(job)})"
        measured.append(Query(used, f"used, GPU {{{{{exporter.gpu_label}}}}} {{{{instance}}}}"))
    measured += [Query(make.gauge(s), f"{part} {make.legend}") for part, s in make.q.metrics.memory]
    if measured:
        claim = plan.claim_bytes if plan and make.q.same_engine else None
        found.append(
            Panel("GPU memory measured",
                  "Engines that allocate at start keep this flat: it says whether the claim holds, "
                  "never how full the KV cache is.",
                  "bytes", measured, () if claim is None else (bad(claim),))
        )  # fmt: skip
    return found
