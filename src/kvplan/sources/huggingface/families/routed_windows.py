"""Mixtures of experts whose layers differ in attention: Llama 4, MiMo V2, MiniMax M3.

Source: transformers ``modeling_<model_type>.py`` and ``configuration_<model_type>.py``; vLLM
``model_executor/models/mimo_v2.py``, ``vllm/models/minimax_m3``.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.errors import UnsupportedArchitecture
from kvplan.model.caches import Cache, FullAttention, Indexer
from kvplan.model.tensors import ATTENTION, SHARED_EXPERTS, Tensor, attention, gated_mlp, norm
from kvplan.sources.huggingface.architecture import (
    CHUNKED,
    FULL,
    SLIDING,
    Architecture,
    Weights,
    head_cache,
    kv_heads,
    local,
    stated_layer_types,
    typed_caches,
    window,
)
from kvplan.sources.huggingface.families.blocks import (
    PRE_NORMS,
    by_kind,
    expect,
    experts,
    layer_mlp,
    mlp_kinds,
    norms,
    outside,
    projections,
)
from kvplan.sources.huggingface.families.dense import attention_bias
from kvplan.sources.huggingface.families.routed import active, deepseek_experts
from kvplan.sources.huggingface.fields import Fields

DEFAULTS = {
    # configuration_llama4.py: Llama4TextConfig. Published files leave the pattern out or empty.
    "llama4": {
        "attention_chunk_size": 8192,
        "head_dim": 128,
        "interleave_moe_layer_step": 1,
        "no_rope_layer_interval": 4,
    },
    # configuration_mimo_v2_flash.py
    "mimo_v2_flash": {"head_dim": 192, "v_head_dim": 128, "sliding_window": 129},
    # configuration_minimax_m3_vl.py: MiniMaxM3VLTextConfig
    "minimax_m3": {"head_dim": 128, "index_head_dim": 128, "index_n_heads": 4},
}


def llama4(c: Fields) -> Architecture:
    """Llama 4: chunks of 8,192 tokens in three of four layers, full layers without rotation.

    The full layers are those that ``no_rope_layers`` marks 0; an absent or empty list means every
    fourth. Experts are in every ``interleave_moe_layer_step``-th layer, beside one shared expert.
    """
    layers, cache = c.layers(), head_cache(c)
    kinds = stated_layer_types(c, layers)
    if kinds is None:
        every = c.integer("no_rope_layer_interval")
        rotated = c.sequence("no_rope_layers") or [(i + 1) % every != 0 for i in range(layers)]
        if len(rotated) != layers:
            raise UnsupportedArchitecture("no_rope_layers", rotated, where=c.where)
        kinds = [CHUNKED if has_rope else FULL for has_rope in rotated]
    chunk = c.optional_integer("attention_chunk_size", maximum=2**40)

    def count() -> Weights:
        hidden, bias = c.hidden(), attention_bias(c)
        common = [*projections(c, qkv_bias=bias, o_bias=bias), *norms(PRE_NORMS, hidden)]
        step = c.integer("interleave_moe_layer_step")
        listed = c.indices("moe_layers")
        sparse = set(range(step - 1, layers, step)) if listed is None else listed

        def layer(has_experts: bool) -> Sequence[Tensor]:
            if not has_experts:
                width = c.integer("intermediate_size_mlp")
                return [*common, *gated_mlp(hidden, width, prefix="feed_forward")]
            inner = c.integer("intermediate_size")
            return [
                *common,
                *experts(
                    hidden,
                    c.integer("num_local_experts"),
                    inner,
                    active(c),
                    gate="feed_forward.router",
                    prefix="feed_forward.experts",
                    shared=inner,
                    shared_prefix="feed_forward.shared_expert",
                ),
            ]

        return Weights(by_kind([i in sparse for i in range(layers)], layer), outside(c))

    return Architecture(typed_caches(c, cache, kinds, chunk), count)


def mimo_v2_flash(c: Fields) -> Architecture:
    """MiMo V2: keys wider than values, twice the key-value heads on window layers, sinks there.

    Published files mark window layers with 1 in ``hybrid_layer_pattern`` and give their heads in
    ``swa_*``; converted ones write ``layer_types`` and mean twice ``num_key_value_heads``.
    """
    layers, heads = c.layers(), c.heads()
    kinds = _mimo_kinds(c, layers)
    size, size_v = c.head_size(), c.integer("v_head_dim")
    kept = kv_heads(c, heads)
    swa_heads = c.optional_integer("swa_num_attention_heads") or heads
    swa_kept = c.optional_integer("swa_num_key_value_heads") or 2 * kept
    swa_size = c.optional_integer("swa_head_dim") or size
    swa_v = c.optional_integer("swa_v_head_dim") or size_v
    shapes = {
        FULL: (heads, FullAttention(kept, size, size_v)),
        SLIDING: (swa_heads, FullAttention(swa_kept, swa_size, swa_v)),
    }
    caches: list[tuple[Cache, ...]] = [
        (local(shapes[kind][1], kind, window(c), c.where),) for kind in kinds
    ]

    def count() -> Weights:
        hidden, bias = c.hidden(), attention_bias(c)
        sparse = mlp_kinds(c, layers, lambda: _mimo_sparse(c, layers))
        has_sinks = {
            FULL: c.boolean("add_full_attention_sink_bias", default=False),
            SLIDING: c.boolean("add_swa_attention_sink_bias", default=True),
        }

        def layer(kind: tuple[str, bool]) -> Sequence[Tensor]:
            own, cache = shapes[kind[0]]
            tensors = [
                *attention(
                    hidden, own, cache.num_kv_heads, cache.head_size,
                    head_size_v=cache.head_size_v, qkv_bias=bias,
                ),
                *norms(PRE_NORMS, hidden),
                *(deepseek_experts(c) if kind[1] else layer_mlp(c)),
            ]  # fmt: skip
            if has_sinks[kind[0]]:
                tensors.append(Tensor(ATTENTION, "self_attn.sinks", own, units=own))
            return tensors

        return Weights(by_kind(list(zip(kinds, sparse, strict=True)), layer), outside(c))

    return Architecture(caches, count)


def _mimo_kinds(c: Fields, layers: int) -> list[str]:
    pattern = c.sequence("hybrid_layer_pattern", length=layers)
    if pattern is None:
        return stated_layer_types(c, layers) or [
            FULL if i == 0 or (i + 1) % 6 == 0 else SLIDING for i in range(layers)
        ]
    for index, mark in enumerate(pattern):
        if mark not in (0, 1):
            raise UnsupportedArchitecture(f"hybrid_layer_pattern[{index}]", mark, where=c.where)
    return [SLIDING if mark else FULL for mark in pattern]


def _mimo_sparse(c: Fields, layers: int) -> list[bool]:
    marks = c.sequence("moe_layer_freq", length=layers)
    if marks is None:
        return [index > 0 for index in range(layers)]
    return [bool(mark) for mark in marks]


SPARSE_M3 = "minimax_m3_sparse"


def minimax_m3(c: Fields) -> Architecture:
    """MiniMax M3: plain attention, and on sparse layers an index of one key a token beside it.

    The index chooses which blocks of keys are read; all of them are stored. vLLM keeps its keys
    in the model's dtype, so they are no `Indexer` of 8 bits but a cache of keys alone.
    """
    expect(c, "attention_output_gate", False)
    expect(c, "qk_norm_type", "per_head")
    layers, cache = c.layers(), head_cache(c)
    section = c.nested("sparse_attention_config") or Fields({}, c.where)
    sparse = _m3_sparse(c, section, layers)
    key_size = section.optional_integer("sparse_index_dim") or c.integer("index_head_dim")
    keys = Indexer(key_size, is_fp8=False)
    caches: list[tuple[Cache, ...]] = [(cache, keys) if mark else (cache,) for mark in sparse]

    def count() -> Weights:
        hidden = c.hidden()
        has_experts = mlp_kinds(c, layers, lambda: _m3_experts(c, layers))
        index_heads = section.optional_integer("sparse_num_index_heads") or c.integer(
            "index_n_heads"
        )
        common = [*projections(c, head_norms=True), *norms(PRE_NORMS, hidden)]

        def layer(kind: tuple[bool, bool]) -> Sequence[Tensor]:
            tensors = list(common)
            if kind[0]:
                tensors += [
                    Tensor(ATTENTION, "self_attn.indexer.q_proj", index_heads * key_size, hidden),
                    Tensor(ATTENTION, "self_attn.indexer.k_proj", key_size, hidden),
                    *norm("self_attn.indexer.q_norm", key_size),
                    *norm("self_attn.indexer.k_norm", key_size),
                ]
            if not kind[1]:
                return [*tensors, *layer_mlp(c, key="dense_intermediate_size")]
            shared = c.integer("shared_intermediate_size", minimum=0)
            shared *= c.optional_integer("n_shared_experts", minimum=0) or 1
            tensors += experts(
                hidden, c.integer("num_local_experts"), c.integer("intermediate_size"),
                active(c), correction="mlp.gate.e_score_correction_bias",
            )  # fmt: skip
            if shared:
                tensors += gated_mlp(
                    hidden, shared, part=SHARED_EXPERTS, prefix="mlp.shared_experts"
                )
            return tensors

        return Weights(by_kind(list(zip(sparse, has_experts, strict=True)), layer), outside(c))

    return Architecture(caches, count)


def _m3_sparse(c: Fields, section: Fields, layers: int) -> list[bool]:
    marks = section.sequence("sparse_attention_freq", length=layers)
    kinds = c.sequence("layer_types", length=layers)
    if kinds is None:
        return [bool(mark) for mark in marks or [False] * layers]
    for index, kind in enumerate(kinds):
        if kind not in (FULL, SPARSE_M3):
            raise UnsupportedArchitecture(
                f"layer_types[{index}]", kind, where=c.where, known=(FULL, SPARSE_M3)
            )
    return [kind == SPARSE_M3 for kind in kinds]


def _m3_experts(c: Fields, layers: int) -> list[bool]:
    marks = c.sequence("moe_layer_freq", length=layers)
    return [True] * layers if marks is None else [bool(mark) for mark in marks]
