"""YAML with places: text as typed, lines from 1, and nothing that expands or runs."""

from __future__ import annotations

import pytest

from kvplan.checking.document import Items, Keys, Place, Scalar, parse_document, words_of
from kvplan.errors import MalformedFile


def test_scalars_keep_their_text_and_place() -> None:
    (document,) = parse_document("a: 32k\nb:\n  - 010\n  - off\n", "plan")
    assert isinstance(document, Keys)
    a, b = document.entries["a"], document.entries["b"]
    assert (a.place, a.value) == (Place(1, 1), Scalar("32k", "str", Place(1, 4)))
    assert b.place == Place(2, 1)
    assert isinstance(b.value, Items)
    assert b.value.items == (Scalar("010", "int", Place(3, 5)), Scalar("off", "bool", Place(4, 5)))


def test_words_of_plain_lists_only() -> None:
    (document,) = parse_document("a: [x, 1]\nb: y\nc: [[x]]\nd:\n", "plan")
    assert isinstance(document, Keys)
    assert [words_of(document.get(key)) for key in "abcd"] == [["x", "1"], ["y"], None, None]


def test_several_documents_and_empty_ones() -> None:
    assert len(parse_document("---\na: 1\n---\n---\nb: 2\n", "plan")) == 2


@pytest.mark.parametrize(
    ("text", "why", "line", "column"),
    [
        ("a: &x 1\nb: *x\n", "uses a YAML alias at line 2", 2, 4),
        ("a: 1\nb: 2\na: 3\n", "'a' is stated twice, again at line 3", 3, 1),
        ("a: !!python/object:os.system x\n", "uses the YAML tag", 1, 4),
        ("a: !secret x\n", "uses the YAML tag '!secret'", 1, 4),
        ("? [x, y]\n: 1\n", "a key at line 1 that is not a plain word", 1, 3),
        ("a: [1, 2\nb: 3\n", "is not valid YAML", 2, 2),
        ("a: 1\n\tb: 2\n", "is not valid YAML", 2, 1),
    ],
)
def test_refused_with_its_line(text: str, why: str, line: int, column: int) -> None:
    with pytest.raises(MalformedFile, match=why) as caught:
        parse_document(text, "plan")
    assert (caught.value.line, caught.value.column) == (line, column)


@pytest.mark.parametrize("text", ["[" * 100 + "]" * 100, "[" * 50_000, "a: " + "{a: " * 90])
def test_deep_nesting_is_refused(text: str) -> None:
    with pytest.raises(MalformedFile, match=r"nested|valid YAML"):
        parse_document(text, "plan")
