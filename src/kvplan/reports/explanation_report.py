"""An `Explanation` as a table, Markdown or JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvplan.reports import markdown, words
from kvplan.reports.explanation import GROWS, group_name, growth_words
from kvplan.reports.layout import (
    Cell,
    Column,
    Line,
    Span,
    facts,
    heading,
    paragraph,
    table,
    wrap,
)
from kvplan.reports.pattern import Pattern, find_pattern, letters
from kvplan.reports.terminal import screen, to_text
from kvplan.units import format_bytes, format_gib, format_tokens

if TYPE_CHECKING:
    from kvplan.reports.explanation import ExplainedGroup, Explanation

FORMATS = ("table", "json", "markdown")


def render(explanation: Explanation, name: str, *, to_file: bool = False) -> str:
    """The explanation in one of `FORMATS`."""
    if name == "json":
        from kvplan.reports.json_report import json_text

        return json_text(explanation)
    if name == "markdown":
        return _markdown(explanation)
    on = screen(to_file)
    return to_text(table_lines(explanation, on.width), on)


def table_lines(x: Explanation, width: int) -> list[Line]:
    """The explanation for a terminal."""
    lines = paragraph(_headline(x), width, "strong")
    lines += paragraph(_shape(x), width, "dim")
    lines += [[], heading("Layers", width)]
    lines += paragraph(x.layer_pattern, width, "", "  ")
    lines += _drawing(x, width)
    title = "What each layer keeps" + (f", on one of {x.tp} GPUs" if x.tp > 1 else "")
    lines.append(heading(title, width))
    for group in x.groups:
        lines += _group(group, width)
    if not x.groups:
        lines += paragraph("nothing", width, "", "  ")
    lines += [heading("One sequence", width), *_contexts(x, width)]
    if x.naive:
        lines += [heading("What short cuts say instead", width), *_naive(x, width)]
    if x.parts:
        lines += [heading("Parameters", width), *_parts(x, width)]
    if _checkpoint(x):
        lines += [heading("Checkpoint", width), *facts(_checkpoint(x), width)]
    for name, texts, style, mark in (
        ("Warnings", x.warnings, "warn", "  ! "),
        ("Assumptions", x.assumptions, "dim", "  - "),
    ):
        if texts:
            lines.append(heading(name, width))
            for text in texts:
                lines += paragraph(text, width, style, Span(mark, style))
    return lines


def _headline(x: Explanation) -> str:
    at = next(context for context in x.contexts if context.tokens == x.seq_len)
    return (
        f"{x.model} keeps {format_bytes(at.mean_bytes_per_token)} a token at "
        f"{format_tokens(at.tokens)} tokens: {format_gib(at.logical_bytes)} a sequence"
    )


def _shape(x: Explanation) -> str:
    parts = [x.architecture, f"{x.num_hidden_layers} layers", f"{x.num_attention_heads} heads"]
    if x.num_kv_heads is not None:
        parts.append(f"{x.num_kv_heads} key-value heads")
    if x.hidden_size is not None:
        parts.append(f"hidden size {x.hidden_size:,}")
    if x.max_position_embeddings is not None:
        parts.append(f"native context {x.max_position_embeddings:,} tokens")
    parts.append(f"{x.kv_cache_dtype} KV cache")
    if x.tp > 1:
        parts.append(f"tp {x.tp}")
    return ", ".join(parts)


def _drawing(x: Explanation, width: int) -> list[Line]:
    """A letter a layer, spaced by the repetition, and what the letters mean."""
    kinds = [_kind(label) for label in x.layer_labels]
    chosen = letters(x.layer_labels, kinds)
    style = dict(zip(x.layer_labels, kinds, strict=True))
    lines: list[Line] = []
    line: Line = [Span("  ")]
    room = width - 2
    for piece in _pieces(find_pattern(x.layer_labels), room):
        if len(line) > 1 and len(piece) > room:
            lines.append(line)
            line, room = [Span("  ")], width - 2
        line += [Span(chosen[label], style[label]) for label in piece]
        line.append(Span(" "))
        room -= len(piece) + 1
    lines.append(line)
    if len(chosen) > 1:
        legend = ", ".join(f"{letter} {label}" for label, letter in chosen.items())
        lines += paragraph(legend, width, "dim", "  ")
    return lines


def _pieces(pattern: Pattern, room: int) -> list[tuple[str, ...]]:
    """The pattern's pieces, none longer than a line; one without a period in tens."""
    groups = pattern.groups()
    size = 10 if len(groups) == 1 or all(len(group) == 1 for group in groups) else room
    if size == 10:
        groups = [tuple(label for group in groups for label in group)]
    return [group[start : start + size] for group in groups for start in range(0, len(group), size)]


def _kind(label: str) -> str:
    """The kind behind a label, for its letter and colour: that of its first cache."""
    name = label.partition(" + ")[0].partition("(")[0].partition(" #")[0]
    long = {"sliding": "sliding_window", "chunked": "chunked_local", "cross": "cross_attention"}
    return long.get(name, name)


