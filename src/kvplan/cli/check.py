"""``kvplan check``."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from kvplan.cli.check_outputs import CheckCommand, outputs_of
from kvplan.cli.options import PlansPolicyOption, PlansRootOption, plain_app
from kvplan.cli.output import emit
from kvplan.errors import InputError

FILES = Annotated[
    list[str] | None,
    typer.Argument(metavar="[FILE]...", help="Plans; default: ./kvplan.yaml.", show_default=False),
]

EPILOG = """\
Exit codes: 0 every budget is met (warnings allowed); 1 a budget failed; 2 bad input, or something
not understood, which is never a pass; 3 a fault of kvplan's own."""


def check(
    ctx: typer.Context,
    files: FILES = None,
    format: Annotated[
        list[str] | None,
        typer.Option("--format", "-f", metavar="FORMAT", show_default=False,
                     help="text, json, junit, sarif, github, markdown or csv; may be repeated, "
                     "each with its --output."),
    ] = None,
    output: Annotated[
        list[str] | None,
        typer.Option("--output", "-o", metavar="FILE", show_default=False,
                     help="Where the format before it goes; one may go to stdout."),
    ] = None,
    fail_on: Annotated[
        str, typer.Option("--fail-on", metavar="LEVEL",
                          help="The least level that fails the check: error or warn."),
    ] = "error",
    exit_zero: Annotated[
        bool, typer.Option("--exit-zero", help="Exit 0 even when a budget failed.")
    ] = False,
    policy: PlansPolicyOption = None,
    root: PlansRootOption = None,
    github: Annotated[
        bool | None,
        typer.Option("--github/--no-github", show_default=False,
                     help="Annotations, summary and outputs of GitHub Actions; default: when "
                     "GITHUB_ACTIONS is true."),
    ] = None,
) -> None:  # fmt: skip
    """Hold the deployments of kvplan.yaml to their budgets. Uses no network.

    kvplan check kvplan.yaml --format text --format sarif --output kvplan.sarif
    """
    from kvplan.checking.github import in_actions, tell
    from kvplan.checking.reports import FORMATS, render
    from kvplan.checking.run import DEFAULT_FILE, exit_code
    from kvplan.checking.run import check as run_check

    wanted = outputs_of(ctx, format or [], output or [], FORMATS)
    if fail_on not in {"error", "warn"}:
        raise InputError(f"--fail-on {fail_on!r} is not one of error, warn")
    report = run_check(files or [DEFAULT_FILE], policy=policy, root=root, fail_on=fail_on)
    for name, path in wanted:
        emit(render(report, name, to_file=path is not None), path)
    if github or (github is None and in_actions(os.environ)):
        tell(report, os.environ, annotate=("github", None) not in wanted)
    code = exit_code(report, exit_zero=exit_zero)
    if code:
        raise typer.Exit(code)


app: typer.Typer = plain_app()
app.command(cls=CheckCommand, epilog=EPILOG)(check)
