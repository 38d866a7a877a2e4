"""``kvplan check`` as a process: exit codes, formats, files and GitHub's environment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from plan_files import CHAT, deployment

from .conftest import Kvplan

EXAMPLES = Path(__file__).parents[2] / "examples" / "ci"
NO_GITHUB = dict.fromkeys(("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT", "CI"), "")
FAILING = deployment("seq: 32k", "batch: 26")
WARNING = deployment(
    "seq: 32k", "batch: 8", "budgets: {max_gpus: {value: 1, level: warn}}", "tp: 2"
)


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "kvplan.yaml"
    path.write_text(CHAT)
    return path


@pytest.mark.parametrize(
    ("text", "words", "code"),
    [
        (CHAT, (), 0),
        (WARNING, (), 0),
        (WARNING, ("--fail-on", "warn"), 1),
        (FAILING, (), 1),
        (FAILING, ("--exit-zero",), 0),
        (deployment("tp: 3"), (), 2),
        (deployment("tp: 3"), ("--exit-zero",), 2),
        (FAILING + "  - {name: b, model: no-such, gpu: l40s}\n", (), 2),
        ("version: 1\n", (), 2),
        ("{", (), 2),
        ("", (), 2),
        (deployment(model="acme/not-bundled"), (), 2),
        (deployment("seq: 8k", "budgets: {min_mean_concurrency: 1}"), (), 2),
    ],
)
def test_exit_codes(
    kvplan: Kvplan, plan: Path, text: str, words: tuple[str, ...], code: int
) -> None:
    plan.write_text(text)
    run = kvplan("check", *words, env=NO_GITHUB)
    assert (run.code, run.err) == (code, "")
    assert "kvplan.yaml" in run.out


def test_the_table(kvplan: Kvplan, plan: Path) -> None:
    run = kvplan("check", env=NO_GITHUB)
    lines = run.out.splitlines()
    assert lines[0].startswith("kvplan.yaml ──")
    assert lines[1].startswith("PASSED  chat: llama-3.1-8b on 1 x h100-sxm, 8 x 32,768 tokens")
    assert lines[3].split() == ["passed", "fits", "yes", "yes"]
    assert lines[4].split()[:4] == ["passed", "max_kv_fraction", "60.00", "%"]
    assert lines[-1] == "1 deployment: 3 passed"


def test_several_files_and_one_that_is_missing(kvplan: Kvplan, plan: Path) -> None:
    run = kvplan("check", "kvplan.yaml", "no.yaml", "--format", "json", env=NO_GITHUB)
    assert run.code == 2
    document = json.loads(run.out)
    assert [file["status"] for file in document["files"]] == ["passed", "error"]
    assert document["files"][1]["faults"][0]["message"] == (
        "no.yaml: cannot be read: No such file or directory"
    )


def test_formats_and_their_files_in_pairs(kvplan: Kvplan, plan: Path, tmp_path: Path) -> None:
    run = kvplan(
        "check", "--format", "text", "--format", "json", "--output", "a.json", "-f", "sarif",
        "-o", "b.sarif", "--format=junit", "--output=c.xml", "kvplan.yaml", env=NO_GITHUB,
    )  # fmt: skip
    assert run.code == 0
    assert run.out.endswith("1 deployment: 3 passed\n")
    assert json.loads((tmp_path / "a.json").read_text())["schema"] == "kvplan.check/1"
    assert json.loads((tmp_path / "b.sarif").read_text())["version"] == "2.1.0"
    assert (tmp_path / "c.xml").read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--format", "text", "--format", "json"), "would both go to stdout"),
        (("--format", "json", "--output", "a", "--output", "b"), "'b' has no --format of its own"),
        (("-o", "a", "-o", "b"), "'b' has no --format of its own"),
        (("-f", "json", "-o", "a", "-f", "csv", "-o", "a"), "the same --output"),
        (("--format", "yaml"), "--format 'yaml' is not one of text, json, junit"),
        (("--fail-on", "never"), "--fail-on 'never' is not one of"),
        (("--policy", "no.yaml"), "no.yaml: cannot be read"),
        (("--no-such",), "No such option"),
    ],
)
def test_usage_errors(kvplan: Kvplan, plan: Path, words: tuple[str, ...], why: str) -> None:
    run = kvplan("check", *words, env=NO_GITHUB)
    assert (run.code, run.out) == (2, "")
    assert why in run.err


def test_an_output_alone_takes_the_default_format(
    kvplan: Kvplan, plan: Path, tmp_path: Path
) -> None:
    assert kvplan("check", "-o", "out.txt", env=NO_GITHUB).out == ""
    assert (tmp_path / "out.txt").read_text().endswith("3 passed\n")


@pytest.mark.parametrize("name", ["text", "json", "junit", "sarif", "github", "markdown", "csv"])
def test_runs_are_byte_identical(kvplan: Kvplan, name: str) -> None:
    path = str(EXAMPLES / "failing" / "kvplan.yaml")
    seeds = ({"PYTHONHASHSEED": "1"}, {"PYTHONHASHSEED": "2"})
    runs = [kvplan("check", path, "-f", name, env={**NO_GITHUB, **seed}) for seed in seeds]
    assert runs[0] == runs[1]
    assert runs[0].code == 1


def schema(kvplan: Kvplan, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(kvplan("schema", name).out)
    jsonschema.Draft202012Validator.check_schema(found)
    return found


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("kvplan.yaml")), ids=lambda p: p.parent.name)
def test_the_examples_pass_and_fail_and_keep_the_schema(kvplan: Kvplan, path: Path) -> None:
    run = kvplan("check", str(path), "--format", "json", env=NO_GITHUB)
    assert run.code == (1 if path.parent.name == "failing" else 0)
    form = schema(kvplan, "check-report")
    document = json.loads(run.out)
    jsonschema.validate(document, form)
    assert form["$id"] == "urn:kvplan:check/1"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document, "more": 1}, form)


def test_the_plans_schema_is_published(kvplan: Kvplan) -> None:
    assert schema(kvplan, "check")["$id"] == "urn:kvplan:plan/1"


def test_inside_github_actions(kvplan: Kvplan, plan: Path, tmp_path: Path) -> None:
    plan.write_text(FAILING)
    summary, output = tmp_path / "summary.md", tmp_path / "output"
    environment = {
        "GITHUB_ACTIONS": "true",
        "GITHUB_STEP_SUMMARY": str(summary),
        "GITHUB_OUTPUT": str(output),
    }
    run = kvplan("check", "--format", "json", env=environment)
    assert run.code == 1
    assert json.loads(run.out)["status"] == "failed"
    assert run.err.startswith("::error file=kvplan.yaml,line=3,col=11,title=kvplan%3A chat::fits: ")
    assert "## kvplan check: ❌ failed" in summary.read_text()
    assert output.read_text().startswith("status=failed\n")
    for words in (("--no-github",), ("--format", "github", "--no-github")):
        summary.unlink(missing_ok=True)
        quiet = kvplan("check", *words, env=environment)
        assert (quiet.code, quiet.err, summary.exists()) == (1, "", False)
    once = kvplan("check", "--format", "github", env=environment)
    assert (once.out.count("::error"), once.err) == (1, "")


def test_github_can_be_asked_for(kvplan: Kvplan, plan: Path) -> None:
    run = kvplan("check", "--github", env=NO_GITHUB)
    assert run.err == "::notice title=kvplan::1 deployment: 3 passed\n"


def test_no_network_is_used(kvplan: Kvplan, plan: Path, tmp_path: Path) -> None:
    guard = tmp_path / "guard"
    guard.mkdir()
    (guard / "sitecustomize.py").write_text(
        "import socket\n"
        "def refuse(*a, **k): raise SystemExit('the network was used')\n"
        "socket.socket = socket.create_connection = socket.getaddrinfo = refuse\n"
    )
    plan.write_text(CHAT + "  - {name: b, model: acme/unknown, gpu: h100-sxm}\n")
    run = kvplan("check", env={**NO_GITHUB, "PYTHONPATH": str(guard)})
    assert (run.code, "the network was used" in run.err + run.out) == (2, False)
    assert "uses no network" in run.out


def test_a_narrow_screen_is_kept_to(kvplan: Kvplan, plan: Path) -> None:
    run = kvplan("check", env={**NO_GITHUB, "COLUMNS": "40"})
    assert (run.code, max(map(len, run.out.splitlines())) <= 40) == (0, True)
