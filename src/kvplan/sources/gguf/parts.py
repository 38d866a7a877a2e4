"""A GGUF file, or all the parts it was split into → one header."""

from __future__ import annotations

import os
import re

from kvplan.errors import MalformedFile, ModelNotFound
from kvplan.sources.gguf.header import Header, TensorInfo, read_header

PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf\Z", re.IGNORECASE)
"""The end of a part's name."""


def read_parts(path: str) -> tuple[Header, int]:
    """The first part's metadata with the tensors of all parts, and how many parts there are."""
    match = PART.search(path)
    if match is None:
        header = read_header(path)
        count = header.metadata.get("split.count", 0)
        if isinstance(count, int) and count > 1:
            raise MalformedFile(
                path,
                f"is one of {count} parts, but its name does not say which",
                hint="Name the parts NAME-00001-of-0000N.gguf, as they were downloaded.",
            )
        return header, 1
    count = int(match[2])
    if count < 1 or not 1 <= int(match[1]) <= count:
        raise MalformedFile(path, f"is named as part {int(match[1])} of {count}")
    names = [
        f"{path[: match.start()]}-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1)
    ]
    missing = [name for name in names if not os.path.exists(name)]
    if missing:
        shown = ", ".join(os.path.basename(name) for name in missing[:3])
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise ModelNotFound(
            f"{path}: {len(missing)} of {count} parts are missing: {shown}{more}",
            hint="Finish the download: the weights are spread over all parts.",
        )
    tensors: dict[str, TensorInfo] = {}
    first: Header | None = None
    for number, name in enumerate(names):
        header = read_header(name)
        if header.metadata.get("split.no") != number or header.metadata.get("split.count") != count:
            raise MalformedFile(
                name,
                f"says it is part {header.metadata.get('split.no')!r} (from 0) of "
                f"{header.metadata.get('split.count')!r}, its name says {number} of {count}",
            )
        twice = tensors.keys() & header.tensors.keys()
        if twice:
            raise MalformedFile(name, f"tensor {min(twice)!r} is in an earlier part too")
        tensors |= header.tensors
        first = first or header
    if first is None:
        raise MalformedFile(path, "has no parts")
    return first._replace(tensors=tensors), count
