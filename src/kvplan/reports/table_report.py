"""The report for a terminal: the verdict first, then the figures that people ask for next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvplan.planning.report import Verdict
from kvplan.reports import words
from kvplan.reports.bar import bar, memory_parts
from kvplan.reports.layout import (
    NARROWEST_FLEXIBLE,
    Cell,
    Column,
    Line,
    Span,
    cell_width,
    facts,
    grid,
    heading,
    line_width,
    paragraph,
    side_by_side,
    table,
    wrap,
)
from kvplan.reports.terminal import screen, to_text
from kvplan.units import format_gib

if TYPE_CHECKING:
    from kvplan.deployment import Deployment
    from kvplan.planning.report import FitReport, OptionReport
    from kvplan.reports.formula import Formula

WIDE = 120
"""From here sections stand side by side."""

_SELF_EVIDENT = frozenset({"engine setting", "more GPUs", "less load"})
"""Sources of options that say no more than the change itself."""


def render(report: FitReport, explained: Deployment | None, to_file: bool) -> str:
    """The report as text for the screen behind stdout, or for a file."""
    on = screen(to_file)
    lines = report_lines(report, on.width)
    if explained is not None:
        lines += _formulas(report, explained, on.width)
    lines += _said(report, on.width)
    return to_text(lines, on)


def report_lines(report: FitReport, width: int) -> list[Line]:
    """Everything but formulas, warnings and assumptions."""
    lines = _verdict(report, width)
    lines.append([])
    if width >= WIDE:
        left = (width - 4) * 11 // 20
        right = width - 4 - left
        lines += side_by_side(_memory(report, left), _kv(report, right), left)
        lines += side_by_side(_limits(report, left), _matrix(report, right), left)
    else:
        lines += _memory(report, width)
        lines += _kv(report, width)
        lines += _limits(report, width)
        lines += _matrix(report, width)
    lines += _recommended(report, width)
    lines += _options(report, width)
    lines += _command(report, width)
    return lines


def _verdict(report: FitReport, width: int) -> list[Line]:
    verdict = report.verdict.upper()
    margin = Span(" " * (len(verdict) + 2))
    first, *rest = wrap(report.reason, width - len(verdict) - 2)
    lines: list[Line] = [
        [Span(verdict, report.verdict), Span("  "), Span(first, "strong")],
        *([margin, Span(line, "strong")] for line in rest),
    ]
    for text in words.subject(report):
        lines += paragraph(text, width, "dim")
    return lines


def _memory(report: FitReport, width: int) -> list[Line]:
    """The budget: every term with its share, and where it comes from. Its marks are the bar's."""
    m, d = report.memory, report.deployment
    total = m.usable_bytes
    parts = memory_parts(m, fits=report.verdict is not Verdict.OOM)
    rows: list[list[Cell]] = []

    def add(mark: Cell, name: Cell, size: int | None, words_: str = "") -> None:
        shown = "not counted" if size is None else format_gib(size)
        share = "" if size is None or not total else words.percent(size / total)
        rows.append([mark, name, Span(shown, "strong"), share, Span(words_, "dim")])

    sources = {term.key: term for term in m.terms}
    for part in parts:
        mark = Span(part.glyph, part.style)
        if part.key == "weights":
            add(mark, "weights", m.weight_bytes, d.weight_format)
        elif part.key in sources:
            term = sources[part.key]
            add(mark, words.term_name(part.key), term.likely_bytes, words.size_range(term))
        elif part.key == "needed":
            of_pool = "" if m.pool_use is None else f"{words.percent(m.pool_use)} of the pool"
            add(mark, "KV cache needed", m.kv_needed_bytes, of_pool)
        elif part.key == "free":
            if m.headroom_bytes is None or m.headroom_bytes >= 0:
                add(mark, "KV cache free", m.headroom_bytes, "headroom")
            else:
                short = Span("missing", "bad")
                add(Span("▶", "over"), short, -m.headroom_bytes, "more than there is")
        elif part.size_bytes:
            add(mark, "not claimed", part.size_bytes, _outside(report))
    if m.kv_pool_bytes is not None:
        pool = "as given" if m.claim_bytes is None else "needed and free together"
        add("", "KV pool", m.kv_pool_bytes, pool)
    if total is not None:
        held = m.device_bytes - total if m.device_bytes else 0
        less = f"less {format_gib(held)} held by others" if held else "as the framework sees it"
        add("", "GPU memory", total, less)
    columns = [
        Column(), Column(), Column(right=True), Column(right=True, drop=1), Column(flexible=True),
    ]  # fmt: skip
    figures = table(columns[:4], [row[:4] for row in rows], width, indent=0)
    room = width - max(line_width(line) for line in figures)
    if room >= NARROWEST_FLEXIBLE + 2:  # else the notes are left out: JSON has them
        figures = table(columns, rows, width, indent=0)
    drawn = bar(parts, total, width)
    return [heading("Memory per GPU", width), drawn, *figures]


def _outside(report: FitReport) -> str:
    share = report.deployment.gpu_memory_utilization
    if share is None or report.memory.claim_bytes is None:
        return ""
    return f"gpu_memory_utilization {share:g}"


