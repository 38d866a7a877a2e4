"""The report for a comment on a pull request: GitHub-flavoured Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvplan.planning.report import Verdict
from kvplan.reports import words
from kvplan.reports.markdown import bullets, code, escape, table
from kvplan.units import format_gib

if TYPE_CHECKING:
    from kvplan.deployment import Deployment
    from kvplan.planning.report import FitReport
    from kvplan.reports.formula import Formula


def render(report: FitReport, explained: Deployment | None, to_file: bool) -> str:  # noqa: ARG001
    """The verdict, then a section for each kind of figure."""
    verdict = report.verdict.upper()
    sections = [
        f"## kvplan: {verdict}\n\n**{escape(report.reason)}**\n\n"
        + "".join(f"{escape(line)}  \n" for line in words.subject(report)),
        "### Memory per GPU\n\n" + _memory(report),
        "### KV cache per GPU\n\n" + _kv(report),
        "### Limits, each on its own\n\n" + _facts(words.limits(report)),
    ]
    if report.matrix.rows:
        sections.append("### Batch that fits by context\n\n" + _matrix(report))
    sections.append("### Recommended\n\n" + _facts(words.recommended(report)))
    if report.verdict is not Verdict.FITS:
        sections.append("### Single changes that fit, mildest first\n\n" + _options(report))
    if report.flags:
        command = " ".join(words.command(report.flags))
        sections.append(f"### Command\n\n```shell\n{command}\n```\n")
    if explained is not None:
        sections.append("### Formulas\n\n" + _formulas(report, explained))
    if report.warnings:
        sections.append("### Warnings\n\n" + bullets(report.warnings))
    if report.assumptions:
        sections.append("### Assumptions\n\n" + bullets(report.assumptions))
    return "\n".join(sections)


def _memory(report: FitReport) -> str:
    m = report.memory
    rows = [["weights", _size(m.weight_bytes), _share(m.weight_bytes, m.usable_bytes), "",
             escape(report.deployment.weight_format)]]  # fmt: skip
    rows += [
        [
            escape(words.term_name(term.key)),
            format_gib(term.likely_bytes),
            _share(term.likely_bytes, m.usable_bytes),
            words.size_range(term),
            escape(term.source),
        ]
        for term in m.terms
    ]
    for name, size, note in (
        ("KV pool", m.kv_pool_bytes, ""),
        ("**KV cache needed**", m.kv_needed_bytes, _of_pool(m.pool_use)),
        ("headroom", m.headroom_bytes, "negative: missing" if (m.headroom_bytes or 0) < 0 else ""),
        ("claim", m.claim_bytes, _utilization(report)),
        ("GPU memory", m.usable_bytes, "as the framework sees it, less what others hold"),
    ):
        rows.append([name, _size(size), _share(size, m.usable_bytes), "", note])
    return table(["term", "size", "share", "range", "source"], rows, right=(1, 2, 3))


def _size(size: int | None) -> str:
    if size is None:
        return "not known"
    return f"-{format_gib(-size)}" if size < 0 else format_gib(size)


def _share(size: int | None, total: int | None) -> str:
    return words.percent(size / total) if size is not None and total else ""


def _of_pool(use: float | None) -> str:
    return "" if use is None else f"{words.percent(use)} of the pool"


def _utilization(report: FitReport) -> str:
    share = report.deployment.gpu_memory_utilization
    return "" if share is None else f"gpu_memory_utilization {share:g}"


def _kv(report: FitReport) -> str:
    return _facts([*words.kv_facts(report), *map(words.group, report.kv_cache.groups)])


def _facts(found: list[words.Fact]) -> str:
    rows = [[escape(label), escape(value)] for label, value in found]
    return table(["figure", "value"], rows)


def _matrix(report: FitReport) -> str:
    matrix, d = report.matrix, report.deployment
    titles = ["KV format", "bits", *map(words.context, matrix.contexts)]
    rows = []
    for row in matrix.rows:
        cells = [code(row.kv_cache_dtype), words.bits(row.kv_bits)]
        for count, batch in zip(matrix.contexts, row.max_batch, strict=True):
            shown = words.sequences(batch) if batch else "-"
            asked = count == d.seq_len and row.kv_cache_dtype == d.kv_cache_dtype
            cells.append(f"**{shown}**" if asked else shown)
        rows.append(cells)
    return table(titles, rows, right=range(1, len(titles)))


def _options(report: FitReport) -> str:
    if not report.options:
        return "No single change that kvplan knows makes it fit.\n"
    rows = [
        [
            code(option.change),
            option.verdict.upper(),
            format_gib(option.kv_bytes),
            words.sequences(option.max_batch),
            escape(option.quality_note),
            escape(option.source),
        ]
        for option in report.options
    ]
    titles = ["change", "verdict", "KV cache", "max batch", "quality", "source"]
    return table(titles, rows, right=(2, 3))


def _formulas(report: FitReport, explained: Deployment) -> str:
    from kvplan.reports.formulas import formulas

    return formula_table(formulas(report, explained))


def formula_table(found: list[Formula]) -> str:
    """Each figure's formula, with the numbers put in."""
    rows = [[escape(f.name), escape(f.formula), code(f.equation), escape(f.source)] for f in found]
    return table(["figure", "formula", "with its numbers", "source"], rows)
