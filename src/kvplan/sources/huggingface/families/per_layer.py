"""Models that give every layer its own number of heads and its own width.

Source: the published ``modeling_openelm.py``; vLLM ``model_executor/models/nemotron_nas.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.errors import UnsupportedArchitecture
from kvplan.model.caches import Cache, FullAttention, SlidingWindow
from kvplan.model.tensors import Tensor, attention, embedding, gated_mlp, head, norm
from kvplan.sources.huggingface.architecture import Architecture, Weights
from kvplan.sources.huggingface.families.blocks import by_kind, expect, norms, outside
from kvplan.sources.huggingface.fields import Fields, MissingField


def openelm(c: Fields) -> Architecture:
    """OpenELM: heads and MLP widths differ by layer; norms on heads; tied.

    Source: the published ``modeling_openelm.py``: a width is ``ffn_multipliers[i] * model_dim``
    rounded to a multiple of ``ffn_dim_divisor``, never down by more than a tenth.
    """
    layers, size = c.layers(), c.head_size()
    queries = c.sequence("num_query_heads", length=layers)
    kept = c.sequence("num_kv_heads", length=layers)
    if queries is None or kept is None:
        raise UnsupportedArchitecture("num_kv_heads", None, where=c.where)
    pairs = [
        (c.checked(q, "num_query_heads"), c.checked(k, "num_kv_heads"))
        for q, k in zip(queries, kept, strict=True)
    ]

    def count() -> Weights:
        hidden, divisor = c.hidden(), c.integer("ffn_dim_divisor")
        expect(c, "ffn_with_glu", True)
        has_norms = c.boolean("normalize_qk_projections", default=True)
        multipliers = c.sequence("ffn_multipliers", length=layers)
        if multipliers is None:
            raise MissingField(c.where, "ffn_multipliers")
        counted = []
        for (heads, kv), multiplier in zip(pairs, multipliers, strict=True):
            layer = [
                *attention(hidden, heads, kv, size, head_norms=has_norms, prefix="attn"),
                *gated_mlp(hidden, _divisible(c, multiplier, hidden, divisor)),
                *norms(("attn_norm", "ffn_norm"), hidden),
            ]
            counted.append(tuple(layer))
        last = [embedding(c.vocab(), hidden), *norm("transformer.norm", hidden)]
        if not c.boolean("share_input_output_layers", default=True):
            last.append(head(c.vocab(), hidden))
        return Weights(counted, tuple(last))

    caches: Sequence[tuple[Cache, ...]] = [(FullAttention(kv, size, size),) for _, kv in pairs]
    return Architecture(caches, count, heads=max(heads for heads, _ in pairs))


def _divisible(c: Fields, multiplier: object, hidden: int, divisor: int) -> int:
    if isinstance(multiplier, bool) or not isinstance(multiplier, (int, float)):
        raise UnsupportedArchitecture("ffn_multipliers", multiplier, where=c.where)
    if not 0 < multiplier < 1000:
        raise UnsupportedArchitecture("ffn_multipliers", multiplier, where=c.where)
    value = multiplier * hidden
    rounded = max(divisor, int(value + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * value else rounded


def nemotron_nas(c: Fields) -> Architecture:
    """Nemotron Super and Ultra 1 and DeciLM: every block has its own heads and width, or none.

    Source: vLLM ``nemotron_nas.py``. A skipped part has no norm either.
    """
    layers, heads, size = c.layers(), c.heads(), c.head_size()
    blocks = [_block(c, item, index) for index, item in enumerate(_blocks(c, layers))]
    caches = [_block_cache(block, heads, size) for block in blocks]

    def count() -> Weights:
        hidden, bias = c.hidden(), c.boolean("attention_bias", "bias", default=False)
        mlp_bias = c.boolean("mlp_bias", default=False)
        counted: list[tuple[Tensor, ...]] = []
        for (_, ffn), kept in zip(blocks, caches, strict=True):
            layer: list[Tensor] = []
            if kept:
                cache = kept[0]
                layer += attention(
                    hidden, heads, cache.num_kv_heads, size, qkv_bias=bias, o_bias=bias
                )
                layer += norm("input_layernorm", hidden)
            width = _ffn_width(ffn, hidden)
            if width:
                layer += gated_mlp(hidden, width, bias=mlp_bias)
                layer += norm("post_attention_layernorm", hidden)
            counted.append(tuple(layer))
        return Weights(counted, outside(c))

    return Architecture(list(caches), count)


def deci(c: Fields) -> Architecture:
    """DeciLM 7B: as Llama, with key-value heads by layer. Source: its ``modeling_decilm.py``."""
    layers, heads, size = c.layers(), c.heads(), c.head_size()
    listed = c.sequence("num_key_value_heads_per_layer", length=layers)
    if listed is None:
        raise UnsupportedArchitecture("num_key_value_heads_per_layer", None, where=c.where)
    kept = [c.checked(item, "num_key_value_heads_per_layer") for item in listed]

    def count() -> Weights:
        hidden, width = c.hidden(), c.integer("intermediate_size")

        def layer(own: int) -> Sequence[Tensor]:
            return [
                *attention(hidden, heads, own, size),
                *gated_mlp(hidden, width),
                *norms(("input_layernorm", "post_attention_layernorm"), hidden),
            ]

        return Weights(by_kind(kept, layer), outside(c))

    return Architecture([(FullAttention(own, size, size),) for own in kept], count)


def _blocks(c: Fields, layers: int) -> Sequence[object]:
    blocks = c.sequence("block_configs", length=layers)
    if blocks is None:
        raise UnsupportedArchitecture("block_configs", None, where=c.where)
    return blocks


def _block(c: Fields, item: object, index: int) -> tuple[Fields, Fields]:
    where = f"{c.where}: block_configs[{index}]"
    data = item if isinstance(item, dict) else {}
    parts = [data.get("attention"), data.get("ffn")]
    if not all(isinstance(part, dict) for part in parts):
        raise UnsupportedArchitecture(f"block_configs[{index}]", item, where=c.where)
    attention_part, ffn_part = (Fields(part or {}, where) for part in parts)
    for part in (attention_part, ffn_part):
        expect(part, "replace_with_linear", False)
        expect(part, "sparsify", False, [])
    return attention_part, ffn_part


def _block_cache(
    block: tuple[Fields, Fields], heads: int, size: int
) -> tuple[FullAttention | SlidingWindow, ...]:
    own, _ = block
    if own.boolean("no_op", default=False):
        return ()
    expect(own, "num_sink_tokens", 0)
    kept = heads // own.integer("n_heads_in_group")
    span = own.optional_integer("window_length", maximum=2**40)
    if span is None:
        return (FullAttention(kept, size, size),)
    return (SlidingWindow(kept, size, size, span),)


def _ffn_width(ffn: Fields, hidden: int) -> int:
    """``ffn_mult`` of two thirds of twice the hidden size, rounded up to 256; 0 for a skipped one.

    Newer files state ``intermediate_size`` themselves.
    """
    if ffn.boolean("no_op", default=False):
        return 0
    stated = ffn.optional_integer("intermediate_size")
    if stated is not None:
        return stated
    multiplier = ffn.raw("ffn_mult")
    is_number = isinstance(multiplier, (int, float)) and not isinstance(multiplier, bool)
    if not is_number or not 0 < multiplier < 1000:
        raise UnsupportedArchitecture("ffn_mult", multiplier, where=ffn.where)
    return -(-int(2 * multiplier * hidden / 3) // 256) * 256
