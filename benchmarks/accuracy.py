"""How near kvplan comes to start-up logs of real engines: writes docs/accuracy.md and .svg.

    python benchmarks/accuracy.py [--check]

Everything is computed from ``tests/data/engine_logs.jsonl``; ``--check`` only says whether the
written files are up to date (exit code 1 when they are not).
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from engine_logs import (  # noqa: E402  (found by the line above)
    POOL_DIFFERS,
    TERM_DIFFERS,
    TERMS,
    TOKENS_DIFFER,
    Result,
    compared,
    fits,
    results,
    whole_model_layout,
    with_tokens,
)

from kvplan.units import GIB  # noqa: E402

DOCUMENT, PICTURE = ROOT / "docs" / "accuracy.md", ROOT / "docs" / "accuracy.svg"
_NAMES = {
    "weights": "weights (range: 2 %)",
    "activation": "activation peak",
    "runtime": "runtime (non-torch)",
    "cuda_graph": "CUDA graphs, captured",
}


def main(words: list[str]) -> int:
    """Write both files, or check them."""
    files = {DOCUMENT: document(), PICTURE: picture()}
    if "--check" in words:
        stale = [path.name for path, text in files.items() if _read(path) != text]
        print("\n".join(f"{name} is not up to date" for name in stale) or "up to date")
        return 1 if stale else 0
    DOCUMENT.parent.mkdir(exist_ok=True)
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
    return 0


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def predictions() -> list[Result]:
    """Rows whose pool is predicted from the configuration alone, worst last."""
    rows = [result for result in results() if result.predicts()]
    return sorted(rows, key=lambda result: (abs(result.claim_error() or 0.0), result.id))


def document() -> str:
    """The whole page."""
    answered = [result for result in results() if result.budget is not None]
    parts = [
        _INTRODUCTION.format(logs=len(results()), answered=len(answered)),
        _summary(),
        "![Predicted against logged KV pool](accuracy.svg)",
        _pools(),
        _terms(),
        _tokens(),
        _failures(),
        _not_compared(),
    ]
    return "\n\n".join(parts) + "\n"


_INTRODUCTION = """\
# Accuracy against real start-up logs

Written by `python benchmarks/accuracy.py`; the same comparisons are tests
(`tests/golden/test_engine_logs.py`). Do not edit by hand.

