"""A GGUF header ↔ the ``gguf`` section of a person's own profile.

The section holds what a header says of memory: the architecture's keys and the tensors. The
vocabulary is only its length, so that a profile of some kilobytes stands for a file of gigabytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvplan.errors import InputError, MalformedFile
from kvplan.sources.gguf.header import (
    MAX_DIMENSIONS,
    VOCABULARY,
    Header,
    TensorInfo,
    tensor_info,
)
from kvplan.sources.gguf.types import TYPES

MAX_TENSORS = 100_000
"""Most tensors of a profile; the largest published file has some thousands."""
_GENERAL = ("general.architecture", "general.name", "general.file_type")
_MAX_TEXT = 2000
_BY_NAME = {form.name: form for form in TYPES.values()}


def section_of(header: Header, path: str) -> dict[str, Any]:
    """The section that describes a header; it reads back to the same model."""
    if len(header.tensors) > MAX_TENSORS:
        raise InputError(
            f"{path}: {len(header.tensors):,} tensors are more than the {MAX_TENSORS:,} that a "
            "profile takes",
            hint="The .gguf file itself is taken by its path.",
        )
    prefix = f"{header.metadata.get('general.architecture')}."
    section: dict[str, Any] = {
        "metadata": {
            key: value
            for key, value in header.metadata.items()
            if (key in _GENERAL or (key.startswith(prefix) and not key.startswith("tokenizer.")))
            and _is_kept(value)
        }
    }
    if VOCABULARY in header.lengths:
        section["vocabulary"] = header.lengths[VOCABULARY]
    section["tensors"] = {
        name: [info.form.name, *info.shape] for name, info in header.tensors.items()
    }
    return section


def header_of(section: Mapping[str, Any], path: str) -> Header:
    """The header that a section of the right form describes."""
    metadata = dict(section["metadata"])
    vocabulary = section.get("vocabulary")
    lengths = {} if vocabulary is None else {VOCABULARY: vocabulary}
    tensors = {name: _tensor(name, stated, path) for name, stated in section["tensors"].items()}
    return Header(metadata, lengths, tensors)


def _tensor(name: str, stated: list[Any], path: str) -> TensorInfo:
    kind, *shape = stated
    form = _BY_NAME.get(kind) if isinstance(kind, str) else None
    if form is None:
        raise MalformedFile(
            path,
            f"gguf.tensors: {name!r} has the unknown type {str(kind)[:40]!r}",
            hint=f"Types: {', '.join(_BY_NAME)}.",
        )
    is_shape = all(type(length) is int and length >= 0 for length in shape)
    if not 1 <= len(shape) <= MAX_DIMENSIONS or not is_shape:
        raise MalformedFile(
            path,
            f"gguf.tensors: {name!r} should have 1 to {MAX_DIMENSIONS} dimensions after its type, "
            "each a whole number",
        )
    try:
        return tensor_info(name, form, tuple(shape))
    except ValueError as error:
        raise MalformedFile(path, f"gguf.tensors: {error}") from None


def _is_kept(value: Any) -> bool:
    """Numbers, short texts and lists of numbers: no text list says anything of memory."""
    if isinstance(value, list):
        return all(isinstance(entry, (int, float)) for entry in value)
    return isinstance(value, (int, float)) or (isinstance(value, str) and len(value) <= _MAX_TEXT)
