"""A model folder's weights, from the headers of its safetensors files alone.

A header is 8 bytes of length and a JSON object; the tensors behind it are never read. The
``safetensors`` library is not used: it is built to map files whole and to hand out tensors of a
framework, and it reports what is wrong with a file without naming the tensor at fault. The same
checks are made here: the header's cap, offsets that follow each other without a gap or overlap and
end with the file, and a shape that accounts for the bytes.
Source: safetensors 0.6 ``safetensors/src/tensor.rs`` ``SafeTensors::read_metadata``,
``Metadata::validate``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, NoReturn

from kvplan.errors import MalformedFile, SourceError
from kvplan.files import open_regular, parse_json_object, read_text
from kvplan.units import INT64_MAX, MIB

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
MAX_HEADER_BYTES = 100_000_000
"""The reference implementation's cap."""
MAX_INDEX_BYTES = 256 * MIB
"""The index of a 1-trillion-parameter model at 4 bits has 210,000 entries and 24 MB."""
MAX_SHARDS = 10_000
_MAX_DIMENSIONS = 64

DTYPE_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8, "U16": 16, "I16": 16, "F16": 16, "BF16": 16, "U32": 32, "I32": 32,
    "F32": 32, "U64": 64, "I64": 64, "F64": 64, "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip


class StoredTensor(NamedTuple):
    """One tensor as a header lists it."""

    dtype: str
    shape: tuple[int, ...]
    size_bytes: int

    @property
    def elements(self) -> int:
        """Numbers it holds; for a packed 4-bit weight, the packed words."""
        count = 1
        for length in self.shape:
            count *= length
        return count


class StoredWeights(NamedTuple):
    """Every tensor of a checkpoint."""

    tensors: dict[str, StoredTensor]
    files: int
    where: str

    @property
    def size_bytes(self) -> int:
        """Bytes of all of them together."""
        return sum(tensor.size_bytes for tensor in self.tensors.values())


class Index(NamedTuple):
    """Which file holds which tensors, and the total that the index states."""

    shards: dict[str, list[str]]
    total_size: int | None


def read_folder(folder: str) -> StoredWeights | Index | None:
    """What the folder's headers say; the index when no shard is there; None without either."""
    single, index_path = os.path.join(folder, SINGLE), os.path.join(folder, INDEX)
    if os.path.exists(index_path):
        index = parse_index(
            parse_json_object(read_text(index_path, MAX_INDEX_BYTES), index_path), index_path
        )
        missing = [name for name in index.shards if not os.path.lexists(os.path.join(folder, name))]
        if len(missing) == len(index.shards):
            return index
        if missing:
            shown = ", ".join(missing[:3])
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            raise SourceError(
                f"{folder}: {len(missing)} of {len(index.shards)} shards are missing: "
                f"{shown}{more}",
                hint="Finish the download, or give the folder's config.json by its path.",
            )
        return merge(index, lambda name: read_header(_inside(folder, name)), index_path)
    if os.path.lexists(single):
        return StoredWeights(read_header(_inside(folder, SINGLE)), 1, single)
    return None


def parse_index(document: Mapping[str, Any], where: str) -> Index:
    """The shards of ``model.safetensors.index.json``; names that leave the folder are refused."""
    weight_map = document.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise MalformedFile(where, "weight_map must be an object of tensors and their files")
    shards: dict[str, list[str]] = {}
    for tensor, shard in weight_map.items():
        if not isinstance(shard, str) or not _is_plain_name(shard):
            raise MalformedFile(
                where, f"weight_map names {_show(shard)}, which is not a file of this folder"
            )
        shards.setdefault(shard, []).append(tensor)
    if len(shards) > MAX_SHARDS:
        raise MalformedFile(where, f"names {len(shards):,} files")
    stated = document.get("metadata")
    total = stated.get("total_size") if isinstance(stated, dict) else None
    if isinstance(total, float) and total.is_integer():
        total = int(total)
    if isinstance(total, bool) or not isinstance(total, int) or not 0 < total <= INT64_MAX:
        total = None
    return Index(shards, total)


def merge(
    index: Index, header_of: Callable[[str], dict[str, StoredTensor]], where: str
) -> StoredWeights:
    """The tensors of all shards, each taken from the shard that the index names for it."""
    return merge_headers(index, ((name, header_of(name)) for name in index.shards), where)


def merge_headers(
    index: Index, headers: Iterable[tuple[str, dict[str, StoredTensor]]], where: str
) -> StoredWeights:
    """As `merge`, with the headers already read."""
    tensors: dict[str, StoredTensor] = {}
    for shard, header in headers:
        for name in index.shards[shard]:
            if name not in header:
                raise MalformedFile(where, f"{_show(name)} is not in {shard}, as it says")
            tensors[name] = header[name]
    return StoredWeights(tensors, len(index.shards), where)


def read_header(path: str) -> dict[str, StoredTensor]:
    """The tensors that the file at ``path`` lists."""
    with open_regular(path) as (file, size):
        length = header_length(file.read(8), path)
        if length > size - 8:
            raise MalformedFile(
                path,
                f"has {size:,} bytes, fewer than its header of {length:,}",
                hint="Is the download complete?",
            )
        return parse_header(file.read(length), path, size)


