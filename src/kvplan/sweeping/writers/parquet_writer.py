"""Parquet: a typed column each, written block by block."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kvplan.errors import MissingExtra
from kvplan.sweeping.blocks import Block
from kvplan.sweeping.columns import INTEGER, NUMBER, Column

MOST_ROWS = None
_GROUP_ROWS = 131_072


def document(blocks: Iterable[Block], keys: Sequence[str], columns: Sequence[Column]) -> bytes:
    """The whole file."""
    buffer = io.BytesIO()
    for _ in write(buffer, blocks, keys, columns):
        pass
    return buffer.getvalue()


def write(
    file: Any, blocks: Iterable[Block], keys: Sequence[str], columns: Sequence[Column]
) -> Iterator[int]:
    """Write to a binary file and tell how many rows each row group had."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtra("parquet", "--format parquet") from None
    kinds = {INTEGER: pa.int64(), NUMBER: pa.float64()}
    types = [kinds.get(column.kind, pa.string()) for column in columns]
    schema = pa.schema(
        [
            pa.field(column.name, kind, metadata={"unit": column.unit, "meaning": column.meaning})
            for column, kind in zip(columns, types, strict=True)
        ]
    )
    with pq.ParquetWriter(file, schema) as writer:
        waiting: list[list[Any]] = [[] for _ in keys]
        for block in blocks:
            for values, key, column in zip(waiting, keys, columns, strict=True):
                values.extend(map(_as_float, block.flat(key)) if column.kind == NUMBER
                              else block.flat(key))  # fmt: skip
            if len(waiting[0]) >= _GROUP_ROWS:
                yield _group(writer, pa, schema, waiting)
        if waiting[0]:
            yield _group(writer, pa, schema, waiting)


def _as_float(value: Any) -> float | None:
    return None if value is None else float(value)


def _group(writer: Any, pa: Any, schema: Any, waiting: list[list[Any]]) -> int:
    rows = len(waiting[0])
    arrays = [pa.array(values, field.type) for values, field in zip(waiting, schema, strict=True)]
    writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
    for values in waiting:
        values.clear()
    return rows
