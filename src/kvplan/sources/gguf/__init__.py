"""A GGUF file, or the parts it was split into → `Model`, from its header alone.

Every weight counts with the bytes of the GGML type it is stored in.
"""

from __future__ import annotations

import os
import re

from kvplan.errors import InputError, MalformedFile, ModelNotFound
from kvplan.model.model import Checkpoint, Layer, Model
from kvplan.precision.format import BF16, FP16
from kvplan.precision.scheme import ExactFormats, WeightScheme
from kvplan.precision.weights import EVERY_MATRIX
from kvplan.sources.gguf.architectures import HF_TYPES, is_known, layer_caches, layers
from kvplan.sources.gguf.header import Header, TensorInfo, read_header
from kvplan.sources.gguf.metadata import Metadata
from kvplan.sources.gguf.types import FILE_TYPES
from kvplan.sources.gguf.weights import most_bytes, read_weights
from kvplan.units import format_gib

_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf\Z", re.IGNORECASE)
_MAX_FACT_ENTRIES = 512


def read_gguf(path: str, *, assume: str | None = None) -> Model:
    """The model in the GGUF file at ``path``; any part of a split file stands for all of them."""
    if assume not in {None, "full-attention"}:
        raise InputError(
            f"--assume {assume!r} is not an assumption kvplan takes",
            hint="Use: --assume full-attention",
        )
    first, tensors, parts = _read_parts(path)
    m = Metadata(first.metadata, path, first.lengths)
    if m.raw("attention.causal") is False:
        raise m.unsupported("attention.causal", False)
    caches = layer_caches(m, assume)
    assumptions = []
    if not is_known(m):
        assumptions.append("every layer is taken as plain full attention (--assume full-attention)")
    heads = max(m.per_layer("attention.head_count", 0))
    kv_heads = max(m.per_layer("attention.head_count_kv", heads))
    weights = read_weights(tensors, layers(m), heads, kv_heads, m.optional("expert_used_count", 1))
    warnings = []
    if weights.left_out_bytes:
        warnings.append(
            f"draft (MTP) layers of {format_gib(weights.left_out_bytes)} are left out: "
            "they are loaded for speculative decoding only"
        )
    mixed = most_bytes(tensors.values())
    file_type = first.metadata.get("general.file_type")
    name = FILE_TYPES.get(file_type) if isinstance(file_type, int) else None
    scheme = WeightScheme(
        name or (mixed.name if mixed else "f16"),
        mixed or FP16,
        EVERY_MATRIX,
        exact=ExactFormats(weights.formats),
    )
    size = sum(info.size_bytes for info in tensors.values())
    vocab = tensors.get("token_embd.weight")
    return Model(
        name=_name(first, path),
        source=path if parts == 1 else f"{path} ({parts} parts)",
        model_type=HF_TYPES.get(m.architecture, m.architecture),
        layers=tuple(Layer(kept, held) for kept, held in zip(caches, weights.layers, strict=True)),
        outside=weights.outside,
        num_attention_heads=heads or 1,
        scheme=scheme,
        dtype=BF16 if name == "bf16" else FP16,
        hidden_size=m.optional("embedding_length", 1),
        vocab_size=_vocabulary(m, vocab),
        max_position_embeddings=m.context,
        weights_unknown=None if tensors else "the file lists no tensors (a vocabulary only)",
        checkpoint=Checkpoint(
            _parameters(tensors) if tensors else None, size or None, "the file's own tensor list"
        ),
        assumptions=tuple(assumptions),
        warnings=tuple(warnings),
        facts=_facts(first),
    )


def _read_parts(path: str) -> tuple[Header, dict[str, TensorInfo], int]:
    """The first part's metadata, the tensors of all parts, and how many parts there are."""
    match = _PART.search(path)
    if match is None:
        header = read_header(path)
        count = header.metadata.get("split.count", 0)
        if isinstance(count, int) and count > 1:
            raise MalformedFile(
                path,
                f"is one of {count} parts, but its name does not say which",
                hint="Name the parts NAME-00001-of-0000N.gguf, as they were downloaded.",
            )
        return header, header.tensors, 1
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
    return first, tensors, count


def _parameters(tensors: dict[str, TensorInfo]) -> int:
    total = 0
    for info in tensors.values():
        elements = 1
        for length in info.shape:
            elements *= length
        total += elements
    return total


def _vocabulary(m: Metadata, embedding: TensorInfo | None) -> int | None:
    if embedding is not None and len(embedding.shape) == 2:
        return embedding.shape[1]
    return m.optional("vocab_size", 1, 10**8) or m.lengths.get("tokenizer.ggml.tokens")


def _name(header: Header, path: str) -> str:
    """The file's own name without its ending: it says more than ``general.name`` often does."""
    stem = os.path.splitext(os.path.basename(_PART.sub(".gguf", path)))[0]
    return stem or str(header.metadata.get("general.name"))


def _facts(header: Header) -> dict[str, object]:
    """Metadata for `explain`, without the vocabulary and long lists."""
    return {
        key: value
        for key, value in header.metadata.items()
        if not key.startswith("tokenizer.")
        and not (isinstance(value, list) and len(value) > _MAX_FACT_ENTRIES)
    }
