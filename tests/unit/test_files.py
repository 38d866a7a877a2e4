"""Files from strangers: read within bounds, refused with their path; written whole or not."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from kvplan.errors import InputError, MalformedFile, SourceError
from kvplan.files import (
    MAX_DEPTH,
    MAX_DOCUMENT_BYTES,
    parse_json_object,
    read_json_object,
    read_text,
    read_yaml_object,
    write_whole,
)


@pytest.fixture
def document(tmp_path: Path) -> Callable[[bytes | str], str]:
    """Write a document and give its path."""

    def write(content: bytes | str) -> str:
        path = tmp_path / "document"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    return write


Write = Callable[[bytes | str], str]


def test_json_object(document: Write) -> None:
    assert read_json_object(document('{"a": 1, "b": [1.5, null, true, "x"]}')) == {
        "a": 1,
        "b": [1.5, None, True, "x"],
    }


def test_byte_order_mark_is_skipped(document: Write) -> None:
    assert read_json_object(document(b'\xef\xbb\xbf{"a": 1}')) == {"a": 1}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is empty"),
        (b" \n\t", "is empty"),
        (b"\x89PNG\r\n\x1a\n\x00", "byte 0 is not UTF-8"),
        (b'{"a": "\xff"}', "byte 7 is not UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "byte 0 is not UTF-8"),
        (b'{"a": 1', "not valid JSON.* at line 1, column 8"),
        (b'{"a": 1}\n{"b": 2}', "not valid JSON.* at line 2, column 1"),
        (b"{'a': 1}", "not valid JSON"),
        (b'{"a": 1, // comment\n}', "not valid JSON"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": Infinity}', "Infinity"),
        (b'{"a": -Infinity}', "-Infinity"),
        (b"[1, 2]", "holds a list; expected a JSON object"),
        (b"3", "holds a number"),
        (b'"text"', "holds a string"),
        (b"null", r"holds nothing \(null\)"),
        (b"true", "holds true or false"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "number too long"),
    ],
)
def test_malformed_json_names_the_path_and_the_fault(
    document: Write, content: bytes, why: str
) -> None:
    path = document(content)
    with pytest.raises(MalformedFile, match=why) as caught:
        read_json_object(path)
    assert caught.value.message.startswith(f"{path}: ")
    assert len(caught.value.message) < len(path) + 200  # the document is not printed


def nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


def test_depth_limit_is_exact() -> None:
    assert parse_json_object(nested(MAX_DEPTH), "x")
    with pytest.raises(MalformedFile, match=f"nested more than {MAX_DEPTH} deep"):
        parse_json_object(nested(MAX_DEPTH + 1), "x")
    lists = '{"a": ' + "[" * MAX_DEPTH + "]" * MAX_DEPTH + "}"
    with pytest.raises(MalformedFile, match="nested more than"):
        parse_json_object(lists, "x")


def test_repeated_json_key_means_the_last_as_in_every_other_reader(document: Write) -> None:
    assert read_json_object(document('{"a": 1, "a": 2}')) == {"a": 2}


def test_large_file_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.touch()
    os.truncate(path, 200 * 10**6)
    with pytest.raises(MalformedFile, match=r"is 200,000,000 bytes; .* at most 16,777,216"):
        read_json_object(str(path))


def test_size_limit_is_exact(document: Write) -> None:
    assert MAX_DOCUMENT_BYTES == 16_777_216
    assert len(read_text(document(b"x" * 100), limit=100)) == 100
    with pytest.raises(MalformedFile, match="is 101 bytes"):
        read_text(document(b"x" * 101), limit=100)


def test_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot be read: Is a directory"):
        read_text(str(tmp_path))


def test_pipe_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(MalformedFile, match="not a regular file"):
        read_text(str(path))


def test_device_is_not_a_file() -> None:
    with pytest.raises(MalformedFile, match="not a regular file"):
        read_text("/dev/zero")


@pytest.mark.parametrize("path", ["missing.json", "a/b/c.json", "x\0y", ""])
def test_path_that_cannot_be_opened(path: str) -> None:
    with pytest.raises(SourceError):
        read_text(path)


def test_yaml_mapping(document: Write) -> None:
    assert read_yaml_object(document("a: 1\nb: [x, 2.5, null]\n# comment\n")) == {
        "a": 1,
        "b": ["x", 2.5, None],
    }


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
"""Nine lines that stand for 9**9 = 387,420,489 strings."""


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "holds nothing"),
        ("# only a comment\n", "holds nothing"),
        ("- a\n- b\n", "holds a list"),
        ("just words\n", "holds a string"),
        ("a: 1\n  b: 2\n", "not valid YAML.* at line 2"),
        ("a: [1, 2\n", "not valid YAML"),
        ("a: \x00", "not valid YAML"),
        ("---\na: 1\n---\nb: 2\n", "not valid YAML"),
        (BOMB, "uses a YAML alias at line 2"),
        ("a: &a\n  b: *a\n", "uses a YAML alias at line 2"),
        ("base: &base {x: 1}\na:\n  <<: *base\n", "uses a YAML alias at line 3"),
        ("a: !!python/object/apply:os.system ['false']\n", "not valid YAML.* at line 1"),
        ("a: !!python/name:os.system\n", "not valid YAML"),
        ("a: !custom 1\n", "not valid YAML"),
        ("? [1, 2]\n: 3\n", "not valid YAML"),
        ("a: 2024-13-45\n", "holds a value that cannot be read"),
        ("a: " + "[" * 5000 + "]" * 5000 + "\n", "nested"),
        ("a: 1\nb: 2\na: 3\n", "'a' is stated twice.* line 3"),
    ],
)
def test_malformed_yaml_names_the_path_and_the_fault(
    document: Write, content: str, why: str
) -> None:
    path = document(content)
    with pytest.raises(MalformedFile, match=why) as caught:
        read_yaml_object(path)
    assert caught.value.message.startswith(f"{path}: ")


def test_yaml_that_is_binary(document: Write) -> None:
    with pytest.raises(MalformedFile, match="byte 1 is not UTF-8"):
        read_yaml_object(document(b"\x00\xff\xfe"))


def test_write_whole_writes_and_replaces(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    write_whole(str(path), "first\r\n")
    assert path.read_bytes() == b"first\r\n"  # line ends are left as they are
    write_whole(str(path), "zweitens: ü\n")
    assert path.read_text(encoding="utf-8") == "zweitens: ü\n"
    assert os.listdir(tmp_path) == ["report.json"]


def test_written_file_has_the_rights_that_the_umask_leaves(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_whole(str(tmp_path / "report"), "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "report").stat().st_mode) == 0o640  # 0o666 & ~0o027


def test_write_to_a_relative_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_whole("report", "x")
    assert (tmp_path / "report").read_text() == "x"


def test_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report"
    path.write_text("old")

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(InputError, match="cannot be written: No space left on device"):
        write_whole(str(path), "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["report"]


def test_interrupted_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_whole(str(tmp_path / "report"), "new")
    assert os.listdir(tmp_path) == []


def test_text_that_utf_8_cannot_hold_is_written_with_a_mark(tmp_path: Path) -> None:
    """A lone surrogate comes from a file name that is not UTF-8, or from a JSON escape."""
    text = json.loads('"model \\ud800"')
    write_whole(str(tmp_path / "report"), text)
    assert (tmp_path / "report").read_text(encoding="utf-8") == "model ?"


@pytest.mark.parametrize("place", ["missing/report", "file/report", "."])
def test_unwritable_place(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match=r"--output .* cannot be written"):
        write_whole(str(tmp_path / place), "new")
    assert os.listdir(tmp_path) == ["file"]


def test_full_device_is_an_error() -> None:
    with pytest.raises(InputError, match="cannot be written: No space left on device"):
        write_whole("/dev/full", "x" * 100_000)
