"""PromQL text: values stay values, and a range of numbers becomes a pattern."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.errors import InputError
from kvplan.monitoring.promql import (
    as_text,
    check_label,
    check_window,
    equals,
    number,
    quoted,
    select,
    whole_numbers,
)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("vllm", '"vllm"'),
        ('a"b', r'"a\"b"'),
        ("a\\b", r'"a\\b"'),
        ("a\nb", r'"a\u000ab"'),
        ('"} or up{job="', r'"\"} or up{job=\""'),
        ("\U000e0001", r'"\U000e0001"'),
        ("é", '"é"'),
    ],
)
def test_a_value_in_quotes(value: str, written: str) -> None:
    assert quoted(value) == written


def test_a_selector() -> None:
    assert select("up", equals("job", "a"), equals("x", "y")) == 'up{job="a",x="y"}'
    assert select("up") == "up"


@pytest.mark.parametrize(
    ("value", "written"),
    [(1048576.0, "1048576"), (0.01, "0.01"), (123456.75, "123456.75"), (5e9, "5000000000")],
)
def test_numbers_keep_every_digit(value: float, written: str) -> None:
    assert number(value) == written


def test_a_known_range() -> None:
    assert whole_numbers(98, 1004) == "9[8-9]|[1-9][0-9][0-9]|100[0-4]"
    assert whole_numbers(7, 7) == "7"
    assert whole_numbers(0, 10) == "[0-9]|10"


@given(st.integers(0, 10**9), st.integers(0, 10**6))
def test_a_range_matches_its_ends_and_not_their_neighbours(low: int, more: int) -> None:
    pattern = re.compile(f"(?:{whole_numbers(low, low + more)})\\Z")
    for inside in (low, low + more, low + more // 2):
        assert pattern.match(str(inside))
    for outside in (low - 1, low + more + 1, (low + more + 1) * 10):
        assert not pattern.match(str(outside))


def test_a_small_range_number_by_number() -> None:
    for low, high in ((0, 0), (3, 121), (95, 210), (999, 1001), (1, 2999)):
        pattern = re.compile(f"(?:{whole_numbers(low, high)})\\Z")
        assert [n for n in range(3200) if pattern.match(str(n))] == list(range(low, high + 1))


def test_no_range() -> None:
    with pytest.raises(ValueError, match="no range"):
        whole_numbers(5, 4)


def test_text_runs_no_template() -> None:
    assert as_text("plain {x}") == "plain {x}"
    assert as_text("{{ .Labels }}") == '{{ "{{" }} .Labels }}'


@pytest.mark.parametrize("text", ["", "5", "m", "5 m", "5m]", "0m", "5M", "-5m"])
def test_a_window_that_is_none(text: str) -> None:
    with pytest.raises(InputError, match="is not a time"):
        check_window(text)


def test_windows_and_labels() -> None:
    assert check_window("90s") == "90s"
    assert check_label("node", "--host-label") == "node"
    with pytest.raises(InputError, match="not a Prometheus label"):
        check_label("a) or up(", "--host-label")
