"""LFM2 and LFM3: short convolutions in most layers, attention in the others.

A convolution layer keeps its last few inputs and nothing else.

Source: transformers 5.24 ``modeling_lfm2.py``, ``modeling_lfm2_moe.py``, ``modeling_lfm3.py`` and
their configurations; vLLM 0.33 ``MambaStateShapeCalculator.short_conv_state_shape``.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.errors import UnsupportedArchitecture
from kvplan.model.caches import Cache, FullAttention, Recurrent
from kvplan.model.tensors import (
    ATTENTION,
    NORMS,
    ROUTER,
    Tensor,
    attention,
    embedding,
    gated_mlp,
    head,
    norm,
    router,
)
from kvplan.sources.huggingface.architecture import (
    FULL,
    SLIDING,
    Architecture,
    Weights,
    head_cache,
    kv_heads,
    local,
    window,
)
from kvplan.sources.huggingface.families.mixture import experts_of
from kvplan.sources.huggingface.families.recurrent import (
    CONV,
    layer_kinds,
    model_bytes,
    number,
    projection,
    vector,
)
from kvplan.sources.huggingface.fields import Fields, MissingField
from kvplan.units import round_up

DEFAULTS = {
    # configuration_lfm2.py: Lfm2Config; configuration_lfm2_moe.py: Lfm2MoeConfig
    "lfm2": {"conv_L_cache": 3, "block_multiple_of": 256},
    "lfm2_moe": {"conv_L_cache": 3, "num_dense_layers": 2, "use_expert_bias": True},
    # configuration_lfm3.py: Lfm3Config
    "lfm3": {
        "conv_L_cache": 7,
        "head_dim": 128,
        "sliding_window": 256,
        "use_sandwich_norm": True,
        "use_attention_gate": True,
    },
}

_NAMES = ("q_proj", "k_proj", "v_proj", "out_proj")


def lfm2(c: Fields) -> Architecture:
    """LFM2: the MLP's stated width is brought to two thirds and a multiple of 256."""
    layers, hidden = c.layers(), c.hidden()
    kinds = layer_kinds(c, layers, (CONV, FULL))
    if kinds is None:
        listed = c.sequence("full_attn_idxs")
        attends = set(range(layers)) if listed is None else set(listed)
        kinds = [FULL if index in attends else CONV for index in range(layers)]

    def count() -> Weights:
        feed = gated_mlp(hidden, _adjusted_width(c), prefix="feed_forward")
        bodies = _bodies(c, hidden)
        counted = [(*bodies[kind], *feed) for kind in kinds]
        return Weights(counted, _outside(c, hidden))

    return Architecture(_caches(c, hidden, kinds), count)


def lfm2_moe(c: Fields) -> Architecture:
    """LFM2 with experts after the first ``num_dense_layers``."""
    layers, hidden = c.layers(), c.hidden()
    kinds = layer_kinds(c, layers, (CONV, FULL))
    if kinds is None:
        raise MissingField(c.where, "layer_types")

    def count() -> Weights:
        experts = c.integer("num_experts")
        dense = gated_mlp(hidden, c.integer("intermediate_size"), prefix="feed_forward")
        sparse = [
            *experts_of(
                c, hidden, experts, c.integer("moe_intermediate_size"), "feed_forward.experts.*"
            ),
            *router(hidden, experts, prefix="feed_forward.gate"),
        ]
        if c.boolean("use_expert_bias"):
            sparse.append(Tensor(ROUTER, "feed_forward.expert_bias", experts, trained=False))
        first = c.integer("num_dense_layers", minimum=0)
        bodies = _bodies(c, hidden)
        counted = [
            (*bodies[kind], *(dense if index < first else sparse))
            for index, kind in enumerate(kinds)
        ]
        return Weights(counted, _outside(c, hidden))

    return Architecture(_caches(c, hidden, kinds), count)


