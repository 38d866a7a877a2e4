"""Further models with a gated delta net: Qwen4-Exp, OLMo-Hybrid and Lara-Mini.

Source: transformers 5.24 ``modeling_qwen4_exp.py``, ``modeling_olmo_hybrid.py``,
``modeling_lara_mini.py`` and their configurations.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.errors import UnsupportedArchitecture
from kvplan.model.caches import Cache, Indexer
from kvplan.model.tensors import ATTENTION, NORMS, Tensor, attention, gated_mlp, norm
from kvplan.sources.huggingface.architecture import (
    FULL,
    SLIDING,
    Architecture,
    Weights,
    head_cache,
    kv_heads,
    local,
    vocabulary,
    window,
)
from kvplan.sources.huggingface.families.delta import (
    INDEXED,
    QWEN,
    Delta,
    gated_attention,
    interval_kinds,
    qwen_delta,
    shared_mixture,
)
from kvplan.sources.huggingface.families.recurrent import LINEAR, layer_kinds, projection
from kvplan.sources.huggingface.fields import Fields

DEFAULTS = {
    # configuration_qwen4_exp.py: Qwen4ExpTextConfig
    "qwen4_exp": {**QWEN, "hc_count": 4, "hc_lowrank": 320},
    # configuration_olmo_hybrid.py: OlmoHybridConfig
    "olmo_hybrid": {"linear_conv_kernel_dim": 4},
    # configuration_lara_mini.py: LaraMiniConfig
    "lara_mini": {
        "head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "sliding_window": 512,
    },
}


def lara_mini(c: Fields) -> Architecture:
    """Lara-Mini: delta nets, windows and full attention in turn; experts in every layer."""
    layers, hidden = c.layers(), c.hidden()
    cycle = (LINEAR, SLIDING, LINEAR, FULL, SLIDING)
    kinds = layer_kinds(c, layers, (LINEAR, FULL, SLIDING)) or [
        cycle[index % len(cycle)] for index in range(layers)
    ]
    delta = qwen_delta(c)
    by_kind: dict[str, tuple[Cache, ...]] = {LINEAR: (delta.state(c),)}
    for kind in (FULL, SLIDING):
        if kind in kinds:
            by_kind[kind] = (local(head_cache(c), kind, window(c), c.where),)

    def count() -> Weights:
        bias = c.boolean("attention_bias", default=False)
        attending = attention(
            hidden, c.heads(), kv_heads(c, c.heads()), c.head_size(),
            qkv_bias=bias, o_bias=bias, head_norms=True,
        )  # fmt: skip
        common = [
            *shared_mixture(c, hidden, c.integer("num_experts"), gated=False),
            *norm("input_layernorm", hidden),
            *norm("post_attention_layernorm", hidden),
        ]
        bodies = {LINEAR: delta.split_mixer(hidden), FULL: attending, SLIDING: attending}
        outside = (*vocabulary(c, tied_by_default=True), *norm("model.norm", hidden))
        return Weights([(*bodies[kind], *common) for kind in kinds], outside)

    return Architecture([by_kind[kind] for kind in kinds], count)


def olmo_hybrid(c: Fields) -> Architecture:
    """OLMo-Hybrid: sizes of the linear heads follow from the hidden size where not stated."""
    layers, hidden, heads = c.layers(), c.hidden(), c.heads()
    kinds = layer_kinds(c, layers, (LINEAR, FULL)) or _every_fourth(layers)
    key_heads = c.optional_integer("linear_num_key_heads") or heads
    key_size = c.optional_integer("linear_key_head_dim") or 3 * hidden // (4 * key_heads)
    delta = Delta(
        key_heads,
        key_size,
        c.optional_integer("linear_num_value_heads") or heads,
        c.optional_integer("linear_value_head_dim") or 2 * key_size,
        c.integer("linear_conv_kernel_dim"),
    )
    by_kind: dict[str, tuple[Cache, ...]] = {LINEAR: (delta.state(c),), FULL: (head_cache(c),)}

    def count() -> Weights:
        kept, size = kv_heads(c, heads), c.head_size()
        bias = c.boolean("attention_bias", default=False)
        feed = gated_mlp(hidden, c.integer("intermediate_size"))
        attending = [
            *attention(hidden, heads, kept, size, qkv_bias=bias, o_bias=bias),
            Tensor(NORMS, "self_attn.q_norm", heads * size),
            Tensor(NORMS, "self_attn.k_norm", kept * size),
            *norm("post_attention_layernorm", hidden),
            *norm("post_feedforward_layernorm", hidden),
        ]
        mixing = [
            *delta.separate_mixer(hidden),
            *norm("input_layernorm", hidden),
            *norm("post_attention_layernorm", hidden),
        ]
        bodies = {LINEAR: mixing, FULL: attending}
        counted = [(*bodies[kind], *feed) for kind in kinds]
        return Weights(counted, (*vocabulary(c), *norm("model.norm", hidden)))

    return Architecture([by_kind[kind] for kind in kinds], count)


def _every_fourth(layers: int) -> Sequence[str]:
    """Attention in every fourth layer, and in the last one of a model too short for that."""
    kinds = [FULL if index % 4 == 3 else LINEAR for index in range(layers)]
    return kinds if FULL in kinds else [*kinds[:-1], FULL]


def qwen4_exp(c: Fields) -> Architecture:
    """Qwen4-Exp: attention reads what an indexer chooses; streams are mixed by hyper-connections.

    Layers with hashed n-gram embeddings (``ple_layer_ids``) keep further states and are refused.
    """
    layers, hidden = c.layers(), c.hidden()
    if c.sequence("ple_layer_ids"):
        raise UnsupportedArchitecture("ple_layer_ids", c.raw("ple_layer_ids"), where=c.where)
    kinds, delta = interval_kinds(c, layers, INDEXED), qwen_delta(c)
    by_kind: dict[str, tuple[Cache, ...]] = {LINEAR: (delta.state(c),)}
    if INDEXED in kinds:
        by_kind[INDEXED] = (head_cache(c), Indexer(c.integer("indexer_head_dim")))

    def count() -> Weights:
        size = c.integer("indexer_head_dim")
        index_rows = (c.integer("indexer_n_heads") + c.integer("indexer_kv_heads")) * size
        streams, rank = c.integer("hc_count"), c.integer("hc_lowrank")
        common = [
            *shared_mixture(c, hidden, c.integer("num_experts"), gated=True),
            *_gated_residual("attn_hyper_connection", hidden, streams, rank),
            *_gated_residual("mlp_hyper_connection", hidden, streams, rank),
        ]
        attending = [
            *gated_attention(c, hidden),
            Tensor(ATTENTION, "self_attn.indexer.index_qk_proj", index_rows, hidden),
            Tensor(NORMS, "self_attn.indexer.q_layernorm", size),
            Tensor(NORMS, "self_attn.indexer.k_layernorm", size),
        ]
        bodies = {LINEAR: delta.split_mixer(hidden), INDEXED: attending}
        mixer = _gated_residual("model.hyper_connection_mixer", hidden, streams, rank)
        # The last mixing injects nothing back.
        outside = (*vocabulary(c), *mixer[:-1])
        return Weights([(*bodies[kind], *common) for kind in kinds], outside)

    return Architecture([by_kind[kind] for kind in kinds], count)


def _gated_residual(name: str, hidden: int, streams: int, rank: int) -> list[Tensor]:
    wide = streams * hidden
    return [
        Tensor(NORMS, f"{name}.hc_norm", wide),
        *projection(f"{name}.input_mix_weight_down", rank, wide, 1),
        *projection(f"{name}.input_mix_weight_up", wide, rank, 1),
        *projection(f"{name}.block_inject_weight", streams, wide, 1),
    ]
