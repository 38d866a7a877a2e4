"""The tensors of a GGUF file by layer and part, each with the format it is stored in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kvplan.model.tensors import (
    ATTENTION,
    EMBEDDING,
    EXPERTS,
    HEAD,
    MIXER,
    MLP,
    NORMS,
    ROUTER,
    SHARED_EXPERTS,
    Tensor,
)
from kvplan.precision.format import Format
from kvplan.sources.gguf.header import TensorInfo

_OUTSIDE = {
    "token_embd": EMBEDDING, "per_layer_token_embd": EMBEDDING, "position_embd": EMBEDDING,
    "token_types": EMBEDDING, "output": HEAD,
}  # fmt: skip
_BUFFERS = ("rope_freqs", "rope_factors_long", "rope_factors_short")
"""Tables that a file stores and nobody trained."""


class Weights(NamedTuple):
    """The tensors that run, and what each is stored in."""

    layers: list[tuple[Tensor, ...]]
    outside: tuple[Tensor, ...]
    formats: dict[str, Format]
    """Full name, with the prefix `Model` gives a layer, → format."""
    left_out_bytes: int
    """Draft layers, which are not loaded unless they are asked for."""


def read_weights(
    tensors: Mapping[str, TensorInfo],
    num_layers: int,
    heads: int,
    kv_heads: int,
    experts_per_token: int | None,
) -> Weights:
    """Sort the tensors of ``blk.N.`` into layers and the others outside them."""
    layers: list[list[Tensor]] = [[] for _ in range(num_layers)]
    outside: list[Tensor] = []
    formats: dict[str, Format] = {}
    left_out = 0
    for full_name, info in tensors.items():
        block, name = _block(full_name)
        if block is not None and block >= num_layers:
            left_out += info.size_bytes
            continue
        tensor = _tensor(name, info, block is None, heads, kv_heads, experts_per_token)
        if block is None:
            outside.append(tensor)
            formats[name] = info.form
        else:
            layers[block].append(tensor)
            formats[f"model.layers.{block}.{name}"] = info.form
    return Weights([tuple(layer) for layer in layers], tuple(outside), formats, left_out)


def most_bytes(tensors: Iterable[TensorInfo]) -> Format | None:
    """The format that most bytes are stored in."""
    total: dict[Format, int] = {}
    for info in tensors:
        total[info.form] = total.get(info.form, 0) + info.size_bytes
    return max(total, key=lambda form: total[form]) if total else None


def _block(name: str) -> tuple[int | None, str]:
    """``blk.3.attn_q.weight`` is ``attn_q.weight`` of layer 3."""
    head, _, rest = name.partition(".")
    number, _, tail = rest.partition(".")
    if head == "blk" and number.isascii() and number.isdecimal() and len(number) <= 6 and tail:
        return int(number), tail
    return None, name


def _tensor(
    name: str,
    info: TensorInfo,
    is_outside: bool,
    heads: int,
    kv_heads: int,
    active: int | None,
) -> Tensor:
    columns, *more = info.shape
    rows = more[0] if more else 1
    copies = 1
    for length in more[1:]:
        copies *= length
    if not more:  # a vector: its elements are its rows, as in every other source
        rows, columns = columns, 1
    stem = name.split(".")[0]
    part = _OUTSIDE.get(stem, NORMS) if is_outside else _part(stem)
    if part == EXPERTS:
        used = copies if active is None else min(active, copies)
        by_column = stem.startswith("ffn_down")
        units = columns if by_column else rows
        return Tensor(part, name, rows, columns, copies, units, by_column, used)
    rows *= copies  # per-head matrices of latent attention: heads one under the other
    units, by_column = _split(stem, part, rows, columns, heads, kv_heads)
    return Tensor(part, name, rows, columns, 1, units, by_column, trained=stem not in _BUFFERS)


def _part(stem: str) -> str:
    if stem.endswith("_exps"):
        return EXPERTS
    if stem.endswith("_shexp"):
        return SHARED_EXPERTS
    if "norm" in stem:
        return NORMS
    if stem in {"ffn_gate_inp", "exp_probs_b", "ffn_gate_inp_shexp"}:
        return ROUTER
    if stem.startswith("ffn_"):
        return MLP
    return ATTENTION if stem.startswith(("attn", "indexer")) else MIXER


def _split(
    stem: str, part: str, rows: int, columns: int, heads: int, kv_heads: int
) -> tuple[int, bool]:
    """Pieces that tensor parallelism can split a tensor into, and whether along its columns."""
    if part in {EMBEDDING, HEAD}:
        return rows, False
    if stem in {"attn_output", "ssm_out"}:
        return max(1, heads), True
    if stem in {"attn_q", "attn_q_b", "attn_kv_b", "attn_k_b", "attn_v_b", "attn_gate"}:
        return max(1, heads), False
    if stem in {"attn_k", "attn_v", "attn_qkv"}:
        return max(1, kv_heads), False
    if part in {MLP, SHARED_EXPERTS}:
        return (columns, True) if stem.startswith("ffn_down") else (rows, False)
    return 1, False
