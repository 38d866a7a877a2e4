"""Towers of other kinds: Pixtral, Qwen, GLM, Llama and InternVL.

Source: the ``modeling_*.py`` and ``configuration_*.py`` of each in transformers.
"""

from __future__ import annotations

from kvplan.errors import SourceError
from kvplan.model.tensors import VISION, Tensor
from kvplan.sources.huggingface.fields import Fields
from kvplan.sources.huggingface.towers.pieces import blocks, matrix, norm, patches

PIXTRAL = {
    "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_channels": 3,
    "patch_size": 16, "num_attention_heads": 16,
}  # fmt: skip
QWEN2 = {
    "depth": 32, "embed_dim": 1280, "hidden_size": 3584, "mlp_ratio": 4, "in_channels": 3,
    "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2,
}  # fmt: skip
QWEN2_5 = {**QWEN2, "intermediate_size": 3420, "out_hidden_size": 3584}
QWEN3 = {
    **QWEN2, "depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "patch_size": 16,
    "out_hidden_size": 3584, "num_position_embeddings": 2304,
}  # fmt: skip
QWEN3_DEEP = {**QWEN3, "deepstack_visual_indexes": [8, 16, 24]}
GLM4V = {
    **QWEN2, "depth": 24, "hidden_size": 1536, "intermediate_size": 13696,
    "out_hidden_size": 4096, "image_size": 336,
}  # fmt: skip
KIMI = {
    "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "patch_size": 14,
    "pos_emb_height": 64, "pos_emb_width": 64, "merge_kernel_size": [2, 2],
}  # fmt: skip
MINIMAX_M3 = {
    "hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32, "num_channels": 3,
    "patch_size": 14, "temporal_patch_size": 2, "spatial_merge_size": 2,
}  # fmt: skip
MLLAMA = {
    "hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32, "num_channels": 3,
    "num_global_layers": 8, "image_size": 448, "patch_size": 14, "max_num_tiles": 4,
    "vision_output_dim": 7680,
}  # fmt: skip
INTERNVL = {"num_channels": 3}
LLAMA4 = {
    "hidden_size": 768, "intermediate_size": 5632, "num_hidden_layers": 34, "num_channels": 3,
    "image_size": 448, "patch_size": 14, "vision_output_dim": 7680, "projector_input_dim": 4096,
    "projector_output_dim": 4096,
}  # fmt: skip


def pixtral(v: Fields, outer: Fields, hidden: int) -> list[Tensor]:
    width, inner = v.integer("hidden_size"), v.integer("intermediate_size")
    merge = outer.optional_integer("spatial_merge_size") or 2
    listed = outer.raw("vision_feature_layer")
    inputs = width * (len(listed) if isinstance(listed, list) else 1)
    bias = outer.boolean("multimodal_projector_bias", default=False)
    pixels = v.integer("num_channels") * v.integer("patch_size") ** 2
    return [
        *matrix("patch_conv", width, pixels, bias=False),
        *norm("ln_pre", width, bias=False),
        *blocks(
            width, inner, v.integer("num_hidden_layers"),
            attn_bias=False, o_bias=False, mlp_bias=False, norm_bias=False, gated=True,
        ),
        *norm("projector.norm", width, bias=False),
        *matrix("projector.merging_layer", width, width * merge * merge, bias=False),
        *matrix("projector.linear_1", hidden, inputs, bias=bias),
        *matrix("projector.linear_2", hidden, hidden, bias=bias),
    ]  # fmt: skip


def _pixels(v: Fields) -> int:
    channels = v.optional_integer("in_channels", "in_chans", "num_channels") or 3
    return channels * v.integer("temporal_patch_size") * v.integer("patch_size") ** 2


def _merger(name: str, inputs: int, outputs: int, copies: int = 1) -> list[Tensor]:
    return [
        *matrix(f"{name}.fc1", inputs, inputs, copies),
        *matrix(f"{name}.fc2", outputs, inputs, copies),
    ]


