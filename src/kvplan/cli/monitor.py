"""``kvplan monitor rules``, ``kvplan monitor dashboard`` and ``kvplan monitor watch``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from kvplan.cli.options import FormatOption, OutputOption, asks_question, new_group
from kvplan.cli.output import check_format, emit
from kvplan.errors import EXIT_DOES_NOT_FIT, InputError

if TYPE_CHECKING:
    from kvplan.monitoring.plan import Plan
    from kvplan.monitoring.rule_question import Question
    from kvplan.monitoring.watch import Watcher
    from kvplan.policy import Policy

_YAML = (".yaml", ".yml")

app = new_group("Watch a running server against its plan: Prometheus rules, a dashboard, a check.")

DeploymentArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[DEPLOYMENT]",
        help="A model with the flags of kvplan fit, a plan in JSON, or a kvplan.yaml.",
        show_default=False,
    ),
]
NameOption = Annotated[
    str | None,
    typer.Option(
        "--deployment",
        metavar="NAME",
        help="Which deployment, where DEPLOYMENT is a kvplan.yaml.",
        show_default=False,
    ),
]
PlanOption = Annotated[
    str | None,
    typer.Option("--plan", metavar="FILE", help="The plan, as JSON.", show_default=False),
]
PolicyOption = Annotated[
    str | None,
    typer.Option("--policy", metavar="FILE", help="Thresholds to judge by.", show_default=False),
]
JobOption = Annotated[
    str | None,
    typer.Option(
        "--job", metavar="NAME", help="The engine's job in Prometheus; default: its name.",
        show_default=False,
    ),
]  # fmt: skip
ExporterOption = Annotated[
    str | None,
    typer.Option(
        "--exporter", metavar="NAME", help="GPU exporter: dcgm or nvidia_gpu_exporter.",
        show_default=False,
    ),
]  # fmt: skip
ExporterJobOption = Annotated[
    str | None,
    typer.Option(
        "--exporter-job", metavar="NAME", help="The exporter's job; default: its name.",
        show_default=False,
    ),
]  # fmt: skip
PeakOption = Annotated[
    float | None,
    typer.Option(
        "--peak-tokens-per-s", metavar="N", help="Tokens a second that one server generates.",
        show_default=False,
    ),
]  # fmt: skip
PeakFromOption = Annotated[
    str | None,
    typer.Option(
        "--peak-from", metavar="FILE", help="Take the peak from a result of vllm bench serve.",
        show_default=False,
    ),
]  # fmt: skip
ExactOption = Annotated[
    bool,
    typer.Option(
        "--exact-edges", help="The engine runs with a histogram edge at each latency target."
    ),
]


@app.command("rules")
@asks_question
def rules_command(
    deployment: DeploymentArgument = None,
    name: NameOption = None,
    plan: PlanOption = None,
    exporter: ExporterOption = None,
    exporter_job: ExporterJobOption = None,
    job: JobOption = None,
    host_label: Annotated[
        str | None,
        typer.Option(
            "--host-label", metavar="LABEL", show_default=False,
            help="A label that engine and exporter series share, such as node.",
        ),
    ] = None,
    peak_tokens_per_s: PeakOption = None,
    peak_from: PeakFromOption = None,
    exact_edges: ExactOption = False,
    rate_window: Annotated[
        str, typer.Option("--rate-window", metavar="TIME", help="Over which rates are taken.")
    ] = "5m",
    runbook: Annotated[
        str, typer.Option("--runbook", metavar="URL", help="Where the runbook is published.")
    ] = "docs/runbook.md",
    policy: PolicyOption = None,
    output: OutputOption = None,
    **flags: Any,
) -> None:  # fmt: skip
    """Write Prometheus recording and alerting rules for an engine and its plan.

    kvplan monitor rules llama-3.1-8b --gpu h100-sxm --seq 32k --exporter dcgm
    """
    from kvplan.monitoring.rules import rules
    from kvplan.monitoring.rules_yaml import render

    question = _question(
        _Named(deployment, name, plan), policy, flags, exporter=exporter,
        exporter_job=exporter_job, job=job,
        host_label=host_label, peak=peak_tokens_per_s, peak_from=peak_from,
        exact_edges=exact_edges, window=rate_window, runbook=runbook,
    )  # fmt: skip
    found = rules(question)
    for which in ("ttft", "tpot"):
        judged = question.judged(which)
        if judged is not None and not judged.exact:
            _note(judged.words())
    emit(render(found, question.plan), output)


@app.command("dashboard")
@asks_question
def dashboard_command(
    deployment: DeploymentArgument = None,
    name: NameOption = None,
    plan: PlanOption = None,
    exporter: ExporterOption = None,
    exporter_job: ExporterJobOption = None,
    job: JobOption = None,
    peak_tokens_per_s: PeakOption = None,
    peak_from: PeakFromOption = None,
    exact_edges: ExactOption = False,
    policy: PolicyOption = None,
    output: OutputOption = None,
    **flags: Any,
) -> None:
    """Write a Grafana dashboard with the plan's figures as thresholds, as JSON to import.

    kvplan monitor dashboard llama-3.1-8b --gpu h100-sxm --seq 32k --exporter dcgm
    """
    from kvplan.monitoring.dashboard import dashboard, render

    question = _question(
        _Named(deployment, name, plan), policy, flags, exporter=exporter,
        exporter_job=exporter_job, job=job,
        peak=peak_tokens_per_s, peak_from=peak_from, exact_edges=exact_edges,
    )  # fmt: skip
    emit(render(dashboard(question)), output)


@app.command("watch")
def watch_command(
    url: Annotated[
        str,
        typer.Option("--url", metavar="URL", help="The engine's metrics page.", show_default=False),
    ],
    engine: Annotated[
        str | None,
        typer.Option("--engine", metavar="ENGINE", help="Default: the one whose names are there.",
                     show_default=False),
    ] = None,
    plan: PlanOption = None,
    prometheus: Annotated[
        str | None,
        typer.Option("--prometheus", metavar="URL", help="Take rates from this Prometheus.",
                     show_default=False),
    ] = None,
    instance: Annotated[
        str | None,
        typer.Option("--instance", metavar="NAME", show_default=False,
                     help="The server's instance label there; default: host and port of --url."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Look once, for a probe.")] = False,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", help="Between two looks.", min=0.1)
    ] = 5.0,
    count: Annotated[
        int | None,
        typer.Option("--count", metavar="N", help="Stop after so many looks.", min=1,
                     show_default=False),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option("--timeout", metavar="SECONDS", help="For one page.", min=0.1, max=600),
    ] = 10.0,
    fail_on: Annotated[
        str, typer.Option("--fail-on", metavar="LEVEL", help="Exit 1 at critical, or warning too.")
    ] = "critical",
    peak_tokens_per_s: PeakOption = None,
    peak_from: PeakFromOption = None,
    policy: PolicyOption = None,
    format: FormatOption = "table",
    output: OutputOption = None,
) -> None:  # fmt: skip
    """Read a server's metrics page now and then, and compare it with the plan and the policy.

    kvplan monitor watch --url http://127.0.0.1:8000/metrics --once --format json

    A bearer token is taken from the environment variable KVPLAN_METRICS_TOKEN.
    """
    from kvplan.monitoring.fetch import check_url, token_warning
    from kvplan.monitoring.plan import read_plan
    from kvplan.monitoring.prometheus_api import Prometheus
    from kvplan.monitoring.watch import Watched, Watcher
    from kvplan.policy import load_policy

    check_format(format, ("table", "json"))
    check_format_level(fail_on)
    if (format == "json" or output is not None) and not once:
        raise InputError("--format json and --output need --once: a live view has no end")
    parts = check_url(url, "--url")
    warning = token_warning(parts)
    if warning:
        _note(warning)
    source = None
    if prometheus is not None:
        check_url(prometheus, "--prometheus")
        source = Prometheus(prometheus, instance or parts.netloc, timeout=timeout)
    watched = Watched(
        url=url,
        limits=load_policy(policy).monitoring,
        engine=engine,
        plan=read_plan(plan) if plan is not None else None,
        prometheus=source,
        peak_tokens_per_s=_peak(peak_tokens_per_s, peak_from)[0],
        timeout=timeout,
    )
    if once:
        _once(Watcher(watched), format, output, fail_on)
    else:
        _live(Watcher(watched), interval, count, fail_on)


def check_format_level(level: str) -> None:
    """Refuse a level that is none."""
    if level not in {"critical", "warning"}:
        raise InputError(f"--fail-on {level!r} is not critical or warning")


def _once(watcher: Watcher, format: str, output: str | None, fail_on: str) -> None:
    import json

    from kvplan.monitoring.live import report, worse_than
    from kvplan.reports.json_report import as_document

    seen = watcher.look()
    if format == "json":
        emit(json.dumps(as_document(seen), indent=2, ensure_ascii=False) + "\n", output)
    else:
        emit(report(seen), output)
    if worse_than(seen.verdict, fail_on):
        raise typer.Exit(EXIT_DOES_NOT_FIT)


def _live(watcher: Watcher, interval: float, count: int | None, fail_on: str) -> None:
    from kvplan.monitoring.live import one_line, view, worse_than
    from kvplan.reports.terminal import screen

    bad = False
    if not sys.stdout.isatty():
        for seen in watcher.every(interval, count):
            emit(one_line(seen), None)
            bad = worse_than(seen.verdict, fail_on)
    else:
        from rich.console import Console
        from rich.live import Live

        on = screen()
        console = Console(no_color=not on.colour, markup=False, highlight=False)
        with Live(console=console, auto_refresh=False) as live:
            for seen in watcher.every(interval, count):
                live.update(view(watcher, seen, ascii_only=not on.unicode), refresh=True)
                bad = worse_than(seen.verdict, fail_on)
    if bad:
        raise typer.Exit(EXIT_DOES_NOT_FIT)


class _Named(NamedTuple):
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


def _question(
    named: _Named,
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
    tokens, source = _peak(peak, peak_from)
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


def _peak(tokens: float | None, path: str | None) -> tuple[float | None, str]:
    """The peak and where it comes from."""
    if path is not None:
        if tokens is not None:
            raise InputError("--peak-tokens-per-s and --peak-from are two peaks")
        from kvplan.monitoring.bench import peak_from

        return peak_from(path), f"output_throughput of {path}"
    if tokens is not None and not 0 < tokens < 1e12:
        raise InputError(f"--peak-tokens-per-s {tokens:g} must be above 0")
    return tokens, "--peak-tokens-per-s" if tokens is not None else ""


def _note(text: str) -> None:
    safe = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
    sys.stderr.write(f"kvplan: note: {safe}\n")
