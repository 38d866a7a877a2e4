"""``kvplan gate``."""

from __future__ import annotations

from typing import Annotated

import typer

from kvplan.cli.options import FormatOption, OutputOption, PolicyOption, new_app
from kvplan.cli.output import check_format, emit, tell_warnings
from kvplan.errors import EXIT_DOES_NOT_FIT, InputError


def gate(
    baseline: Annotated[
        str,
        typer.Argument(
            metavar="BASELINE", show_default=False,
            help="Results with the 16-bit, full KV cache: a file, or a folder of them.",
        ),
    ],
    candidate: Annotated[
        str,
        typer.Argument(
            metavar="CANDIDATE", show_default=False,
            help="Results with the quantised or windowed one.",
        ),
    ],
    task: Annotated[
        list[str] | None,
        typer.Option(
            "--task", metavar="PATTERN", help="Judge only such tasks, as gsm8k or mmlu_*.",
            show_default=False,
        ),
    ] = None,
    undecided: Annotated[
        str,
        typer.Option("--undecided", metavar="WHAT", help="What too few samples mean: fail, keep."),
    ] = "fail",
    perplexity_ceiling: Annotated[
        bool,
        typer.Option("--perplexity-ceiling", help="Check the policy's absolute ceiling as well."),
    ] = False,
    engine: Annotated[
        str, typer.Option("--engine", metavar="ENGINE", help="Whose flags roll back.")
    ] = "vllm",
    plan: Annotated[
        str | None,
        typer.Option(
            "--plan", metavar="FILE", help="The candidate's plan: is there room at 16 bits?",
            show_default=False,
        ),
    ] = None,
    policy: PolicyOption = None,
    exit_zero: Annotated[
        bool, typer.Option("--exit-zero", help="Exit 0 even when it is to be rolled back.")
    ] = False,
    format: FormatOption = "table",
    output: OutputOption = None,
) -> None:  # fmt: skip
    """Keep a changed KV cache, or roll it back to 16 bits, by the results of both?

    kvplan gate results/bf16 results/fp8

    Exit codes: 0 keep; 1 roll back, or undecided for lack of samples; 2 unreadable results.
    """
    from kvplan.gating.decision import Answer
    from kvplan.gating.gate import Options
    from kvplan.gating.gate import gate as decide
    from kvplan.gating.readers import read_evaluation
    from kvplan.gating.report import FORMATS, render
    from kvplan.monitoring.plan import read_plan
    from kvplan.policy import load_policy

    check_format(format, FORMATS)
    if undecided not in {"fail", "keep"}:
        raise InputError(f"--undecided {undecided!r} is not fail or keep")
    options = Options(
        tasks=tuple(task or ()),
        perplexity_ceiling=perplexity_ceiling,
        engine=engine,
        plan=read_plan(plan) if plan is not None else None,
    )
    report = decide(
        read_evaluation(baseline), read_evaluation(candidate), load_policy(policy), options
    )
    tell_warnings(report.warnings)
    emit(render(report, format), output)
    failed = report.answer is Answer.ROLL_BACK or (
        report.answer is Answer.UNDECIDED and undecided != "keep"
    )
    if failed and not exit_zero:
        raise typer.Exit(EXIT_DOES_NOT_FIT)


app = new_app(gate)
