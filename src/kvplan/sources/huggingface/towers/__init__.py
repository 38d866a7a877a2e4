"""Weights of the towers beside a language model, where their shapes are known exactly.

A tower is kept whole on every GPU and is not quantised with the language model. To add one, write
its function in the module it belongs to and list the outer ``model_type`` here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from kvplan.errors import SourceError
from kvplan.model.tensors import VISION, Tensor
from kvplan.sources.huggingface.fields import Fields

Tower = Callable[[Fields, Fields, int], list[Tensor]]
"""From the tower's own facts, the outer config's and the language model's width."""

VISION_SECTION, AUDIO_SECTION = "vision_config", "audio_config"

_VISION = {
    "gemma3": "siglip:gemma3:SIGLIP",
    "paligemma": "siglip:paligemma:SIGLIP",
    "idefics3": "siglip:idefics3:IDEFICS",
    "smolvlm": "siglip:idefics3:IDEFICS",
    "cohere2_vision": "siglip:cohere2:SIGLIP",
    "lfm2_vl": "siglip:lfm2:SIGLIP",
    "llava": "siglip:llava:CLIP",
    "llava_next": "siglip:llava_next:CLIP",
    "llava_next_video": "siglip:llava_next:CLIP",
    "llava_onevision": "siglip:llava_next:CLIP",
    "mistral3": "vit:pixtral:PIXTRAL",
    "ministral3": "vit:pixtral:PIXTRAL",
    "mistral_large4": "vit:pixtral:PIXTRAL",
    "qwen2_vl": "vit:qwen2_vl:QWEN2",
    "qwen2_5_vl": "vit:qwen2_5_vl:QWEN2_5",
    "qwen3_vl": "vit:qwen3_vl:QWEN3_DEEP",
    "qwen3_vl_moe": "vit:qwen3_vl:QWEN3_DEEP",
    "qwen3_5": "vit:qwen3_vl:QWEN3",
    "qwen3_5_moe": "vit:qwen3_vl:QWEN3",
    "glm4v": "vit:glm4v:GLM4V",
    "glm4v_moe": "vit:glm4v:GLM4V",
    "glm46v": "vit:glm4v:GLM4V",
    "glmga": "vit:glm4v:GLM4V",
    "kimi_k25": "vit:kimi_k25:KIMI",
    "minimax_m3_vl": "vit:minimax_m3:MINIMAX_M3",
    "mllama": "vit:mllama:MLLAMA",
    "llama4": "vit:llama4:LLAMA4",
    "internvl": "vit:internvl:INTERNVL",
    "gemma4": "gemma4:gemma4:GEMMA4",
}
SEEING = frozenset(_VISION)
"""Models that always have a picture tower, stated or not."""
_AUDIO = {"gemma4": "gemma4:gemma4_audio:GEMMA4_AUDIO"}


def tower(
    data: Mapping[str, Any], section: str, hidden: int | None, source: str
) -> list[Tensor] | None:
    """A tower and its projector, or None where kvplan does not know their shapes."""
    homes = _VISION if section == VISION_SECTION else _AUDIO
    home = homes.get(str(data.get("model_type")))
    if data.get("model_type") == "fuyu" and section == VISION_SECTION and hidden is not None:
        return fuyu(Fields(data, source, {"num_channels": 3, "patch_size": 30}), hidden)
    facts = data.get(section)
    if home is None or not isinstance(facts, dict) or not facts or hidden is None:
        return None
    module_name, function, defaults = home.split(":")
    module = import_module(f"{__name__}.{module_name}")
    build: Tower = getattr(module, function)
    try:
        own = Fields(facts, f"{source}: {section}", getattr(module, defaults))
        return build(own, Fields(data, source), hidden)
    except SourceError:
        return None


def fuyu(outer: Fields, hidden: int) -> list[Tensor]:
    """Fuyu has no tower: patches go through one projection. Source: ``modeling_fuyu.py``."""
    pixels = outer.integer("num_channels") * outer.integer("patch_size") ** 2
    return [
        Tensor(VISION, "vision_embed_tokens", hidden, pixels),
        Tensor(VISION, "vision_embed_tokens.bias", hidden),
    ]
