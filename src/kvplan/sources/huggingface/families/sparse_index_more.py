"""Sparse attention with shapes of its own: A.X K2 and dots3-note.

Source: transformers ``modeling_axk2.py``, ``modeling_dots3_note.py`` and their configurations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kvplan.errors import UnsupportedArchitecture
from kvplan.model.caches import Cache, Compressed, Indexer, Latent
from kvplan.model.tensors import ATTENTION, MIXER, Tensor, latent_attention, norm
from kvplan.sources.huggingface.architecture import SLIDING, Architecture, Weights, window
from kvplan.sources.huggingface.families.blocks import (
    PRE_NORMS,
    after_first,
    by_kind,
    expect,
    experts,
    layer_mlp,
    mlp_kinds,
    norms,
    outside,
)
from kvplan.sources.huggingface.families.deepseek import latent_cache
from kvplan.sources.huggingface.families.routed import active, deepseek_experts
from kvplan.sources.huggingface.families.sparse_index import INDEXED, check_indexed, index_weights
from kvplan.sources.huggingface.fields import Fields

DEFAULTS = {
    # configuration_axk2.py
    "axk2": {"index_head_dim": 128, "index_n_heads": 16, "gated_norm_rank": 16},
    # configuration_dots3_note.py: Dots3NoteTextConfig
    "dots3_note": {"index_head_dim": 128, "index_n_heads": 64, "sliding_window": 512},
}


def axk2(c: Fields) -> Architecture:
    """A.X K2: an index in every layer, queries and gates from one projection, gated norms."""
    check_indexed(c)
    layers = c.layers()
    latent = latent_cache(c)
    index = Indexer(c.integer("index_head_dim"))

    def is_sparse() -> list[bool]:
        every = c.optional_integer("moe_layer_freq") or 1
        late = after_first(c, layers, default=1)
        return [is_late and number % every == 0 for number, is_late in enumerate(late)]

    def count() -> Weights:
        hidden, heads, rank = c.hidden(), c.heads(), c.integer("q_lora_rank")
        value, low = c.integer("v_head_dim"), c.integer("gated_norm_rank")
        query = c.integer("qk_nope_head_dim") + latent.qk_rope_head_dim
        attention = latent_attention(
            hidden, heads, rank, latent.kv_lora_rank, c.integer("qk_nope_head_dim"),
            latent.qk_rope_head_dim, value, bias=c.boolean("attention_bias", default=False),
        )  # fmt: skip
        common = [
            *(t for t in attention if t.name != "self_attn.q_b_proj"),
            Tensor(
                ATTENTION, "self_attn.q_gate_proj", heads * (query + value), 2 * rank, units=heads
            ),
            *index_weights(c, rank),
            *norms(PRE_NORMS, hidden),
        ]

        def layer(has_experts: bool) -> Sequence[Tensor]:
            gates = 2 if has_experts else 1
            return [
                *common,
                Tensor(MIXER, "norm.mlp.fc1", low, hidden, copies=gates),
                Tensor(MIXER, "norm.mlp.fc2", hidden, low, copies=gates),
                *(deepseek_experts(c) if has_experts else layer_mlp(c)),
            ]

        return Weights(by_kind(mlp_kinds(c, layers, is_sparse), layer), outside(c))

    return Architecture([(latent, index)] * layers, count)


class Shape(NamedTuple):
    """Latent attention of one type of layer."""

    heads: int
    q_lora_rank: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int


_SWA = {
    "num_attention_heads": 64,
    "q_lora_rank": 1024,
    "kv_lora_rank": 1024,
    "qk_nope_head_dim": 192,
    "v_head_dim": 128,
}
"""Sizes of window layers where no ``swa_*`` key states them. Source: ``Dots3NoteTextConfig``."""


def dots3_note(c: Fields) -> Architecture:
    """dots3-note: window layers keep a wider latent vector than the indexed ones."""
    layers, span = c.layers(), window(c)
    kinds = _dots3_kinds(c, layers)
    wide = _dots3_shape(c)
    narrow = _dots3_window_shape(c, kinds)
    latent = Latent(wide.kv_lora_rank, wide.qk_rope_head_dim)
    recent = Compressed(
        narrow.kv_lora_rank + narrow.qk_rope_head_dim, narrow.qk_rope_head_dim, 1, span
    )
    indexed: tuple[Cache, ...] = (latent, Indexer(c.integer("index_head_dim")))
    caches: list[tuple[Cache, ...]] = [(recent,) if kind == SLIDING else indexed for kind in kinds]
    expect(c, "mlp_bias", False)

    def count() -> Weights:
        hidden, bias = c.hidden(), c.boolean("attention_bias", default=False)
        sparse = mlp_kinds(c, layers, lambda: after_first(c, layers, default=1))

        def layer(key: tuple[str, bool]) -> Sequence[Tensor]:
            kind, has_experts = key
            shape = narrow if kind == SLIDING else wide
            return [
                *latent_attention(hidden, *shape, bias=bias),
                *norm("self_attn.k_rope_only_layernorm", shape.qk_rope_head_dim),
                Tensor(ATTENTION, "self_attn.g_proj", shape.heads, hidden, units=shape.heads),
                *(index_weights(c, shape.q_lora_rank) if kind != SLIDING else ()),
                *norms(PRE_NORMS, hidden),
                *(_dots3_experts(c) if has_experts else layer_mlp(c)),
            ]

        keys = list(zip(kinds, sparse, strict=True))
        return Weights(by_kind(keys, layer), outside(c))

    return Architecture(caches, count)


def _dots3_kinds(c: Fields, layers: int) -> list[str]:
    kinds = c.sequence("layer_types", length=layers)
    if kinds is None:
        return [INDEXED if i < 2 or i % 4 == 1 else SLIDING for i in range(layers)]
    for index, kind in enumerate(kinds):
        if kind not in (INDEXED, SLIDING):
            raise UnsupportedArchitecture(
                f"layer_types[{index}]", kind, where=c.where, known=(INDEXED, SLIDING)
            )
    return kinds


def _dots3_shape(c: Fields) -> Shape:
    return Shape(
        c.heads(),
        c.integer("q_lora_rank"),
        c.integer("kv_lora_rank"),
        c.integer("qk_nope_head_dim"),
        c.integer("qk_rope_head_dim", minimum=0),
        c.integer("v_head_dim"),
    )


def _dots3_window_shape(c: Fields, kinds: Sequence[str]) -> Shape:
    """Sizes of the window layers: ``per_layer_config`` of a converted file, or ``swa_*`` keys."""
    listed = c.raw("per_layer_config")
    if isinstance(listed, dict):
        own = {int(key): value for key, value in listed.items() if key.isdigit()}
        written = [own.get(i) for i, kind in enumerate(kinds) if kind == SLIDING]
        first = written[0] if written else None
        if not isinstance(first, dict) or any(item != first for item in written):
            raise UnsupportedArchitecture("per_layer_config", listed, where=c.where)
        return _dots3_shape(Fields({**c.data, **first}, c.where))
    swa = {key: c.optional_integer(f"swa_{key}") or value for key, value in _SWA.items()}
    head = c.optional_integer("swa_head_dim") or 256
    rope = c.optional_integer("swa_qk_rope_head_dim") or head - swa["qk_nope_head_dim"]
    return Shape(
        swa["num_attention_heads"],
        swa["q_lora_rank"],
        swa["kv_lora_rank"],
        swa["qk_nope_head_dim"],
        rope,
        swa["v_head_dim"],
    )


def _dots3_experts(c: Fields) -> Sequence[Tensor]:
    shared = c.integer("moe_shared_expert_intermediate_size", "shared_experts_intermediate_size")
    return experts(
        c.hidden(),
        c.integer("n_routed_experts"),
        c.integer("moe_intermediate_size"),
        active(c),
        shared=shared * (c.optional_integer("n_shared_experts", minimum=0) or 0),
        correction="mlp.gate.e_score_correction_bias",
    )
