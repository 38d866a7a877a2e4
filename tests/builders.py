"""Small models, GPUs and deployments whose every figure can be worked out by hand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kvplan.deployment import Deployment
from kvplan.hardware.gpu import Gpu
from kvplan.hardware.profiles import gpu_from_profile
from kvplan.model.caches import Cache
from kvplan.model.model import Layer, Model
from kvplan.precision.format import BF16
from kvplan.precision.kv import KV_FORMATS
from kvplan.precision.scheme import plain_scheme
from kvplan.sources.huggingface.config import read_config

GIB = 1024**3

TINY_LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 4,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 128,
    "vocab_size": 128,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}
"""One layer: q 64*64, k and v 32*64, o 64*64, MLP 3*128*64, norms 2*64 = 36,992 parameters.
Outside: embedding 128*64, head 128*64, final norm 64 = 16,448. In all 4*36,992 + 16,448 = 164,416.
KV: 4 layers * 2 heads * (16 + 16) elements * 2 B = 512 B a token."""

TINY_LAYER, TINY_OUTSIDE = 36_992, 16_448
TINY_PARAMETERS = 164_416
TINY_KV_BYTES = 512


def tiny_model(**changes: Any) -> Model:
    """`TINY_LLAMA` with some keys changed."""
    return config_model({**TINY_LLAMA, **changes}, "tiny")


def config_model(config: dict[str, Any], name: str = "a-model") -> Model:
    """The model that a config describes."""
    return read_config(config, name=name, source=f"{name}/config.json")


def cache_model(caches: Iterable[tuple[Cache, ...]], *, heads: int = 64, **facts: Any) -> Model:
    """A model of nothing but caches, one tuple a layer: its weights are 0 bytes."""
    return Model(
        name="caches",
        source="a test",
        model_type="llama",
        layers=tuple(Layer(kept) for kept in caches),
        outside=(),
        num_attention_heads=heads,
        scheme=plain_scheme(BF16),
        **facts,
    )


def gpu(usable_gib: float = 80.0, **facts: Any) -> Gpu:
    """An NVIDIA GPU of Hopper's generation with that much memory."""
    profile = {
        "name": "test-gpu",
        "vendor": "nvidia",
        "arch": "sm_90",
        "memory": {"usable_gib": usable_gib},
        "link": {"type": "nvlink", "gb_per_s": 900.0, "max_gpus": 8},
        "kv_formats": ["fp8_e4m3"],
        "weight_formats": ["fp8_e4m3"],
    }
    return gpu_from_profile({**profile, **facts})


def deployment(model: Model | None = None, **changes: Any) -> Deployment:
    """One sequence of 1,024 tokens of ``model`` (the tiny one) under the bare formula."""
    model = model or tiny_model()
    plain = Deployment(
        model=model,
        gpu=gpu(),
        engine="none",
        scheme=model.scheme,
        kv=KV_FORMATS["bf16"],
        seq_len=1024,
    )
    return plain._replace(**changes)