def qwen2_vl(v: Fields, *_: object) -> list[Tensor]:
    width, merge = v.integer("embed_dim"), v.integer("spatial_merge_size") ** 2
    return [
        *matrix("patch_embed", width, _pixels(v), bias=False),
        *blocks(width, width * v.integer("mlp_ratio"), v.integer("depth")),
        *norm("merger.ln_q", width),
        *_merger("merger", width * merge, v.integer("hidden_size")),
    ]


def qwen2_5_vl(v: Fields, *_: object) -> list[Tensor]:
    width, merge = v.integer("hidden_size"), v.integer("spatial_merge_size") ** 2
    inner, layers = v.integer("intermediate_size"), v.integer("depth")
    return [
        *matrix("patch_embed", width, _pixels(v), bias=False),
        *blocks(width, inner, layers, norm_bias=False, gated=True),
        *norm("merger.ln_q", width, bias=False),
        *_merger("merger", width * merge, v.integer("out_hidden_size")),
    ]


def qwen3_vl(v: Fields, *_: object) -> list[Tensor]:
    width, merge = v.integer("hidden_size"), v.integer("spatial_merge_size") ** 2
    out = v.integer("out_hidden_size")
    deep = v.sequence("deepstack_visual_indexes")
    count = 0 if deep is None else len(deep)
    tensors = [
        *matrix("patch_embed", width, _pixels(v)),
        *matrix("pos_embed", v.integer("num_position_embeddings"), width, bias=False),
        *blocks(width, v.integer("intermediate_size"), v.integer("depth")),
        *norm("merger.norm", width),
        *_merger("merger", width * merge, out),
    ]
    if count:
        tensors += _merger("deepstack", width * merge, out, count)
        tensors += norm("deepstack.norm", width * merge, count)
    return tensors


def glm4v(v: Fields, *_: object) -> list[Tensor]:
    width, out, inner = (
        v.integer(key) for key in ("hidden_size", "out_hidden_size", "intermediate_size")
    )
    return [
        *matrix("patch_embed", width, _pixels(v)),
        *matrix("positions", patches(v), width, bias=False),
        *blocks(
            width, out, v.integer("depth"),
            attn_bias=v.boolean("attention_bias", default=False), o_bias=False, mlp_bias=False,
            norm_bias=False, gated=True,
        ),
        *matrix("merger.proj", out, out, bias=False),
        *norm("merger.norm", out),
        *matrix("merger.mlp", 3 * inner, out, bias=False),
        *norm("layernorms", width, 2, bias=False),
        *matrix("downsample", out, width * v.integer("spatial_merge_size") ** 2),
    ]  # fmt: skip


