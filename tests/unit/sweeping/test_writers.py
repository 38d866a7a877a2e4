"""Formats: every way a block can be written gives the rows that its cells say."""

from __future__ import annotations

import csv
import io
import json
from itertools import product
from typing import Any

import numpy as np
import pytest

from kvplan.planning.piece import Coded
from kvplan.sweeping.blocks import Block
from kvplan.sweeping.columns import BY_NAME
from kvplan.sweeping.records import record_lengths, without_first
from kvplan.sweeping.writers import FORMATS, Kept, csv_writer, jsonl_writer, load_writer

NAMES = ["model", "seq_len", "batch", "needed_bytes", "kv_share", "verdict", "max_batch",
         "enforce_eager", "pool_tokens"]  # fmt: skip


def block(rows: int, columns: int) -> Block:
    grid = np.arange(rows * columns, dtype=np.int64).reshape(rows, columns)
    unknown = np.array([None if n % 2 else n for n in range(rows)], dtype=object)[:, None]
    return Block(
        rows,
        columns,
        {
            "model": 'a "100 %" model, %s',
            "seq_len": np.arange(1, rows + 1)[:, None],
            "batch": np.arange(1, columns + 1)[None, :],
            "needed_bytes": grid * 2**40,
            "kv_share": grid / 7,
            "verdict": Coded(("fits", "oom"), grid % 2),
            "max_batch": unknown,
            "enforce_eager": True,
            "pool_tokens": None,
        },
    )


def expected(rows: int, columns: int) -> list[list[Any]]:
    return [
        [
            'a "100 %" model, %s', n + 1, b + 1, (n * columns + b) * 2**40, (n * columns + b) / 7,
            ("fits", "oom")[(n * columns + b) % 2], None if n % 2 else n, True, None,
        ]
        for n, b in product(range(rows), range(columns))
    ]  # fmt: skip


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 5), (5, 1), (3, 7), (3, 8), (1, 9)])
def test_csv(rows: int, columns: int) -> None:
    text = csv_writer.header(NAMES, False) + csv_writer.lines(block(rows, columns), NAMES, NAMES)
    assert text.endswith("\r\n")
    header, *found = csv.reader(io.StringIO(text, newline=""), strict=True)
    assert header == NAMES
    shown = [
        ["" if v is None else str(int(v)) if isinstance(v, bool) else str(v) for v in row]
        for row in expected(rows, columns)
    ]
    assert found == shown


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (5, 1), (3, 7), (3, 8)])
def test_jsonl(rows: int, columns: int) -> None:
    text = jsonl_writer.lines(block(rows, columns), NAMES, NAMES)
    found = [json.loads(line) for line in text.splitlines()]
    assert [list(row) for row in found] == [NAMES] * rows * columns
    assert [list(row.values()) for row in found] == expected(rows, columns)


def test_excel_reads_utf8_by_its_mark() -> None:
    assert csv_writer.header(["a"], True).encode() == b"\xef\xbb\xbfa\r\n"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-x", "'-x"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", " =1"),
        ("a\r\nb", "a  b"),
        ('say "a,b"', '"say ""a,b"""'),
        (-5, "-5"),
        (None, ""),
        (False, "0"),
        (Kept("=1+1"), "=1+1"),  # the user's own cell
        (Kept("a\nb"), '"a\nb"'),
    ],
)
def test_csv_cells(value: object, text: str) -> None:
    assert csv_writer.encode(value) == text


def test_tables_for_people() -> None:
    columns = [BY_NAME[name] for name in ("model", "seq_len", "needed_bytes", "kv_share")]
    small = Block(
        2, 1,
        {"model": "a|b", "seq_len": np.array([[1024], [8]]), "needed_bytes": 3 << 29,
         "kv_share": np.array([[0.125], [0.5]])},
    )  # fmt: skip
    keys = [column.name for column in columns]
    table = load_writer("table").document([small], keys, columns).decode()
    assert table.splitlines() == [
        "model  seq_len  needed (GiB)  kv_share (%)",
        "-----  -------  ------------  ------------",
        "a|b      1,024          1.50          12.5",
        "a|b          8          1.50          50.0",
    ]
    markdown = load_writer("markdown").document([small], keys, columns).decode()
    assert "| a\\|b | 1,024 | 1.50 | 12.5 |" in markdown


def test_parquet_is_typed() -> None:
    pq = pytest.importorskip("pyarrow.parquet", reason="the parquet extra is not installed")
    columns = [BY_NAME[name] for name in NAMES if name != "enforce_eager"]
    keys = [column.name for column in columns]
    data = load_writer("parquet").document([block(3, 7), block(2, 1)], keys, columns)
    table = pq.read_table(io.BytesIO(data))
    assert table.column_names == keys
    place = NAMES.index("enforce_eager")
    rows = [*expected(3, 7), *expected(2, 1)]
    assert [list(row.values()) for row in table.to_pylist()] == [
        row[:place] + row[place + 1 :] for row in rows
    ]
    assert {str(field.type) for field in table.schema} == {"string", "int64", "double"}
    assert table.schema.field("needed_bytes").metadata[b"unit"] == b"bytes"


def test_every_format_is_a_module() -> None:
    for name in FORMATS:
        writer = load_writer(name)
        assert any(hasattr(writer, kind) for kind in ("lines", "document", "workbook"))


def test_records_end_outside_quotes() -> None:
    data = b'a,b\r\n1,"x\ny"\r\n2,"""\n"\r\n3,half'
    assert list(record_lengths(data.splitlines(keepends=True))) == [5, 9, 9]
    escaped = b'{"a": "x\\""}\n{}\n'
    assert list(record_lengths(escaped.splitlines(keepends=True), quotes=False)) == [13, 3]
    assert without_first(data, 2) == b'2,"""\n"\r\n3,half'
