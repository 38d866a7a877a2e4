"""The workbook, opened and recalculated in LibreOffice, says what kvplan says."""

from __future__ import annotations

import re
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from kvplan import FitReport, build_deployment, fit
from kvplan.units import GIB

from .conftest import Kvplan

OFFICE = shutil.which("soffice") or shutil.which("libreoffice")
needs_office = pytest.mark.skipif(OFFICE is None, reason="LibreOffice is not installed")
pytest.importorskip("xlsxwriter", reason="the xlsx extra is not installed")

MODELS = {"llama-3.1-8b": 1, "deepseek-v3": 8, "gemma-3-27b": 1, "qwen3-next-80b-a3b": 2}
ALWAYS_RECALCULATE = """<?xml version="1.0" encoding="UTF-8"?>
<oor:items xmlns:oor="http://openoffice.org/2001/registry">
<item oor:path="/org.openoffice.Office.Calc/Formula/Load"><prop oor:name="OOXMLRecalcMode"
 oor:op="fuse"><value>0</value></prop></item></oor:items>"""
TABLE = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
OFFICE_NS = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
HEAD = 11
"""Line of the titles on the sheet Plan, from 0."""


def changed(path: Path, target: Path, cells: dict[str, float]) -> None:
    """The workbook with other numbers in some cells of its first sheet."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w") as new:
        for item in old.infolist():
            data = old.read(item)
            if item.filename == "xl/worksheets/sheet1.xml":
                text = data.decode()
                for cell, value in cells.items():
                    pattern = rf'<c r="{cell}"( s="\d+")?(?:/>|>.*?</c>)'
                    text, count = re.subn(pattern, rf'<c r="{cell}"\1><v>{value}</v></c>', text)
                    assert count == 1, cell
                data = text.encode()
            new.writestr(item, data)


def recalculated(path: Path, folder: Path) -> list[list[str]]:
    """The first sheet as LibreOffice computes it."""
    profile = folder / "profile"
    (profile / "user").mkdir(parents=True, exist_ok=True)
    (profile / "user" / "registrymodifications.xcu").write_text(ALWAYS_RECALCULATE)
    assert OFFICE is not None
    subprocess.run(
        [OFFICE, f"-env:UserInstallation=file://{profile}", "--headless", "--convert-to", "fods",
         "--outdir", str(folder), str(path)],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    return first_sheet(folder / f"{path.stem}.fods")


def first_sheet(path: Path) -> list[list[str]]:
    """The cells of a flat OpenDocument spreadsheet: values in full, not as they are shown."""
    table = next(ElementTree.parse(path).getroot().iter(f"{TABLE}table"))
    rows: list[list[str]] = []
    for row in table.iter(f"{TABLE}table-row"):
        cells: list[str] = []
        for cell in row:
            text = cell.get(f"{OFFICE_NS}value") or "".join(cell.itertext()).strip()
            cells += [text] * min(int(cell.get(f"{TABLE}number-columns-repeated", 1)), 50)
        rows += [cells] * min(int(row.get(f"{TABLE}number-rows-repeated", 1)), 50)
    return rows


def answers(sheet: list[list[str]]) -> dict[str, dict[str, str]]:
    """The lines by model."""
    titles = sheet[HEAD]
    return {
        row[0]: dict(zip(titles, row, strict=False)) for row in sheet[HEAD + 1 :] if row and row[0]
    }


def agrees(row: dict[str, str], report: FitReport) -> None:
    """A line has the figures of a report, and not only roughly."""
    memory, cache = report.memory, report.kv_cache
    for title, size in (
        ("headroom (GiB)", memory.headroom_bytes),
        ("KV needed (GiB)", cache.needed_bytes),
        ("KV per sequence (GiB)", cache.reserved_bytes_per_sequence),
        ("weights (GiB)", memory.weight_bytes),
        ("claim (GiB)", memory.claim_bytes),
    ):
        assert float(row[title]) * GIB == pytest.approx(size or 0, abs=16), title
    if memory.kv_pool_bytes:
        assert float(row["KV pool (GiB)"]) * GIB == pytest.approx(memory.kv_pool_bytes, abs=16)
    assert row["verdict"] == report.verdict
    assert float(row["KV share of GPU"]) == pytest.approx(memory.kv_share or 0)


Recalculate = Callable[..., dict[str, dict[str, str]]]


@pytest.fixture
def recalculate(kvplan: Kvplan, tmp_path: Path) -> Recalculate:
    """Make a workbook, change cells, and read the figures back."""

    def run(words: list[str], cells: dict[str, float]) -> dict[str, dict[str, str]]:
        path = tmp_path / "plan.xlsx"
        done = kvplan("sweep", *words, "--format", "xlsx", "--output", str(path))
        assert (done.code, done.err) == (0, "")
        other = tmp_path / "other.xlsx"
        changed(path, other, cells)
        return answers(recalculated(other, tmp_path))

    return run


@needs_office
@pytest.mark.parametrize("model", MODELS)
def test_changed_users_and_tokens(recalculate: Recalculate, model: str) -> None:
    flags: dict[str, Any] = {"gpu": "h200", "tp": MODELS[model]}
    words = [model, "--gpu", "h200", "--tp", str(flags["tp"]), "--seq", "8k", "--batch", "4"]
    for users, seq in ((4, 8192), (37, 20_000), (200, 131_072)):
        found = recalculate(words, {"B3": users, "B6": seq})
        agrees(found[model], fit(build_deployment(model, **flags, seq=seq, batch=users)))


@needs_office
def test_changed_utilisation_memory_and_bits(recalculate: Recalculate) -> None:
    words = ["llama-3.1-8b", "--gpu", "l40s", "--seq", "8k", "--batch", "16"]
    flags: dict[str, Any] = {"gpu": "l40s", "seq": 8192, "batch": 16}
    found = recalculate(words, {"B7": 8, "B9": 0.8})["llama-3.1-8b"]
    agrees(found, fit(build_deployment("llama-3.1-8b", **flags, kv="fp8",
                                       gpu_memory_utilization=0.8)))  # fmt: skip
    found = recalculate(words, {"B10": 20, "B5": 3})["llama-3.1-8b"]
    agrees(found, fit(build_deployment("llama-3.1-8b", **flags | {"batch": 3},
                                       gpu_memory="20GiB")))  # fmt: skip
    found = recalculate(words, {"B8": 8})["llama-3.1-8b"]
    half = 16_060_522_496 / 2  # all of them at 8 bits
    assert float(found["weights (GiB)"]) * GIB == pytest.approx(half, abs=16)


@needs_office
def test_stages_engines_prefixes_and_errors(recalculate: Recalculate) -> None:
    words = ["llama-3.1-70b", "--gpu", "h100-sxm", "--tp", "2", "--pp", "2", "--dp", "2", "--seq",
             "4k", "--batch", "8", "--prefix-tokens", "1000"]  # fmt: skip
    flags: dict[str, Any] = {"gpu": "h100-sxm", "tp": 2, "pp": 2, "dp": 2, "prefix_tokens": 1000}
    found = recalculate(words, {"B3": 41, "B6": 9000})["llama-3.1-70b"]
    agrees(found, fit(build_deployment("llama-3.1-70b", **flags, seq=9000, batch=41)))
    words = ["llama-3.1-8b", "--gpu", "l4", "--seq", "4k", "--engine", "none"]
    found = recalculate(words, {"B3": 5})["llama-3.1-8b"]
    agrees(found, fit(build_deployment("llama-3.1-8b", gpu="l4", seq="4k", batch=5,
                                       engine="none")))  # fmt: skip
    words = ["llama-3.1-8b", "--gpu", "l4", "--seq", "4k", "--tp", "3"]
    found = recalculate(words, {})["llama-3.1-8b"]
    assert found["verdict"] == "error"
    assert "--tp 3 does not divide" in found["note"]


@needs_office
def test_loads_of_other_settings_are_not_guessed(recalculate: Recalculate) -> None:
    words = ["llama-3.1-8b", "--gpu", "h100-sxm", "--seq", "1k", "--batch", "4"]
    assert recalculate(words, {"B3": 1024})["llama-3.1-8b"]["verdict"] == "oom"
    assert recalculate(words, {"B3": 1025})["llama-3.1-8b"]["verdict"] == "ask kvplan"


def test_workbook_is_made_of_inputs_formulas_and_a_chart(kvplan: Kvplan, tmp_path: Path) -> None:
    run = kvplan("sweep", "llama-3.1-8b,gemma-3-27b", "--gpu", "h200,l4", "--seq", "8k",
                 "--format", "xlsx", "--output", "plan.xlsx")  # fmt: skip
    assert (run.code, run.err) == (0, "")
    with zipfile.ZipFile(tmp_path / "plan.xlsx") as book:
        names = book.namelist()
        sheets = book.read("xl/workbook.xml").decode()
        plan = book.read("xl/worksheets/sheet1.xml").decode()
    assert "xl/charts/chart1.xml" in names
    assert re.findall(r'<sheet name="(\w+)"', sheets) == [
        "Plan", "Context", "Assumptions", "Stages", "Rows"
    ]  # fmt: skip
    assert sheets.count('state="hidden"') == 2
    assert plan.count("<conditionalFormatting") >= 1
    assert 'state="frozen"' in plan


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "--format xlsx needs --output FILE"),
        (("--output", "a.xlsx", "--gpu-memory-utilization", "0.1..0.9:0.001"),
         "for at most 500 configurations, not 801"),
    ],
)  # fmt: skip
def test_refused(kvplan: Kvplan, words: tuple[str, ...], message: str) -> None:
    run = kvplan("sweep", "llama-3.1-8b", "--gpu", "l4", "--seq", "1k", "--format", "xlsx", *words)
    assert (run.code, run.out) == (2, "")
    assert message in run.err
