"""A GGUF header → `Model`, wherever the header stands: in a file, its parts or a profile.

Every weight counts with the bytes of the GGML type it is stored in.
"""

from __future__ import annotations

import os

from kvplan.errors import InputError
from kvplan.model.model import Checkpoint, Layer, Model
from kvplan.precision.format import BF16, FP16
from kvplan.precision.scheme import ExactFormats, WeightScheme
from kvplan.precision.weights import EVERY_MATRIX
from kvplan.sources.gguf.architectures import HF_TYPES, is_known, layer_caches, layers
from kvplan.sources.gguf.header import VOCABULARY, Header, TensorInfo
from kvplan.sources.gguf.metadata import Metadata
from kvplan.sources.gguf.parts import PART, read_parts
from kvplan.sources.gguf.types import FILE_TYPES
from kvplan.sources.gguf.weights import most_bytes, read_weights
from kvplan.units import format_gib

_MAX_FACT_ENTRIES = 512


def read_gguf(path: str, *, assume: str | None = None) -> Model:
    """The model in the GGUF file at ``path``; any part of a split file stands for all of them."""
    _check_assumption(assume)
    header, parts = read_parts(path)
    return model_of(
        header,
        name=name_of(header, path),
        source=path if parts == 1 else f"{path} ({parts} parts)",
        where=path,
        assume=assume,
    )


def model_of(
    header: Header, *, name: str, source: str, where: str, assume: str | None = None
) -> Model:
    """The model that a header describes, a file's or a profile's; errors name ``where``."""
    _check_assumption(assume)
    tensors = header.tensors
    m = Metadata(header.metadata, where, header.lengths)
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
    file_type = header.metadata.get("general.file_type")
    mix = FILE_TYPES.get(file_type) if isinstance(file_type, int) else None
    scheme = WeightScheme(
        mix or (mixed.name if mixed else "f16"),
        mixed or FP16,
        EVERY_MATRIX,
        exact=ExactFormats(weights.formats),
    )
    size = sum(info.size_bytes for info in tensors.values())
    vocab = tensors.get("token_embd.weight")
    return Model(
        name=name,
        source=source,
        model_type=HF_TYPES.get(m.architecture, m.architecture),
        layers=tuple(Layer(kept, held) for kept, held in zip(caches, weights.layers, strict=True)),
        outside=weights.outside,
        num_attention_heads=heads or 1,
        scheme=scheme,
        dtype=BF16 if mix == "bf16" else FP16,
        hidden_size=m.optional("embedding_length", 1),
        vocab_size=_vocabulary(m, vocab),
        max_position_embeddings=m.context,
        weights_unknown=None if tensors else "the file lists no tensors (a vocabulary only)",
        checkpoint=Checkpoint(
            _parameters(tensors) if tensors else None, size or None, "the file's own tensor list"
        ),
        assumptions=tuple(assumptions),
        warnings=tuple(warnings),
        facts=_facts(header),
    )


def _check_assumption(assume: str | None) -> None:
    if assume not in {None, "full-attention"}:
        raise InputError(
            f"--assume {assume!r} is not an assumption kvplan takes",
            hint="Use: --assume full-attention",
        )


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
    return m.optional("vocab_size", 1, 10**8) or m.lengths.get(VOCABULARY)


def name_of(header: Header, path: str) -> str:
    """The file's own name without its ending: it says more than ``general.name`` often does."""
    stem = os.path.splitext(os.path.basename(PART.sub(".gguf", path)))[0]
    return stem or str(header.metadata.get("general.name"))


def _facts(header: Header) -> dict[str, object]:
    """Metadata for `explain`, without the vocabulary and long lists."""
    return {
        key: value
        for key, value in header.metadata.items()
        if not key.startswith("tokenizer.")
        and not (isinstance(value, list) and len(value) > _MAX_FACT_ENTRIES)
    }
