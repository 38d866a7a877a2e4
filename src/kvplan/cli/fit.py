"""``kvplan fit``."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from kvplan.cli.options import (
    FormatOption,
    ModelsArgument,
    OutputOption,
    PolicyOption,
    asks_question,
    new_app,
)
from kvplan.cli.output import check_format, emit, tell_warnings
from kvplan.errors import EXIT_DOES_NOT_FIT, InputError
from kvplan.reports import FOR_MACHINES, FORMATS, render


@asks_question
def fit(
    models: ModelsArgument,
    format: FormatOption = "table",
    output: OutputOption = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show the formulas with the numbers put in.")
    ] = False,
    exit_zero: Annotated[
        bool, typer.Option("--exit-zero", help="Exit 0 even when it does not fit.")
    ] = False,
    policy: PolicyOption = None,
    **flags: Any,
) -> None:
    """Does a model fit on these GPUs at this context and batch, and if not, what would make it?

    kvplan fit llama-3.1-70b --gpu h100-sxm --tp 4 --seq 32k --batch 16 --kv fp8

    Several models, or GPUs with commas between them, are compared side by side; the exit code is
    then 1 unless all of them fit.
    """
    from kvplan.planning.fit import fit as judge
    from kvplan.planning.report import Verdict
    from kvplan.policy import load_policy
    from kvplan.question import build_deployment

    check_format(format, FORMATS)
    thresholds = load_policy(policy)
    gpus = _gpus(flags.pop("gpu"))
    deployments = [build_deployment(m, **flags, gpu=gpu) for m in models for gpu in gpus]
    reports = [judge(deployment, thresholds) for deployment in deployments]
    if format in FOR_MACHINES:
        for report in reports:
            tell_warnings(report.warnings)
    if len(reports) == 1:
        explained = deployments[0] if explain else None
        text = render(reports[0], format, explained, to_file=output is not None)
    else:
        from kvplan.reports.comparison import compare

        if explain:
            raise InputError("--explain takes one model and one GPU")
        text = compare(reports, format, to_file=output is not None)
    emit(text, output)
    if not exit_zero and any(report.verdict is Verdict.OOM for report in reports):
        raise typer.Exit(EXIT_DOES_NOT_FIT)


def _gpus(text: str | None) -> list[str | None]:
    """The GPUs of ``--gpu a100-80g,h100``; a file's name may have commas of its own."""
    if text is None or "," not in text or os.path.exists(text):
        return [text]
    return [part.strip() for part in text.split(",")]


app = new_app(fit)
