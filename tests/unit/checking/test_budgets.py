"""Budgets against figures, with the arithmetic written out.

Llama 3.1 8B keeps 2 x 32 layers x 8 heads x 128 x 2 bytes = 131,072 bytes a token, so a sequence of
32,768 tokens is 4 GiB and eight of them are 32 GiB.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from plan_files import CHAT, checked, deployment, only

from kvplan.checking.budgets import BUDGETS, Limit, amount
from kvplan.checking.report import BudgetResult, Status

GIB = 1 << 30
USABLE = 85_029_027_840
"""An H100 SXM as the framework sees it (configs/gpus/h100-sxm.yaml)."""


def held(folder: Path, *budgets: str) -> dict[str, BudgetResult]:
    """The deployment of the module's docstring, held to budgets."""
    lines = ["seq: 32k", "batch: 8", "budgets:", *(f"  {budget}" for budget in budgets)]
    return {b.budget: b for b in only(checked(folder, deployment(*lines))).budgets}


@pytest.mark.parametrize(
    ("budget", "need", "have", "margin"),
    [
        ("max_kv_bytes_per_token: 131072", 131_072, 131_072, 0),
        ("max_kv_bytes_per_token: 131071", 131_071, 131_072, -1),
        ("max_kv_bytes_per_sequence: 5GiB", 5 * GIB, 4 * GIB, GIB),
        ("max_kv_bytes: 32GiB", 32 * GIB, 32 * GIB, 0),
        ("max_kv_bytes: 31GiB", 31 * GIB, 32 * GIB, -GIB),
        ("max_kv_fraction: 0.5", 0.5, 32 * GIB / USABLE, 0.5 - 32 * GIB / USABLE),
        ("max_kv_fraction: 0.4", 0.4, 32 * GIB / USABLE, 0.4 - 32 * GIB / USABLE),
        ("max_gpus: 2", 2, 1, 1),
        # 8,030,261,248 parameters of 2 bytes
        ("max_weight_bytes: 16GB", 16_000_000_000, 16_060_522_496, -60_522_496),
    ],
)
def test_need_have_margin(
    tmp_path: Path, budget: str, need: Limit, have: Limit, margin: float
) -> None:
    (result,) = [b for b in held(tmp_path, budget).values() if b.budget == budget.split(":")[0]]
    assert (result.need, result.have, result.margin) == (need, have, margin)
    assert result.status is (Status.PASSED if margin >= 0 else Status.FAILED)


def test_headroom_as_share_and_as_size(tmp_path: Path) -> None:
    share = held(tmp_path, "min_headroom: 0.2")["min_headroom"]
    size = held(tmp_path, "min_headroom: 20GiB")["min_headroom"]
    assert (share.unit, size.unit) == ("share", "bytes")
    assert isinstance(size.have, int)
    assert share.have == size.have / USABLE


def test_the_policy_gives_the_values_that_the_plan_leaves_open(tmp_path: Path) -> None:
    found = held(tmp_path, "max_kv_fraction: {level: warn}", "min_headroom: {level: warn}")
    assert [found[name].need for name in ("max_kv_fraction", "min_headroom")] == [0.60, 0.05]
    (tmp_path / "policy.yaml").write_text("max_kv_share: 0.3\n")
    plan = deployment("seq: 32k", "batch: 8", "budgets: {max_kv_fraction: {level: warn}}")
    report = checked(tmp_path, "policy: policy.yaml\n" + plan)
    assert [b.need for b in only(report).budgets] == [True, 0.3]
    assert report.status is Status.WARNED


def test_the_example_of_the_documentation(tmp_path: Path) -> None:
    result = only(checked(tmp_path, CHAT))
    assert [(b.budget, b.status, b.line) for b in result.budgets] == [
        ("fits", Status.PASSED, 2),
        ("max_kv_fraction", Status.PASSED, 2),
        ("min_concurrency", Status.PASSED, 9),
    ]
    have = result.budgets[2].have
    assert result.figures is not None
    assert result.figures.kv_pool_bytes is not None
    # whole blocks of 16 tokens, 2 MiB each, of which vLLM keeps one
    blocks = result.figures.kv_pool_bytes // (2 << 20) - 1
    assert have == blocks * (2 << 20) / (4 * GIB)


def test_concurrency_is_bound_by_max_num_seqs_and_grows_with_replicas(tmp_path: Path) -> None:
    lines = ("seq: 32k", "max_num_seqs: 4", "budgets: {min_concurrency: 4}")
    assert only(checked(tmp_path, deployment(*lines))).budgets[1].have == 4
    assert only(checked(tmp_path, deployment(*lines, "dp: 2"))).budgets[1].have == 8


def test_levels(tmp_path: Path) -> None:
    for level, status, whole in (
        ("error", Status.FAILED, Status.FAILED),
        ("warn", Status.WARNED, Status.WARNED),
        ("off", Status.OFF, Status.PASSED),
    ):
        budget = f"budgets: {{max_kv_bytes: {{value: 1GiB, level: {level}}}}}"
        report = checked(tmp_path, deployment("seq: 32k", budget))
        assert (only(report).budgets[1].status, report.status) == (status, whole)
    warned = deployment("seq: 32k", "budgets: {max_kv_bytes: {value: 1GiB, level: warn}}")
    assert checked(tmp_path, warned, fail_on="warn").status is Status.FAILED


def test_fits_is_held_unless_it_is_switched_off(tmp_path: Path) -> None:
    lines = ("seq: 32k", "batch: 26")
    report = checked(tmp_path, deployment(*lines))
    assert (report.status, only(report).budgets[0].have) == (Status.FAILED, False)
    off = deployment(*lines, "budgets: {fits: {value: true, level: off}}")
    assert checked(tmp_path, off).status is Status.PASSED


def test_a_figure_that_is_not_known_is_never_a_pass(tmp_path: Path) -> None:
    report = checked(tmp_path, deployment("seq: 8k", "budgets: {min_mean_concurrency: 1}"))
    result = only(report).budgets[1]
    assert (result.status, report.status) == (Status.ERROR, Status.ERROR)
    assert "mean_seq, which is not stated" in result.message


def test_names_and_rules_are_unique() -> None:
    assert len({b.name for b in BUDGETS}) == len({b.rule for b in BUDGETS}) == len(BUDGETS)


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (1, "GPUs", "1 GPU"),
        (2, "GPUs", "2 GPUs"),
        (131_072, "bytes", "131,072 B"),
        (4 * GIB, "bytes", "4.00 GiB"),
        (-4 * GIB, "bytes", "-4.00 GiB"),
        (0.404, "share", "40.40 %"),
        (13.709, "sequences", "13.71 sequences"),
        (True, "", "yes"),
        (None, "bytes", "not known"),
    ],
)
def test_amounts_in_words(value: Limit | None, unit: str, shown: str) -> None:
    assert amount(value, unit) == shown
