"""One function a family: from a config's fields to its `Architecture`.

To add a family, write the function in the module it belongs to and list its ``model_type`` here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from kvplan.sources.huggingface.architecture import Architecture
from kvplan.sources.huggingface.fields import Fields

Build = Callable[[Fields], Architecture]

_HOMES = {
    "llama": "llama:llama",
    "mistral": "llama:mistral",
    "phi3": "llama:phi3",
    "qwen2": "llama:qwen2",
    "qwen3": "llama:qwen3",
    "mixtral": "mixture:mixtral",
    "qwen3_moe": "mixture:qwen3_moe",
    "gpt_oss": "mixture:gpt_oss",
    "gemma": "gemma:gemma",
    "gemma2": "gemma:gemma2",
    "gemma3_text": "gemma:gemma3",
    "deepseek_v2": "deepseek:deepseek_v2",
    "deepseek_v3": "deepseek:deepseek_v3",
    "falcon": "falcon:falcon",
    "gpt2": "gpt:gpt2",
    "gpt_bigcode": "gpt:gpt_bigcode",
    "opt": "gpt:opt",
}

ALIASES = {
    "gemma3": "gemma3_text",
    "RefinedWeb": "falcon",
    "RefinedWebModel": "falcon",
    "kimi_k2": "deepseek_v3",
}
"""Other names that published files use for the same classes."""

FULL_ATTENTION = "llama:full_attention"
"""What ``--assume full-attention`` reads an unknown ``model_type`` as."""


def known_types() -> list[str]:
    """Every ``model_type`` that is understood."""
    return [*_HOMES, *ALIASES]


def family(model_type: str) -> tuple[Build, Mapping[str, Any]] | None:
    """The function for a ``model_type`` and its class defaults; None when it is not known."""
    home = _HOMES.get(ALIASES.get(model_type, model_type))
    return None if home is None else load(home)


def load(home: str) -> tuple[Build, Mapping[str, Any]]:
    """The function at ``module:name`` and the class defaults listed beside it."""
    module_name, _, function = home.partition(":")
    module = import_module(f"{__name__}.{module_name}")
    return getattr(module, function), getattr(module, "DEFAULTS", {}).get(function, {})
