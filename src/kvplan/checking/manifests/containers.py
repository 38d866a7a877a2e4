"""Compose, Kubernetes and Helm values → the containers in them with their command lines.

A document with ``services`` is Compose, one with ``kind`` is Kubernetes, anything else is looked
through for plain ``command`` and ``args`` lists, as Helm values have them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from kvplan.checking.document import Items, Keys, Scalar, Tree, parse_document, words_of
from kvplan.checking.manifests.shell import one_command, refuse_substitutions
from kvplan.errors import InputError, MalformedFile
from kvplan.files import read_text

MAX_MANIFEST_BYTES = 2 << 20
_TAG = re.compile(r":v?(\d+\.\d+(?:\.\d+)?)(?![\d.])[^/]*\Z")


class Container(NamedTuple):
    """One container and what it runs."""

    name: str
    """``chat`` of Compose, ``Deployment/chat/server`` of Kubernetes, the keys to it in values."""
    line: int
    image: str
    command: Tree | None
    """What replaces the image's entry point; None where the image's own stands."""
    args: Tree | None
    splits: bool
    """A command written as one text is split into words (Compose)."""
    variables: tuple[str, ...]
    """Names of the environment variables that it sets."""
    gpus: str | None = None
    """``nvidia.com/gpu`` of its limits."""

    @property
    def version(self) -> str | None:
        """The version in the image's tag."""
        match = _TAG.search(self.image.partition("@")[0])
        return match[1] if match else None

    def mentions(self, names: tuple[str, ...]) -> bool:
        """Whether its image, command or arguments have one of the names in them."""
        said = [self.image, *(words_of(self.command) or ()), *(words_of(self.args) or ())]
        return any(name in text.lower() for text in said for name in names)

    def words(self) -> list[str]:
        """Command and arguments; refused where a part is only known once it is deployed."""
        words: list[str] = []
        for key, tree in (("command", self.command), ("args", self.args)):
            if tree is None:
                continue
            found = words_of(tree)
            if found is None:
                raise InputError(f"{key} of {self.name} is not a plain list")
            plain = [refuse_substitutions(word) for word in found]
            words += one_command(plain[0]) if self.splits and isinstance(tree, Scalar) else plain
        return words


def read_containers(path: str, shown: str) -> list[Container]:
    """The containers of a manifest; ``shown`` names it in errors."""
    text = read_text(path, MAX_MANIFEST_BYTES)
    try:
        documents = parse_document(text, shown)
    except MalformedFile as error:
        if "{{" in text:
            error.hint = "A Helm template? Render it first (helm template …)."
        raise
    found: list[Container] = []
    for document in documents:
        if not isinstance(document, Keys):
            continue
        services = document.get("services")
        if isinstance(services, Keys) and "kind" not in document.entries:
            found += _compose(services)
        elif "kind" in document.entries:
            found += _kubernetes(document)
        else:
            found += _values(document, "")
    return found


def _compose(services: Keys) -> Iterator[Container]:
    for name, (place, service) in services.entries.items():
        if isinstance(service, Keys):
            yield Container(
                name,
                place.line,
                _text(service.get("image")),
                service.get("entrypoint"),
                service.get("command"),
                True,
                _variables(service.get("environment")),
            )


def _kubernetes(document: Keys) -> Iterator[Container]:
    items = document.get("items")
    if _text(document.get("kind")).endswith("List") and isinstance(items, Items):
        for item in items.items:
            if isinstance(item, Keys):
                yield from _kubernetes(item)
        return
    metadata = document.get("metadata")
    name = _text(metadata.get("name")) if isinstance(metadata, Keys) else ""
    prefix = "/".join(filter(None, (_text(document.get("kind")), name)))
    for keys in _mappings(document):
        listed = keys.get("containers")
        for item in listed.items if isinstance(listed, Items) else ():
            if isinstance(item, Keys):
                yield _container(item, f"{prefix}/{_text(item.get('name'))}")


def _values(keys: Keys, where: str) -> Iterator[Container]:
    """Mappings at any depth with a plain list under ``command`` or ``args``."""
    if any(isinstance(keys.get(key), Items) for key in ("command", "args")):
        yield _container(keys, where or "values")
    for key, (_, value) in keys.entries.items():
        inner = value.items if isinstance(value, Items) else (value,)
        for number, item in enumerate(inner):
            if isinstance(item, Keys):
                at = f"{key}[{number}]" if isinstance(value, Items) else key
                yield from _values(item, f"{where}.{at}".lstrip("."))


def _container(item: Keys, name: str) -> Container:
    image = item.get("image")
    shown = _text(image)
    if isinstance(image, Keys):
        shown = f"{_text(image.get('repository'))}:{_text(image.get('tag'))}"
    resources = item.get("resources")
    limits = resources.get("limits") if isinstance(resources, Keys) else None
    gpus = limits.get("nvidia.com/gpu") if isinstance(limits, Keys) else None
    return Container(
        name,
        item.place.line,
        shown,
        item.get("command"),
        item.get("args"),
        False,
        _variables(item.get("env")),
        _text(gpus) or None,
    )


def _mappings(tree: Tree) -> Iterator[Keys]:
    if isinstance(tree, Keys):
        yield tree
        for entry in tree.entries.values():
            yield from _mappings(entry.value)
    elif isinstance(tree, Items):
        for item in tree.items:
            yield from _mappings(item)


def _variables(tree: Tree | None) -> tuple[str, ...]:
    """Names out of ``{A: x}``, ``[A=x]`` or ``[{name: A, value: x}]``."""
    if isinstance(tree, Keys):
        return tuple(tree.entries)
    names = []
    for item in tree.items if isinstance(tree, Items) else ():
        if isinstance(item, Keys):
            names.append(_text(item.get("name")))
        elif isinstance(item, Scalar):
            names.append(item.text.partition("=")[0])
    return tuple(names)


def _text(tree: Tree | None) -> str:
    return tree.text if isinstance(tree, Scalar) and tree.kind != "null" else ""
