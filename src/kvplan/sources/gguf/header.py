"""A GGUF file's header, walked within bounds: metadata and the list of tensors, never their data.

A file from a stranger can claim any count and any length. Nothing is believed before it is read:
every count is held against the bytes that are left, every length against the end of the file, and
only a window of the header is in memory. The Python package ``gguf`` maps the whole file and
builds an array for every value before it checks one, so it is not used.
Source: ggml ``docs/gguf.md``; ``gguf.cpp`` ``gguf_init_from_file_impl``.
"""

from __future__ import annotations

import struct
from typing import Any, BinaryIO, NamedTuple

from kvplan.errors import MalformedFile
from kvplan.files import open_regular
from kvplan.precision.format import Format
from kvplan.sources.gguf.types import TYPES
from kvplan.units import INT64_MAX, MIB, round_up

MAX_HEADER_BYTES = 512 * MIB
"""Largest header walked; a vocabulary of 262,144 tokens makes one of about 16 MB."""
MAX_KEY_BYTES = 65_535
MAX_TEXT_BYTES = MIB
"""Longest text kept; longer ones (chat templates) are walked over."""
MAX_KEPT_ELEMENTS = 65_536
"""Longest list kept; longer ones (a vocabulary) are walked over and only counted."""
MAX_ENTRIES = 1_000_000
"""Most keys or tensors believed; the largest published file has some thousands."""
MAX_DIMENSIONS = 4
VOCABULARY = "tokenizer.ggml.tokens"
"""The key of the list of tokens, of which only the length counts."""
_WINDOW = 4 * MIB

_U8, _I8, _U16, _I16, _U32, _I32, _F32, _BOOL, _STRING, _ARRAY, _U64, _I64, _F64 = range(13)
_SCALARS = {
    _U8: struct.Struct("<B"), _I8: struct.Struct("<b"), _U16: struct.Struct("<H"),
    _I16: struct.Struct("<h"), _U32: struct.Struct("<I"), _I32: struct.Struct("<i"),
    _F32: struct.Struct("<f"), _BOOL: struct.Struct("<?"), _U64: struct.Struct("<Q"),
    _I64: struct.Struct("<q"), _F64: struct.Struct("<d"),
}  # fmt: skip
_LENGTH = struct.Struct("<Q")


class TensorInfo(NamedTuple):
    """One tensor as the header lists it."""

    form: Format
    shape: tuple[int, ...]
    """Lengths as GGML has them: the row length first."""
    size_bytes: int


class Header(NamedTuple):
    """What one GGUF file says of itself."""

    metadata: dict[str, Any]
    lengths: dict[str, int]
    """Elements of every list, kept or not."""
    tensors: dict[str, TensorInfo]


def tensor_info(name: str, form: Format, shape: tuple[int, ...]) -> TensorInfo:
    """The tensor with its bytes; a ``ValueError`` says why there can be none like it."""
    rows = 1
    for length in shape[1:]:
        rows *= length
    if shape[0] % form.packs:
        raise ValueError(
            f"tensor {name!r} has rows of {shape[0]}, which blocks of {form.packs} "
            f"({form.name}) do not divide"
        )
    if shape[0] * rows > INT64_MAX:
        raise ValueError(f"tensor {name!r} is larger than any memory")
    return TensorInfo(form, shape, form.matrix_bytes(rows, shape[0]))


def read_header(path: str) -> Header:
    """The header of the GGUF file at ``path``."""
    with open_regular(path) as (file, size):
        return _Walk(file, size, path).header()


