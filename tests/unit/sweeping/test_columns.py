"""The columns, and that docs/sweep.md describes every one."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvplan.errors import InputError
from kvplan.question import FLAGS
from kvplan.sweeping.columns import BY_NAME, COLUMNS, choose, described

DOCUMENT = Path(__file__).parents[3] / "docs" / "sweep.md"


def test_names_are_plain_and_each_once() -> None:
    assert len(BY_NAME) == len(COLUMNS)
    assert all(name.isidentifier() and name == name.lower() for name in BY_NAME)
    assert all(column.meaning.endswith((".", ")")) for column in COLUMNS)


def test_numbers_of_bytes_and_tokens_say_so() -> None:
    for column in COLUMNS:
        if column.unit == "bytes" and column.name not in {flag.name for flag in FLAGS}:
            assert "bytes" in column.name


def test_every_flag_has_a_column() -> None:
    resolved = {"seq": "seq_len", "gpus": "gpu_count", "weights": "weight_format",
                "kv": "kv_cache_dtype", "reserve": "reserve_bytes"}  # fmt: skip
    assert all(resolved.get(flag.name, flag.name) in BY_NAME for flag in FLAGS)


def test_stated_flags_bring_their_columns() -> None:
    usual = [column.name for column in choose(None, ())]
    assert "mean_seq" not in usual
    assert "error_message" not in usual
    more = [column.name for column in choose(None, ["mean_seq", "set", "tp"])]
    assert [name for name in more if name not in usual] == ["mean_seq", "set"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("verdict,verdict", "--columns names verdict twice"),
        ("verdict,headrom_bytes", "'headrom_bytes' is not a column"),
        ("", "'' is not a column"),
    ],
)
def test_bad_choice(names: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        choose(names, ())
    assert message in caught.value.message


def test_document_is_that_of_the_code() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert described() in text, (
        "replace the tables by what kvplan.sweeping.columns.described() says"
    )
