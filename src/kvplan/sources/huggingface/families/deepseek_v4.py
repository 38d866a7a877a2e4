"""DeepSeek V4: a short window of single tokens, and everything older in compressed groups.

Every layer keeps one vector for each of the last ``sliding_window`` tokens. Most keep one more for
each group of 4 tokens (compressed sparse attention, with an index that picks groups) or of 128
(heavily compressed attention), and the open group's inputs.
Source: transformers ``modeling_deepseek_v4.py``, ``configuration_deepseek_v4.py``; vLLM
``vllm/models/deepseek_v4/attention.py`` and ``compressor.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.errors import UnsupportedArchitecture
from kvplan.model.caches import Cache, Compressed, CompressorState, Indexer
from kvplan.model.tensors import ATTENTION, MIXER, NORMS, Tensor, norm
from kvplan.sources.huggingface.architecture import SLIDING, Architecture, Weights, window
from kvplan.sources.huggingface.families.blocks import (
    PRE_NORMS,
    by_kind,
    expect,
    experts,
    norms,
    outside,
)
from kvplan.sources.huggingface.families.routed import active
from kvplan.sources.huggingface.fields import Fields

SPARSE, HEAVY = "compressed_sparse_attention", "heavily_compressed_attention"
KINDS = (SLIDING, SPARSE, HEAVY)
Group = tuple[str, int]
"""A layer's kind and the tokens of one of its groups."""
_BY_RATIO = {0: SLIDING, 4: SPARSE, 128: HEAVY}

DEFAULTS = {
    # configuration_deepseek_v4.py: DeepseekV4Config
    "deepseek_v4": {
        "head_dim": 512,
        "qk_rope_head_dim": 64,
        "sliding_window": 128,
        "index_head_dim": 128,
    },
}


def deepseek_v4(c: Fields) -> Architecture:
    """DeepSeek V4 Flash and Pro."""
    layers = c.layers()
    groups = layer_groups(c, layers)
    size, rope, span = c.head_size(), c.integer("qk_rope_head_dim", minimum=0), window(c)
    index = c.integer("index_head_dim")
    by_group = {group: _caches(group, size, rope, span, index) for group in set(groups)}

    def count() -> Weights:
        hashed = _hash_layers(c, layers)
        kinds = list(zip(groups, hashed, strict=True))
        return Weights(
            by_kind(kinds, lambda kind: _layer(c, size, index, kind)), (*outside(c), *_last(c))
        )

    return Architecture([by_group[group] for group in groups], count)


def layer_groups(c: Fields, layers: int) -> list[Group]:
    """Kind and group size of each layer; 0 tokens where only the window is kept.

    Published files list ``compress_ratios``, one more than there are layers for the
    multi-token prediction layer; converted ones list ``layer_types`` and ``compress_rates``.
    """
    ratios = c.sequence("compress_ratios")
    if ratios is not None:
        if len(ratios) < layers:
            raise UnsupportedArchitecture("compress_ratios", ratios, where=c.where)
        for index, ratio in enumerate(ratios):
            if ratio not in _BY_RATIO:
                raise UnsupportedArchitecture(f"compress_ratios[{index}]", ratio, where=c.where)
        return [(_BY_RATIO[ratio], ratio) for ratio in ratios[:layers]]
    rates = c.nested("compress_rates") or Fields({}, c.where)
    sparse = rates.optional_integer(SPARSE) or c.optional_integer("compress_rate_csa") or 4
    heavy = rates.optional_integer(HEAVY) or c.optional_integer("compress_rate_hca") or 128
    by_name = {SLIDING: (SLIDING, 0), SPARSE: (SPARSE, sparse), HEAVY: (HEAVY, heavy)}
    names = c.sequence("layer_types", length=layers)
    if names is None:
        names = [HEAVY if i < 2 or i % 2 == 0 else SPARSE for i in range(layers)]
    for index, name in enumerate(names):
        if name not in by_name:
            raise UnsupportedArchitecture(f"layer_types[{index}]", name, where=c.where, known=KINDS)
    return [by_name[name] for name in names]


def _caches(group: Group, size: int, rope: int, span: int | None, index: int) -> tuple[Cache, ...]:
    kind, ratio = group
    recent = Compressed(size, rope, 1, span)
    if kind == SLIDING:
        return (recent,)
    older = Compressed(size, rope, ratio)
    if kind == HEAVY:
        return (recent, older, CompressorState(2 * size, ratio))
    return (
        recent,
        older,
        CompressorState(4 * size, 2 * ratio),
        Indexer(index, ratio),
        CompressorState(4 * index, 2 * ratio),
    )


