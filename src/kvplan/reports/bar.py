"""The memory of one GPU as a bar of characters, scaled to what can be used of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from kvplan.reports.layout import Line, Span

if TYPE_CHECKING:
    from kvplan.planning.report import MemoryReport

_GLYPHS = {
    "weights": "█", "activation": "▚", "cuda_graph": "▞", "runtime": "▒", "lora": "▙", "draft": "▟",
}  # fmt: skip
_OTHER_TERM, _NEEDED, _FREE, _OUTSIDE, _OVER = "▒", "▓", "░", "·", "▶"


class Part(NamedTuple):
    """A part of the memory, in the order of the bar."""

    key: str
    size_bytes: int
    glyph: str
    style: str


def memory_parts(m: MemoryReport, *, fits: bool) -> list[Part]:
    """Weights, the engine's terms, KV needed and free, and what lies outside the claim.

    A given pool skips the budget: what is beside it is then outside.
    """
    parts = [Part("weights", m.weight_bytes or 0, _GLYPHS["weights"], "weights")]
    beside: list[Part] = []
    for term in m.terms:
        glyph = _GLYPHS.get(term.key, _OTHER_TERM)
        style = term.key if term.key in _GLYPHS else "term"
        held = parts if term.in_claim else beside
        held.append(Part(term.key, term.likely_bytes, glyph, style))
    needed, pool = m.kv_needed_bytes, m.kv_pool_bytes or 0
    parts.append(Part("needed", needed, _NEEDED, "needed" if fits else "over"))
    parts.append(Part("free", max(0, pool - needed), _FREE, "free"))
    claimed = sum(part.size_bytes for part in parts) if m.claim_bytes is None else m.claim_bytes
    parts += beside
    claimed += sum(part.size_bytes for part in beside)
    outside = 0 if m.usable_bytes is None else max(0, m.usable_bytes - claimed)
    parts.append(Part("outside", outside, _OUTSIDE, "outside"))
    return parts


def bar(parts: Sequence[Part], usable_bytes: int | None, width: int) -> Line:
    """The parts side by side in ``width`` characters; an arrow where they go beyond the memory."""
    total = usable_bytes or sum(part.size_bytes for part in parts)
    if not total:
        return []
    inside, over = _clipped(parts, total)
    cells = _cells([size for _, size in inside], total, width - over)
    line: Line = []
    for (part, _), count in zip(inside, cells, strict=True):
        if over and part.key == "outside":
            line.append(Span(_OVER, "over"))
        if count:
            line.append(Span(part.glyph * count, part.style))
    return line


def _clipped(parts: Sequence[Part], total: int) -> tuple[list[tuple[Part, int]], bool]:
    """What of each part lies within the memory, and whether something does not.

    What the engine does not claim is nobody's: the parts before it end where it begins.
    """
    outside = sum(part.size_bytes for part in parts if part.key == "outside")
    inside: list[tuple[Part, int]] = []
    left, over = total - outside, False
    for part in parts:
        if part.key == "outside":
            inside.append((part, part.size_bytes))
            continue
        size = min(part.size_bytes, max(0, left))
        over = over or size < part.size_bytes
        left -= size
        inside.append((part, size))
    return inside, over


def _cells(sizes: Sequence[int], total: int, width: int) -> list[int]:
    """Characters for each size: rounded so that they add up, at least one for what is there."""
    edges, cells, sum_so_far = 0, [], 0
    for size in sizes:
        sum_so_far += size
        edge = (2 * sum_so_far * width + total) // (2 * total)
        cells.append(edge - edges)
        edges = edge
    for number, size in enumerate(sizes):
        widest = max(range(len(cells)), key=lambda i: cells[i])
        if size and not cells[number] and cells[widest] > 1:
            cells[number] += 1
            cells[widest] -= 1
    return cells
