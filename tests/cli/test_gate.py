"""``kvplan gate`` as a process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


def harness(folder: Path, right: list[int]) -> None:
    """A run of lm-evaluation-harness on one task, with its samples."""
    folder.mkdir()
    share = sum(right) / len(right)
    results = {
        "results": {"gsm8k": {"exact_match,strict-match": share}},
        "n-samples": {"gsm8k": {"original": len(right), "effective": len(right)}},
    }
    (folder / "results_2026-03-01T00-00-00.json").write_text(json.dumps(results))
    lines = (
        {"doc_id": n, "doc_hash": f"h{n}", "filter": "strict-match", "exact_match": float(one)}
        for n, one in enumerate(right)
    )
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "samples_gsm8k_2026-03-01T00-00-00.jsonl").write_text(text)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """1,000 questions, 700 of them right at 16 bits."""
    harness(tmp_path / "bf16", [1] * 700 + [0] * 300)
    harness(tmp_path / "fp8", [1] * 697 + [0] * 301 + [1] * 2)  # 3 lost, 2 won
    harness(tmp_path / "int4", [1] * 630 + [0] * 370)  # 70 lost
    harness(tmp_path / "few", [1] * 680 + [0] * 320)  # 20 lost: 2 points
    return tmp_path


@pytest.mark.parametrize(
    ("candidate", "words", "code", "answer"),
    [
        ("fp8", (), 0, "keep"),
        ("int4", (), 1, "roll_back"),
        ("int4", ("--exit-zero",), 0, "roll_back"),
        ("int4", ("--undecided", "keep"), 1, "roll_back"),
        ("few", (), 1, "undecided"),
        ("few", ("--undecided", "keep"), 0, "undecided"),
    ],
)
def test_answers(
    kvplan, runs: Path, candidate: str, words: tuple[str, ...], code: int, answer: str
) -> None:  # type: ignore[no-untyped-def]
    run = kvplan("gate", "bf16", candidate, "--format", "json", *words)
    document = json.loads(run.out)
    assert (run.code, document["answer"]) == (code, answer), run.err
    assert document["schema"] == "kvplan.gate/1"
    assert document["tasks"][0]["method"].startswith("paired: exact McNemar")


def test_the_document_is_what_the_schema_says(kvplan, runs: Path) -> None:  # type: ignore[no-untyped-def]
    from jsonschema import Draft202012Validator

    schema = json.loads(kvplan("schema", "gate").out)
    document = json.loads(kvplan("gate", "bf16", "few", "--format", "json").out)
    Draft202012Validator(schema).validate(document)


def test_the_report_says_what_to_do(kvplan, runs: Path) -> None:  # type: ignore[no-untyped-def]
    run = kvplan("gate", "bf16", "int4", "--engine", "llamacpp")
    lines = run.out.split("\n")
    assert lines[0].startswith("ROLL BACK  gsm8k exact_match,strict-match: worse than")
    assert "+7.00 pt" in run.out
    assert "70 answers lost and 0 won of 1,000" in run.out
    assert "Roll back with: --cache-type-k f16 --cache-type-v f16" in run.out
    markdown = kvplan("gate", "bf16", "int4", "--format", "markdown").out
    assert "| gsm8k | exact_match,strict-match | 0.7 | 0.63 | +7.00 pt |" in markdown
    assert "`--kv-cache-dtype auto`" in markdown


def test_thresholds_come_from_the_policy(kvplan, runs: Path) -> None:  # type: ignore[no-untyped-def]
    (runs / "mild.yaml").write_text("quality:\n  max_drop: 0.2\n")
    run = kvplan("gate", "bf16", "int4", "--policy", "mild.yaml")
    assert (run.code, run.out[:4]) == (0, "KEEP")
    (runs / "bad.yaml").write_text("quality:\n  max_dorp: 0.2\n")
    bad = kvplan("gate", "bf16", "int4", "--policy", "bad.yaml")
    assert bad.code == 2
    assert "'quality.max_dorp' is not a threshold" in bad.err
    assert "Nearest: max_drop" in bad.err


def test_room_for_sixteen_bits(kvplan, runs: Path) -> None:  # type: ignore[no-untyped-def]
    plan = ("llama-3.1-8b", "--gpu", "h100-sxm", "--seq", "32k", "--batch", "20", "--kv", "fp8")
    kvplan("fit", *plan, "--format", "json", "-o", "plan.json")
    run = kvplan("gate", "bf16", "int4", "--plan", "plan.json")
    # A plan at 8 bits lists 8 bits and narrower: the room at 16 is another question.
    assert "ask kvplan fit with --kv bf16" in run.out
    kvplan("fit", *plan[:-2], "--format", "json", "-o", "plan.json")
    again = kvplan("gate", "bf16", "int4", "--plan", "plan.json")
    assert "no room for the batch of 20: a 16-bit cache holds 13 x 32,768 tokens" in again.out


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("bf16", "missing"), "cannot be read"),
        (("bf16", "fp8", "--task", "gms8k"), "the baseline has no such task"),
        (("bf16", "fp8", "--undecided", "maybe"), "is not fail or keep"),
        (("bf16", "fp8", "--engine", "vlm"), "goes back to 16 bits"),
        (("bf16", "fp8", "--format", "csv"), "is not one of table, json, markdown"),
        (("bf16", "empty"), "holds no evaluation results"),
        (("bf16", "other.json"), "no task in common"),
    ],
)
def test_what_cannot_be(kvplan, runs: Path, words: tuple[str, ...], why: str) -> None:  # type: ignore[no-untyped-def]
    (runs / "empty").mkdir()
    (runs / "other.json").write_text('{"perplexity": 5.5}')
    run = kvplan("gate", *words)
    assert (run.code, run.out) == (2, "")
    assert why in run.err
