"""What changed, and what of it is a regression."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from plan_files import checked, deployment

from kvplan.checking.baseline import read_baseline
from kvplan.checking.difference import (
    Change,
    DiffReport,
    Side,
    Tolerance,
    compare,
    parse_tolerances,
)
from kvplan.checking.reports import DIFF_FORMATS, render, render_diff
from kvplan.errors import InputError, MalformedFile

GIB = 1 << 30


def difference(folder: Path, base: str, head: str, *tolerances: str) -> DiffReport:
    sides = [Side(name, checked(folder, plan)) for name, plan in (("base", base), ("head", head))]
    return compare(sides[0], sides[1], parse_tolerances(tolerances))


def figures(report: DiffReport) -> dict[str, tuple[object, object, object, bool]]:
    (change,) = report.deployments
    return {f.figure: (f.base, f.head, f.delta, f.regression) for f in change.figures}


def test_twice_the_batch_needs_twice_the_bytes(tmp_path: Path) -> None:
    base, head = (deployment("seq: 32k", f"batch: {n}") for n in (8, 16))
    report = difference(tmp_path, base, head)
    (change,) = report.deployments
    assert (change.change, change.base_verdict, change.head_verdict) == ("changed", "fits", "oom")
    assert (change.newly_failing, report.regressions) == (["fits"], 1)
    found = figures(report)
    assert found["kv_needed_bytes"] == (32 * GIB, 64 * GIB, 32 * GIB, True)
    assert found["batch"] == (8, 16, 8, False)
    assert found["headroom_bytes"][2:] == (-32 * GIB, True)
    assert found["max_seq_len"][3] is True
    assert "weight_bytes" not in found


def test_the_other_way_round_is_no_regression(tmp_path: Path) -> None:
    base, head = (deployment("seq: 32k", f"batch: {n}") for n in (16, 8))
    report = difference(tmp_path, base, head)
    assert report.regressions == 0
    assert figures(report)["kv_needed_bytes"] == (64 * GIB, 32 * GIB, -32 * GIB, False)


def test_the_same_plan_is_the_same(tmp_path: Path) -> None:
    report = difference(tmp_path, deployment("seq: 8k"), deployment("seq: 8k"))
    assert [(c.change, c.figures) for c in report.deployments] == [(Change.SAME, [])]


def test_added_removed_and_not_understood(tmp_path: Path) -> None:
    base = deployment("seq: 8k") + "  - {name: old, model: llama-3.1-8b, gpu: l40s, seq: 4k}\n"
    head = deployment("tp: 3") + "  - {name: new, model: llama-3.1-8b, gpu: l40s, seq: 4k}\n"
    report = difference(tmp_path, base, head)
    assert {c.name: c.change for c in report.deployments} == {
        "chat": Change.ERROR, "new": Change.ADDED, "old": Change.REMOVED,
    }  # fmt: skip
    assert (report.errors, report.regressions) == (1, 0)
    assert "head, line 6: --tp 3 does not divide" in (report.deployments[0].message or "")


@pytest.mark.parametrize(
    ("tolerances", "regressions"),
    [
        ((), 1),
        (("10%",), 1),  # 8 to 9 sequences is 12.5 % more bytes
        (("13%", "headroom_bytes=4GiB", "max_seq_len=7000"), 0),
        (("13%", "headroom_bytes=3GiB", "max_seq_len=7000"), 1),
    ],
)
def test_tolerances(tmp_path: Path, tolerances: tuple[str, ...], regressions: int) -> None:
    base, head = (deployment("seq: 32k", f"batch: {n}") for n in (8, 9))
    assert difference(tmp_path, base, head, *tolerances).regressions == regressions


def test_tolerances_as_written() -> None:
    assert parse_tolerances(["2%", "gpu_count=1", "kv_needed_bytes=512MiB"]) == {
        "": Tolerance(share=0.02),
        "gpu_count": Tolerance(amount=1),
        "kv_needed_bytes": Tolerance(amount=512 << 20),
    }
    for text in ("2", "x%", "-1%", "inf%", "nan%", "kv_needed=1%", "batch=1%", "gpu_count=x"):
        with pytest.raises(InputError, match="--tolerance"):
            parse_tolerances([text])


@pytest.mark.parametrize("name", DIFF_FORMATS)
def test_formats_are_deterministic(tmp_path: Path, name: str) -> None:
    base, head = (deployment("seq: 32k", f"batch: {n}") for n in (8, 16))
    first = render_diff(difference(tmp_path, base, head), name)
    assert first == render_diff(difference(tmp_path, base, head), name)
    assert "64.00 GiB" in first or str(64 * GIB) in first


def test_a_report_is_its_own_baseline(tmp_path: Path) -> None:
    report = checked(tmp_path, deployment("seq: 32k", "batch: 8"))
    path = tmp_path / "baseline.json"
    path.write_text(render(report, "json"))
    back = read_baseline(str(path))
    assert render(back, "json") == render(report, "json")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"schema": "kvplan.fit/1"}, "its schema is 'kvplan.fit/1'"),
        ({"schema": None}, "its schema is 'None'"),
        ({"files": "x"}, "files is not as kvplan check writes it"),
        ({"status": "fine"}, "status is not as"),
        ({"more": 1}, r"'more' is not as"),
    ],
)
def test_a_baseline_that_is_none(tmp_path: Path, change: dict[str, object], why: str) -> None:
    document = json.loads(render(checked(tmp_path, deployment("seq: 8k")), "json"))
    path = tmp_path / "baseline.json"
    path.write_text(json.dumps({**document, **change}))
    with pytest.raises(MalformedFile, match=why):
        read_baseline(str(path))