def _kv(report: FitReport, width: int) -> list[Line]:
    pairs: list[tuple[str, Cell]] = [*words.kv_facts(report)]
    pairs += [
        (label, Span(value, "dim")) for label, value in map(words.group, report.kv_cache.groups)
    ]
    return [heading("KV cache per GPU", width), *facts(pairs, width)]


def _limits(report: FitReport, width: int) -> list[Line]:
    pairs = [
        (label, Span(value, "bad" if value == words.NONE_FITS else ""))
        for label, value in words.limits(report)
    ]
    title = "Limits, each on its own"
    return [heading(title, width), *grid(pairs, width)]


def _matrix(report: FitReport, width: int) -> list[Line]:
    """The batch that fits: a column a context, a row a format; the asked ones stand out."""
    matrix, d = report.matrix, report.deployment
    if not matrix.rows:
        return []
    titles = [words.context(count) for count in matrix.contexts]
    shown = [[words.sequences(n) if n else "-" for n in row.max_batch] for row in matrix.rows]
    widest = max(len(text) for texts in [titles, *shown] for text in texts)
    columns = [Column("KV format"), Column("bits", right=True, drop=99)]
    asked = [count == d.seq_len for count in matrix.contexts]
    for number, title in enumerate(titles):
        # Where there is no room, the contexts farthest below the asked one go first.
        columns.append(
            Column(title.rjust(widest), right=True, drop=0 if asked[number] else 50 - number)
        )
    rows: list[list[Cell]] = []
    for row in matrix.rows:
        cells: list[Cell] = [
            Span(row.kv_cache_dtype, "strong" if row.kv_cache_dtype == d.kv_cache_dtype else ""),
            words.bits(row.kv_bits),
        ]
        for number, count in enumerate(row.max_batch):
            style = "asked" if asked[number] and row.kv_cache_dtype == d.kv_cache_dtype else ""
            enough = "good" if count >= d.batch else "dim"
            cells.append(Span(words.sequences(count) if count else "-", style or enough))
        rows.append(cells)
    title = "Batch that fits by context"
    return [heading(title, width), *table(columns, rows, width)]


def _recommended(report: FitReport, width: int) -> list[Line]:
    return [heading("Recommended", width), *facts(words.recommended(report), width)]


def _options(report: FitReport, width: int) -> list[Line]:
    """The changes that would make it fit, mildest first, with what each costs."""
    if report.verdict is Verdict.FITS:
        return []
    title = "Single changes that fit, mildest first"
    if not report.options:
        none = "no single change that kvplan knows makes it fit"
        return [heading(title, width), *paragraph(none, width, "bad", "  ")]
    columns = [
        Column("change"), Column(), Column("KV", right=True), Column("batch", right=True),
        Column("quality and source", flexible=True),
    ]  # fmt: skip
    rows: list[list[Cell]] = [
        [
            Span(option.change, "code"),
            Span(option.verdict.upper(), "good" if option.verdict is Verdict.FITS else "warn"),
            format_gib(option.kv_bytes),
            words.sequences(option.max_batch),
            Span(option_note(option), "dim"),
        ]
        for option in report.options
    ]
    return [heading(title, width), *table(columns, rows, width)]


def option_note(option: OptionReport) -> str:
    """What it costs, and who measured that where somebody had to."""
    if option.source in _SELF_EVIDENT:
        return option.quality_note
    return f"{option.quality_note} ({option.source})"


def _command(report: FitReport, width: int) -> list[Line]:
    """The engine's command, broken so that it can be pasted into a shell.

    A word that is longer than a line goes on at the left edge of the next, which a shell reads as
    one word; a quoted one is left whole, because there it would not be.
    """
    if not report.flags:
        return []
    lines: list[Line] = [heading("Command", width)]
    current, margin = "", "  "
    for piece in words.command(report.flags):
        if current and cell_width(margin + current) + 1 + cell_width(piece) > width - 2:
            lines.append([Span(f"{margin}{current} \\", "code")])
            current, margin = "", "    "
        current += piece if not current else " " + piece
        while cell_width(margin + current) > width - 2 and "'" not in current:
            room = width - 1 - len(margin)
            lines.append([Span(f"{margin}{current[:room]}\\", "code")])
            current, margin = current[room:], ""
    lines.append([Span(margin + current, "code")])
    return lines


def _formulas(report: FitReport, explained: Deployment, width: int) -> list[Line]:
    from kvplan.reports.formulas import formulas

    lines: list[Line] = [heading("Formulas", width)]
    for found in formulas(report, explained):
        lines += formula_lines(found, width)
    return lines


def formula_lines(found: Formula, width: int) -> list[Line]:
    """A figure's formula, its numbers under it, and where the formula is from."""
    lines = paragraph(f"{found.name} = {found.formula}", width, "", "  ")
    lines += [[Span("    " + line, "code")] for line in wrap(found.equation, width - 4, 2)]
    if found.source:
        lines += paragraph(found.source, width, "dim", "    ")
    return lines


def _said(report: FitReport, width: int) -> list[Line]:
    lines: list[Line] = []
    if report.warnings:
        lines.append(heading("Warnings", width))
        for text in report.warnings:
            lines += paragraph(text, width, "warn", Span("  ! ", "warn"))
    if report.assumptions:
        lines.append(heading("Assumptions", width))
        for text in report.assumptions:
            lines += paragraph(text, width, "dim", Span("  - ", "dim"))
    return lines