def _layer(c: Fields, size: int, index: int, kind: tuple[Group, bool]) -> Sequence[Tensor]:
    group, is_hashed = kind
    hidden, inner = c.hidden(), c.integer("moe_intermediate_size")
    expect(c, "n_shared_experts", 1)
    expect(c, "mlp_bias", False)
    return [
        *_attention(c, hidden, size),
        *_compressor(c, hidden, size, index, group),
        *norms(PRE_NORMS, hidden),
        *experts(
            hidden,
            c.integer("n_routed_experts"),
            inner,
            active(c),
            shared=inner,
            correction=None if is_hashed else "mlp.gate.e_score_correction_bias",
        ),
        *_connections(c, hidden),
    ]


def _attention(c: Fields, hidden: int, size: int) -> list[Tensor]:
    heads, rank = c.heads(), c.integer("q_lora_rank")
    groups, low = c.integer("o_groups"), c.integer("o_lora_rank")
    expect(c, "attention_bias", False)
    return [
        Tensor(ATTENTION, "self_attn.sinks", heads, units=heads),
        Tensor(ATTENTION, "self_attn.q_a_proj", rank, hidden),
        *norm("self_attn.q_a_norm", rank),
        Tensor(ATTENTION, "self_attn.q_b_proj", heads * size, rank, units=heads),
        Tensor(ATTENTION, "self_attn.kv_proj", size, hidden),
        *norm("self_attn.kv_norm", size),
        Tensor(ATTENTION, "self_attn.o_a_proj", groups * low, heads * size // groups, units=groups),
        Tensor(ATTENTION, "self_attn.o_b_proj", hidden, groups * low, units=groups, by_column=True),
    ]


def _compressor(c: Fields, hidden: int, size: int, index: int, group: Group) -> list[Tensor]:
    kind, ratio = group
    if kind == SLIDING:
        return []
    prefix = "self_attn.compressor"
    if kind == HEAVY:
        return _pooling(prefix, hidden, size, size, ratio)
    heads, rank = c.integer("index_n_heads"), c.integer("q_lora_rank")
    return [
        *_pooling(prefix, hidden, size, 2 * size, ratio),
        *_pooling(f"{prefix}.indexer", hidden, index, 2 * index, ratio),
        Tensor(ATTENTION, f"{prefix}.indexer.q_b_proj", heads * index, rank),
        Tensor(ATTENTION, f"{prefix}.indexer.weights_proj", heads, hidden),
    ]


def _pooling(prefix: str, hidden: int, size: int, width: int, ratio: int) -> list[Tensor]:
    return [
        Tensor(ATTENTION, f"{prefix}.position_bias", ratio, width),
        Tensor(ATTENTION, f"{prefix}.kv_proj", width, hidden),
        Tensor(ATTENTION, f"{prefix}.gate_proj", width, hidden),
        *norm(f"{prefix}.kv_norm", size),
    ]


def _connections(c: Fields, hidden: int) -> list[Tensor]:
    """Hyper-connections: ``hc_mult`` residual streams mixed before attention and before the MLP."""
    streams = c.integer("hc_mult")
    width = (2 + streams) * streams
    return [
        Tensor(MIXER, "hc.fn", width, streams * hidden, copies=2),
        Tensor(NORMS, "hc.base", width, copies=2),
        Tensor(NORMS, "hc.scale", 3, copies=2),
    ]


def _last(c: Fields) -> list[Tensor]:
    streams = c.integer("hc_mult")
    return [
        Tensor(MIXER, "model.hc_head.hc_fn", streams, streams * c.hidden()),
        Tensor(NORMS, "model.hc_head.hc_base", streams),
        Tensor(NORMS, "model.hc_head.hc_scale", 1),
    ]


def _hash_layers(c: Fields, layers: int) -> list[bool]:
    """The first layers route by the token itself, through a stored table, without a correction."""
    stated = c.sequence("mlp_layer_types")
    if stated is None:
        first = c.optional_integer("num_hash_layers", minimum=0)
        first = 3 if first is None else first  # the class default
        return [index < first for index in range(layers)]
    if len(stated) < layers:
        raise UnsupportedArchitecture("mlp_layer_types", stated, where=c.where)
    for index, kind in enumerate(stated[:layers]):
        if kind not in ("hash_moe", "moe"):
            raise UnsupportedArchitecture(f"mlp_layer_types[{index}]", kind, where=c.where)
    return [kind == "hash_moe" for kind in stated[:layers]]
