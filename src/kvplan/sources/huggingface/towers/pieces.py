"""Pieces of a picture or sound tower: matrices, norms, layers."""

from __future__ import annotations

from kvplan.model.tensors import VISION, Tensor
from kvplan.sources.huggingface.fields import Fields


def matrix(
    name: str, rows: int, columns: int, copies: int = 1, *, bias: bool = True
) -> list[Tensor]:
    tensors = [Tensor(VISION, f"vision.{name}", rows, columns, copies)]
    if bias:
        tensors.append(Tensor(VISION, f"vision.{name}.bias", rows, copies=copies))
    return tensors


def norm(name: str, size: int, copies: int = 1, *, bias: bool = True) -> list[Tensor]:
    """A norm, with a bias where it is a layer norm."""
    return [Tensor(VISION, f"vision.{name}", size, copies=copies * (2 if bias else 1))]


def blocks(
    width: int, inner: int, layers: int, *, attn_bias: bool = True, o_bias: bool = True,
    mlp_bias: bool = True, norm_bias: bool = True, gated: bool = False, norms: int = 2,
) -> list[Tensor]:  # fmt: skip
    """Layers of attention and an MLP, with two norms each."""
    return [
        *matrix("attention.qkv", 3 * width, width, layers, bias=attn_bias),
        *matrix("attention.out", width, width, layers, bias=o_bias),
        *matrix("mlp.up", inner * (2 if gated else 1), width, layers, bias=mlp_bias),
        *matrix("mlp.down", width, inner, layers, bias=mlp_bias),
        *norm("norms", width, norms * layers, bias=norm_bias),
    ]


def patches(v: Fields) -> int:
    """Patches of one picture."""
    return (v.integer("image_size") // v.integer("patch_size")) ** 2
