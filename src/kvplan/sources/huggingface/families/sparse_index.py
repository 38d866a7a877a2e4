"""DeepSeek sparse attention: a latent cache, and on some layers an index of keys beside it.

The index picks the tokens that are read; all of them are stored. Layers of type ``shared`` reuse
the choice of the layer before and keep no index.
Source: transformers ``modeling_deepseek_v32.py``, ``configuration_glm_moe_dsa.py`` and the modules
of the other names; vLLM ``model_executor/models/deepseek_v2.py``, ``DeepseekV32IndexerCache``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvplan.errors import UnsupportedArchitecture
from kvplan.model.caches import Cache, Indexer, Latent
from kvplan.model.tensors import ATTENTION, Tensor, latent_attention, norm
from kvplan.sources.huggingface.architecture import Architecture, Weights
from kvplan.sources.huggingface.families.blocks import (
    PRE_NORMS,
    after_first,
    by_kind,
    layer_mlp,
    mlp_kinds,
    norms,
    outside,
)
from kvplan.sources.huggingface.families.deepseek import latent_cache, latent_projections
from kvplan.sources.huggingface.families.routed import deepseek_experts
from kvplan.sources.huggingface.fields import Fields

INDEXED = "indexed_attention"
OWN, SHARED = "full", "shared"

DEFAULTS = {
    # configuration_deepseek_v32.py, configuration_glm_moe_dsa.py
    "deepseek_v32": {"index_head_dim": 128, "index_n_heads": 64},
    "glm_moe_dsa": {"index_head_dim": 128, "index_n_heads": 32},
    # configuration_mistral_large4.py: MistralLarge4TextConfig
    "mistral_large4": {"index_head_dim": 128, "index_n_heads": 32, "no_rope_layer_interval": 4},
}


def deepseek_v32(c: Fields) -> Architecture:
    """DeepSeek V3.2: an index in every layer."""
    return _indexed(c, [True] * c.layers(), first_dense=3)


def glm_moe_dsa(c: Fields) -> Architecture:
    """GLM-5: an index in every layer, or in those that ``indexer_types`` and its kin name."""
    return _indexed(c, index_layers(c), first_dense=3)


def index_layers(c: Fields) -> list[bool]:
    """Which layers have an index of their own.

    ``indexer_types`` lists them, ``index_topk_pattern`` spells them with F and S, and
    ``index_topk_freq`` with ``index_skip_topk_offset`` counts them.
    """
    layers = c.layers()
    kinds = c.sequence("indexer_types", length=layers)
    pattern = c.raw("index_topk_pattern")
    if kinds is None and isinstance(pattern, str):
        if len(pattern) != layers:
            raise UnsupportedArchitecture("index_topk_pattern", pattern, where=c.where)
        kinds = [{"F": OWN, "S": SHARED}.get(letter, letter) for letter in pattern]
    elif kinds is None and pattern is not None:
        kinds = c.sequence("index_topk_pattern", length=layers)
    if kinds is None:
        every = c.optional_integer("index_topk_freq", minimum=0) or 1
        offset = c.optional_integer("index_skip_topk_offset", minimum=0)
        offset = 2 if offset is None else offset
        return [max(index - offset + 1, 0) % every == 0 for index in range(layers)]
    for index, kind in enumerate(kinds):
        if kind not in (OWN, SHARED):
            raise UnsupportedArchitecture(
                f"indexer_types[{index}]", kind, where=c.where, known=(OWN, SHARED)
            )
    return [kind == OWN for kind in kinds]


def check_indexed(c: Fields) -> None:
    """Every stated layer type must be the indexed one."""
    for index, kind in enumerate(c.sequence("layer_types", length=c.layers()) or ()):
        if kind != INDEXED:
            raise UnsupportedArchitecture(
                f"layer_types[{index}]", kind, where=c.where, known=(INDEXED,)
            )


def _indexed(
    c: Fields,
    has_index: Sequence[bool],
    *,
    first_dense: int,
    more: Callable[[], Sequence[Tensor]] = tuple,
    last: Callable[[], Sequence[Tensor]] = tuple,
) -> Architecture:
    check_indexed(c)
    latent = latent_cache(c)
    index = Indexer(c.integer("index_head_dim"))
    caches: list[tuple[Cache, ...]] = [(latent, index) if own else (latent,) for own in has_index]

    def count() -> Weights:
        sparse = mlp_kinds(c, c.layers(), lambda: after_first(c, c.layers(), default=first_dense))

        def layer(kind: tuple[bool, bool]) -> Sequence[Tensor]:
            return [
                *latent_projections(c),
                *norms(PRE_NORMS, c.hidden()),
                *(index_weights(c, c.integer("q_lora_rank")) if kind[0] else ()),
                *(deepseek_experts(c) if kind[1] else layer_mlp(c)),
                *more(),
            ]

        kinds = list(zip(has_index, sparse, strict=True))
        return Weights(by_kind(kinds, layer), (*outside(c), *last()))

    return Architecture(caches, count)


def index_weights(c: Fields, query_inputs: int) -> list[Tensor]:
    """Query, key and weight projections of an index, and the layer norm of its keys."""
    heads, size, hidden = c.integer("index_n_heads"), c.integer("index_head_dim"), c.hidden()
    prefix = "self_attn.indexer"
    return [
        Tensor(ATTENTION, f"{prefix}.wq_b", heads * size, query_inputs),
        Tensor(ATTENTION, f"{prefix}.wk", size, hidden),
        *norm(f"{prefix}.k_norm", size, bias=True),
        Tensor(ATTENTION, f"{prefix}.weights_proj", heads, hidden),
    ]


def hy_v4(c: Fields) -> Architecture:
    """Hunyuan 4: sinks, gated outputs, and hyper-connections around attention and MLP."""
    layers = c.layers()
    has_index = (
        index_layers(c)
        if c.states("indexer_types")
        else [index == 0 or (index - 1) % 4 == 0 for index in range(layers)]
    )

    def more() -> Sequence[Tensor]:
        hidden, heads, streams = c.hidden(), c.heads(), c.integer("hc_mult")
        width = 2 * streams
        connection = [
            Tensor("mixer", "hc.fn", width, streams * hidden, copies=2),
            Tensor("norms", "hc.base", width, copies=2),
            Tensor("norms", "hc.scale", 2, copies=2),
        ]
        return [
            *connection,
            Tensor(ATTENTION, "self_attn.sinks", heads, units=heads),
            Tensor(
                ATTENTION, "self_attn.gate_proj", heads * c.integer("v_head_dim"), hidden,
                units=heads,
            ),
        ]  # fmt: skip

    def last() -> Sequence[Tensor]:
        streams = c.integer("hc_mult")
        return [
            Tensor("mixer", "model.hc_head.hc_fn", streams, streams * c.hidden()),
            Tensor("norms", "model.hc_head.hc_base", streams),
            Tensor("norms", "model.hc_head.hc_scale", 1),
        ]

    return _indexed(c, has_index, first_dense=1, more=more, last=last)


def mistral_large4(c: Fields) -> Architecture:
    """Mistral Large 4, text part: no query rank, layers without rotation, caches that are shared.

    A layer without rotation keeps no rotary part. A layer whose entry in ``kv_source_layers`` is
    another layer reads that one's latent vectors and keeps only its own index.
    """
    check_indexed(c)
    layers, rope = c.layers(), c.integer("qk_rope_head_dim", minimum=0)
    rank = c.integer("kv_lora_rank")
    every = c.integer("no_rope_layer_interval")
    rotated = c.sequence("no_rope_layers", length=layers) or [
        (index + 1) % every != 0 for index in range(layers)
    ]
    sources = c.sequence("kv_source_layers", length=layers) or list(range(layers))
    owns = [source == index for index, source in enumerate(sources)]
    has_index = index_layers(c)
    keys = Indexer(c.integer("index_head_dim"))
    caches: list[tuple[Cache, ...]] = [
        (*((Latent(rank, rope if turned else 0),) if own else ()), *((keys,) if mark else ()))
        for turned, own, mark in zip(rotated, owns, has_index, strict=True)
    ]

    def count() -> Weights:
        hidden, heads = c.hidden(), c.heads()
        nope, value = c.integer("qk_nope_head_dim"), c.integer("v_head_dim")
        bias = c.boolean("attention_bias", default=False)
        sparse = mlp_kinds(c, layers, lambda: after_first(c, layers, default=1))

        def layer(kind: tuple[bool, bool, bool, bool]) -> Sequence[Tensor]:
            turned, own, mark, has_experts = kind
            size = rope if turned else 0
            tensors = latent_attention(
                hidden, heads, None, rank, nope + rope - size, size, value, bias=bias
            )
            if not own:
                tensors = [tensor for tensor in tensors if ".kv_a_" not in tensor.name]
            tensors += norms(PRE_NORMS, hidden)
            tensors += norm("self_attn.softmax_scaling", heads, bias=True)
            if mark:
                index_heads = c.integer("index_n_heads")
                tensors += index_weights(c, hidden)
                tensors += norm("self_attn.indexer.q_input_norm", hidden, bias=True)
                tensors += norm("self_attn.indexer.softmax_scaling", index_heads, bias=True)
            return [*tensors, *(deepseek_experts(c) if has_experts else layer_mlp(c))]

        kinds = list(zip(map(bool, rotated), owns, has_index, sparse, strict=True))
        learned = Tensor("norms", "model.rotary_emb.alpha", rope // 2)
        return Weights(by_kind(kinds, layer), (*outside(c), learned))

    return Architecture(caches, count)
