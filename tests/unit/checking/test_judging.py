"""A check says what ``fit`` says: the same figures, the same verdict."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from plan_files import checked, deployment, only

from kvplan.checking.report import Status
from kvplan.planning.fit import fit
from kvplan.planning.report import Verdict
from kvplan.question import build_deployment

QUESTIONS: list[tuple[str, dict[str, Any]]] = [
    ("llama-3.1-8b", {"gpu": "h100-sxm", "seq": "32k", "batch": "8", "mean_seq": "4k"}),
    ("llama-3.1-70b", {"gpu": "h100-sxm", "tp": "4", "seq": "32k", "batch": "16", "kv": "fp8"}),
    ("gemma-3-27b", {"gpu": "h200-sxm", "seq": "128k", "batch": "4"}),
    ("deepseek-v3", {"gpu": "h200-sxm", "tp": "8", "seq": "64k", "batch": "2"}),
    ("llama-3.1-8b", {"gpu": "l40s", "seq": "128k", "batch": "64"}),
    ("llama-2-7b", {"gpu": "a100-80g-sxm", "seq": "4k", "engine": "none"}),
    ("qwen3-32b", {"gpu": "h100-sxm", "dp": "2", "tp": "2", "seq": "8k", "batch": "9"}),
]


@pytest.mark.parametrize(("model", "flags"), QUESTIONS, ids=lambda v: str(v)[:30])
def test_figures_are_those_of_fit(tmp_path: Path, model: str, flags: dict[str, Any]) -> None:
    lines = [f"{name}: {value}" for name, value in flags.items() if name != "gpu"]
    result = only(checked(tmp_path, deployment(*lines, gpu=flags["gpu"], model=model)))
    report = fit(build_deployment(model, **flags))
    figures = result.figures
    assert figures is not None
    assert result.deployment is not None
    assert result.deployment.__dict__ == report.deployment.__dict__
    assert (figures.verdict, figures.limiting_term) == (report.verdict, report.limiting_term)
    assert figures.fits == (report.verdict is not Verdict.OOM)
    assert result.reason == report.reason
    for name in ("usable_bytes", "weight_bytes", "kv_pool_bytes", "kv_needed_bytes",
                 "headroom_bytes", "kv_share", "pool_use"):  # fmt: skip
        assert getattr(figures, name) == getattr(report.memory, name), name
    assert figures.kv_bytes_per_token == report.kv_cache.bytes_per_token
    assert figures.kv_bytes_per_sequence == report.kv_cache.reserved_bytes_per_sequence
    assert figures.mean_concurrency == report.kv_cache.mean_concurrency
    assert figures.max_batch == report.limits.max_batch
    assert figures.max_seq_len == report.limits.max_seq_len
    assert result.warnings == report.warnings
    assert result.assumptions == report.assumptions


def faulty(folder: Path, plan: str) -> tuple[int, str, str]:
    """Line, message and hint of the only deployment's fault."""
    report = checked(folder, plan)
    fault = only(report).fault
    assert report.status is Status.ERROR
    assert fault is not None
    return fault.line, fault.message, fault.hint or ""


@pytest.mark.parametrize(
    ("lines", "line", "message"),
    [
        (("seq: 8k", "tp: 3"), 7, "--tp 3 does not divide the 32 attention heads"),
        (("gpus: 3", "tp: 2"), 6, "2 GPUs, which is not the 3 of --gpus"),
        (("seq: 8k", "kv: fp9"), 7, "fp9"),
        (("seq: 8k", "weights: fp9"), 7, "--weights 'fp9' is not a weight format"),
        (("seq: 8k", "engine: vlm"), 7, "--engine 'vlm' is not an engine"),
        (("seq: 8k", "engine: vllm@9.9"), 7, "9.9 is not modelled"),
        (("seq: 8k", "engine: sglang"), 7, "--engine 'sglang' is not an engine"),
        (("seq: 8k", "engine_arg: {no_such: 1}"), 7, "models no such argument of vLLM"),
        (("seq: 8k", "set: {no_such: 1}"), 4, "no_such"),
        (("seq: 8k", "input_tokens: 16k"), 6, "less than the 16,384 tokens"),
    ],
)
def test_what_cannot_be_points_at_its_key(
    tmp_path: Path, lines: tuple[str, ...], line: int, message: str
) -> None:
    found = faulty(tmp_path, deployment(*lines))
    assert message in found[1]
    assert found[0] == line


def test_models_that_are_not_known(tmp_path: Path) -> None:
    line, message, hint = faulty(tmp_path, deployment(model="lama-3.1-8b"))
    assert (line, "neither a bundled model nor a file" in message) == (4, True)
    assert "llama-3.1-8b" in hint
    for ref in ("acme/secret-8b", "hf:meta-llama/Llama-3.1-8B"):
        line, message, hint = faulty(tmp_path, deployment(model=ref))
        assert (line, "neither bundled nor a file here" in message) == (4, True)
        assert "uses no network" in hint


def test_a_revision_needs_the_hub(tmp_path: Path) -> None:
    for model in ("llama-3.1-8b", "acme/secret-8b"):
        found = faulty(tmp_path, deployment("seq: 8k", "revision: main", model=model))
        assert found[:2] == (7, "revision main is one of the hub, which a check does not ask")
        assert "uses no network" in found[2]


def test_gpus_that_are_not_known(tmp_path: Path) -> None:
    for gpu, said in (("h1000", "is not a GPU"), ("a100", "does not say which memory"),
                      ("local", "whatever machine runs the check"),
                      ("gpu.yaml", "cannot be read")):  # fmt: skip
        line, message, _ = faulty(tmp_path, deployment(gpu=gpu))
        assert (line, said in message) == (5, True), message


EXAMPLES = Path(__file__).parents[3] / "examples" / "ci"


def test_a_config_beside_the_plan(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "models", tmp_path / "models")
    result = only(checked(tmp_path, deployment("seq: 16k", model="models/acme-8b/config.json")))
    assert result.figures is not None
    assert result.figures.kv_bytes_per_token == 2 * 32 * 8 * 128 * 2
    folder = only(checked(tmp_path, deployment("seq: 16k", model="models/acme-8b")))
    assert folder.figures is not None
    assert folder.figures.kv_bytes_per_token == 131_072


def test_an_unknown_architecture_is_never_a_pass(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "zebra", "num_hidden_layers": 2}')
    line, message, _ = faulty(tmp_path, deployment("seq: 8k", model="config.json"))
    assert (line, "model_type = 'zebra'" in message) == (4, True)


def test_a_faulty_deployment_leaves_the_others_judged(tmp_path: Path) -> None:
    plan = deployment("seq: 8k") + "  - {name: b, model: no-such, gpu: h100-sxm}\n"
    report = checked(tmp_path, plan)
    assert [d.status for d in report.files[0].deployments] == [Status.PASSED, Status.ERROR]
    assert (report.summary.passed, report.summary.errors, report.status) == (1, 1, Status.ERROR)


def test_several_faults_of_one_deployment_are_all_told(tmp_path: Path) -> None:
    line, message, _ = faulty(tmp_path, deployment("seq: x", "batch: y"))
    assert line == 6
    assert "line 7: deployments[0].batch 'y'" in message
