"""Every format: valid, deterministic, and safe whatever a plan says."""

from __future__ import annotations

import csv
import io
import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import xmlschema
from markdown_it import MarkdownIt
from plan_files import checked, deployment

from kvplan.checking.budgets import BUDGETS
from kvplan.checking.github import outputs, shortened, tell
from kvplan.checking.report import (
    BudgetResult,
    CheckReport,
    DeploymentResult,
    Fault,
    FileResult,
    Status,
)
from kvplan.checking.reports import FORMATS, render
from kvplan.checking.run import report_of

SCHEMAS = Path(__file__).parents[2] / "data" / "schemas"
HOSTILE = "=cmd|' /C calc'!A0 <b>&\"x\"</b>\n::error::x%0A | `a` \x1b[31m\x00\ud800"


def budget(status: Status, message: str = "have 1, need at most 0") -> BudgetResult:
    return BudgetResult(
        budget="max_gpus", rule="KVP009", level="error", status=status, need=0, have=1, margin=-1,
        unit="GPUs", message=message, line=7, column=3,
    )  # fmt: skip


def hostile() -> CheckReport:
    """A report in which every text comes from a stranger."""
    fault = Fault(message=HOSTILE, hint=HOSTILE, line=2, column=1)
    deployments = [
        DeploymentResult(
            name=HOSTILE, line=3, column=1, status=status, fault=at, reason=HOSTILE,
            deployment=None, figures=None, budgets=budgets, warnings=[HOSTILE],
            assumptions=[HOSTILE],
        )
        for status, at, budgets in (
            (Status.FAILED, None, [budget(status, HOSTILE) for status in Status]),
            (Status.ERROR, fault, []),
        )
    ]  # fmt: skip
    file = FileResult(
        path="a b/kvplan.yaml", status=Status.ERROR, faults=[fault], deployments=deployments
    )
    return report_of([file], "error")


def good(folder: Path) -> CheckReport:
    """A report with a pass, a warning, a failure, something off and an error."""
    lines = (
        "seq: 32k",
        "batch: 8",
        "budgets:",
        "  max_gpus: 1",
        "  max_kv_fraction: {value: 0.1, level: warn}",
        "  max_kv_bytes: 1GiB",
        "  max_weight_bytes: {value: 1, level: off}",
    )
    plan = deployment(*lines) + "  - {name: bad, model: no-such, gpu: l40s}\n"
    return checked(folder, plan)


def both(folder: Path) -> list[CheckReport]:
    return [good(folder), hostile()]


@pytest.mark.parametrize("name", FORMATS)
def test_the_same_plan_gives_the_same_bytes(tmp_path: Path, name: str) -> None:
    assert render(good(tmp_path), name) == render(good(tmp_path), name)


@pytest.mark.parametrize("name", FORMATS)
def test_no_control_character_gets_through(name: str) -> None:
    text = render(hostile(), name)
    assert "\x1b" not in text
    assert "\x00" not in text


def test_junit_keeps_its_schema(tmp_path: Path) -> None:
    schema = xmlschema.XMLSchema(SCHEMAS / "junit-10.xsd")
    for report in both(tmp_path):
        schema.validate(render(report, "junit"))


def test_junit_has_a_case_for_each_budget(tmp_path: Path) -> None:
    report = good(tmp_path)
    (suite,) = ET.fromstring(render(report, "junit"))
    assert suite.attrib["name"].endswith("kvplan.yaml")
    assert [suite.attrib[k] for k in ("tests", "failures", "errors", "skipped")] == [
        "6", "1", "1", "1",
    ]  # fmt: skip
    cases = {case.attrib["name"]: case for case in suite}
    assert list(cases) == [
        "fits", "max_gpus", "max_kv_fraction", "max_kv_bytes", "max_weight_bytes", "understood",
    ]  # fmt: skip
    failure = cases["max_kv_bytes"].find("failure")
    assert failure is not None
    assert failure.text is not None
    assert failure.text.splitlines()[2:] == [
        "need: at most 1.00 GiB", "have: 32.00 GiB", "margin: -31.00 GiB",
    ]  # fmt: skip
    assert (cases["max_kv_fraction"].findtext("system-out") or "").startswith("warning: ")
    assert cases["max_weight_bytes"].find("skipped") is not None
    assert cases["understood"].find("error") is not None


def sarif(report: CheckReport) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(render(report, "sarif"))
    schema = json.loads((SCHEMAS / "sarif-2.1.0.json").read_text(encoding="utf-8"))
    jsonschema.Draft7Validator(schema).validate(document)
    return document


