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
    "granite": "dense:granite",
    "granite_swa": "dense:granite_swa",
    "smollm3": "dense:smollm3",
    "seed_oss": "dense:seed_oss",
    "ernie4_5": "dense:ernie4_5",
    "helium": "dense:helium",
    "cwm": "dense:cwm",
    "ministral3": "dense:ministral3",
    "arcee": "dense:arcee",
    "jais2": "dense:jais2",
    "apertus": "dense:apertus",
    "exaone4": "dense:exaone4",
    "hunyuan_v1_dense": "dense:hunyuan_v1_dense",
    "hyperclovax": "dense:hyperclovax",
    "glm": "dense:glm",
    "glm4": "dense:glm4",
    "olmo": "dense:olmo",
    "olmo2": "dense:olmo2",
    "olmo3": "dense:olmo3",
    "nanochat": "dense:nanochat",
    "cohere": "dense:cohere",
    "cohere2": "dense:cohere2",
    "vaultgemma": "dense:vaultgemma",
    "bitnet": "dense:bitnet",
    "diffllama": "dense:diffllama",
    "starcoder2": "layernorm:starcoder2",
    "nemotron": "layernorm:nemotron",
    "stablelm": "layernorm:stablelm",
    "phi": "layernorm:phi",
    "persimmon": "layernorm:persimmon",
    "gpt_neox": "layernorm:gpt_neox",
    "gptj": "layernorm:gptj",
    "gpt_neo": "layernorm:gpt_neo",
    "bloom": "layernorm:bloom",
    "mpt": "layernorm:mpt",
    "openai-gpt": "layernorm:openai_gpt",
    "ctrl": "layernorm:ctrl",
    "xglm": "layernorm:xglm",
    "biogpt": "layernorm:biogpt",
    "qwen": "remote_code:qwen",
    "internlm": "remote_code:internlm",
    "internlm2": "remote_code:internlm2",
    "internlm3": "remote_code:internlm3",
    "baichuan": "remote_code:baichuan",
    "orion": "remote_code:orion",
    "chatglm": "remote_code:chatglm",
    "minicpm": "remote_code:minicpm",
    "minicpmv": "remote_code:minicpmv",
    "molmo": "remote_code:molmo",
    "openelm": "per_layer:openelm",
    "nemotron-nas": "per_layer:nemotron_nas",
    "qwen2_moe": "routed:qwen2_moe",
    "olmoe": "routed:olmoe",
    "flex_olmo": "routed:flex_olmo",
    "phimoe": "routed:phimoe",
    "granitemoe": "routed:granitemoe",
    "granitemoe_swa": "routed:granitemoe_swa",
    "dbrx": "routed:dbrx",
    "ernie4_5_moe": "routed:ernie4_5_moe",
    "glm4_moe": "routed:glm4_moe",
    "solar_open": "routed:solar_open",
    "dots1": "routed:dots1",
    "exaone_moe": "routed:exaone_moe",
    "minimax_m2": "routed:minimax_m2",
    "aria_text": "routed:aria_text",
    "llama4_text": "routed_windows:llama4",
    "mimo_v2_flash": "routed_windows:mimo_v2_flash",
    "minimax_m3": "routed_windows:minimax_m3",
    "step3p7": "routed_windows:step3p7",
    "minicpm3": "latent:minicpm3",
    "youtu": "latent:youtu",
    "glm4_moe_lite": "latent:glm4_moe_lite",
    "mistral4": "latent:mistral4",
    "axk1": "latent:axk1",
    "longcat_flash": "latent:longcat_flash",
    "deepseek_v32": "sparse_index:deepseek_v32",
    "glm_moe_dsa": "sparse_index:glm_moe_dsa",
    "hy_v4": "sparse_index:hy_v4",
    "mistral_large4": "sparse_index:mistral_large4",
    "deepseek_v4": "deepseek_v4:deepseek_v4",
    "gemma3n_text": "gemma_shared:gemma3n",
    "gemma4_text": "gemma_shared:gemma4",
    "gemma4_unified_text": "gemma_shared:gemma4_unified",
    "mamba": "mamba:mamba",
    "falcon_mamba": "mamba:mamba",
    "mamba2": "mamba:mamba2",
    "jamba": "mamba_hybrid:jamba",
    "bamba": "mamba_hybrid:bamba",
    "falcon_h1": "mamba_hybrid:falcon_h1",
    "granitemoehybrid": "mamba_hybrid:granitemoehybrid",
    "nemotron_h": "nemotron_h:nemotron_h",
    "qwen3_next": "delta:qwen3_next",
    "qwen3_5_text": "delta:qwen3_5",
    "qwen3_5_moe_text": "delta:qwen3_5_moe",
    "qwen4_exp_text": "delta_hybrid:qwen4_exp",
    "olmo_hybrid": "delta_hybrid:olmo_hybrid",
    "lara_mini": "delta_hybrid:lara_mini",
    "kimi_linear": "kda:kimi_linear",
    "bailing_hybrid": "kda:bailing_hybrid",
    "glm5_next_text": "glm5_next:glm5_next",
    "minimax": "lightning:minimax",
    "lfm2": "short_conv:lfm2",
    "lfm2_moe": "short_conv:lfm2_moe",
    "lfm3": "short_conv:lfm3",
    "rwkv": "rwkv:rwkv",
    "rwkv5": "rwkv:rwkv5",
    "xlstm": "rwkv:xlstm",
    "recurrent_gemma": "recurrent_gemma:recurrent_gemma",
    "zaya": "zaya:zaya",
    "inkling_text": "zaya:inkling",
    "zamba": "zamba:zamba",
    "zamba2": "zamba:zamba2",
}

ALIASES = {
    "gemma3": "gemma3_text",
    "RefinedWeb": "falcon",
    "RefinedWebModel": "falcon",
    "kimi_k2": "deepseek_v3",
    "llama4": "llama4_text",
    "granitemoeshared": "granitemoe",
    "codegen": "gptj",
    "phi-msft": "phi",
    "mixformer-sequential": "phi",
    "stablelm_epoch": "stablelm",
    "exaone": "llama",
    "iquestcoder": "llama",
    "ministral": "mistral",
    "xverse": "llama",
    "aquila": "llama",
    "Yi": "llama",
    "sarvam_moe": "glm4_moe",
    "sarvam_mla": "deepseek_v3",
    "gpt-sw3": "gpt2",
    "qwen2_vl": "qwen2",
    "qwen2_vl_text": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen2_5_omni_text": "qwen2",
    "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe_text": "qwen3_moe",
    "qwen3_omni_moe_text": "qwen3_moe",
    "glm4v_text": "glm4",
    "glm4v": "glm4",
    "glm4v_moe_text": "glm4_moe",
    "gemma3n": "gemma3n_text",
    "gemma4": "gemma4_text",
    "gemma4_unified": "gemma4_unified_text",
    "minimax_m3_vl_text": "minimax_m3",
    "minimax_m3_vl": "minimax_m3",
    "mistral_large4_text": "mistral_large4",
    "step3p7_text": "step3p7",
    "step3p5": "step3p7",
    "phi3_v": "phi3",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "qwen4_exp": "qwen4_exp_text",
    "glm5_next": "glm5_next_text",
    "minimax_text_01": "minimax",
    "minimax_m1": "minimax",
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
