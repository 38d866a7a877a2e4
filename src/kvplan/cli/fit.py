"""``kvplan fit``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kvplan.cli.options import FormatOption, ModelArgument, OutputOption, asks_question, new_app
from kvplan.cli.output import check_format, emit, tell_warnings
from kvplan.errors import EXIT_DOES_NOT_FIT
from kvplan.reports import FOR_MACHINES, FORMATS, render


@asks_question
def fit(
    model: ModelArgument,
    format: FormatOption = "table",
    output: OutputOption = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show the formulas with the numbers put in.")
    ] = False,
    exit_zero: Annotated[
        bool, typer.Option("--exit-zero", help="Exit 0 even when it does not fit.")
    ] = False,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy", metavar="FILE", help="Thresholds to judge by.", show_default=False
        ),
    ] = None,
    **flags: Any,
) -> None:
    """Does a model fit on these GPUs at this context and batch, and if not, what would make it?

    kvplan fit llama-3.1-70b --gpu h100-sxm --tp 4 --seq 32k --batch 16 --kv fp8
    """
    from kvplan.planning.fit import fit as judge
    from kvplan.planning.report import Verdict
    from kvplan.policy import load_policy
    from kvplan.question import build_deployment

    check_format(format, FORMATS)
    deployment = build_deployment(model, **flags)
    report = judge(deployment, load_policy(policy))
    if format in FOR_MACHINES:
        tell_warnings(report.warnings)
    emit(
        render(report, format, deployment if explain else None, to_file=output is not None), output
    )
    if report.verdict is Verdict.OOM and not exit_zero:
        raise typer.Exit(EXIT_DOES_NOT_FIT)


app = new_app(fit)
