"""``kvplan explain``."""

from __future__ import annotations

from typing import Any

import typer

from kvplan.cli.options import FormatOption, ModelArgument, OutputOption, asks, new_app
from kvplan.cli.output import check_format, emit, tell_warnings

_ANY_GPU = "h100-sxm"
"""A deployment needs one; nothing here depends on it."""


@asks("kv", "tp", "seq", "weights", "window", "set", "assume", "revision", "encoder_tokens")
def explain(
    model: ModelArgument,
    format: FormatOption = "table",
    output: OutputOption = None,
    **flags: Any,
) -> None:
    """What does a model keep per token, layer group by layer group, and by which formula?

    kvplan explain gemma-3-27b-it --kv fp8 --seq 128k
    """
    from kvplan.question import build_deployment, parse_flags
    from kvplan.reports.explanation import explain as explained
    from kvplan.reports.explanation_report import FORMATS, render

    check_format(format, FORMATS)
    asked = parse_flags(flags).get("seq")
    question = {**flags, "seq": str(asked or 1), "gpu": _ANY_GPU, "engine": "none"}
    explanation = explained(build_deployment(model, **question), asked)
    if format == "json":
        tell_warnings(explanation.warnings)
    emit(render(explanation, format, to_file=output is not None), output)


app: typer.Typer = new_app(explain)
