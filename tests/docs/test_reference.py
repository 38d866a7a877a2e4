"""The reference pages say what the program does: their tables are its tables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import reference_tables as tables

from kvplan.sources.huggingface.families import known_types


@pytest.mark.parametrize("path", tables.documents(), ids=lambda path: path.name)
def test_tables_are_the_program_s(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert tables.MARKED.search(text)
    assert text == tables.filled(text), "run: python tests/reference_tables.py"


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        # codes and metadata of 128 elements, worked out by hand
        ("q8_0", "8.5"),  # 34 B for 32
        ("q4_0", "4.5"),  # 18 B for 32
        ("nvfp4", "4.5"),  # 4 + 8 / 16
        ("int8_per_token_head", "8.25"),  # 8 + 32 / 128
        ("kivi-2", "3"),  # 2 + 32 / 32
        ("turboquant_k8v4", "6.125"),  # (128 + 68) B for 256
        ("fp8_ds_mla", "9.111"),  # 656 B for 576
        ("nvfp4_ds_mla", "4.889"),  # 352 B for 576
    ],
)
def test_bits_of_kv_formats(name: str, bits: str) -> None:
    text = (tables.DOCS / "formats.md").read_text(encoding="utf-8")
    assert re.search(rf"^\| `{re.escape(name)}` \| {re.escape(bits)} \|", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("awq", "4.156"),  # 4 + 20 / 128
        ("w4a16", "4.125"),  # 4 + 16 / 128
        ("mxfp4", "4.25"),  # 4 + 8 / 32
        ("fp8_block", "8.002"),  # 8 + 32 / 16,384
        ("gptq", "4.164"),  # 4 + 20 / 128 + 32 / 4,096
    ],
)
def test_bits_of_weight_formats(name: str, bits: str) -> None:
    text = (tables.DOCS / "formats.md").read_text(encoding="utf-8")
    assert re.search(rf"^\| `{re.escape(name)}` \| {re.escape(bits)} \|", text, re.MULTILINE)


def test_types_said_to_be_refused_are() -> None:
    text = (tables.DOCS / "architectures.md").read_text(encoding="utf-8")
    section = text.split("## Refused")[1].split("## ")[0]
    refused = re.findall(r"`([^`]+)`", section.split("| cache")[0])
    assert len(refused) > 10
    assert not set(refused) & set(known_types())
