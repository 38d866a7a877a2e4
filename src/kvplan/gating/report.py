"""The gate's answer as text and as Markdown for a pull request."""

from __future__ import annotations

from kvplan.gating.decision import Answer, TaskReport
from kvplan.gating.gate import GateReport

FORMATS = ("table", "json", "markdown")
_WORDS = {Answer.KEEP: "keep", Answer.ROLL_BACK: "ROLL BACK", Answer.UNDECIDED: "undecided"}
_TITLES = ("task", "metric", "baseline", "candidate", "loss", "interval", "answer")


def render(report: GateReport, name: str) -> str:
    """``report`` in one of `FORMATS`."""
    if name == "json":
        from kvplan.reports.json_report import json_text

        return json_text(report)
    return _markdown(report) if name == "markdown" else _table(report)


def _cells(r: TaskReport) -> list[str]:
    return [r.task, r.metric, _value(r.baseline), _value(r.candidate), _loss(r), _interval(r),
            _WORDS[r.answer]]  # fmt: skip


def _value(value: float | None) -> str:
    return "" if value is None else f"{value:,.4g}"


def _is_points(r: TaskReport) -> bool:
    return r.rule.startswith("loses")


def _loss(r: TaskReport) -> str:
    if r.loss is None:
        return ""
    return f"{r.loss * 100:+.2f} pt" if _is_points(r) else f"{r.loss:+.2%}"


def _interval(r: TaskReport) -> str:
    if r.low is None or r.high is None:
        return ""
    unit = "pt" if _is_points(r) else "%"
    return f"{r.low * 100:+.2f} to {r.high * 100:+.2f} {unit}"


def _details(r: TaskReport) -> str:
    said = [r.rule] if r.rule else []
    if r.method and r.method != "a fixed limit":
        said.append(r.method)
    if r.p_value is not None:
        said.append(f"p = {r.p_value:.3g}")
    if r.samples:
        said.append(f"{r.samples:,} samples")
    if r.note:
        said.append(r.note)
    if r.samples_needed:
        said.append(f"about {r.samples_needed:,} samples would tell")
    return "; ".join(said)


def _after(report: GateReport) -> list[str]:
    lines = []
    if report.answer is not Answer.KEEP:
        lines.append(f"Roll back with: {' '.join(report.rollback_flags)}")
        lines.append("and leave out any override of the window.")
        if report.rollback_room:
            lines.append(f"Room: {report.rollback_room}.")
    return lines


def _table(report: GateReport) -> str:
    from kvplan.reports.layout import printable

    rows = [list(_TITLES), *([printable(cell) for cell in _cells(r)] for r in report.tasks)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_TITLES))]
    lines = [f"{_WORDS[report.answer].upper()}  {printable(report.reason)}", ""]
    for number, row in enumerate(rows):
        cells = [
            cell.rjust(width) if 2 <= column <= 4 else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
        if number and (told := _details(report.tasks[number - 1])):
            lines.append(f"    {printable(told)}")
    lines += ["", f"Intervals and tests at {report.confidence:.0%}. A loss above 0 is worse."]
    lines += [printable(line) for line in _after(report)]
    return "\n".join(lines) + "\n"


def _markdown(report: GateReport) -> str:
    from kvplan.reports.markdown import code, escape, table

    rows = [[*map(escape, _cells(r)), escape(_details(r))] for r in report.tasks]
    text = f"**{_WORDS[report.answer].upper()}** {escape(report.reason)}\n\n"
    text += table([*_TITLES, "how"], rows, right=(2, 3, 4))
    if report.answer is not Answer.KEEP:
        text += f"\nRoll back with {code(' '.join(report.rollback_flags))}, "
        text += "and leave out any override of the window.\n"
        if report.rollback_room:
            text += f"\n{escape(report.rollback_room)}.\n"
    return text
