"""Thresholds: the bundled ones, and a user's own file put over them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kvplan.errors import MalformedFile, SourceError
from kvplan.files import read_yaml_object
from kvplan.policy import Policy, load_policy

CONFIG = Path(__file__).parents[2] / "configs" / "policies" / "default.yaml"


def plain(value: Any) -> Any:
    """Named tuples as mappings, all the way down."""
    if hasattr(value, "_asdict"):
        return {key: plain(inner) for key, inner in value._asdict().items()}
    return value


def test_bundled_policy_is_the_file_that_people_read() -> None:
    assert plain(load_policy()) == read_yaml_object(str(CONFIG))


def test_documented_defaults() -> None:
    policy = load_policy()
    assert policy.min_headroom == 0.05
    assert policy.max_kv_share == 0.60
    assert (policy.min_window, policy.max_window) == (4096, 16_384)
    assert policy.min_share_outside_window == 0.5
    assert (policy.min_kv_bits, policy.max_kv_bits) == (4, 8)
    assert policy.min_tp_link_gb_per_s == 200.0


def own(tmp_path: Path, text: str) -> Policy:
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    return load_policy(str(path))


def test_own_file_changes_only_what_it_says(tmp_path: Path) -> None:
    policy = own(tmp_path, "min_headroom: 0.2\nmax_window: 8192\n")
    assert policy == load_policy()._replace(min_headroom=0.2, max_window=8192)


def test_bounds_belong(tmp_path: Path) -> None:
    assert own(tmp_path, "min_headroom: 0\n").min_headroom == 0
    assert own(tmp_path, "min_headroom: 1\n").min_headroom == 1
    assert own(tmp_path, "min_tp_link_gb_per_s: 900\n").min_tp_link_gb_per_s == 900


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("min_headrom: 0.1\n", "'min_headrom' is not a threshold"),
        ("1: 2\n", "1 is not a threshold"),
        ("min_headroom: high\n", "min_headroom must be a number, not 'high'"),
        ("min_headroom: true\n", "min_headroom must be a number, not True"),
        ("min_headroom: null\n", "min_headroom must be a number"),
        ("min_headroom: -0.1\n", "min_headroom is -0.1; it must be from 0 to 1"),
        ("min_headroom: 5\n", "min_headroom is 5; it must be from 0 to 1"),
        ("min_headroom: .nan\n", "min_headroom is nan"),
        ("min_headroom: .inf\n", "min_headroom is inf"),
        ("min_window: 4096.5\n", "min_window must be a whole number"),
        ("min_window: [1]\n", "min_window must be a whole number"),
        ("min_window: 99999999999999\n", "min_window is 99999999999999"),
        ("- 1\n", "holds a list"),
    ],
)
def test_file_that_cannot_be(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(MalformedFile, match=why):
        own(tmp_path, text)


def test_missing_file() -> None:
    with pytest.raises(SourceError, match=r"missing\.yaml: cannot be read"):
        load_policy("missing.yaml")


def test_a_section_changes_only_what_it_says(tmp_path: Path) -> None:
    policy = own(tmp_path, "monitoring:\n  ttft_ms: 500.0\nquality:\n  max_drop: 0.01\n")
    usual = load_policy()
    assert policy.monitoring == usual.monitoring._replace(ttft_ms=500.0)
    assert policy.quality == usual.quality._replace(max_drop=0.01)
    assert policy.min_headroom == usual.min_headroom


def test_documented_limits_of_running_servers() -> None:
    limits = load_policy().monitoring
    assert (limits.max_pool_use, limits.near_full) == (0.60, 0.90)
    assert (limits.ttft_ms, limits.tpot_ms, limits.slo_share) == (200.0, 50.0, 0.95)
    assert (limits.min_throughput, limits.offload_below_gpu_use) == (0.80, 0.80)


def test_documented_limits_of_quality() -> None:
    q = load_policy().quality
    assert (q.max_drop, q.max_perplexity_ratio, q.perplexity_ceiling) == (0.02, 1.05, 5.0)
    assert (q.min_longbench, q.min_bleu, q.max_hallucination) == (0.85, 0.98, 0.05)
    assert (q.min_calibration_samples, q.max_kv_mse) == (10_000, 0.01)
    assert q.max_quantisation_error == 0.01


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("quality:\n  max_dorp: 0.1\n", "'quality.max_dorp' is not a threshold"),
        ("quality: 3\n", "quality must be a mapping"),
        ("quality:\n  max_drop: 2\n", "quality.max_drop is 2; it must be from 0 to 1"),
        ("monitoring:\n  ttft_ms: soon\n", "monitoring.ttft_ms must be a number"),
        ("quality:\n  min_calibration_samples: 1.5\n", "must be a whole number"),
    ],
)
def test_section_that_cannot_be(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(MalformedFile, match=why):
        own(tmp_path, text)
