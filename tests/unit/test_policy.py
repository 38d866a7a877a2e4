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
