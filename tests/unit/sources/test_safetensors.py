"""Headers of safetensors files: exact bytes for good ones, a named fault for every bad one."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from filemakers import safetensors_header, tiny_llama_tensors, write_checkpoint, write_safetensors

from kvplan.errors import MalformedFile, SourceError
from kvplan.sources.safetensors import (
    MAX_HEADER_BYTES,
    Index,
    StoredWeights,
    parse_header,
    read_folder,
    read_header,
)


def header_of(**entries: Any) -> bytes:
    return json.dumps(entries).encode()


def entry(dtype: Any = "F32", shape: Any = (2, 3), offsets: Any = (0, 24)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def test_reads_dtypes_shapes_and_bytes(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_safetensors(path, {"a": ("F32", [2, 3]), "b": ("BF16", [5]), "empty": ("F16", [0, 7])})
    tensors = read_header(str(path))
    assert tensors["a"].size_bytes == 2 * 3 * 4
    assert (tensors["b"].dtype, tensors["b"].shape, tensors["b"].elements) == ("BF16", (5,), 5)
    assert tensors["empty"].size_bytes == 0


def test_sub_byte_dtypes_count_their_bits() -> None:
    tensors = parse_header(header_of(a=entry("F4", [3, 4], [0, 6])), "x")
    assert tensors["a"].size_bytes == 6


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (header_of(a=entry("F12")), "unknown dtype 'F12'"),
        (header_of(a=entry(["F32"])), "unknown dtype"),
        (header_of(a=entry(shape=[2, 4])), "does not take 24 bytes"),
        (header_of(a=entry(shape=[-2, -3])), "has the shape"),
        (header_of(a=entry(shape=[2.0, 3])), "has the shape"),
        (header_of(a=entry(shape="23")), "has the shape"),
        (header_of(a=entry(shape=[True, 6])), "has the shape"),
        (header_of(a=entry(shape=[2**40, 2**40, 2**40], offsets=[0, 0])), "larger than any memory"),
        (header_of(a=entry(shape=[0, 2**40, 2**40], offsets=[0, 4])), "does not take"),
        (header_of(a=entry(offsets=[24, 0])), "offsets"),
        (header_of(a=entry(offsets=[0, 12, 24])), "offsets"),
        (header_of(a=entry(offsets=[4, 28])), "leaves a gap"),
        (header_of(a=entry(), b=entry(offsets=[20, 44])), "overlaps"),
        (header_of(a=entry(), b=entry(offsets=[28, 52])), "leaves a gap"),
        (header_of(a={"dtype": "F32", "shape": [1]}), "has no dtype, shape and data_offsets"),
        (header_of(a=7), "has no dtype"),
        (b'{"a": 1, "a": 2}', "'a' occurs twice"),
        (b'{"a": {"dtype": "F32", "dtype": "F16"}}', "'dtype' occurs twice"),
        (b"[]", "not a JSON object"),
        (b"{", "not valid JSON"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": ' + b"9" * 5000 + b"}", "number too long"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"\xff": 1}', "is not UTF-8"),
    ],
)
def test_bad_headers_are_refused_by_name(data: bytes, said: str) -> None:
    with pytest.raises(MalformedFile, match="x: ") as caught:
        parse_header(data, "x")
    assert said in caught.value.message


def test_many_copies_of_a_key_take_no_time() -> None:
    data = b"{" + b",".join(b'"k%d": 0' % n for n in range(200_000)) + b',"k199999": 1}'
    with pytest.raises(MalformedFile, match="'k199999' occurs twice"):
        parse_header(data, "x")


@pytest.mark.parametrize("change", [-1, 1])
def test_the_file_must_end_with_its_last_tensor(tmp_path: Path, change: int) -> None:
    path = tmp_path / "model.safetensors"
    write_safetensors(path, {"a": ("F32", [8])})
    os.truncate(path, path.stat().st_size + change)
    with pytest.raises(MalformedFile, match="accounts for"):
        read_header(str(path))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "shorter than 8 bytes"),
        (b"1234567", "shorter than 8 bytes"),
        (struct.pack("<Q", 0), "states a header of 0 bytes"),
        (struct.pack("<Q", MAX_HEADER_BYTES + 1) + b"{}", "states a header of 100,000,001"),
        (struct.pack("<Q", 2**64 - 1) + b"{}", "states a header of"),
        (struct.pack("<Q", 100) + b"{}", "fewer than its header of 100"),
    ],
)
def test_bad_lengths_are_refused(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(data)
    with pytest.raises(MalformedFile) as caught:
        read_header(str(path))
    assert said in caught.value.message


def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    os.mkfifo(path)
    with pytest.raises(MalformedFile, match="not a regular file"):
        read_header(str(path))


def test_a_folder_of_shards_adds_up(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "tiny", shards=3)
    found = read_folder(str(folder))
    assert isinstance(found, StoredWeights)
    assert found.files == 3
    assert found.size_bytes == safetensors_header(tiny_llama_tensors())[1]


def test_one_file_needs_no_index(tmp_path: Path) -> None:
    found = read_folder(str(write_checkpoint(tmp_path / "tiny", shards=1)))
    assert isinstance(found, StoredWeights)
    assert found.files == 1


def test_a_folder_without_weights_has_none(tmp_path: Path) -> None:
    assert read_folder(str(tmp_path)) is None


def test_the_index_alone_states_the_total(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "tiny")
    for shard in folder.glob("*.safetensors"):
        shard.unlink()
    found = read_folder(str(folder))
    assert isinstance(found, Index)
    assert found.total_size == safetensors_header(tiny_llama_tensors())[1]


def test_missing_shards_are_named(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "tiny", shards=3)
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(SourceError, match="1 of 3 shards are missing: model-00002-of-00003"):
        read_folder(str(folder))


@pytest.mark.parametrize(
    "name", ["../secret", "/etc/passwd", "a/b", "..", ".", "", "a\\b", "C:x", "a\nb", 7, None]
)
def test_an_index_cannot_name_files_elsewhere(tmp_path: Path, name: Any) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"w": name}}))
    with pytest.raises(MalformedFile, match="not a file of this folder"):
        read_folder(str(tmp_path))


@pytest.mark.parametrize("document", [{}, {"weight_map": []}, {"weight_map": {}}])
def test_an_index_must_map_something(tmp_path: Path, document: dict[str, Any]) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(document))
    with pytest.raises(MalformedFile, match="weight_map"):
        read_folder(str(tmp_path))


def test_a_link_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "tiny", shards=1)
    outside = tmp_path / "outside.safetensors"
    (folder / "model.safetensors").rename(outside)
    (folder / "model.safetensors").symlink_to(outside)
    with pytest.raises(MalformedFile, match="leads out of the folder"):
        read_folder(str(folder))


def test_the_hubs_cache_links_to_its_own_blobs(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--acme--tiny" / "snapshots" / "0123"
    write_checkpoint(snapshot, shards=1)
    blobs = tmp_path / "models--acme--tiny" / "blobs"
    blobs.mkdir()
    (snapshot / "model.safetensors").rename(blobs / "abc")
    (snapshot / "model.safetensors").symlink_to("../../blobs/abc")
    assert isinstance(read_folder(str(snapshot)), StoredWeights)


def test_a_tensor_must_be_where_the_index_says(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "tiny")
    index = folder / "model.safetensors.index.json"
    document = json.loads(index.read_text())
    document["weight_map"]["ghost"] = "model-00001-of-00002.safetensors"
    index.write_text(json.dumps(document))
    with pytest.raises(MalformedFile, match="'ghost' is not in model-00001"):
        read_folder(str(folder))
