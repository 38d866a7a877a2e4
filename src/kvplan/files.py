"""Bounded reading of files that come from strangers, and writing that never leaves half a file.

A document is read only when it is a regular file within its size limit, parsed without running
any code, and refused with its path and position when it is not what it should be.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

from kvplan.errors import InputError, MalformedFile, SourceError
from kvplan.units import MIB

if TYPE_CHECKING:
    from yaml import Node, SafeLoader

MAX_DOCUMENT_BYTES = 16 * MIB
"""Largest JSON or YAML document read. The largest published config.json seen is 3 MB."""

MAX_DEPTH = 64
"""Deepest nesting accepted; published configs nest 6 deep."""


def read_text(path: str, limit: int = MAX_DOCUMENT_BYTES) -> str:
    """The text of a regular UTF-8 file of at most ``limit`` bytes."""
    with open_regular(path) as (file, size):
        if size > limit:
            raise MalformedFile(
                path,
                f"is {size:,} bytes; a document here has at most {limit:,}",
                hint="Is this the weights? Give the config.json beside them.",
            )
        data = file.read(limit + 1)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise MalformedFile(
            path, f"is not text: byte {error.start:,} is not UTF-8", hint="A binary file?"
        ) from None


@contextmanager
def open_regular(path: str) -> Iterator[tuple[BinaryIO, int]]:
    """A regular file, open for reading, and its bytes; faults of reading it are named errors."""
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise MalformedFile(path, "is not a regular file")
            yield file, status.st_size
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:  # an embedded NUL in the path
        raise SourceError(f"{path!r}: is not a usable path: {error}") from None


def _without_waiting(path: str, flags: int) -> int:
    """Open without waiting for the other end of a named pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def read_json_object(path: str) -> dict[str, Any]:
    """The JSON object in a file. Not-a-number, deep nesting and any other document are refused."""
    return parse_json_object(read_text(path), path)


def parse_json_object(text: str, path: str) -> dict[str, Any]:
    """The JSON object in ``text``; ``path`` is named in errors."""
    import json

    def refuse(constant: str) -> NoReturn:
        raise MalformedFile(path, f"holds {constant}, which is not a number JSON allows")

    if not text.strip():
        raise MalformedFile(path, "is empty; expected a JSON object")
    try:
        document = json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise MalformedFile(
            path,
            f"is not valid JSON: {error.msg.removesuffix(' at')} at line {error.lineno}, "
            f"column {error.colno}",
        ) from None
    except RecursionError:
        raise MalformedFile(path, "is nested too deeply to be a model's configuration") from None
    except ValueError:  # an integer of more than sys.get_int_max_str_digits() digits
        raise MalformedFile(path, "holds a number too long to be a size") from None
    if not isinstance(document, dict):
        raise MalformedFile(path, f"holds {_json_name(document)}; expected a JSON object")
    _refuse_depth(document, path)
    return document


def read_yaml_object(path: str) -> dict[str, Any]:
    """The YAML mapping in a file: no tags, no aliases, one document."""
    import yaml

    text = read_text(path)
    with _yaml_faults(path):
        document = yaml.load(text, Loader=_plain_loader(path))  # noqa: S506  (a SafeLoader)
    if not isinstance(document, dict):
        raise MalformedFile(path, f"holds {_json_name(document)}; expected a YAML mapping")
    _refuse_depth(document, path)
    return document


def compose_yaml(text: str, path: str) -> list[Node]:
    """The documents of YAML text as nodes, which know their lines; ``path`` is named in errors.

    The rules are those of `read_yaml_object`: no aliases, no key stated twice, no deep nesting.
    """
    import yaml

    with _yaml_faults(path):
        documents: list[Node] = list(yaml.compose_all(text, Loader=_plain_loader(path)))
    for document in documents:
        level = [document]
        for _ in range(MAX_DEPTH):
            level = [inner for node in level for inner in _inner_nodes(node)]
        if level:
            raise MalformedFile(path, f"is nested more than {MAX_DEPTH} deep")
    return documents


def _inner_nodes(node: Node) -> list[Node]:
    import yaml

    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


@contextmanager
def _yaml_faults(path: str) -> Iterator[None]:
    """Turn what PyYAML and Python say of a bad document into a `MalformedFile`."""
    import yaml

    try:
        yield
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (None, None)
        place = f" at line {line}, column {column}" if mark else ""
        raise MalformedFile(
            path, f"is not valid YAML: {error.problem}{place}", line=line, column=column
        ) from None
    except yaml.YAMLError as error:
        raise MalformedFile(path, f"is not valid YAML: {error}") from None
    except RecursionError:
        raise MalformedFile(path, "is nested too deeply") from None
    except ValueError as error:  # dates and numbers that Python cannot hold
        raise MalformedFile(path, f"holds a value that cannot be read: {error}") from None


def _plain_loader(path: str) -> type[SafeLoader]:
    """YAML's safe loader without aliases, of which a few lines expand to more than any memory.

    A key stated twice is refused as well: the loader would silently take the last.
    """
    import yaml

    class PlainLoader(yaml.SafeLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
                raise MalformedFile(
                    path,
                    f"uses a YAML alias at line {mark.line + 1}; write the value out",
                    line=mark.line + 1,
                    column=mark.column + 1,
                )
            return super().compose_node(parent, index)

        def compose_mapping_node(self, anchor: Any) -> Any:
            node = super().compose_mapping_node(anchor)
            stated = set()
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode) and key.value in stated:
                    line = key.start_mark.line + 1
                    raise MalformedFile(
                        path,
                        f"{key.value!r} is stated twice, again at line {line}",
                        line=line,
                        column=key.start_mark.column + 1,
                    )
                stated.add(key.value if isinstance(key, yaml.ScalarNode) else id(key))
            return node

    return PlainLoader


def _refuse_depth(document: dict[str, Any], path: str) -> None:
    level: list[Any] = [document]
    for _ in range(MAX_DEPTH):
        inner: list[Any] = []
        for node in level:
            if isinstance(node, dict):
                inner += [v for v in node.values() if isinstance(v, (dict, list))]
            else:
                inner += [v for v in node if isinstance(v, (dict, list))]
        if not inner:
            return
        level = inner
    raise MalformedFile(path, f"is nested more than {MAX_DEPTH} deep")


def _json_name(value: object) -> str:
    names = {list: "a list", str: "a string", bool: "true or false", type(None): "nothing (null)"}
    return names.get(
        type(value), "a number" if isinstance(value, (int, float)) else "something else"
    )


def write_whole(path: str, text: str) -> None:
    """Write ``text`` to ``path``: a reader sees the old file or the new one, never a part."""
    import tempfile

    data = text.encode("utf-8", errors="replace")  # a lone surrogate, from a strange file name
    folder = os.path.dirname(os.path.abspath(path))
    temporary = ""
    try:
        if os.path.exists(path) and not os.path.isfile(path):  # a device or a pipe: just write
            with open(path, "wb") as file:
                file.write(data)
            return
        handle, temporary = tempfile.mkstemp(prefix=".kvplan-", dir=folder)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
        temporary = ""
    except OSError as error:
        raise InputError(f"--output {path!r} cannot be written: {error.strerror}") from error
    finally:  # an interrupt too leaves nothing behind
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