def test_sarif_keeps_its_schema_and_points_at_the_line(tmp_path: Path) -> None:
    sarif(hostile())
    (run,) = sarif(good(tmp_path))["runs"]
    found = [
        (
            result["ruleId"],
            result["level"],
            result["locations"][0]["physicalLocation"]["region"]["startLine"],
        )
        for result in run["results"]
    ]
    assert found == [("KVP002", "warning", 10), ("KVP013", "error", 11), ("KVP100", "error", 13)]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == [*(b.rule for b in BUDGETS), "KVP100"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
    prints = [result["partialFingerprints"]["kvplan/v1"] for result in run["results"]]
    assert len(set(prints)) == 3


def test_a_finding_keeps_its_fingerprint_when_lines_move(tmp_path: Path) -> None:
    def prints(head: str) -> list[str]:
        report = checked(tmp_path, head + deployment("seq: 8k", "budgets: {max_kv_bytes: 1}"))
        results = sarif(report)["runs"][0]["results"]
        return [result["partialFingerprints"]["kvplan/v1"] for result in results]

    assert prints("") == prints("# a comment\n")


def test_csv_is_numbers_and_runs_no_formula(tmp_path: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(render(good(tmp_path), "csv"))))
    assert [row["status"] for row in rows] == [
        "passed", "passed", "warned", "failed", "off", "error",
    ]  # fmt: skip
    kv = rows[3]
    assert (kv["need"], kv["have"], kv["margin"], kv["unit"]) == (
        str(2**30), str(32 * 2**30), str(-31 * 2**30), "bytes",
    )  # fmt: skip
    for row in csv.reader(io.StringIO(render(hostile(), "csv"))):
        assert not [cell for cell in row if cell[:1] in set("=+@") or cell.startswith("-c")]


def test_github_annotations_are_escaped_and_one_a_deployment(tmp_path: Path) -> None:
    lines = render(hostile(), "github").splitlines()
    assert len(lines) == 3  # the file, the deployment's errors, its warnings
    assert all(
        line.startswith(("::error file=a b/kvplan.yaml,line=", "::warning ")) for line in lines
    )
    assert not any("::error::x%0A" in line[2:] for line in lines)
    (error, fault, warning) = render(good(tmp_path), "github").splitlines()
    assert ",line=11,col=7,title=kvplan%3A chat::max_kv_bytes: have 32.00 GiB" in error
    assert ",line=13,col=24,title=kvplan%3A bad::" in fault
    assert warning.startswith("::warning ")


def test_github_shows_ten_and_counts_the_rest(tmp_path: Path) -> None:
    gpus = ", ".join(str(n) for n in range(1, 26))
    plan = deployment(f"batch: [{gpus}]", "seq: 128k", "budgets: {max_kv_bytes: 1}")
    lines = render(checked(tmp_path, plan), "github")
    assert len(lines.splitlines()) == 10
    assert "and 16 more; see the job summary" in lines


def test_a_clean_check_says_so(tmp_path: Path) -> None:
    report = checked(tmp_path, deployment("seq: 8k"))
    assert render(report, "github") == "::notice title=kvplan::1 deployment: 1 passed\n"
    assert sarif(report)["runs"][0]["results"] == []


def test_markdown_has_no_markup_of_strangers() -> None:
    text = render(hostile(), "markdown")
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)
    kinds = {t.type for token in tokens for t in (token, *(token.children or ()))}
    assert not kinds & {"html_inline", "html_block", "link_open", "image"}
    rows = [token for token in tokens if token.type == "tr_open"]
    cells = [token for token in tokens if token.type in {"td_open", "th_open"}]
    assert len(cells) == 7 * len(rows) == 7 * 7  # a header, five budgets and a fault


def test_github_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    summary, output = tmp_path / "summary", tmp_path / "output"
    environment = {"GITHUB_STEP_SUMMARY": str(summary), "GITHUB_OUTPUT": str(output)}
    report = good(tmp_path)
    tell(report, environment, annotate=True)
    assert capsys.readouterr().err == render(report, "github")
    assert summary.read_text() == render(report, "markdown") + "\n"
    said = output.read_text()
    assert said.startswith("status=error\ndeployments=2\npassed=2\nwarned=1\nfailed=1\nerrors=1\n")
    name, delimiter = said.split("comment<<")[1].split("\n")[0], said.splitlines()[-1]
    assert name == delimiter
    tell(report, {}, annotate=False)
    assert capsys.readouterr().err == ""


def test_a_comment_cannot_end_the_output_early(tmp_path: Path) -> None:
    report = good(tmp_path)
    text = "a\nEOF\nstatus=passed\n"
    lines = outputs(report, text).splitlines()
    assert lines[-1] not in lines[7:-1]


def test_a_long_summary_is_cut_after_a_line() -> None:
    text = "é" * 10 + "\n" + "b" * 100 + "\n"
    cut = shortened(text, 80)
    assert cut.startswith("é" * 10 + "\n\n…and more")
    assert len(cut.encode()) <= 80
    assert shortened(text, 1000) == text