def mllama(v: Fields, _: Fields, hidden: int) -> list[Tensor]:
    width, inner = v.integer("hidden_size"), v.integer("intermediate_size")
    tiles, tokens = v.integer("max_num_tiles"), patches(v) + 1
    ratios = v.sequence("supported_aspect_ratios")
    # every pair of rows and columns of at most that many tiles, and one for no picture
    shapes = 1 + (
        sum(tiles // rows for rows in range(1, tiles + 1)) if ratios is None else len(ratios)
    )
    deep = v.integer("num_global_layers")
    pixels = v.integer("num_channels") * v.integer("patch_size") ** 2
    layers = v.integer("num_hidden_layers") + deep
    return [
        *matrix("patch_embedding", width, pixels, bias=False),
        Tensor(VISION, "vision.class_embedding", width),
        *matrix("positions", tokens, width, bias=False),
        *matrix("tile_positions", shapes, tiles * tokens * width, bias=False),
        *matrix("tile_embeddings", shapes, tiles * width, 2, bias=False),
        Tensor(VISION, "vision.gates", 1, copies=3 + 2 * deep),
        *norm("layernorms", width, 2),
        *blocks(width, inner, layers, attn_bias=False, o_bias=False),
        *matrix("projector", hidden, v.integer("vision_output_dim")),
    ]


def llama4(v: Fields, _: Fields, hidden: int) -> list[Tensor]:
    width, inner = v.integer("hidden_size"), v.integer("intermediate_size")
    pixels = v.integer("num_channels") * v.integer("patch_size") ** 2
    given, made = v.integer("projector_input_dim"), v.integer("projector_output_dim")
    return [
        *matrix("patch_embedding", width, pixels, bias=False),
        Tensor(VISION, "vision.class_embedding", width),
        *matrix("positions", patches(v) + 1, width, bias=False),
        *norm("layernorms", width, 2),
        *blocks(width, inner, v.integer("num_hidden_layers")),
        *matrix("adapter.fc1", given, inner, bias=False),
        *matrix("adapter.fc2", made, made, bias=False),
        *matrix("projector", hidden, v.integer("vision_output_dim"), bias=False),
    ]


def internvl(v: Fields, outer: Fields, hidden: int) -> list[Tensor]:
    width = v.integer("hidden_size")
    side, patch = (_side(v, key) for key in ("image_size", "patch_size"))
    inputs = width * 4  # the class default: downsample_ratio 0.5 joins four patches
    if outer.raw("downsample_ratio") not in (None, 0.5) or v.raw("use_qk_norm"):
        raise SourceError(f"{v.where}: a tower kvplan does not know")
    bias = v.boolean("attention_bias", default=False)
    layers = v.integer("num_hidden_layers")
    tensors = [
        *matrix("patch_embedding", width, v.integer("num_channels") * patch * patch),
        Tensor(VISION, "vision.cls_token", width),
        *matrix("positions", (side // patch) ** 2 + 1, width, bias=False),
        *blocks(width, v.integer("intermediate_size"), layers, attn_bias=bias),
        Tensor(VISION, "vision.lambda", width, copies=2 * layers),
        *norm("projector.layer_norm", inputs),
        *matrix("projector.linear_1", hidden, inputs),
        *matrix("projector.linear_2", hidden, hidden),
    ]
    if v.text("norm_type") == "rms_norm":
        raise SourceError(f"{v.where}: norm_type = 'rms_norm' is not a tower kvplan knows")
    return tensors


def _side(v: Fields, key: str) -> int:
    value = v.raw(key)
    return v.checked(value[0] if isinstance(value, list) and value else value, key)


def kimi_k25(v: Fields, _: Fields, hidden: int) -> list[Tensor]:
    """MoonViT of Kimi K2.5; remote-code files put ``vt_`` before the names."""
    width = v.integer("vt_hidden_size", "hidden_size")
    inner = v.integer("vt_intermediate_size", "intermediate_size")
    layers = v.integer("vt_num_hidden_layers", "num_hidden_layers")
    rows, columns = v.sequence("merge_kernel_size", length=2) or (2, 2)
    joined = width * v.checked(rows, "merge_kernel_size") * v.checked(columns, "merge_kernel_size")
    places = v.integer("init_pos_emb_height", "pos_emb_height") * v.integer(
        "init_pos_emb_width", "pos_emb_width"
    )
    return [
        *matrix("patch_embed", width, 3 * v.integer("patch_size") ** 2),
        *matrix("positions", places, width, bias=False),
        *blocks(width, inner, layers),
        *norm("layernorms", width, 2),
        *matrix("projector.linear_1", joined, joined),
        *matrix("projector.linear_2", hidden, joined),
    ]


def minimax_m3(v: Fields, outer: Fields, hidden: int) -> list[Tensor]:
    """MiniMax M3: a CLIP-like tower, a projector, and a second one over merged patches."""
    width, inner = v.integer("hidden_size"), v.integer("intermediate_size")
    between = outer.integer("projector_hidden_size")
    merged = hidden * v.integer("spatial_merge_size") ** 2
    return [
        *matrix("patch_embed", width, _pixels(v), bias=False),
        *norm("pre_layernorm", width),
        *blocks(width, inner, v.integer("num_hidden_layers")),
        *matrix("projector.linear_1", between, width),
        *matrix("projector.linear_2", hidden, between),
        *matrix("projector.merge_linear_1", between, merged),
        *matrix("projector.merge_linear_2", hidden, between),
    ]