{logs} start-ups of vLLM that people published (issues, pull requests, files of public
repositories) are in `tests/data/engine_logs.jsonl`, each with its origin. kvplan answers {answered}
of them; the others are listed at the end with the reason. What a log does not state, such as
`max_num_seqs`, is left to vLLM's default in that version. The constants of the measured laws were
fitted to some of these very logs, so the page shows how well a few laws carry many
configurations; it is no forecast for hardware that nobody has logged."""


def _summary() -> str:
    errors = sorted(abs(result.claim_error() or 0.0) for result in predictions())
    exact = _exact_tokens()
    failed = [r for r in results() if r.row["failed"] and r.budget is not None]
    lengths = [r for r in results() if r.budget and r.seen("needed_kv_gib_for_max_len")]
    median, ninth = statistics.median(errors), errors[int(0.9 * len(errors))]
    return _table(
        ["aim", "result", "logs"],
        [
            ["KV memory needed for a length", "exact", str(len(lengths))],
            ["tokens and blocks of the logged pool", f"{exact} exact within the log's rounding, "
             f"{len(TOKENS_DIFFER)} explained below", str(len(with_tokens()))],
            ["pool from the configuration alone, share of the claim (aim: 2 % median, 6 % p90)",
             f"median {median:.1%}, p90 {ninth:.1%}, worst {errors[-1]:.1%}", str(len(errors))],
            ["failed for memory, yet called `fits` (aim: none)",
             str(sum(fits(r) for r in failed)), str(len(failed))],
        ],
    )  # fmt: skip


def _pools() -> str:
    rows = []
    for result in predictions():
        b, error = result.budget, result.claim_error()
        logged = result.seen("kv_cache_gib_per_gpu")
        if b is None or error is None or logged is None or b.claim_bytes is None:
            continue
        why = POOL_DIFFERS.get(result.id, "")
        rows.append(
            [
                _origin(result), result.row["model"], result.row["gpu"], _flags(result),
                result.row["engine"].partition("@")[2], f"{b.claim_bytes / GIB:.2f}",
                f"{b.pool_bytes / GIB:.2f}", f"{logged:.2f}", f"{error:+.1%}",
                "; ".join(filter(None, [*result.notes, why])),
            ]
        )  # fmt: skip
    head = [
        "log", "model", "GPU", "flags", "vLLM", "claim", "predicted", "logged", "of claim", "notes",
    ]  # fmt: skip
    text = (
        "## KV pool from the configuration alone\n\n"
        "Every log of high confidence that names model, GPU, tp and utilisation; GiB per GPU. "
        "Negative: the weights leave no room, and the start failed.\n\n"
    )
    return text + _table(head, rows)


def _terms() -> str:
    rows, missed = [], []
    for key in TERMS:
        found = compared(key)
        ratios = [row.seen / row.likely for row in found if row.likely > 0]
        inside = sum(row.inside for row in found)
        rows.append(
            [
                _NAMES[key], str(len(found)), f"{inside}", f"{statistics.median(ratios):.3f}",
                f"{min(ratios):.2f} to {max(ratios):.2f}",
            ]
        )  # fmt: skip
        for row in found:
            if not row.inside:
                why = TERM_DIFFERS[key, row.id]
                planned = f"{row.low:.2f} to {row.high:.2f}"
                missed.append([row.id, _NAMES[key], planned, f"{row.seen:.2f}", why])
    return (
        "## Term by term\n\n"
        "Logged over likely; a term is a range, because logs do not state all that it depends on. "
        "Graph memory that capture freed counts as 0.\n\n"
        + _table(["term", "logs", "in range", "median ratio", "ratios"], rows)
        + "\n\nOutside their range (GiB):\n\n"
        + _table(["log", "term", "range", "logged", "reason"], missed)
    )


def _exact_tokens() -> int:
    return sum(result.id not in TOKENS_DIFFER for result in with_tokens())


def _tokens() -> str:
    rows = []
    for result in with_tokens():
        figures, b = result.figures_of_logged_pool(), result.budget
        if figures is None or b is None:
            continue
        (low, least), (high, most) = figures
        tokens, blocks = result.seen("kv_tokens"), result.seen("gpu_blocks")
        rows.append(
            [
                _origin(result), result.row["model"], result.row["engine"].partition("@")[2],
                f"{result.seen('kv_cache_gib_per_gpu'):.2f}", _span(least, most), _count(blocks),
                _span(low.tokens, high.tokens), _count(tokens), TOKENS_DIFFER.get(result.id, ""),
            ]
        )  # fmt: skip
    needed = []
    for result in results():
        gib = result.seen("needed_kv_gib_for_max_len")
        if gib is None or result.budget is None:
            continue
        layout, length = whole_model_layout(result.row)
        needed.append(
            [
                _origin(result), result.row["model"], f"{length:,}",
                f"{layout.reserved_bytes(length) / GIB:.2f}", f"{gib:.2f}",
            ]
        )  # fmt: skip
    head = ["log", "model", "vLLM", "pool GiB", "blocks", "logged", "tokens", "logged", "reason"]
    return (
        "## Blocks and tokens of the logged pool\n\n"
        "No law is involved: the pool is the log's, and its two decimals leave the span shown.\n\n"
        + _table(head, rows)
        + '\n\nKV memory that vLLM said one sequence needs ("… GiB KV cache is needed"):\n\n'
        + _table(["log", "model", "tokens", "kvplan GiB", "logged GiB"], needed)
    )


def _failures() -> str:
    rows = [
        [
            _origin(result), result.row["model"], result.row["gpu"], _flags(result),
            str(result.budget.verdict), result.budget.limiting_term.replace("_", " "),
        ]
        for result in results()
        if result.row["failed"] and result.budget is not None
    ]  # fmt: skip
    head = ["log", "model", "GPU", "flags", "kvplan says", "limiting term"]
    return "## Starts that failed for memory\n\n" + _table(head, rows)


def _not_compared() -> str:
    rows = [
        [_origin(r), r.row["model_stated"], r.row["version_stated"] or "", r.error or ""]
        for r in results()
        if r.budget is None
    ]
    return "## Not compared\n\n" + _table(["log", "model", "version", "reason"], rows)


def _origin(result: Result) -> str:
    origin = result.row["origin"]
    return f"[{result.id}]({origin})" if origin.startswith("https://") else result.id


def _flags(result: Result) -> str:
    flags = dict(result.row["flags"])
    words = []
    for name, value in flags.items():
        if name == "tp" and value == 1:
            continue
        option = "--" + name.replace("_", "-")
        values = value if isinstance(value, list) else [value]
        words += [option if value is True else f"{option} {one}" for one in values]
    return f"`{' '.join(words)}`" if words else ""


def _count(value: float | None) -> str:
    return "" if value is None else f"{int(value):,}"


def _span(low: int | None, high: int | None) -> str:
    if low is None or high is None:
        return ""
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(c.replace("|", "\\|") for c in row) + " |" for row in lines)


SIZE, LEFT, TOP, PLOT = (640, 520), 70, 30, 430
"""Width and height, margins, and the side of the plot."""
LARGEST = 120.0
"""GiB at the ends of the axes."""


def picture() -> str:
    """Predicted over logged pool, both axes from 0; a dot a log, its name as a tooltip."""
    width, height = SIZE
    style = (
        "text{font:13px sans-serif;fill:#333}.axis{stroke:#888;stroke-width:1}"
        ".grid{stroke:#ddd;stroke-width:1}.same{stroke:#888;stroke-dasharray:5 4}"
        ".dot{fill:#1f6feb;fill-opacity:.75}"
        "@media(prefers-color-scheme:dark){text{fill:#ccc}.grid{stroke:#444}}"
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        'aria-labelledby="title">',
        '<title id="title">KV pool predicted from the configuration against the logged one</title>',
        f"<style>{style}</style>",
    ]
    for gib in range(0, int(LARGEST) + 1, 20):
        x, y = _place(gib, gib)
        parts += [
            f'<line class="grid" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{TOP + PLOT}"/>',
            f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{LEFT + PLOT}" y2="{y:.1f}"/>',
            f'<text x="{x:.1f}" y="{TOP + PLOT + 20}" text-anchor="middle">{gib}</text>',
            f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{gib}</text>',
        ]
    (x0, y0), (x1, y1) = _place(0, 0), _place(LARGEST, LARGEST)
    parts += [
        f'<line class="same" x1="{x0}" y1="{y0}" x2="{x1}" y2="{y1}"/>',
        f'<rect class="axis" fill="none" x="{LEFT}" y="{TOP}" width="{PLOT}" height="{PLOT}"/>',
        f'<text x="{LEFT + PLOT / 2}" y="{height - 12}" text-anchor="middle">logged KV pool, GiB '
        "per GPU</text>",
        f'<text x="20" y="{TOP + PLOT / 2}" text-anchor="middle" '
        f'transform="rotate(-90 20 {TOP + PLOT / 2})">predicted, GiB per GPU</text>',
    ]
    for result in predictions():
        logged = result.seen("kv_cache_gib_per_gpu")
        if result.budget is None or logged is None or logged < 0:
            continue
        predicted = max(0.0, result.budget.pool_bytes / GIB)
        x, y = _place(logged, predicted)
        name = f"{result.id}: {result.row['model']} on {result.row['gpu']}"
        parts.append(
            f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{name}, logged '
            f"{logged:.2f}, predicted {predicted:.2f} GiB</title></circle>"
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _place(logged: float, predicted: float) -> tuple[float, float]:
    return LEFT + logged / LARGEST * PLOT, TOP + PLOT - predicted / LARGEST * PLOT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
