"""JSON, YAML, CSV and Markdown of hand-made reports."""

from __future__ import annotations

import csv
import io
import json

import yaml
from builders import deployment
from report_builders import changed, fits, oom, tight

from kvplan.planning.fit import fit
from kvplan.reports import render
from kvplan.reports.csv_report import as_row, cell
from kvplan.reports.markdown import code, escape


def test_json_and_yaml_say_the_same() -> None:
    document = json.loads(render(oom(), "json"))
    assert yaml.safe_load(render(oom(), "yaml")) == document
    assert document["verdict"] == "oom"
    assert document["memory"]["headroom_bytes"] == -4 * 1024**3
    assert list(document)[:4] == ["schema", "kvplan_version", "deployment", "verdict"]


def test_explained_documents_hold_the_formulas() -> None:
    d = deployment()
    report = fit(d)
    for name, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        document = read(render(report, name, d))
        assert set(document["formulas"][0]) == {"name", "formula", "numbers", "result", "source"}
    assert "formulas" not in json.loads(render(report, "json"))


def test_csv_columns_are_the_json_keys() -> None:
    row = as_row(fits())
    assert row["kv_cache_dtype"] == "bf16"
    assert row["max_batch"] == 5
    assert row["limits_max_num_seqs"] == 2048
    assert row["max_num_seqs"] == 256
    assert row["recommended_batch"] == 5
    assert row["batch"] == 4
    assert row["min_gpu_memory_utilization"] == 0.8
    assert not any(key.endswith("_reason") for key in row)


def test_csv_is_a_header_and_a_row_that_parse_back() -> None:
    text = render(fits(), "csv")
    assert text.count("\r\n") == 2
    [row] = csv.DictReader(io.StringIO(text))
    assert row["needed_bytes"] == str(16 * 1024**3)
    assert row["mean_concurrency"] == ""
    assert row["fits_eager"] == "1"
    assert float(row["pool_use"]) == 0.8
    assert row["verdict"] == "fits"


def test_csv_text_is_no_formula() -> None:
    assert cell("=cmd|' /C calc'!A0") == "'=cmd|' /C calc'!A0"
    assert cell("+1") == "'+1"
    assert cell("-1") == "'-1"
    assert cell("@x") == "'@x"
    assert cell("a\r\n\tb") == "a   b"
    assert cell(-1) == -1
    assert cell(1 / 3) == repr(1 / 3)


def test_csv_with_commas_and_quotes_parses_back() -> None:
    report = fits()
    named = changed(report.deployment, model='a, "b"')
    [row] = csv.DictReader(io.StringIO(render(changed(report, deployment=named), "csv")))
    assert row["model"] == 'a, "b"'


def test_markdown_has_the_verdict_first_and_every_section() -> None:
    text = render(oom(), "markdown")
    assert text.startswith("## kvplan: OOM\n\n**24.00 GiB of KV cache for 6 x 32,768 tokens")
    for title in (
        "Memory per GPU",
        "KV cache per GPU",
        "Limits",
        "Batch that fits",
        "Recommended",
        "Single changes",
        "Command",
        "Warnings",
        "Assumptions",
    ):
        assert f"\n### {title}" in text
    assert "| headroom | -4.00 GiB | -10.0 % |" in text
    assert "| `bf16` | 16 | 20 | **5** |" in text
    assert "### Single changes" not in render(fits(), "markdown")
    assert "| `--tp 2` | FITS | 9.00 GiB | 12 |" in render(tight(), "markdown")


def test_markdown_tables_keep_their_columns() -> None:
    hostile = "a|b <script>alert(1)</script> `x` _y_ [z](http://x)\n| --- |"
    report = oom(warnings=[hostile])
    options = [changed(option, quality_note=hostile) for option in report.options]
    text = render(changed(report, options=options), "markdown")
    assert "<script>" not in text.replace("\\<script", "")
    tables = [line for line in text.split("\n") if line.startswith("|")]
    for line in tables:
        assert line.endswith("|")
    row = next(line for line in tables if "fp8_e4m3`" in line and "TIGHT" in line)
    assert row.replace("\\|", "").count("|") == 7


def test_markdown_escapes_what_means_something() -> None:
    assert escape("a|b") == "a\\|b"
    assert escape("max_num_seqs") == "max_num_seqs"
    assert escape("_x_ *y*") == "\\_x\\_ \\*y\\*"
    assert escape("a\nb") == "a\\\\nb"
    assert code("a|b") == "`a\\|b`"
    assert code("a`b") == "`` a`b ``"


def test_markdown_formulas() -> None:
    d = deployment()
    text = render(fit(d), "markdown", d)
    assert "\n### Formulas\n" in text
    assert "`512 B x 1,024 = 524,288 B (<0.01 GiB)`" in text
