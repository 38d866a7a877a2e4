"""Lists and ranges of a flag."""

from __future__ import annotations

import pytest

from kvplan.errors import InputError
from kvplan.sweeping.axes import read_axis, split_list
from kvplan.sweeping.settings import read_settings


@pytest.mark.parametrize(
    ("name", "texts", "values"),
    [
        ("seq", ["4k"], [4096]),
        ("seq", ["4k,32k", "128k"], [4096, 32768, 131072]),
        ("seq", ["4096,4k"], [4096]),  # the same value twice is one
        ("seq", ["1k..4k:1k"], [1024, 2048, 3072, 4096]),
        ("seq", ["1k..3500:1k"], [1024, 2048, 3072]),
        ("batch", ["1..5"], [1, 2, 3, 4, 5]),
        ("batch", ["1..256:x2"], [1, 2, 4, 8, 16, 32, 64, 128, 256]),
        ("batch", ["1..9:x1.5"], [1, 2, 3, 5, 7]),  # 1, 1.5, 2.25, 3.375, 5.06, 7.59
        ("batch", ["1..3,8"], [1, 2, 3, 8]),
        ("batch", ["7..7"], [7]),
        ("tp", ["1,2,4,8"], [1, 2, 4, 8]),
        ("gpu_memory", ["40GiB..60GiB:10GiB"], [40 * 2**30, 50 * 2**30, 60 * 2**30]),
        ("gpu_memory_utilization", ["0.8..0.95:0.05"], [0.8, 0.85, 0.9, 0.95]),
        ("kv", ["auto,k=q8_0,v=q4_0,fp8"], ["auto", "k=q8_0,v=q4_0", "fp8"]),
        ("kv", ["v=q4_0,k=q8_0,k=fp8,v=fp8"], ["v=q4_0,k=q8_0", "k=fp8,v=fp8"]),
        ("gpu", ["h100-sxm,../my..gpu.yaml"], ["h100-sxm", "../my..gpu.yaml"]),
        ("max_model_len", ["auto,8k"], [-1, 8192]),
    ],
)
def test_values(name: str, texts: list[str], values: list[object]) -> None:
    assert list(read_axis(name, texts)) == values


def test_long_range_is_not_written_out() -> None:
    assert read_axis("seq", ["1..1000M"]) == range(1, 1000 * 2**20 + 1)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("seq", "", "--seq '' is empty"),
        ("seq", "4k,,8k", "--seq '4k,,8k' has an empty value between its commas"),
        ("seq", "8k..4k", "--seq '8k..4k' runs backwards: 8k is more than 4k"),
        ("seq", "4k..", "--seq '4k..' is not complete"),
        ("seq", "4k..8k:", "--seq '4k..8k:' is not complete"),
        ("batch", "1..8:0", "--batch '0' is too small: it must be 1 or more"),
        ("batch", "1..8:x1", "--batch '1..8:x1': 'x1' is not a factor such as x2 or x1.5"),
        ("batch", "1..8:xnan", "--batch '1..8:xnan': 'xnan' is not a factor such as x2 or x1.5"),
        ("batch", "1..many", "--batch 'many' is not a whole number"),
        ("gpu_memory_utilization", "0.8..0.9", "'0.8..0.9' needs a step such as :0.05"),
        ("gpu_memory_utilization", "0.9..0.8:0.1", "runs backwards"),
        ("batch", "1..9999999,1", "lists 10,000,000 values beside a range; at most 1,000,000"),
    ],
)
def test_what_is_no_list(name: str, text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_axis(name, [text])
    assert message in caught.value.message


def test_backwards_range_says_how_it_should_stand() -> None:
    with pytest.raises(InputError) as caught:
        read_axis("seq", ["8k..4k:1k"])
    assert caught.value.hint == "Write --seq 4k..8k:1k."


def test_settings_are_an_axis_for_each_field() -> None:
    assert read_settings("set", ["num_kv_heads=4,8", "head_dim=64", "num_kv_heads=16"]) == {
        "num_kv_heads": ["4", "8", "16"],
        "head_dim": ["64"],
    }
    whole = ["skip=0,1,2"]
    assert read_settings("engine_arg", whole) == {"skip": ["0,1,2"]}
    assert read_settings("set", ["types=[1,2]"]) == {"types": ["[1,2]"]}
    with pytest.raises(InputError):
        read_settings("set", ["num_kv_heads"])


def test_list_of_one() -> None:
    assert split_list(" h100-sxm ", "--gpu") == ["h100-sxm"]
