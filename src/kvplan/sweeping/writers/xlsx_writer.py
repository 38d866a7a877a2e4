"""A workbook for planners: change an input and every figure follows, in Excel and LibreOffice."""

from __future__ import annotations

from typing import Any, BinaryIO

from kvplan import __version__
from kvplan.errors import InputError, MissingExtra
from kvplan.planning.piece import VERDICTS
from kvplan.policy import load_policy
from kvplan.reports.csv_report import cell
from kvplan.sweeping.grid import Grid
from kvplan.sweeping.run import Job
from kvplan.sweeping.writers.formulas import FORMULAS, NO_CAP, facts, formula
from kvplan.sweeping.writers.resolved import Line, resolved_lines
from kvplan.units import GIB

MOST_LINES = 500
FIRST_LINE = 13
"""Row of the first configuration on the sheet Plan, from 1."""
_SHOWN_IN_CHART = 8
_CONTEXTS = 12
_ASSUMED = (
    "A line is one configuration; its figures are per GPU, by the arithmetic of kvplan fit.",
    "KV bits replaces the format's own bits where all caches are plain, windowed or chunked "
    "attention; latent, compressed and recurrent caches keep the bytes of their format.",
    "Weight bits scales the weights of the format as a whole. For the exact bytes of another "
    "format run kvplan sweep with --kv and --weights.",
    "Terms of the engine (activation, graphs, runtime) are those of the first length and batch of "
    "the sweep. Where an input changes them, the verdict says: ask kvplan.",
    "A changed GPU memory keeps the engine's defaults of the profile's memory.",
)


def workbook(file: BinaryIO, job: Job) -> int:
    """Write the workbook of a grid; the number of its configurations."""
    try:
        import xlsxwriter
    except ImportError:
        raise MissingExtra("xlsx", "--format xlsx") from None
    if not isinstance(job.source, Grid):
        raise InputError("--format xlsx takes a grid", hint="Use --format csv with --from.")
    if job.source.configurations > MOST_LINES:
        raise InputError(
            f"--format xlsx is for at most {MOST_LINES} configurations, "
            f"not {job.source.configurations:,}",
            hint="A length or batch is an input of the workbook; narrow the other flags.",
        )
    lines = resolved_lines(job, job.source)
    book = xlsxwriter.Workbook(file, {"in_memory": True, "strings_to_formulas": False,
                                      "strings_to_urls": False})  # fmt: skip
    _Book(book, job, job.source, lines).write()
    book.close()
    return len(lines)


