"""What `kvplan monitor` is asked about: the plan, however it is named, and its constants."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from kvplan.errors import InputError

if TYPE_CHECKING:
    from kvplan.monitoring.plan import Plan
    from kvplan.monitoring.rule_question import Question
    from kvplan.policy import Policy

_YAML = (".yaml", ".yml")


class Named(NamedTuple):
    """How the plan was named."""

    deployment: str | None
    name: str | None
    plan_file: str | None

    def plan(self, policy: Policy, flags: dict[str, Any]) -> Plan | None:
        """The plan; None where none was named."""
        from kvplan.monitoring.asking import find_plan, refuse_flags

        path = self.deployment
        if path is not None and self.plan_file is None and path.lower().endswith(_YAML):
            from kvplan.cli.named import deployment_named, is_plan_file

            if is_plan_file(path):
                from kvplan.monitoring.plan import plan_from_report
                from kvplan.planning.fit import fit

                refuse_flags(flags, f"beside the deployments of {path!r}", "Write it there.")
                return plan_from_report(fit(deployment_named(path, self.name), policy))
        if self.name is not None:
            raise InputError("--deployment names one of a kvplan.yaml, but none was given")
        return find_plan(path, self.plan_file, policy, flags)


def question_of(
    named: Named,
    policy_file: str | None,
    flags: dict[str, Any],
    *,
    exporter: str | None,
    exporter_job: str | None,
    job: str | None,
    peak: float | None,
    peak_from: str | None,
    exact_edges: bool,
    host_label: str | None = None,
    window: str = "5m",
    runbook: str = "docs/runbook.md",
) -> Question:
    """The question that rules and dashboard are made from."""
    from kvplan.monitoring.asking import watched_engine
    from kvplan.monitoring.engines import load_metrics
    from kvplan.monitoring.exporters import load_exporter
    from kvplan.monitoring.promql import check_label, check_window
    from kvplan.monitoring.rule_question import Question, RuleOptions
    from kvplan.policy import load_policy

    policy = load_policy(policy_file)
    chosen = load_exporter(exporter) if exporter is not None else None
    if chosen is None and exporter_job is not None:
        raise InputError("--exporter-job without --exporter", hint="Add --exporter dcgm.")
    plan = named.plan(policy, flags)
    metrics = load_metrics(watched_engine(flags.get("engine"), plan))
    tokens, source = peak_of(peak, peak_from)
    return Question(
        metrics,
        policy,
        plan,
        RuleOptions(
            job=job or metrics.engine,
            exporter=chosen,
            exporter_job=exporter_job or (chosen.name if chosen else ""),
            window=check_window(window),
            host_label=check_label(host_label, "--host-label") if host_label else None,
            exact_edges=exact_edges,
            peak_tokens_per_s=tokens,
            peak_source=source,
            runbook=runbook,
        ),
    )


def peak_of(tokens: float | None, path: str | None) -> tuple[float | None, str]:
    """The peak and where it comes from."""
    if path is not None:
        if tokens is not None:
            raise InputError("--peak-tokens-per-s and --peak-from are two peaks")
        from kvplan.monitoring.bench import peak_from

        return peak_from(path), f"output_throughput of {path}"
    if tokens is not None and not 0 < tokens < 1e12:
        raise InputError(f"--peak-tokens-per-s {tokens:g} must be above 0")
    return tokens, "--peak-tokens-per-s" if tokens is not None else ""


def note(text: str) -> None:
    """Say something on stderr that changes nothing."""
    safe = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
    sys.stderr.write(f"kvplan: note: {safe}\n")
