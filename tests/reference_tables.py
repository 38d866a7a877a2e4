"""The tables of docs/formats.md and docs/architectures.md, from the program's own tables.

    python tests/reference_tables.py

writes them between their markers; ``tests/docs/test_reference.py`` holds the documents to them.
"""

from __future__ import annotations

import re
from pathlib import Path

from kvplan.precision.format import WHOLE_ROW, Format
from kvplan.precision.kv import KV_FORMATS
from kvplan.precision.weights import EVERY_MATRIX, LINEAR_PARTS, WEIGHT_FORMATS
from kvplan.sources.gguf.architectures import known_architectures
from kvplan.sources.huggingface import families

DOCS = Path(__file__).parents[1] / "docs"
MARKED = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
Rows = list[list[str]]


def layout(form: Format) -> str:
    """What is stored of a group of elements."""
    if not (form.metadata_bits or form.outlier_permille):
        return f"{form.bits} bits"
    text = f"{form.bits} bits"
    if form.metadata_bits:
        of = "row" if form.group_size == WHOLE_ROW else f"{form.group_size}"
        of += f" x {form.group_rows}" if form.group_rows > 1 else ""
        text += f" + {form.metadata_bits} per {of}"
    if form.outlier_permille:
        text += f" + 32 per outlier ({form.outlier_permille / 10:g} %)"
    if form.rope is not None:
        text += f"; the rotary part at {form.rope.bits}"
    return text + (f" + {form.column_bits} per column" if form.column_bits else "")


def number(value: float) -> str:
    return f"{value:.4g}"


def kv_rows() -> Rows:
    rows = [["format", "bits", "stored", "engines", "quality", "source"]]
    for form in KV_FORMATS.values():
        sides = layout(form.k)
        if form.k != form.v:
            sides = f"K {sides}; V {layout(form.v)}"
        if form.residual_tokens:
            sides += f"; the last {form.residual_tokens} tokens at 16 bits"
        rows.append([
            f"`{form.name}`", number(form.bits), sides, ", ".join(form.engines) or "research code",
            form.quality_note, form.source,
        ])  # fmt: skip
    return rows


def weight_rows() -> Rows:
    rows = [["format", "bits in a row of 4,096", "stored", "parts", "quality", "source"]]
    for form in WEIGHT_FORMATS.values():
        parts = "linear layers" if form.parts == LINEAR_PARTS else ", ".join(sorted(form.parts))
        parts = "every matrix" if form.parts == EVERY_MATRIX else parts
        bits = form.form.matrix_bytes(4096, 4096) * 8 / 4096**2
        rows.append([
            f"`{form.name}`", number(bits), layout(form.form), parts, form.quality_note,
            form.source,
        ])  # fmt: skip
    return rows


def family_rows() -> Rows:
    """Every ``model_type`` by the module that reads it."""
    by_module: dict[str, list[str]] = {}
    aliases: dict[str, list[str]] = {}
    for alias, name in families.ALIASES.items():
        aliases.setdefault(name, []).append(alias)
    for name in families.known_types():
        if name in families.ALIASES:
            continue
        shown = f"`{name}`"
        if name in aliases:
            shown += f" ({', '.join(f'`{alias}`' for alias in aliases[name])})"
        found = families.family(name)
        assert found is not None
        by_module.setdefault(found[0].__module__.rpartition(".")[2], []).append(shown)
    rows = [["read by", "model_type (other names)"]]
    return rows + [[f"`families/{home}.py`", ", ".join(names)] for home, names in by_module.items()]


def gguf_rows() -> Rows:
    return [["general.architecture"], [", ".join(f"`{name}`" for name in known_architectures())]]


TABLES = {"kv": kv_rows, "weights": weight_rows, "families": family_rows, "gguf": gguf_rows}


def markdown(rows: Rows) -> str:
    head, *body = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = [head, ["---"] * len(head), *body]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def filled(text: str) -> str:
    """A document with its tables as they should be."""
    return MARKED.sub(lambda found: found[1] + markdown(TABLES[found[2]]()) + found[3], text)


def documents() -> list[Path]:
    return [DOCS / "formats.md", DOCS / "architectures.md"]


if __name__ == "__main__":
    for path in documents():
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