def lfm3(c: Fields) -> Architecture:
    """LFM3: windows between the full layers, a gate on each head and norms after each block."""
    layers, hidden = c.layers(), c.hidden()
    kinds = layer_kinds(c, layers, (CONV, FULL, SLIDING))
    if kinds is None:
        kinds = [
            FULL if index % 4 == 2 else SLIDING if index % 4 == 0 and index else CONV
            for index in range(layers)
        ]

    def count() -> Weights:
        bias = c.boolean("attention_bias", default=False)
        extra: list[Tensor] = []
        if c.boolean("use_sandwich_norm"):
            extra = [*norm("post_operator_norm", hidden), *norm("post_ffn_norm", hidden)]
        gate: list[Tensor] = []
        if c.boolean("use_attention_gate"):
            gate = [Tensor(ATTENTION, "self_attn.g_proj", c.heads(), hidden, units=c.heads())]
        bodies = _bodies(c, hidden, bias=bias)
        bodies[FULL] = bodies[SLIDING] = [*bodies[FULL], *gate]
        feed = gated_mlp(hidden, c.integer("intermediate_size"), prefix="feed_forward")
        counted = [(*bodies[kind], *feed, *extra) for kind in kinds]
        return Weights(counted, _outside(c, hidden))

    return Architecture(_caches(c, hidden, kinds), count)


def _caches(c: Fields, hidden: int, kinds: Sequence[str]) -> list[tuple[Cache, ...]]:
    stated = c.optional_integer("conv_dim")
    if stated not in {None, hidden}:
        raise UnsupportedArchitecture("conv_dim", stated, where=c.where)
    state = Recurrent("short_conv", hidden, c.integer("conv_L_cache"), 0, hidden, model_bytes(c))
    full: FullAttention | None = head_cache(c) if set(kinds) != {CONV} else None
    by_kind: dict[str, tuple[Cache, ...]] = {CONV: (state,)}
    if full is not None:
        by_kind[FULL] = (full,)
        by_kind[SLIDING] = (local(full, SLIDING, window(c), c.where),)
    return [by_kind[kind] for kind in kinds]


def _bodies(c: Fields, hidden: int, *, bias: bool = False) -> dict[str, list[Tensor]]:
    """A convolution layer and an attention layer, each with the layer's two norms."""
    norms = [*norm("operator_norm", hidden), *norm("ffn_norm", hidden)]
    conv_bias = c.boolean("conv_bias", default=False)
    conv = [
        *projection("conv.in_proj", 3 * hidden, hidden, hidden, bias=conv_bias),
        *projection("conv.out_proj", hidden, hidden, hidden, bias=conv_bias, by_column=True),
        vector("conv.conv", hidden * c.integer("conv_L_cache"), hidden),
        *norms,
    ]
    if conv_bias:
        conv.append(vector("conv.conv.bias", hidden, hidden))
    size = c.head_size()
    attending = [
        *attention(
            hidden, c.heads(), kv_heads(c, c.heads()), size, qkv_bias=bias, o_bias=bias,
            names=_NAMES,
        ),
        Tensor(NORMS, "self_attn.q_layernorm", size),
        Tensor(NORMS, "self_attn.k_layernorm", size),
        *norms,
    ]  # fmt: skip
    return {CONV: conv, FULL: attending}


def _adjusted_width(c: Fields) -> int:
    """LFM2's MLP width. Source: ``modeling_lfm2.py``, ``Lfm2MLP``.

    Published files say whether the width is still to be adjusted; in a shortened one it is taken
    as final, which gives LFM2-2.6B its published 2,569,272,320 parameters.
    """
    width = c.integer("block_ff_dim", "intermediate_size")
    if c.boolean("block_auto_adjust_ff_dim", default=False):
        width = int(number(c, "block_ffn_dim_multiplier", 1.0) * int(2 * width / 3))
        width = round_up(width, c.integer("block_multiple_of"))
    return width


def _outside(c: Fields, hidden: int) -> tuple[Tensor, ...]:
    """The embedding, which serves as the head unless ``tie_embedding`` says otherwise."""
    vocab = c.vocab()
    tensors = [embedding(vocab, hidden), *norm("model.embedding_norm", hidden)]
    if not c.boolean("tie_embedding", "tie_word_embeddings", default=True):
        tensors.append(head(vocab, hidden))
    return tuple(tensors)
