"""Rows that the user has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kvplan.errors import KvplanError
from kvplan.sweeping.columns import choose
from kvplan.sweeping.row_file import RowFile, open_rows, read_rows
from kvplan.sweeping.run import Job, parts


def rows_of(tmp_path: Path, text: str | bytes, **defaults: Any) -> RowFile:
    path = tmp_path / "rows.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return open_rows(str(path), defaults.pop("model", None), defaults)


def test_columns_are_flags_however_they_are_spelt(tmp_path: Path) -> None:
    file = rows_of(
        tmp_path,
        "Model,GPU,--kv-cache-dtype,seq_len,BATCH,engine,engine_version,team,gpu-memory\n"
        "llama-3.1-8b,l4,fp8,4k,8,vllm,0.19,red,\n"
        "llama-3.1-8b,l4,,,,,,blue,20GiB\n",
        tp="1",
    )
    assert (file.rows, file.kept_names) == (2, ["team"])
    first, second = read_rows(file)
    assert first[0][0] == (
        "llama-3.1-8b",
        {"gpu": "l4", "kv": "fp8", "engine": "vllm@0.19", "tp": "1"},
    )
    assert first[0][1:] == (4096, 8)
    assert first[1] == ["red"]
    assert second[0][1:] == (None, 1)
    assert second[0][0].flags == {"gpu": "l4", "gpu_memory": "20GiB", "tp": "1"}


def test_other_columns_pass_through_in_order(tmp_path: Path) -> None:
    file = rows_of(
        tmp_path,
        'note,model,"a, b",seq,gpu,cost\r\n'
        '"=1+1 ""x""",llama-3.1-8b,,8k,h100-sxm,-5\r\n'
        '"two\nlines",llama-3.1-8b,7,4k,h100-sxm,\r\n',
    )
    job = Job(file, tuple(choose("seq_len,verdict", ())), "csv")
    assert job.names == ["note", "a, b", "cost", "seq_len", "verdict"]
    assert b"".join(part.data for part in parts(job, 1)).decode() == (
        '"=1+1 ""x""",,-5,8192,fits\r\n"two\nlines",7,,4096,fits\r\n'
    )


def test_rows_keep_their_order(tmp_path: Path) -> None:
    lines = [f"{gpu},{seq},{batch}" for seq in (9, 5, 7) for gpu in ("l4", "h100-sxm")
             for batch in (3, 1500, 1)]  # fmt: skip
    file = rows_of(tmp_path, "gpu,seq,batch\n" + "\n".join(lines) + "\n", model="llama-3.1-8b")
    job = Job(file, tuple(choose("gpu,seq_len,batch", ())), "csv")
    assert b"".join(part.data for part in parts(job, 1)).decode() == "".join(
        f"{n}\r\n" for n in lines
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "is empty"),
        (b"model,gpu,seq\n", "has no rows below its header"),
        (b"model,gpu,seq,seq\nllama-3.1-8b,l4,4k,4k\n", "has two columns named 'seq'"),
        (b"model,gpu,seq,seq_len\nllama-3.1-8b,l4,4k,4k\n", "two columns for one flag"),
        (b"gpu,seq\nl4,4k\n", "no column is named model"),
        (b"model,seq\nllama-3.1-8b,4k\n", "no column is named gpu"),
        (b"model,gpu,seq\nllama-3.1-8b,l4\n", "row 2 has 2 cells where the header has 3"),
        (b"model,gpu,seq\nllama-3.1-8b,l4,1\nllama-3.1-8b,l4,lots\n", "row 3, seq: --seq 'lots'"),
        (b"model,gpu,seq\nllama-3.1-8b,,1\n", "row 2 names no gpu"),
        (b"model,gpu,seq\nllama-3.1-8b,h1000,1\n", "h1000"),
        (b"model,gpu,seq\nllama-9,l4,1\n", "llama-9"),
        (b'model,gpu,seq\n"llama" x,l4,1\n', "is not valid CSV at line 2"),
        (b'model,gpu,seq\n"llama,l4,1\n', "is not valid CSV"),
        ("model,gpu\nllama-3.1-8b,l4\n".encode("utf-16"), "is not UTF-8 text"),
        ("model,gpu\nllama-3.1-8b,l4\n".encode("utf-16-le"), "is not UTF-8 text"),
    ],
)
def test_bad_files(tmp_path: Path, text: bytes, message: str) -> None:
    with pytest.raises(KvplanError) as caught:
        rows_of(tmp_path, text)
    assert message in caught.value.message
    assert caught.value.exit_code == 2


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(KvplanError, match="cannot be read"):
        open_rows(str(tmp_path / "none.csv"), None, {})
