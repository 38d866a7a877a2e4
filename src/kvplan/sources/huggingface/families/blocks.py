"""Pieces that many families are built from: projections, norms, experts, lists of layers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from kvplan.errors import UnsupportedArchitecture
from kvplan.model.tensors import (
    EXPERTS,
    HEAD,
    MLP,
    NORMS,
    ROUTER,
    SHARED_EXPERTS,
    Tensor,
    attention,
    embedding,
    gated_mlp,
    head,
    norm,
    plain_mlp,
    router,
)
from kvplan.sources.huggingface.architecture import FULL, SLIDING, kv_heads
from kvplan.sources.huggingface.fields import Fields

K = TypeVar("K", bound=Hashable)

PRE_NORMS = ("input_layernorm", "post_attention_layernorm")
"""Norms before attention and before the MLP (Llama)."""
POST_NORMS = ("post_attention_layernorm", "post_feedforward_layernorm")
"""Norms behind attention and behind the MLP (OLMo 2, EXAONE 4)."""
FOUR_NORMS = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)
"""Both (Gemma 2 and later)."""

SPARSE, DENSE = "sparse", "dense"
"""Entries of ``mlp_layer_types``."""


def expect(c: Fields, key: str, *values: object) -> None:
    """Refuse a stated value other than those that kvplan knows the meaning of."""
    if c.raw(key) is not None and c.raw(key) not in values:
        raise UnsupportedArchitecture(key, c.raw(key), where=c.where)


def projections(
    c: Fields,
    *,
    qkv_bias: bool = False,
    o_bias: bool = False,
    head_norms: bool = False,
    gated: bool = False,
    prefix: str = "self_attn",
) -> list[Tensor]:
    """The four projections of plain attention, from the usual fields."""
    heads = c.heads()
    return attention(
        c.hidden(), heads, kv_heads(c, heads), c.head_size(),
        qkv_bias=qkv_bias, o_bias=o_bias, head_norms=head_norms, gated=gated, prefix=prefix,
    )  # fmt: skip


def flat_norms(c: Fields) -> list[Tensor]:
    """Norms over all query heads together and all key heads together (OLMo 2, MiniMax M2)."""
    heads, size = c.heads(), c.head_size()
    return [
        *norm("self_attn.q_norm", heads * size),
        *norm("self_attn.k_norm", kv_heads(c, heads) * size),
    ]


def norms(names: Sequence[str], size: int, *, bias: bool = False) -> list[Tensor]:
    """Several norms of one size."""
    return [tensor for name in names for tensor in norm(name, size, bias=bias)]


def outside(
    c: Fields,
    *,
    tied: bool = False,
    final: str | None = "model.norm",
    norm_bias: bool = False,
    head_bias: bool = False,
    embed: str = "model.embed_tokens",
    more: Iterable[Tensor] = (),
) -> tuple[Tensor, ...]:
    """Embedding, final norm and head; ``tied`` is the class default of the config."""
    vocab, hidden = c.vocab(), c.hidden()
    tensors = [embedding(vocab, hidden, embed), *more]
    if final is not None:
        tensors += norm(final, hidden, bias=norm_bias)
    if not c.boolean("tie_word_embeddings", default=tied):
        tensors.append(head(vocab, hidden))
    if head_bias:
        tensors.append(Tensor(HEAD, "lm_head.bias", vocab, units=vocab))
    return tuple(tensors)


def by_kind(kinds: Sequence[K], build: Callable[[K], Sequence[Tensor]]) -> list[tuple[Tensor, ...]]:
    """The tensors of each layer, built once a distinct kind of layer."""
    built = {kind: tuple(build(kind)) for kind in dict.fromkeys(kinds)}
    return [built[kind] for kind in kinds]


def experts(
    hidden: int,
    count: int,
    inner: int,
    active: int | None,
    *,
    gate: str = "mlp.gate",
    prefix: str = "mlp.experts.*",
    shared: int = 0,
    shared_prefix: str = "mlp.shared_experts",
    shared_bias: bool = False,
    correction: str | None = None,
    correction_trained: bool = False,
) -> list[Tensor]:
    """Gated experts, their router, and a shared MLP of width ``shared``.

    ``correction`` names the router's correction bias, one number an expert: most classes store it
    as a buffer, some count it as a parameter.
    """
    tensors = [
        *gated_mlp(hidden, inner, part=EXPERTS, prefix=prefix, copies=count, active=active),
        *router(hidden, count, prefix=gate),
    ]
    if shared:
        tensors += gated_mlp(
            hidden, shared, part=SHARED_EXPERTS, prefix=shared_prefix, bias=shared_bias
        )
    if correction is not None:
        tensors.append(Tensor(ROUTER, correction, count, trained=correction_trained))
    return tensors


def mlp_kinds(c: Fields, layers: int, otherwise: Callable[[], Sequence[bool]]) -> list[bool]:
    """Which layers have experts: the config's ``mlp_layer_types``, else a family's own rule."""
    stated = c.sequence("mlp_layer_types", length=layers)
    if stated is None:
        return list(otherwise())
    for index, kind in enumerate(stated):
        if kind not in (SPARSE, DENSE):
            raise UnsupportedArchitecture(
                f"mlp_layer_types[{index}]", kind, where=c.where, known=(SPARSE, DENSE)
            )
    return [kind == SPARSE for kind in stated]


def after_first(c: Fields, layers: int, default: int = 0) -> list[bool]:
    """Experts from layer ``first_k_dense_replace`` on."""
    first = c.optional_integer("first_k_dense_replace", minimum=0)
    first = default if first is None else first
    return [index >= first for index in range(layers)]


def every_nth_full(layers: int, period: int) -> list[str]:
    """A window in every layer but each ``period``-th."""
    return [SLIDING if (index + 1) % period else FULL for index in range(layers)]


def first_of_four_full(layers: int) -> list[str]:
    """A window in every layer but 0, 4, 8 and so on."""
    return [SLIDING if index % 4 else FULL for index in range(layers)]


def layer_mlp(
    c: Fields, *, gated: bool = True, bias: bool = False, key: str = "intermediate_size"
) -> list[Tensor]:
    """The MLP of a dense layer."""
    width = c.integer(key)
    if gated:
        return gated_mlp(c.hidden(), width, bias=bias)
    return plain_mlp(c.hidden(), width, bias=bias, names=("up_proj", "down_proj"))


def vector(name: str, size: int, part: str = NORMS) -> Tensor:
    """A trained vector."""
    return Tensor(part, name, size)


def matrix(name: str, rows: int, columns: int, part: str = MLP) -> Tensor:
    """A matrix that every rank holds whole."""
    return Tensor(part, name, rows, columns)
