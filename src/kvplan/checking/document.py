"""YAML in which everything knows its line: the plan and the manifests that it points to.

Scalars keep the text as it was typed, so that ``seq: 32k``, ``kv: fp8`` and ``level: off`` go to
the same parsers as the command line's, and YAML's own ideas (``off`` as false, ``010`` as 8)
change none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kvplan.errors import MalformedFile
from kvplan.files import compose_yaml

if TYPE_CHECKING:
    from yaml import Node

_STANDARD = "tag:yaml.org,2002:"
_KINDS = frozenset({"str", "int", "float", "bool", "null", "timestamp", "map", "seq", "value"})


class Place(NamedTuple):
    """A position in a file, counted from 1."""

    line: int
    column: int


class Scalar(NamedTuple):
    """One value as typed."""

    text: str
    kind: str
    """What YAML takes it for: str, int, float, bool, null …"""
    place: Place


class Items(NamedTuple):
    """A list."""

    items: tuple[Tree, ...]
    place: Place


class Entry(NamedTuple):
    """A key's place, and its value."""

    place: Place
    value: Tree


class Keys(NamedTuple):
    """A mapping, in the order of the file."""

    entries: dict[str, Entry]
    place: Place

    def get(self, key: str) -> Tree | None:
        """The value of a key; None when it is not there."""
        entry = self.entries.get(key)
        return None if entry is None else entry.value


Tree: TypeAlias = Scalar | Items | Keys


def parse_document(text: str, path: str) -> list[Tree]:
    """The documents of YAML text; an empty one between two ``---`` is left out."""
    documents = [_tree(node, path) for node in compose_yaml(text, path)]
    return [d for d in documents if not (isinstance(d, Scalar) and d.kind == "null")]


def kind_name(tree: Tree) -> str:
    """What a person calls it."""
    if isinstance(tree, Keys):
        return "a mapping"
    if isinstance(tree, Items):
        return "a list"
    return {"null": "nothing", "bool": "true or false"}.get(tree.kind, repr(shorten(tree.text)))


def shorten(text: str, most: int = 60) -> str:
    """``text`` short enough for a message."""
    return text if len(text) <= most else text[: most - 3] + "..."


def words_of(tree: Tree | None) -> list[str] | None:
    """The texts of a plain list, or of one text; None for anything else."""
    if isinstance(tree, Scalar) and tree.kind != "null":
        return [tree.text]
    if isinstance(tree, Items) and all(isinstance(item, Scalar) for item in tree.items):
        return [item.text for item in tree.items if isinstance(item, Scalar)]
    return None


def _tree(node: Node, path: str) -> Tree:
    import yaml

    place = Place(node.start_mark.line + 1, node.start_mark.column + 1)
    kind = node.tag.removeprefix(_STANDARD)
    if kind not in _KINDS:
        raise MalformedFile(
            path,
            f"uses the YAML tag {shorten(node.tag)!r} at line {place.line}; write plain values",
            line=place.line,
            column=place.column,
        )
    if isinstance(node, yaml.MappingNode):
        entries = {}
        for key, value in node.value:
            at = Place(key.start_mark.line + 1, key.start_mark.column + 1)
            if not isinstance(key, yaml.ScalarNode):
                raise MalformedFile(
                    path,
                    f"has a key at line {at.line} that is not a plain word",
                    line=at.line,
                    column=at.column,
                )
            entries[key.value] = Entry(at, _tree(value, path))
        return Keys(entries, place)
    if isinstance(node, yaml.SequenceNode):
        return Items(tuple(_tree(item, path) for item in node.value), place)
    return Scalar(str(node.value), kind, place)
