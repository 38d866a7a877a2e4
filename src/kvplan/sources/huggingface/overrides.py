"""What-if questions: ``--set FIELD=VALUE`` changes a fact of the config before it is read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from kvplan.errors import InputError, nearest_names
from kvplan.model.caches import Cache, FullAttention, Latent, SlidingWindow

_SPELLINGS = {
    "num_kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv"),
    "num_hidden_layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "num_attention_heads": ("num_attention_heads", "n_head", "n_heads"),
    "hidden_size": ("hidden_size", "n_embd", "d_model"),
    "head_size": ("head_dim", "attention_head_dim", "kv_channels"),
    "max_position_embeddings": (
        "max_position_embeddings",
        "n_positions",
        "max_seq_len",
        "seq_length",
    ),
    "intermediate_size": ("intermediate_size", "ffn_hidden_size", "ffn_dim", "n_inner"),
}
"""kvplan's word → the spellings of published configs, the commonest first."""

_LATENT = {"kv_lora_rank", "qk_rope_head_dim"}
_ROPE_DEFAULT = 64
"""Rotary part of every published latent model (DeepSeek-V2 and V3, Kimi K2)."""


def apply_overrides(
    facts: dict[str, Any], overrides: Mapping[str, str], defaults: Mapping[str, Any]
) -> list[str]:
    """Change ``facts`` in place; each change is an assumption of the report."""
    said = []
    for field, text in overrides.items():
        value = _value(field, text)
        names = _SPELLINGS.get(field, (field,))
        key = next((name for name in names if name in facts), None)
        if key is None:
            standard = {spelling for spellings in _SPELLINGS.values() for spelling in spellings}
            known = {*facts, *defaults, *standard, *_SPELLINGS, *_LATENT, "sliding_window"}
            if field not in known:
                near = nearest_names(field, known) or sorted(_SPELLINGS)
                raise InputError(
                    f"--set {field}={text}: this config has no such field",
                    hint=f"Nearest: {', '.join(near)}",
                )
            key = names[0]
        said.append(f"what if: {key} = {value} instead of {facts.get(key, 'unset')}")
        facts[key] = value
    return said


def latent_what_if(
    caches: Sequence[tuple[Cache, ...]], overrides: Mapping[str, str]
) -> tuple[list[tuple[Cache, ...]], str] | None:
    """Plain attention replaced by a latent cache of the asked rank; None when not asked.

    A model that is latent already reads the field by itself.
    """
    if "kv_lora_rank" not in overrides or any(
        isinstance(cache, Latent) for kept in caches for cache in kept
    ):
        return None
    rank = _value("kv_lora_rank", overrides["kv_lora_rank"])
    rope = _value("qk_rope_head_dim", overrides.get("qk_rope_head_dim", str(_ROPE_DEFAULT)))
    for field, value in (("kv_lora_rank", rank), ("qk_rope_head_dim", rope)):
        if not isinstance(value, int) or not 0 <= value <= 65_536:
            raise InputError(f"--set {field}={value}: not a number of elements")
    latent = Latent(rank, rope)
    replaced: list[tuple[Cache, ...]] = [
        tuple(
            latent if isinstance(cache, (FullAttention, SlidingWindow)) else cache for cache in kept
        )
        for kept in caches
    ]
    return replaced, (
        f"what if: attention were latent with {rank} + {rope} elements a token; "
        "the weights are left as they are"
    )


def _value(field: str, text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if isinstance(value, (dict, list)) and len(text) > 10_000:
        raise InputError(f"--set {field}: a value of {len(text):,} characters is not taken")
    return value