class _Book:
    """The sheets, which refer to each other."""

    def __init__(self, book: Any, job: Job, grid: Grid, lines: list[Line]) -> None:
        self.book, self.job, self.grid, self.lines = book, job, grid, lines
        self.plan = book.add_worksheet("Plan")
        self.context = book.add_worksheet("Context")
        self.assumed = book.add_worksheet("Assumptions")
        self.stages = book.add_worksheet("Stages")
        self.rows = book.add_worksheet("Rows")
        bold = {"bold": True}
        self.head = book.add_format({**bold, "bg_color": "#DCE6F2", "bottom": 1, "text_wrap": True})
        self.marked = book.add_format({"bg_color": "#FFF2CC", "border": 1, "locked": False})
        self.title = book.add_format({**bold, "font_size": 14})
        self.gib = book.add_format({"num_format": "#,##0.00"})
        self.count = book.add_format({"num_format": "#,##0"})
        self.percent = book.add_format({"num_format": "0.0%"})
        self.columns: dict[str, int] = {}
        self.spans: list[tuple[int, int]] = []
        self.row_spans: list[tuple[int, int]] = []

    def write(self) -> None:
        """Every sheet."""
        self._inputs()
        self._stages()
        self._plan()
        self._context()
        self._assumptions()
        for sheet in (self.stages, self.rows):
            sheet.hide()
        self.plan.activate()

    def _inputs(self) -> None:
        seq = self.grid.lengths[0] if self.grid.lengths is not None else 8192
        self.plan.write("A1", f"Memory plan (kvplan {__version__})", self.title)
        self.plan.write("A2", "Change the yellow cells; empty ones keep each line's own value.")
        values = [
            ("Users", int(str(self.grid.batches[0])), "people at once"),
            ("Sequences per user", 1, "held at once for each of them"),
            ("Batch", None, "sequences held at once; may be typed over"),
            ("Tokens per sequence", int(str(seq)), "prompt and answer together"),
            ("KV bits", None, "bits of one cached element"),
            ("Weight bits", None, "bits of one weight"),
            ("GPU memory utilisation", None, "share from 0 to 1 that the engine claims"),
            ("GPU memory (GiB)", None, "usable memory of one GPU"),
        ]
        for row, (name, value, meaning) in enumerate(values, 2):
            self.plan.write(row, 0, name)
            if name == "Batch":
                self.plan.write_formula(
                    row, 1, "=ROUNDUP(B3*B4,0)", self.marked, int(str(self.grid.batches[0]))
                )
            elif value is None:
                self.plan.write_blank(row, 1, None, self.marked)
            else:
                self.plan.write_number(row, 1, value, self.marked)
            self.plan.write(row, 2, meaning)

    def _stages(self) -> None:
        """Facts and formulas of every rank, and the rows table behind them."""
        policy = load_policy(self.job.policy)
        names: list[str] = []
        line, row = 1, 1
        for number, one in enumerate(self.lines):
            start = line
            for pool in one.pools.stages if one.pools is not None else ():
                known = facts(one.pools, pool, one.bounds, policy.min_headroom)  # type: ignore[arg-type]
                if not names:
                    names = ["configuration", *known, *FORMULAS]
                    self.columns = {name: place for place, name in enumerate(names)}
                    self.stages.write_row(0, 0, names, self.head)
                    self.rows.write_row(
                        0, 0, ["unit_bytes", "unit_tokens", "cap_tokens", "constant_bytes"],
                        self.head,
                    )  # fmt: skip
                first = row
                for table_row in pool.layout.rows:
                    cap = NO_CAP if table_row.cap_tokens is None else table_row.cap_tokens
                    self.rows.write_row(
                        row, 0, [table_row.unit_bytes, table_row.unit_tokens, cap,
                                 table_row.constant_bytes],
                    )  # fmt: skip
                    row += 1
                cells = self._cells(line, first, row - 1)
                self.stages.write_number(line, 0, number)
                for name, value in known.items():
                    self.stages.write_number(line, self.columns[name], value)
                for name in FORMULAS:
                    self.stages.write_formula(line, self.columns[name], formula(name, cells))
                self.row_spans.append((first, row - 1))
                line += 1
            self.spans.append((start, line - 1))
        self.stages.freeze_panes(1, 1)
        self.rows.freeze_panes(1, 0)

    def _cells(self, line: int, first: int, last: int) -> dict[str, str]:
        cells = {name: f"${_letters(place)}{line + 1}" for name, place in self.columns.items()}
        parts = ("unit", "tokens", "cap", "constant")
        for place, part in enumerate(parts):
            letter = _letters(place)
            cells[f"rows_{part}"] = f"Rows!${letter}${first + 1}:${letter}${last + 1}"
        return cells

    def _plan(self) -> None:
        titles = ["model", "gpu", "tp", "pp", "engine", "weight format", "kv format",
                  "verdict", "headroom (GiB)", "KV needed (GiB)", "KV pool (GiB)",
                  "KV per sequence (GiB)", "KV share of GPU", "sequences that fit",
                  "weights (GiB)", "claim (GiB)", "note"]  # fmt: skip
        head = FIRST_LINE - 2
        self.plan.write_row(head, 0, titles, self.head)
        self.plan.freeze_panes(head + 1, 2)
        self.plan.set_column(0, 1, 24)
        self.plan.set_column(2, 3, 6)
        self.plan.set_column(4, len(titles) - 1, 14)
        for place, line in enumerate(self.lines):
            row = head + 1 + place
            for column, value in enumerate(line.label.values()):
                self.plan.write(row, column, cell(value))
            if line.pools is None:
                self.plan.write_string(row, 7, "error")
                self.plan.write_string(row, 16, str(cell(line.error)))
                continue
            for column, (text, form) in enumerate(self._figures(place), 7):
                self.plan.write_formula(row, column, text, form)
        last = head + len(self.lines)
        colours = (("fits", "#C6EFCE"), ("tight", "#FFEB9C"), ("oom", "#FFC7CE"))
        for verdict, colour in colours:
            self.plan.conditional_format(
                head + 1, 7, last, 7,
                {"type": "cell", "criteria": "==", "value": f'"{verdict}"',
                 "format": self.book.add_format({"bg_color": colour})},
            )  # fmt: skip

    def _figures(self, place: int) -> list[tuple[str, Any]]:
        """The formulas of one line, from the stage that holds least."""
        first, last = self.spans[place]

        def column(name: str) -> str:
            letter = _letters(self.columns[name])
            return f"Stages!${letter}${first + 1}:${letter}${last + 1}"

        room = column("room")

        def least(name: str) -> str:
            return f"INDEX({column(name)},MATCH(MIN({room}),{room},0))"

        names = ",".join(f'"{word}"' for word in VERDICTS)
        verdict = f'=IF(MAX({column("asks_again")})=1,"ask kvplan",CHOOSE(MAX({column("severity")})+1,{names}))'  # noqa: E501
        gib = [f"={least(name)}/{GIB}" for name in ("headroom", "needed", "pool", "reserved")]
        fitting = (
            f"=IF({least('reserved')}>{least('shared')},{least('dp')}*MAX(0,INT(({least('available')}"
            f"-{least('shared')})/({least('reserved')}-{least('shared')}))),0)"
        )
        usable = f"({least('total')}-{least('reserve')})"
        share = f"=IF({usable}>0,{least('needed')}/{usable},0)"
        again = f'=IF(MAX({column("asks_again")})=1,"the engine would choose other settings","")'
        return [
            (verdict, None),
            *((text, self.gib) for text in gib),
            (share, self.percent),
            (fitting, self.count),
            (f"={least('weights')}/{GIB}", self.gib),
            (f"={least('claim')}/{GIB}", self.gib),
            (again, None),
        ]

    def _context(self) -> None:
        """KV of the batch by context, and the chart of it."""
        shown = [n for n, line in enumerate(self.lines) if line.pools is not None][:_SHOWN_IN_CHART]
        self.context.write(0, 0, "tokens", self.head)
        self.context.freeze_panes(1, 1)
        for column, place in enumerate(shown, 1):
            label = self.lines[place].label
            name = f"{label['model']} {label['gpu']} tp {label['tp']} {label['kv_cache_dtype']}"
            self.context.write_string(0, column, f"{cell(name)} (GiB)", self.head)
        for row in range(1, _CONTEXTS + 1):
            self.context.write_number(row, 0, 512 << row, self.count)
            for column, place in enumerate(shown, 1):
                stage = self.spans[place][0]
                cells = self._cells(stage, *self.row_spans[stage - 1])
                cells = {key: f"Stages!{value}" if value.startswith("$") else value
                         for key, value in cells.items()}  # fmt: skip
                length = f"$A{row + 1}"
                text = (
                    f"={cells['sequences']}*{cells['kv_factor']}*SUMPRODUCT({cells['rows_constant']}"
                    f"+{cells['rows_unit']}*ROUNDUP(({length}-({length}>{cells['rows_cap']})*({length}"
                    f"-{cells['rows_cap']}))/{cells['rows_tokens']},0))/{GIB}"
                )
                self.context.write_formula(row, column, text, self.gib)
        if not shown:
            return
        chart = self.book.add_chart({"type": "line"})
        for column in range(1, len(shown) + 1):
            chart.add_series({
                "name": ["Context", 0, column],
                "categories": ["Context", 1, 0, _CONTEXTS, 0],
                "values": ["Context", 1, column, _CONTEXTS, column],
            })  # fmt: skip
        chart.set_title({"name": "KV cache of the batch on one GPU"})
        chart.set_x_axis({"name": "tokens per sequence"})
        chart.set_y_axis({"name": "GiB", "log_base": 10})
        chart.set_size({"width": 900, "height": 420})
        self.context.insert_chart(_CONTEXTS + 2, 0, chart)

    def _assumptions(self) -> None:
        self.assumed.set_column(0, 0, 44)
        self.assumed.set_column(1, 1, 120)
        self.assumed.write_row(0, 0, ["configuration", "assumption, warning or source"], self.head)
        self.assumed.freeze_panes(1, 0)
        rows = [("all", text) for text in _ASSUMED]
        for line in self.lines:
            name = f"{line.label['model']}, {line.label['gpu']}, tp {line.label['tp']}"
            if line.pools is None:
                rows.append((name, f"cannot be: {line.error}"))
                continue
            d = line.pools.resolved
            said = [*d.model.assumptions, *d.assumptions, *d.model.warnings, *d.warnings]
            said += [f"{t.key}: {t.source}" for t in line.pools.stages[0].terms]
            said += [f"model facts: {d.model.source}", f"GPU memory: {d.gpu.memory_basis}"]
            rows += [(name, text) for text in said]
        for number, (name, text) in enumerate(dict.fromkeys(rows), 1):
            self.assumed.write_string(number, 0, str(cell(name)))
            self.assumed.write_string(number, 1, str(cell(text)))


def _letters(column: int) -> str:
    """The letters of a column, from 0."""
    letters = ""
    column += 1
    while column:
        column, rest = divmod(column - 1, 26)
        letters = chr(ord("A") + rest) + letters
    return letters
