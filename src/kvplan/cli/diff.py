"""``kvplan diff``."""

from __future__ import annotations

from typing import Annotated

import typer

from kvplan.cli.options import (
    FormatOption,
    OutputOption,
    PlansPolicyOption,
    PlansRootOption,
    new_app,
)
from kvplan.cli.output import check_format, emit, tell_warnings
from kvplan.errors import EXIT_DOES_NOT_FIT, EXIT_USAGE, InputError

SidesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[BASE] HEAD",
        help="Two plans or reports, or two git revisions of --file; with --baseline HEAD alone.",
        show_default=False,
    ),
]


def diff(
    sides: SidesArgument = None,
    format: FormatOption = "text",
    output: OutputOption = None,
    file: Annotated[
        str | None,
        typer.Option("--file", metavar="FILE", show_default=False,
                     help="BASE and HEAD are revisions of this plan."),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option("--baseline", metavar="REPORT", show_default=False,
                     help="BASE is what kvplan check --format json wrote."),
    ] = None,
    fail_on: Annotated[
        str, typer.Option("--fail-on", metavar="WHAT",
                          help="Exit 1 on: regression, or never.")
    ] = "never",
    tolerance: Annotated[
        list[str] | None,
        typer.Option("--tolerance", metavar="[FIGURE=]LIMIT", show_default=False,
                     help="How much worse is no regression: 2%, headroom_bytes=512MiB; may be "
                     "repeated."),
    ] = None,
    policy: PlansPolicyOption = None,
    root: PlansRootOption = None,
) -> None:  # fmt: skip
    """What does a change do to bytes, concurrency, context, GPUs and verdicts?

    kvplan diff main HEAD --file kvplan.yaml --format markdown
    """
    from kvplan.checking.baseline import read_baseline
    from kvplan.checking.difference import Side, compare, parse_tolerances
    from kvplan.checking.reports import DIFF_FORMATS, render_diff
    from kvplan.checking.run import DEFAULT_FILE
    from kvplan.checking.sides import is_empty, side_of

    check_format(format, DIFF_FORMATS)
    if fail_on not in {"regression", "never"}:
        raise InputError(f"--fail-on {fail_on!r} is not one of regression, never")
    tolerances = parse_tolerances(tolerance or [])
    names = sides or []
    if baseline is not None:
        if len(names) > 1:
            raise InputError("--baseline takes BASE's place: name HEAD alone")
        before = Side(baseline, read_baseline(baseline))
        head = names[0] if names else file or DEFAULT_FILE
        file = file if names else None  # without a name, HEAD is the file as it lies here
    elif len(names) != 2:
        raise InputError(
            f"a difference needs BASE and HEAD, not {len(names)} names",
            hint="Two files, two git revisions such as main HEAD, or --baseline REPORT HEAD.",
        )
    else:
        before = side_of(names[0], file=file, policy=policy, root=root)
        head = names[1]
    after = side_of(head, file=file, policy=policy, root=root)
    if is_empty(after):
        raise InputError(f"{after.label} has no {file or DEFAULT_FILE}")
    if is_empty(before):
        tell_warnings([f"{before.label} has no {file or DEFAULT_FILE}: everything is new"])
    report = compare(before, after, tolerances)
    emit(render_diff(report, format, to_file=output is not None), output)
    if report.errors:
        raise typer.Exit(EXIT_USAGE)
    if report.regressions and fail_on == "regression":
        raise typer.Exit(EXIT_DOES_NOT_FIT)


app = new_app(diff)
