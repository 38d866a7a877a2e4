"""What a checkpoint stores against what its config's shapes give: exact bytes for the plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from kvplan.model.model import Checkpoint, Model, Stored
from kvplan.model.tensors import VISION
from kvplan.sources.safetensors import Index, StoredTensor, StoredWeights
from kvplan.units import MIB, format_gib

_TOWERS = frozenset({
    "visual", "vision_tower", "vision_model", "vision_encoder", "vision_embed_tokens", "vit",
    "img_processor", "image_newline", "multi_modal_projector", "mm_projector", "embed_vision",
    "patch_merge_mlp", "merger", "resampler", "vpm", "audio_tower", "audio_encoder", "embed_audio",
    "sound_encoder", "speech_encoder", "audio_projection", "talker", "token2wav", "code2wav",
})  # fmt: skip
"""Parts of a name that belong to an image, video or audio encoder and what joins it on."""

_BUFFERS = ("rotary_emb.inv_freq", "attn.bias", "attn.masked_bias", "attention.masked_bias",
            "rotary_emb.cos_cached", "rotary_emb.sin_cached")  # fmt: skip
"""Tables that old files store and engines make anew."""

_TOLERANCE = 0.002
"""Difference between stored and counted bytes that scales of single tensors explain."""

_PLAIN_DTYPES = frozenset({"F16", "BF16", "F32", "F64"})


class Sorted(NamedTuple):
    """Bytes of a checkpoint by what an engine does with them."""

    text: int
    tower: int
    draft: int
    """Multi-token prediction layers, loaded for speculative decoding only."""
    unused: int
    """Buffers, and the copy of a tied embedding."""


def with_stored(model: Model, found: StoredWeights | Index, *, what_if: bool = False) -> Model:
    """The model with the exact bytes of its files; ``what_if`` changes make them a fact only."""
    if isinstance(found, Index):
        return replace(
            model,
            checkpoint=Checkpoint(
                model.checkpoint.parameters, found.total_size, "the index's total_size"
            ),
            warnings=(
                *model.warnings,
                "the weights' files are not there: weight bytes follow from the config's shapes",
            ),
        )
    sizes = sort_bytes(model, found.tensors)
    plain = all(tensor.dtype in _PLAIN_DTYPES for tensor in found.tensors.values())
    elements = sum(tensor.elements for tensor in found.tensors.values())
    model = replace(
        model,
        checkpoint=Checkpoint(
            elements if plain else None,
            found.size_bytes,
            f"headers of {found.files} safetensors file{'s' if found.files > 1 else ''}",
        ),
    )
    if what_if or not any(layer.tensors for layer in model.layers):
        return model
    if not sizes.text:
        return replace(
            model,
            warnings=(*model.warnings, "the files hold no weights of the language model"),
        )
    return _applied(model, sizes)


def sort_bytes(model: Model, tensors: Mapping[str, StoredTensor]) -> Sorted:
    """Sort the tensors by their names."""
    text = tower = draft = unused = 0
    layers = model.num_hidden_layers
    for name, tensor in tensors.items():
        parts = name.split(".")
        if not _TOWERS.isdisjoint(parts):
            tower += tensor.size_bytes
        elif "mtp" in parts or "nextn" in parts or (_layer(parts) or 0) >= layers:
            draft += tensor.size_bytes
        elif name.endswith(_BUFFERS) or (parts[-2:] == ["lm_head", "weight"] and model.is_tied):
            unused += tensor.size_bytes
        else:
            text += tensor.size_bytes
    return Sorted(text, tower, draft, unused)


def _layer(parts: list[str]) -> int | None:
    """The layer that a tensor of the language model belongs to."""
    for before, part in pairwise(parts):
        if before in {"layers", "h", "blocks"} and part.isascii() and part.isdecimal():
            return int(part[:9])
    return None


def _applied(model: Model, sizes: Sorted) -> Model:
    """Use the stored bytes, and say where the shapes and the scheme give something else."""
    warnings = [said for said in model.warnings if not said.endswith("left out of the weights")]
    unknown = model.weights_unknown
    if unknown is not None:
        warnings.append(
            f"{unknown}: the bytes that the files store are taken, {format_gib(sizes.text)}, "
            "and shared out over GPUs as the 16-bit shapes would be"
        )
        model = replace(model, weights_unknown=None, scheme=model.scheme._replace(name="as stored"))
    # Encoders that the config describes are among the shapes; what is stored beyond them is not.
    described = sum(
        tensor.rank_bytes(model.dtype) for tensor in model.outside if tensor.part == VISION
    )
    shaped = min(sizes.tower, described)
    text = sizes.text + shaped
    counted = model.weight_bytes(model.scheme)
    difference = abs(text - counted)
    if unknown is None and difference > max(MIB, counted * _TOLERANCE):
        warnings.append(
            f"the files store {format_gib(text)} of weights where the config's shapes at "
            f"{model.scheme.name} give {format_gib(counted)}: the stored bytes are taken"
        )
    if sizes.draft:
        warnings.append(
            f"draft (MTP) layers of {format_gib(sizes.draft)} are left out: "
            "they are loaded for speculative decoding only"
        )
    return replace(
        model,
        stored=Stored(text, sizes.tower - shaped, model.scheme),
        left_out=(),
        warnings=tuple(warnings),
    )
