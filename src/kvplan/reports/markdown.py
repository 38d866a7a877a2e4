"""GitHub-flavoured Markdown: tables and text in which a stranger's words change nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kvplan.reports.layout import printable

_SPECIAL = re.compile(r"[\\`*\[\]<>|~#]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
"""What Markdown reads as markup; an underscore within a word it leaves alone."""


def escape(text: str) -> str:
    """``text`` as it is to be read: no markup, no HTML, no end of a table's cell."""
    return _SPECIAL.sub(r"\\\g<0>", printable(text))


def code(text: str) -> str:
    """``text`` in code style, in a table too."""
    safe = printable(text).replace("|", "\\|")
    fence = "``" if "`" in safe else "`"
    pad = " " if fence == "``" else ""
    return f"{fence}{pad}{safe}{pad}{fence}"


def table(titles: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """A table; the columns numbered in ``right`` hold numbers. Cells are Markdown already."""
    rule = ["---:" if number in right else "---" for number in range(len(titles))]
    lines = [titles, rule, *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def bullets(texts: Sequence[str]) -> str:
    """A list of plain texts."""
    return "".join(f"- {escape(text)}\n" for text in texts)
