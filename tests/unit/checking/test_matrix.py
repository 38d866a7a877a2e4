"""Lists make one deployment of each combination."""

from __future__ import annotations

from pathlib import Path

from plan_files import checked, deployment

from kvplan.checking.report import Status


def test_combinations_in_order(tmp_path: Path) -> None:
    report = checked(tmp_path, deployment("seq: [8k, 32k]", "kv: [auto, fp8]"))
    found = report.files[0].deployments
    assert [d.name for d in found] == [
        "chat [seq=8k, kv=auto]",
        "chat [seq=8k, kv=fp8]",
        "chat [seq=32k, kv=auto]",
        "chat [seq=32k, kv=fp8]",
    ]
    # 131,072 bytes a token at 16 bits, half of it at 8
    kv = [d.figures.kv_needed_bytes for d in found if d.figures is not None]
    assert kv == [8192 * 131_072, 8192 * 65_536, 32768 * 131_072, 32768 * 65_536]


def test_models_and_gpus_vary_too(tmp_path: Path) -> None:
    plan = deployment("seq: 4k", model="[llama-3.1-8b, qwen3-8b]", gpu="[h100-sxm, l40s]")
    names = [d.name for d in checked(tmp_path, plan).files[0].deployments]
    assert len(names) == 4
    assert names[0] == "chat [model=llama-3.1-8b, gpu=h100-sxm]"


def test_one_combination_that_cannot_be_leaves_the_others(tmp_path: Path) -> None:
    report = checked(tmp_path, deployment("seq: 8k", "tp: [1, 3, 2]"))
    statuses = [d.status for d in report.files[0].deployments]
    assert statuses == [Status.PASSED, Status.ERROR, Status.PASSED]
    fault = report.files[0].deployments[1].fault
    assert fault is not None
    assert (fault.line, fault.column) == (7, 13)  # the 3 itself


def test_too_many_combinations_are_refused(tmp_path: Path) -> None:
    many = ", ".join(str(n) for n in range(1, 102))
    plan = deployment(f"seq: [{many}]", f"batch: [{many}]")
    report = checked(tmp_path, plan)
    (fault,) = report.files[0].faults
    assert "more than 10,000 combinations" in fault.message
    assert (report.files[0].deployments, fault.line) == ([], 3)