def header_length(start: bytes, path: str) -> int:
    """The length of the header that follows, from the file's first 8 bytes."""
    if len(start) < 8:
        raise MalformedFile(path, "is shorter than 8 bytes: not a safetensors file")
    length = int.from_bytes(start[:8], "little")
    if not 2 <= length <= MAX_HEADER_BYTES:
        raise MalformedFile(
            path,
            f"states a header of {length:,} bytes; expected 2 to {MAX_HEADER_BYTES:,}",
            hint="Is this a safetensors file?",
        )
    return length


def parse_header(data: bytes, path: str, file_size: int | None = None) -> dict[str, StoredTensor]:
    """The tensors of a header; with ``file_size``, they must end exactly where the file ends."""
    document = _strict_json(data, path)
    document.pop("__metadata__", None)
    found: dict[str, StoredTensor] = {}
    places: list[tuple[int, int, str]] = []
    for name, entry in document.items():
        tensor, begin, end = _tensor(name, entry, path)
        found[name] = tensor
        places.append((begin, end, name))
    expected = 0
    for begin, end, name in sorted(places):
        if begin != expected:
            what = "overlaps the one before it" if begin < expected else "leaves a gap before it"
            raise MalformedFile(path, f"tensor {_show(name)} at byte {begin:,} {what}")
        expected = end
    if file_size is not None and 8 + len(data) + expected != file_size:
        raise MalformedFile(
            path,
            f"has {file_size:,} bytes where its header accounts for {8 + len(data) + expected:,}",
            hint="Is the download complete?",
        )
    return found


def _tensor(name: str, entry: Any, path: str) -> tuple[StoredTensor, int, int]:
    if not isinstance(entry, dict) or not entry.keys() >= {"dtype", "shape", "data_offsets"}:
        raise MalformedFile(path, f"tensor {_show(name)} has no dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    bits = DTYPE_BITS.get(dtype) if isinstance(dtype, str) else None
    if bits is None:
        raise MalformedFile(path, f"tensor {_show(name)} has the unknown dtype {_show(dtype)}")
    if not _are_counts(shape) or len(shape) > _MAX_DIMENSIONS:
        raise MalformedFile(path, f"tensor {_show(name)} has the shape {_show(shape)}")
    if not _are_counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise MalformedFile(path, f"tensor {_show(name)} has the offsets {_show(offsets)}")
    elements = 1
    for length in shape:
        elements *= length
        if elements > INT64_MAX:
            raise MalformedFile(path, f"tensor {_show(name)} is larger than any memory")
    size = offsets[1] - offsets[0]
    if elements * bits != size * 8:
        raise MalformedFile(
            path,
            f"tensor {_show(name)} of shape {_show(shape)} and dtype {dtype} "
            f"does not take {size:,} bytes",
        )
    return StoredTensor(dtype, tuple(shape), size), offsets[0], offsets[1]


def _are_counts(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(item, int) and not isinstance(item, bool) and 0 <= item <= INT64_MAX
        for item in value
    )


def _strict_json(data: bytes, path: str) -> dict[str, Any]:
    """The JSON object in ``data``; a key that occurs twice, which JSON lets pass, is refused."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        for name, value in pairs:
            if name in entries:
                raise MalformedFile(path, f"{_show(name)} occurs twice in the header")
            entries[name] = value
        return entries

    def refuse(constant: str) -> NoReturn:
        raise MalformedFile(path, f"holds {constant}, which is not a number JSON allows")

    try:
        document = json.loads(data.decode(), object_pairs_hook=unique, parse_constant=refuse)
    except UnicodeDecodeError as error:
        raise MalformedFile(path, f"header byte {8 + error.start:,} is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise MalformedFile(
            path, f"the header is not valid JSON: {error.msg} at byte {8 + error.pos:,}"
        ) from None
    except RecursionError:
        raise MalformedFile(path, "the header is nested too deeply") from None
    except ValueError:  # an integer of more digits than Python reads
        raise MalformedFile(path, "the header holds a number too long to be a size") from None
    if not isinstance(document, dict):
        raise MalformedFile(path, "the header is not a JSON object")
    return document


def _inside(folder: str, name: str) -> str:
    """The file's path, once sure that it lies in the folder; a link may not lead out of it.

    The hub's cache keeps a snapshot as links into its own ``blobs``, which is let pass.
    """
    path = os.path.join(folder, name)
    home, target = os.path.realpath(folder), os.path.realpath(path)
    homes = [home]
    snapshots = os.path.dirname(home)
    if os.path.basename(snapshots) == "snapshots":
        homes.append(os.path.join(os.path.dirname(snapshots), "blobs"))
    if os.path.dirname(target) not in homes:
        raise MalformedFile(path, f"is a link that leads out of the folder, to {target}")
    return path


def _is_plain_name(name: str) -> bool:
    return (
        0 < len(name) <= 255
        and name not in {".", ".."}
        and name.isprintable()
        and not any(character in name for character in "/\\:")
    )


def _show(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
