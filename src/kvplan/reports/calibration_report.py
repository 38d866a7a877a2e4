"""Predicted against observed, as a table for the terminal or as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvplan.reports.json_report import json_text
from kvplan.units import format_gib

if TYPE_CHECKING:
    from kvplan.planning.calibrate import CalibrationReport, ComparedTerm
    from kvplan.reports.layout import Line

FORMATS = ("table", "json")

_NAMES = {
    "device_bytes": "device memory",
    "claim_bytes": "claim",
    "weight_bytes": "weights",
    "activation_bytes": "activation peak",
    "activation_and_graph_estimate_bytes": "activation and graphs",
    "rest_bytes": "activation and rest",
    "cuda_graph_bytes": "CUDA graphs",
    "runtime_bytes": "runtime",
    "kv_pool_bytes": "KV pool",
    "needed_bytes": "KV of one sequence",
    "pool_blocks": "blocks",
    "pool_tokens": "tokens",
    "max_concurrency": "concurrency",
    "blocks_of_logged_pool": "its blocks",
    "tokens_of_logged_pool": "its tokens",
    "concurrency_of_logged_pool": "its concurrency",
}


def render(report: CalibrationReport, name: str, *, to_file: bool = False) -> str:
    """The report in one of `FORMATS`."""
    if name == "json":
        return json_text(report)
    from kvplan.reports.terminal import screen, to_text

    on = screen(to_file)
    return to_text(_lines(report, on.width), on)


def _lines(report: CalibrationReport, width: int) -> list[Line]:
    from kvplan.reports import words
    from kvplan.reports.layout import Cell, Column, Span, heading, paragraph, table

    d = report.deployment
    subject = (
        f"{d.model}: {d.weight_format} weights, {d.kv_cache_dtype} KV cache, {words.gpus(d)}, "
        f"{words.engine(d)}, max_model_len {d.max_model_len or d.seq_len:,}"
    )
    lines: list[Line] = paragraph(subject, width, "dim")
    columns = [
        Column("per GPU"), Column("predicted", right=True), Column("range", right=True, drop=1),
        Column("observed", right=True), Column("ratio", right=True), Column("within"),
    ]  # fmt: skip
    verdict: dict[bool | None, Cell] = {
        True: Span("yes", "good"), False: Span("no", "warn"), None: "",
    }  # fmt: skip
    rows: list[list[Cell]] = [
        [
            _NAMES.get(term.key, term.key.replace("_", " ")),
            _figure(term, term.predicted),
            _range(term),
            "-" if term.observed is None else _figure(term, term.observed),
            "" if term.ratio is None else f"{term.ratio:.3f}",
            verdict[term.inside],
        ]
        for term in report.terms
    ]
    lines += [heading("Predicted against observed", width), *table(columns, rows, width)]
    for title, said in (
        ("What explains the differences", report.explanations),
        ("Warnings", report.warnings),
        ("Assumptions", report.assumptions),
    ):
        if said:
            lines.append(heading(title, width))
            for text in said:
                lines += paragraph(text, width, "", Span("  - ", "dim"))
    return lines


def _figure(term: ComparedTerm, value: float) -> str:
    if term.key.endswith("_bytes"):
        size = int(value)
        return format_gib(size) if size >= 0 else f"-{format_gib(-size)}"
    return f"{value:,.2f}x" if "concurrency" in term.key else f"{int(value):,}"


def _range(term: ComparedTerm) -> str:
    if term.low is None or term.high is None:
        return ""
    return f"{_figure(term, term.low).removesuffix(' GiB')} to {_figure(term, term.high)}"
