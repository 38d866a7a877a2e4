"""Towers of SigLIP and CLIP kind.

Source: transformers ``modeling_siglip.py``, ``modeling_siglip2.py``, ``modeling_clip.py`` and the
projectors of ``modeling_gemma3.py``, ``modeling_llava.py`` and so on; defaults from the
``configuration_*.py`` beside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvplan.errors import SourceError
from kvplan.model.tensors import VISION, Tensor
from kvplan.sources.huggingface.fields import Fields
from kvplan.sources.huggingface.towers.pieces import blocks, matrix, norm, patches

SIGLIP = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_channels": 3,
    "image_size": 224, "patch_size": 16, "vision_use_head": True, "num_patches": 256,
}  # fmt: skip
IDEFICS = {**SIGLIP, "hidden_size": 1152, "patch_size": 32, "vision_use_head": False}
CLIP = {**SIGLIP, "patch_size": 32}


def _siglip(v: Fields, *, positions: int | None = None) -> list[Tensor]:
    """SigLIP, with an attention-pooling head unless ``vision_use_head`` says no."""
    width, inner = v.integer("hidden_size"), v.integer("intermediate_size")
    pixels = v.integer("num_channels") * v.integer("patch_size") ** 2
    tensors = [
        *matrix("patch_embedding", width, pixels),
        *matrix("positions", patches(v) if positions is None else positions, width, bias=False),
        *blocks(width, inner, v.integer("num_hidden_layers")),
        *norm("post_layernorm", width),
    ]
    if v.boolean("vision_use_head"):
        tensors += [
            Tensor(VISION, "vision.head.probe", width),
            *blocks(width, inner, 1, norms=1),
        ]
    return tensors


def gemma3(v: Fields, _: Fields, hidden: int) -> list[Tensor]:
    width = v.integer("hidden_size")
    return [
        *_siglip(v),
        *matrix("projector", width, hidden, bias=False),
        *norm("projector.norm", width, bias=False),
    ]


def paligemma(v: Fields, outer: Fields, hidden: int) -> list[Tensor]:
    size = v.optional_integer("projection_dim") or outer.optional_integer("projection_dim")
    return [*_siglip(v), *matrix("projector", size or hidden, v.integer("hidden_size"))]


def idefics3(v: Fields, outer: Fields, hidden: int) -> list[Tensor]:
    scale = outer.optional_integer("scale_factor") or 2
    inputs = v.integer("hidden_size") * scale * scale
    return [*_siglip(v), *matrix("connector", hidden, inputs, bias=False)]


def cohere2(v: Fields, outer: Fields, hidden: int) -> list[Tensor]:
    width = outer.optional_integer("alignment_intermediate_size") or 36864
    factor = outer.optional_integer("downsample_factor") or 2
    return [
        *_siglip(v),
        *matrix("projector.linear_1", width, v.integer("hidden_size") * factor * factor),
        *matrix("projector.linear_2", hidden, width // 2),
    ]


def lfm2(v: Fields, outer: Fields, hidden: int) -> list[Tensor]:
    factor = outer.optional_integer("downsample_factor") or 2
    inputs = v.integer("hidden_size") * factor * factor
    width = outer.optional_integer("projector_hidden_size") or 2560
    bias = outer.boolean("projector_bias", default=True)
    tensors = [
        *_siglip(v, positions=v.integer("num_patches")),
        *matrix("projector.linear_1", width, inputs, bias=bias),
        *matrix("projector.linear_2", hidden, width, bias=bias),
    ]
    if outer.boolean("projector_use_layernorm", default=True):
        tensors += norm("projector.layer_norm", inputs)
    return tensors


def _clip(v: Fields) -> list[Tensor]:
    width = v.integer("hidden_size")
    pixels = v.integer("num_channels") * v.integer("patch_size") ** 2
    return [
        *matrix("patch_embedding", width, pixels, bias=False),
        *matrix("positions", patches(v) + 1, width, bias=False),
        Tensor(VISION, "vision.class_embedding", width),
        *norm("layernorms", width, 2),
        *blocks(width, v.integer("intermediate_size"), v.integer("num_hidden_layers")),
    ]


def llava(v: Fields, outer: Fields, hidden: int) -> list[Tensor]:
    layers = outer.raw("vision_feature_layer")
    inputs = v.integer("hidden_size") * (len(layers) if isinstance(layers, list) else 1)
    bias = outer.boolean("multimodal_projector_bias", default=True)
    kind = v.text("model_type")
    tower = _clip(v) if kind == "clip_vision_model" else _siglip(_of(v, SIGLIP, kind))
    return [
        *tower,
        *matrix("projector.linear_1", hidden, inputs, bias=bias),
        *matrix("projector.linear_2", hidden, hidden, bias=bias),
    ]


def _of(v: Fields, defaults: Mapping[str, Any], kind: str | None) -> Fields:
    """The same facts with the defaults of another tower; only SigLIP's is expected here."""
    if kind != "siglip_vision_model":
        raise SourceError(f"{v.where}: model_type = {kind!r} is not a tower kvplan knows")
    return Fields(v.data, v.where, defaults)


def llava_next(v: Fields, outer: Fields, hidden: int) -> list[Tensor]:
    return [*llava(v, outer, hidden), Tensor(VISION, "vision.image_newline", hidden)]