def _group(group: ExplainedGroup, width: int) -> list[Line]:
    style = "warn" if group.growth == GROWS else "good"
    lines: list[Line] = paragraph(f"{group_name(group)}: {growth_words(group)}", width, style, "  ")
    lines += paragraph(group.formula, width, "", "    ")
    lines += [
        [Span("    " + line, "code")]
        for line in wrap(f"{group.numbers} = {group.result}", width - 4, 2)
    ]
    if group.most_bytes is not None:
        most = f"never more than {format_bytes(group.most_bytes)} ({format_gib(group.most_bytes)})"
        lines += paragraph(most, width, "", "    ")
    if group.source:
        lines += paragraph(group.source, width, "dim", "    ")
    return lines


def _contexts(x: Explanation, width: int) -> list[Line]:
    columns = [
        Column("tokens", right=True), Column("KV cache", right=True),
        Column("mean a token", right=True), Column("next token adds", right=True, drop=1),
    ]  # fmt: skip
    rows: list[list[Cell]] = [
        [
            f"{c.tokens:,}",
            Span(format_gib(c.logical_bytes), "strong"),
            format_bytes(c.mean_bytes_per_token),
            format_bytes(c.next_token_bytes),
        ]
        for c in x.contexts
    ]
    return table(columns, rows, width)


def _naive(x: Explanation, width: int) -> list[Line]:
    lines: list[Line] = []
    for naive in x.naive:
        mark = Span(f"  {naive.ratio:,.1f}x ".rjust(9), "bad")
        lines += paragraph(f"{format_gib(naive.bytes)}: {naive.mistake}", width, "", mark)
        lines += [[Span(" " * 9 + line, "dim")] for line in wrap(naive.numbers, width - 9, 2)]
    return lines


def _parts(x: Explanation, width: int) -> list[Line]:
    whole = x.parameters or 0
    columns = [
        Column("part"), Column("parameters", right=True), Column("share", right=True, drop=2),
        Column("weights", right=True, drop=1),
    ]  # fmt: skip
    rows: list[list[Cell]] = [
        [
            part.part.replace("_", " "),
            f"{part.parameters:,}",
            words.percent(part.parameters / whole) if whole else "",
            "" if part.weight_bytes is None else format_gib(part.weight_bytes),
        ]
        for part in x.parts
    ]
    weights = sum(part.weight_bytes or 0 for part in x.parts)
    rows.append(
        [
            Span("all", "strong"), Span(f"{whole:,}", "strong"), "",
            Span(f"{format_gib(weights)}", "strong"),
        ]
    )  # fmt: skip
    lines = table(columns, rows, width)
    if x.active_parameters is not None and x.active_parameters != x.parameters:
        active = f"{x.active_parameters:,} of them active for a token"
        lines += paragraph(active, width, "", "  ")
    return lines


def _checkpoint(x: Explanation) -> list[tuple[str, Cell]]:
    c = x.checkpoint
    found: list[tuple[str, Cell]] = []
    if c.parameters is not None:
        found.append(("published", f"{c.parameters:,} elements, buffers and tied copies included"))
    if c.size_bytes is not None:
        found.append(("size", f"{format_bytes(c.size_bytes)} ({format_gib(c.size_bytes)})"))
    if c.source is not None:
        found.append(("source", Span(c.source, "dim")))
    return found


def _markdown(x: Explanation) -> str:
    escape, code = markdown.escape, markdown.code
    sections = [
        f"## {escape(x.model)}\n\n**{escape(_headline(x))}**\n\n{escape(_shape(x))}\n",
        f"### Layers\n\n{escape(x.layer_pattern)}\n",
        "### What each layer keeps\n\n"
        + markdown.table(
            ["layers", "growth", "formula", "with its numbers", "source"],
            [
                [
                    escape(group_name(group)), escape(growth_words(group)), escape(group.formula),
                    code(f"{group.numbers} = {group.result}"), escape(group.source),
                ]
                for group in x.groups
            ],
        ),
        "### One sequence\n\n"
        + markdown.table(
            ["tokens", "KV cache", "mean a token", "next token adds"],
            [
                [
                    f"{c.tokens:,}", format_gib(c.logical_bytes),
                    format_bytes(c.mean_bytes_per_token), format_bytes(c.next_token_bytes),
                ]
                for c in x.contexts
            ],
            right=range(4),
        ),
    ]  # fmt: skip
    if x.naive:
        rows = [
            [escape(n.mistake), code(n.numbers), format_gib(n.bytes), f"{n.ratio:,.1f}x"]
            for n in x.naive
        ]
        titles = ["short cut", "arithmetic", "says", "over the true figure"]
        sections.append(
            "### What short cuts say instead\n\n" + markdown.table(titles, rows, right=(2, 3))
        )
    if x.parts:
        rows = [
            [escape(part.part.replace("_", " ")), f"{part.parameters:,}",
             "" if part.weight_bytes is None else format_gib(part.weight_bytes)]
            for part in x.parts
        ]  # fmt: skip
        sections.append(
            "### Parameters\n\n"
            + markdown.table(["part", "parameters", "weights"], rows, right=(1, 2))
        )
    if x.warnings:
        sections.append("### Warnings\n\n" + markdown.bullets(x.warnings))
    if x.assumptions:
        sections.append("### Assumptions\n\n" + markdown.bullets(x.assumptions))
    return "\n".join(sections)
