"""Words for bytes and tokens, and whole-number arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from kvplan.errors import InputError
from kvplan.units import (
    INT64_MAX,
    MAX_TOKENS,
    at_most,
    cdiv,
    checked_bytes,
    format_bytes,
    format_gib,
    format_tokens,
    parse_count,
    parse_fraction,
    parse_size,
    parse_tokens,
    round_up,
)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("1", 1),
        ("4096", 4096),
        ("32000", 32_000),  # a bare number is itself
        ("32k", 32_768),  # 32 * 1,024
        ("32K", 32_768),
        (" 32k ", 32_768),
        ("1.5k", 1_536),  # 1.5 * 1,024
        ("0.5k", 512),
        ("128k", 131_072),
        ("1M", 1_048_576),  # 1,024 * 1,024
        ("2m", 2_097_152),
        ("1024g", 1_099_511_627_776),  # 2**40, the longest length accepted
    ],
)
def test_tokens(text: str, tokens: int) -> None:
    assert parse_tokens(text) == tokens


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("-5", "too small"),
        ("0", "too small"),
        ("0k", "too small"),
        ("-0.5k", "too small"),
        ("0.001k", "not a whole number"),  # 1.024 tokens
        ("1.5", "not a whole number"),
        ("32x", "is not a number of tokens"),
        ("32kb", "is not a number of tokens"),
        ("1e30", "is not a number of tokens"),
        ("nan", "is not a number of tokens"),
        ("inf", "is not a number of tokens"),
        ("", "is not a number of tokens"),
        (" ", "is not a number of tokens"),
        ("k", "is not a number of tokens"),
        ("--5", "is not a number of tokens"),
        ("1,024", "is not a number of tokens"),
        ("0x10", "is not a number of tokens"),
        ("1_000", "is not a number of tokens"),
        ("1k\n2k", "is not a number of tokens"),
        ("9" * 5000, "is not a number of tokens"),
        ("1025g", "too large"),
        ("999999999999999999", "too large"),
        ("1099511627777", "too large"),  # 2**40 + 1
    ],
)
def test_tokens_refused(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why) as caught:
        parse_tokens(text)
    assert caught.value.message.startswith("--seq ")


def test_tokens_error_names_the_flag_and_what_was_typed() -> None:
    with pytest.raises(InputError, match=r"--mean-seq '7q' is not a number of tokens"):
        parse_tokens("7q", "--mean-seq")


def test_count_has_bounds_and_no_units() -> None:
    assert parse_count("8", "--tp") == 8
    assert parse_count("0", "--x", minimum=0) == 0
    for text in ("0", "-1", "8k", "1.5", "101", "", "x"):
        with pytest.raises(InputError, match="--tp"):
            parse_count(text, "--tp", maximum=100)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("80", 80),  # bytes
        ("80B", 80),
        ("1KiB", 1024),
        ("1kb", 1000),
        ("1MiB", 1_048_576),
        ("1MB", 1_000_000),
        ("80GiB", 85_899_345_920),  # 80 * 2**30
        ("80gib", 85_899_345_920),
        ("80 GiB", 85_899_345_920),
        ("80GB", 80_000_000_000),
        ("1.5GiB", 1_610_612_736),
        ("0.1GiB", 107_374_182),  # 107,374,182.4 rounded down
        ("2TiB", 2_199_023_255_552),
        ("2TB", 2_000_000_000_000),
    ],
)
def test_size(text: str, size: int) -> None:
    assert parse_size(text, "--reserve") == size


@pytest.mark.parametrize("text", ["80G", "80g", "1.5T", "512M", "64k"])
def test_bare_letter_is_refused_with_both_spellings(text: str) -> None:
    number, letter = text[:-1], text[-1].upper()
    with pytest.raises(InputError, match="two sizes") as caught:
        parse_size(text, "--gpu-memory")
    assert f"{number}{letter}iB" in (caught.value.hint or "")
    assert f"{number}{letter}B" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("-1GiB", "negative"),
        ("-0.5GiB", "negative"),
        ("80PiB", "not a unit"),
        ("80Gib/s", "is not a size"),
        ("1e3GiB", "is not a size"),
        ("nan", "is not a size"),
        ("", "is not a size"),
        ("GiB", "is not a size"),
        ("9999999TiB", "larger than any memory"),  # 1.1e19 > 2**63 - 1
        ("9" * 40, "larger than any memory"),
    ],
)
def test_size_refused(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        parse_size(text, "--gpu-memory")


def test_fraction() -> None:
    assert parse_fraction("0.92", "--share") == 0.92
    assert parse_fraction("1", "--share") == 1.0
    for text in ("0", "-0.1", "1.01", "nan", "inf", "-inf", "", "half", "90%"):
        with pytest.raises(InputError, match="--share"):
            parse_fraction(text, "--share")


def test_cdiv_rounds_up() -> None:
    assert [cdiv(n, 16) for n in (0, 1, 15, 16, 17, 32)] == [0, 1, 1, 1, 2, 2]
    assert cdiv(10**30 + 1, 10**15) == 10**15 + 1  # exact beyond 64 bits


def test_at_most_is_the_smaller() -> None:
    assert [at_most(n, 1024) for n in (0, 1023, 1024, 1025, 10**30)] == [0, 1023, 1024, 1024, 1024]


def test_round_up() -> None:
    assert [round_up(n, 64) for n in (0, 1, 64, 65)] == [0, 64, 64, 128]
    assert round_up(50_257, 64) == 50_304  # GPT-2's vocabulary: 785.27 blocks of 64 -> 786


def test_arithmetic_takes_arrays() -> None:
    counts = np.array([0, 1, 15, 16, 17, 2**40], dtype=np.int64)
    assert cdiv(counts, 16).tolist() == [0, 1, 1, 1, 2, 2**36]
    assert at_most(counts, 16).tolist() == [0, 1, 15, 16, 16, 16]
    assert round_up(counts, 16).tolist() == [0, 16, 16, 16, 32, 2**40]
    assert cdiv(counts, 16).dtype == at_most(counts, 16).dtype == np.int64


def test_checked_bytes_is_an_error_beyond_a_signed_64_bit_integer() -> None:
    assert checked_bytes(2**63 - 1, "x") == 9_223_372_036_854_775_807
    with pytest.raises(InputError, match=r"the pool comes to more than 2\*\*63 - 1 bytes"):
        checked_bytes(2**63, "the pool")


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0.00 GiB"),
        (1, "<0.01 GiB"),
        (5_368_709, "<0.01 GiB"),  # 0.00499999988 GiB
        (5_368_710, "0.01 GiB"),  # 0.00500000082 GiB
        (1_073_741_824, "1.00 GiB"),
        (80_000_000_000, "74.51 GiB"),  # 74.5058
        (1_649_267_441_664, "1,536.00 GiB"),
        (-1_073_741_824, "-1.00 GiB"),
    ],
)
def test_format_gib(size: int, text: str) -> None:
    assert format_gib(size) == text


def test_format_bytes_and_tokens() -> None:
    assert format_bytes(17_179_869_184) == "17,179,869,184 B"
    shown = {0: "0", 1000: "1,000", 1024: "1k", 1536: "1,536", 32_768: "32k", 1_048_576: "1M"}
    assert {count: format_tokens(count) for count in shown} == shown
    assert format_tokens(1_049_600) == "1025k"  # 1,025 * 1,024


def test_bounds_are_those_documented() -> None:
    assert MAX_TOKENS == 1_099_511_627_776
    assert INT64_MAX == 9_223_372_036_854_775_807
