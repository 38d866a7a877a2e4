"""``kvplan monitor rules``, ``kvplan monitor dashboard`` and ``kvplan monitor watch``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvplan.cli.monitored import Named, note, peak_of, question_of
from kvplan.cli.options import FormatOption, OutputOption, PolicyOption, asks_question, new_group
from kvplan.cli.output import check_format, emit
from kvplan.errors import EXIT_DOES_NOT_FIT, InputError

if TYPE_CHECKING:
    from kvplan.monitoring.watch import Watcher

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

    question = question_of(
        Named(deployment, name, plan), policy, flags, exporter=exporter,
        exporter_job=exporter_job, job=job,
        host_label=host_label, peak=peak_tokens_per_s, peak_from=peak_from,
        exact_edges=exact_edges, window=rate_window, runbook=runbook,
    )  # fmt: skip
    found = rules(question)
    for which in ("ttft", "tpot"):
        judged = question.judged(which)
        if judged is not None and not judged.exact:
            note(judged.words())
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

    question = question_of(
        Named(deployment, name, plan), policy, flags, exporter=exporter,
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
    _check_level(fail_on)
    if (format == "json" or output is not None) and not once:
        raise InputError("--format json and --output need --once: a live view has no end")
    parts = check_url(url, "--url")
    warning = token_warning(parts)
    if warning:
        note(warning)
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
        peak_tokens_per_s=peak_of(peak_tokens_per_s, peak_from)[0],
        timeout=timeout,
    )
    if once:
        _once(Watcher(watched), format, output, fail_on)
    else:
        _live(Watcher(watched), interval, count, fail_on)


def _check_level(level: str) -> None:
    """Refuse a level that is none."""
    if level not in {"critical", "warning"}:
        raise InputError(f"--fail-on {level!r} is not critical or warning")


def _once(watcher: Watcher, format: str, output: str | None, fail_on: str) -> None:
    from kvplan.monitoring.live import report, worse_than
    from kvplan.reports.json_report import json_text

    seen = watcher.look()
    if format == "json":
        emit(json_text(seen), output)
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
