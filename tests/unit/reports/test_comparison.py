"""Several fits side by side: a column a deployment, every figure with its unit, never too wide."""

from __future__ import annotations

import csv
import io
import json

import pytest
from report_builders import fits, oom, tight

from kvplan.errors import InputError
from kvplan.reports.comparison import LABELS, compare, figures


def test_figures_are_those_of_the_reports() -> None:
    shown = dict(zip(LABELS, figures(oom()), strict=True))
    assert shown["verdict"] == "OOM"
    assert shown["batch"] == "24.00 GiB"
    assert shown["headroom"] == "-4.00 GiB"


@pytest.mark.parametrize("width", [40, 60, 80, 100, 140])
def test_no_line_is_wider_than_the_screen(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    text = compare([fits(), tight(), oom(), fits()], "table")
    assert max(len(line) for line in text.split("\n")) <= width
    assert sum(line.split()[:1] == ["verdict"] for line in text.split("\n")) >= 1
    assert [word for word in text.split() if word in {"FITS", "TIGHT", "OOM"}] == [
        "FITS", "TIGHT", "OOM", "FITS",
    ]  # fmt: skip


def test_csv_has_a_row_each_under_one_header() -> None:
    rows = list(csv.DictReader(io.StringIO(compare([fits(), oom()], "csv"))))
    assert [row["verdict"] for row in rows] == ["fits", "oom"]


def test_json_holds_whole_reports() -> None:
    document = json.loads(compare([fits(), oom()], "json"))
    assert document["schema"] == "kvplan.fits/1"
    assert [report["verdict"] for report in document["reports"]] == ["fits", "oom"]


def test_markdown_is_a_table() -> None:
    lines = compare([fits(), oom()], "markdown").strip().split("\n")
    assert len(lines) == len(LABELS) + 2
    assert {line.count("|") for line in lines} == {4}


def test_a_command_is_for_one_deployment() -> None:
    with pytest.raises(InputError, match="one model and one GPU"):
        compare([fits(), oom()], "flags")
