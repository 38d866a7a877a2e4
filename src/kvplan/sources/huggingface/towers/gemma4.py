"""The picture and sound towers of Gemma 4.

Source: transformers ``modeling_gemma4.py``, ``configuration_gemma4.py``.
"""

from __future__ import annotations

from kvplan.model.tensors import VISION, Tensor
from kvplan.sources.huggingface.fields import Fields
from kvplan.sources.huggingface.towers.pieces import matrix, norm

GEMMA4 = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 16, "patch_size": 16,
    "num_attention_heads": 12, "num_key_value_heads": 12, "head_dim": 64,
    "position_embedding_size": 10240,
}  # fmt: skip
GEMMA4_AUDIO = {
    "hidden_size": 1024, "num_hidden_layers": 12, "num_attention_heads": 8,
    "subsampling_conv_channels": [128, 32], "conv_kernel_size": 5, "output_proj_dims": 1536,
}  # fmt: skip
_MEL_BINS = 128


def gemma4(v: Fields, _: Fields, hidden: int) -> list[Tensor]:
    """Pictures: gated layers with norms on heads and a table of positions each way."""
    width, inner = v.integer("hidden_size"), v.integer("intermediate_size")
    layers, size = v.integer("num_hidden_layers"), v.integer("head_dim")
    heads, kept = v.integer("num_attention_heads"), v.integer("num_key_value_heads")
    bias = v.boolean("attention_bias", default=False)
    return [
        *matrix("positions", 2 * v.integer("position_embedding_size"), width, bias=False),
        *matrix("patches", width, 3 * v.integer("patch_size") ** 2, bias=False),
        *matrix("attention.qkv", (heads + 2 * kept) * size, width, layers, bias=bias),
        *matrix("attention.out", width, heads * size, layers, bias=bias),
        *norm("attention.norms", size, 2 * layers, bias=False),
        *matrix("mlp.up", 2 * inner, width, layers, bias=False),
        *matrix("mlp.down", width, inner, layers, bias=False),
        *norm("norms", width, 4 * layers, bias=False),
        *matrix("projector", hidden, width, bias=False),
    ]


def gemma4_audio(a: Fields, _: Fields, hidden: int) -> list[Tensor]:
    """Sound: two convolutions, then layers of two MLPs around attention and a convolution."""
    width, layers = a.integer("hidden_size"), a.integer("num_hidden_layers")
    first, second = a.sequence("subsampling_conv_channels", length=2) or (0, 0)
    first, second = (a.checked(n, "subsampling_conv_channels") for n in (first, second))
    out, size = a.integer("output_proj_dims"), width // a.integer("num_attention_heads")
    return [
        *matrix("audio.conv_0", first, 9, bias=False),
        *matrix("audio.conv_1", second, 9 * first, bias=False),
        *norm("audio.conv_norms", first + second, bias=False),
        *matrix("audio.input", width, second * (_MEL_BINS // 4), bias=False),
        *matrix("audio.mlp.up", 4 * width, width, 2 * layers, bias=False),
        *matrix("audio.mlp.down", width, 4 * width, 2 * layers, bias=False),
        *matrix("audio.attention", 5 * width, width, layers, bias=False),
        *norm("audio.per_dim_scale", size, layers, bias=False),
        *matrix("audio.conv.start", 2 * width, width, layers, bias=False),
        *matrix("audio.conv.end", width, width, layers, bias=False),
        Tensor(VISION, "audio.conv.depthwise", width, a.integer("conv_kernel_size"), layers),
        *norm("audio.norms", width, 9 * layers, bias=False),
        *matrix("audio.output", out, width),
        *matrix("audio.projector", hidden, out, bias=False),
    ]
