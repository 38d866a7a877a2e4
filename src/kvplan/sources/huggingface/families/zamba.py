"""Zamba and Zamba2: Mamba in every layer, one attention block of shared weights before some.

The block's weights exist once, its keys and values once for each layer that calls it. Its input
is the hidden state beside the embedding, so its heads span twice the hidden size.

Source: transformers 5.24 ``modeling_zamba.py``, ``modeling_zamba2.py`` and their configurations.
"""

from __future__ import annotations

from kvplan.errors import MalformedFile, UnsupportedArchitecture
from kvplan.model.caches import Cache, FullAttention, Recurrent
from kvplan.model.tensors import ATTENTION, MIXER, MLP, Tensor, gated_mlp, norm
from kvplan.sources.huggingface.architecture import Architecture, Weights, kv_heads, vocabulary
from kvplan.sources.huggingface.families.recurrent import (
    HYBRID,
    LINEAR,
    layer_kinds,
    mamba2_mixer,
    mamba2_state,
    model_bytes,
    projection,
    state_dtype,
    time_step_rank,
    vector,
)
from kvplan.sources.huggingface.fields import Fields, MissingField

DEFAULTS = {
    # configuration_zamba.py: ZambaConfig
    "zamba": {
        "mamba_expand": 2,
        "mamba_d_conv": 4,
        "mamba_d_state": 16,
        "n_mamba_heads": 2,
        "attn_layer_period": 6,
        "attn_layer_offset": 4,
    },
    # configuration_zamba2.py: Zamba2Config
    "zamba2": {
        "mamba_expand": 2,
        "mamba_d_conv": 4,
        "mamba_d_state": 64,
        "mamba_ngroups": 1,
        "n_mamba_heads": 8,
        "num_mem_blocks": 1,
        "adapter_rank": 128,
    },
}


def zamba(c: Fields) -> Architecture:
    """Zamba: Mamba split into a few heads with projections of their own."""
    layers, hidden = c.layers(), c.hidden()
    inner = c.integer("mamba_expand") * hidden
    state, kernel, parts = (
        c.integer("mamba_d_state"), c.integer("mamba_d_conv"), c.integer("n_mamba_heads"),
    )  # fmt: skip
    if inner % parts:
        raise MalformedFile(c.where, f"n_mamba_heads {parts} does not divide {inner}")
    size, stated = state_dtype(c)
    mixer = Recurrent(
        "mamba1", inner, kernel, inner * state, inner, model_bytes(c), size, stated
    )  # fmt: skip
    kinds = _kinds(c, layers)
    if kinds is None:
        period = c.integer("attn_layer_period")
        offset = c.integer("attn_layer_offset", minimum=0)
        kinds = [LINEAR, LINEAR, HYBRID] + [
            HYBRID if index % period == offset else LINEAR for index in range(layers - 3)
        ]
        kinds = kinds[:layers]
    wide = c.optional_integer("attention_hidden_size") or 2 * hidden
    heads = c.heads()
    head_size = c.optional_integer("attention_head_dim") or 2 * hidden // heads
    kept = kv_heads(c, heads)

    def count() -> Weights:
        rank = time_step_rank(c, "mamba_dt_rank", hidden)
        bias = c.boolean("mamba_proj_bias", default=False)
        linear = [
            *projection("mamba.in_proj", 2 * inner, hidden, inner, bias=bias),
            *projection("mamba.out_proj", hidden, inner, inner, bias=bias, by_column=True),
            vector("mamba.conv1d", inner * kernel, inner),
            vector("mamba.x_proj_weight", (rank + 2 * state) * inner, inner),
            vector("mamba.dt_proj_weight", inner * rank, inner),
            vector("mamba.dt_proj_bias", inner, inner),
            vector("mamba.A_log", inner * state, inner),
            vector("mamba.D", inner, inner),
            *norm("input_layernorm", hidden),
        ]
        if c.boolean("mamba_conv_bias", default=True):
            linear.append(vector("mamba.conv1d.bias", inner, inner))
        shared = [
            *_shared_attention(hidden, wide, heads, kept, head_size),
            *gated_mlp(hidden, c.integer("intermediate_size"), prefix="shared_transf.feed_forward"),
            *norm("shared_transf.input_layernorm", wide),
            *norm("shared_transf.pre_ff_layernorm", hidden),
        ]
        hybrid = (*linear, *projection("linear", hidden, hidden, 1))
        outside = [*_vocabulary(c), *norm("model.final_layernorm", hidden)]
        if HYBRID in kinds:
            outside += shared
        return Weights(
            [hybrid if kind == HYBRID else tuple(linear) for kind in kinds], tuple(outside)
        )

    return Architecture(_caches(kinds, mixer, FullAttention(kept, head_size, head_size)), count)