class _Walk:
    """Reads forward through a file, a window at a time."""

    def __init__(self, file: BinaryIO, size: int, path: str) -> None:
        self.file = file
        self.size = size
        self.path = path
        self.window = b""
        self.base = 0
        """Where in the file the window starts."""
        self.at = 0
        """The next byte, counted from the start of the window."""

    @property
    def position(self) -> int:
        return self.base + self.at

    def header(self) -> Header:
        magic = self._take(4, "the magic number")
        if magic != b"GGUF":
            raise MalformedFile(self.path, f"starts with {magic!r}, not 'GGUF'")
        version = self._number(_SCALARS[_U32], "the version")
        if version not in {2, 3}:
            known = version in {2 << 24, 3 << 24}
            raise MalformedFile(
                self.path,
                "is a big-endian GGUF file" if known else f"is GGUF version {version}",
                hint="kvplan reads little-endian GGUF versions 2 and 3.",
            )
        # A tensor takes at least 24 bytes of header, a key at least 13.
        tensors = self._count("tensors", 24)
        keys = self._count("keys", 13)
        metadata: dict[str, Any] = {}
        lengths: dict[str, int] = {}
        for _ in range(keys):
            start = self.position
            key = self._text("a key", MAX_KEY_BYTES)
            if key is None:
                raise self._fault("the name of a key is too long", start)
            if key in metadata or key in lengths:
                raise self._fault(f"key {key!r} occurs twice", start)
            kind = self._number(_SCALARS[_U32], f"the type of {key!r}")
            if kind == _ARRAY:
                kept, lengths[key] = self._array(key)
                if kept is not None:
                    metadata[key] = kept
            else:
                metadata[key] = self._value(kind, key)
        return Header(metadata, lengths, self._tensors(tensors, metadata))

    def _tensors(self, count: int, metadata: dict[str, Any]) -> dict[str, TensorInfo]:
        alignment = metadata.get("general.alignment", 32)
        if (
            isinstance(alignment, bool)
            or not isinstance(alignment, int)
            or not 0 < alignment <= MIB
            or alignment & (alignment - 1)
        ):
            raise MalformedFile(
                self.path, f"general.alignment is {alignment!r}, not a small power of two"
            )
        found: dict[str, TensorInfo] = {}
        places: list[tuple[int, int, str]] = []
        for _ in range(count):
            start = self.position
            name = self._text("a tensor's name", MAX_KEY_BYTES)
            if not name or name in found:
                raise self._fault(f"tensor {name!r} occurs twice or has no usable name", start)
            dimensions = self._number(_SCALARS[_U32], "the number of dimensions")
            if not 1 <= dimensions <= MAX_DIMENSIONS:
                raise self._fault(f"tensor {name!r} has {dimensions} dimensions", start)
            shape = tuple(self._number(_LENGTH, "a dimension") for _ in range(dimensions))
            number = self._number(_SCALARS[_U32], "a tensor's type")
            offset = self._number(_LENGTH, "a tensor's offset")
            form = TYPES.get(number)
            if form is None:
                raise self._fault(f"tensor {name!r} has the unknown type {number}", start)
            try:
                found[name] = tensor_info(name, form, shape)
            except ValueError as error:
                raise self._fault(str(error), start) from None
            if offset % alignment:
                raise self._fault(f"tensor {name!r} is not aligned to {alignment} bytes", start)
            places.append((offset, found[name].size_bytes, name))
        self._check_places(places, round_up(self.position, alignment))
        return found

    def _check_places(self, places: list[tuple[int, int, str]], data: int) -> None:
        """Tensors lie one after the other, without overlap, within the file."""
        end = 0
        for offset, size, name in sorted(places):
            if offset < end:
                raise MalformedFile(self.path, f"tensor {name!r} overlaps the one before it")
            end = offset + size
            if data + end > self.size:
                raise MalformedFile(
                    self.path,
                    f"ends at byte {self.size:,}, before tensor {name!r} at {data + end:,}",
                    hint="Is the download complete?",
                )

    def _value(self, kind: int, key: str) -> Any:
        if kind == _STRING:
            return self._text(f"the value of {key!r}", MAX_TEXT_BYTES)
        scalar = _SCALARS.get(kind)
        if scalar is None:
            raise self._fault(f"key {key!r} has the unknown type {kind}", self.position)
        return self._number(scalar, f"the value of {key!r}")

    def _array(self, key: str) -> tuple[list[Any] | None, int]:
        """A list's elements, None when it is too long to keep; and how many there are."""
        kind = self._number(_SCALARS[_U32], f"the type of {key!r}")
        if kind == _STRING:
            count = self._count(f"elements of {key!r}", 8, MAX_HEADER_BYTES)
            if count > MAX_KEPT_ELEMENTS or key.startswith("tokenizer."):
                self._skip_texts(count, key)
                return None, count
            texts = [self._text(f"a text of {key!r}", MAX_KEY_BYTES) for _ in range(count)]
            return (None if None in texts else texts), count
        scalar = _SCALARS.get(kind)
        if scalar is None:
            raise self._fault(f"key {key!r} is a list of the unknown type {kind}", self.position)
        count = self._count(f"elements of {key!r}", scalar.size, MAX_HEADER_BYTES)
        if count > MAX_KEPT_ELEMENTS:
            self._skip(count * scalar.size, key)
            return None, count
        data = self._take(count * scalar.size, key)
        return [values[0] for values in scalar.iter_unpack(data)], count

    def _skip_texts(self, count: int, key: str) -> None:
        """Past ``count`` texts; a vocabulary has some hundred thousand, so without a call each."""
        unpack, left = _LENGTH.unpack_from, count
        while left:
            window, at, end = self.window, self.at, len(self.window)
            while left and at + 8 <= end:
                after = at + 8 + unpack(window, at)[0]
                if after > end:
                    break
                at, left = after, left - 1
            self.at = at
            if left:  # the next one reaches beyond the window
                self._skip(self._number(_LENGTH, f"a text of {key!r}"), key)
                left -= 1

    def _count(self, what: str, least_bytes: int, most: int = MAX_ENTRIES) -> int:
        """A count of things that take ``least_bytes`` each, held against what is left."""
        start = self.position
        count: int = self._number(_LENGTH, f"the number of {what}")
        if count > most or count * least_bytes > self.size - self.position:
            raise self._fault(f"{count:,} {what} are more than the file can hold", start)
        return count

    def _text(self, what: str, keep: int) -> str | None:
        """A text, or None when it is longer than ``keep`` bytes."""
        start = self.position
        size = self._number(_LENGTH, f"the length of {what}")
        if size > keep:
            self._skip(size, what)
            return None
        try:
            return self._take(size, what).decode()
        except UnicodeDecodeError:
            raise self._fault(f"{what} is not UTF-8", start) from None

    def _number(self, scalar: struct.Struct, what: str) -> Any:
        if len(self.window) - self.at < scalar.size:
            return scalar.unpack(self._take(scalar.size, what))[0]
        value = scalar.unpack_from(self.window, self.at)[0]
        self.at += scalar.size
        return value

    def _take(self, size: int, what: str) -> bytes:
        self._require(size, what)
        if len(self.window) - self.at < size:
            rest = self.window[self.at :]
            self.base += self.at
            self.window = rest + self.file.read(max(_WINDOW, size) - len(rest))
            self.at = 0
            if len(self.window) < size:  # the file became shorter while it was read
                raise self._fault(f"the file ends within {what}", self.position)
        data = self.window[self.at : self.at + size]
        self.at += size
        return data

    def _skip(self, size: int, what: str) -> None:
        self._require(size, what)
        if self.at + size <= len(self.window):
            self.at += size
            return
        self.base = self.position + size
        self.window, self.at = b"", 0
        self.file.seek(self.base)

    def _require(self, size: int, what: str) -> None:
        if size > self.size - self.position:
            raise self._fault(f"the file ends within {what}", self.position)
        if self.position + size > MAX_HEADER_BYTES:
            raise self._fault("the header is too large", self.position)

    def _fault(self, problem: str, position: int) -> MalformedFile:
        return MalformedFile(self.path, f"byte {position:,}: {problem}")