def zamba2(c: Fields) -> Architecture:
    """Zamba2: Mamba-2, a few shared blocks in turn, and adapters that tell their calls apart."""
    layers, hidden = c.layers(), c.hidden()
    inner, mamba_heads = c.integer("mamba_expand") * hidden, c.integer("n_mamba_heads")
    if inner % mamba_heads:
        raise MalformedFile(c.where, f"n_mamba_heads {mamba_heads} does not divide {inner}")
    mixer = mamba2_state(
        c, mamba_heads, inner // mamba_heads, c.integer("mamba_ngroups"),
        c.integer("mamba_d_state"), c.integer("mamba_d_conv"),
    )  # fmt: skip
    kinds = _kinds(c, layers)
    if kinds is None:
        raise MissingField(c.where, "layers_block_type")
    heads = c.heads()
    wide = c.optional_integer("attention_hidden_size") or 2 * hidden
    head_size = c.optional_integer("attention_head_dim") or 2 * hidden // heads
    kept = kv_heads(c, heads)

    def count() -> Weights:
        bias = c.boolean("add_bias_linear", default=False)
        calls, rank = kinds.count(HYBRID), c.integer("adapter_rank")
        linear = [
            *mamba2_mixer(hidden, mixer, inner, bias=bias, conv_bias=True, prefix="mamba"),
            *norm("input_layernorm", hidden),
        ]
        feed = c.optional_integer("intermediate_size") or 4 * hidden
        own = [
            *projection("linear", hidden, hidden, 1),
            *_adapter("feed_forward.gate_up_proj_adapter", hidden, rank, 2 * feed),
        ]
        if c.boolean("use_shared_attention_adapter", default=False):
            for name in ("q", "k", "v"):
                own += _adapter(f"self_attn.linear_{name}_adapter", wide, rank, wide)
        hybrid = (*linear, *own)
        block = [
            *_shared_attention(hidden, wide, heads, kept, head_size),
            Tensor(MLP, "shared.feed_forward.gate_up_proj", 2 * feed, hidden, units=feed),
            Tensor(MLP, "shared.feed_forward.down_proj", hidden, feed, units=feed, by_column=True),
            *norm("shared.input_layernorm", wide),
            *norm("shared.pre_ff_layernorm", hidden),
        ]
        if bias:
            block += [
                Tensor(MLP, "shared.feed_forward.gate_up_proj.bias", 2 * feed, units=feed),
                Tensor(MLP, "shared.feed_forward.down_proj.bias", hidden),
            ]
        blocks = min(calls, c.integer("num_mem_blocks"))
        outside = [*_vocabulary(c), *norm("model.final_layernorm", hidden)]
        outside += [tensor._replace(copies=blocks) for tensor in block if blocks]
        counted = [hybrid if kind == HYBRID else tuple(linear) for kind in kinds]
        return Weights(counted, tuple(outside))

    return Architecture(_caches(kinds, mixer, FullAttention(kept, head_size, head_size)), count)


def _vocabulary(c: Fields) -> list[Tensor]:
    """The embedding; untied, transformers would not share the attention blocks either."""
    if not c.boolean("tie_word_embeddings", default=True):
        raise UnsupportedArchitecture("tie_word_embeddings", False, where=c.where)
    return vocabulary(c, tied_by_default=True)


def _kinds(c: Fields, layers: int) -> list[str] | None:
    for key in ("layers_block_type", "layer_types"):
        kinds = layer_kinds(c, layers, (LINEAR, HYBRID), key=key)
        if kinds is not None:
            return kinds
    listed = c.sequence("hybrid_layer_ids")
    if listed is None:
        return None
    chosen = {c.checked(number, "hybrid_layer_ids", 0, layers - 1) for number in listed}
    return [HYBRID if index in chosen else LINEAR for index in range(layers)]


def _caches(kinds: list[str], mixer: Recurrent, full: FullAttention) -> list[tuple[Cache, ...]]:
    return [(full, mixer) if kind == HYBRID else (mixer,) for kind in kinds]


def _shared_attention(hidden: int, wide: int, heads: int, kept: int, size: int) -> list[Tensor]:
    """Projections from the hidden state beside the embedding, back to the hidden size."""
    prefix = "shared.self_attn"
    return [
        Tensor(ATTENTION, f"{prefix}.q_proj", heads * size, wide, units=heads),
        Tensor(ATTENTION, f"{prefix}.k_proj", kept * size, wide, units=kept),
        Tensor(ATTENTION, f"{prefix}.v_proj", kept * size, wide, units=kept),
        Tensor(ATTENTION, f"{prefix}.o_proj", hidden, heads * size, units=heads, by_column=True),
    ]


def _adapter(name: str, inputs: int, rank: int, outputs: int) -> list[Tensor]:
    """A low-rank pair that belongs to one call of a shared block."""
    return [
        Tensor(MIXER, f"{name}.0", rank, inputs),
        Tensor(MIXER, f"{name}.1", outputs, rank),
    ]
