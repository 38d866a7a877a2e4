"""RWKV 4 and 5, and xLSTM: no attention at all.

Source: transformers 5.24 ``modeling_rwkv.py``, ``modeling_xlstm.py``. RWKV 5 ships its own code;
the count of its layers is that of the published RWKV-5-World-1.5B, 1,577,754,624 parameters.
"""

from __future__ import annotations

from kvplan.errors import MalformedFile, UnsupportedArchitecture
from kvplan.model.caches import Recurrent
from kvplan.model.tensors import (
    MIXER,
    MLP,
    NORMS,
    Tensor,
    norm,
)
from kvplan.sources.huggingface.architecture import Architecture, Weights, vocabulary
from kvplan.sources.huggingface.families.recurrent import (
    model_bytes,
    number,
    projection,
    untied_vocabulary,
    vector,
)
from kvplan.sources.huggingface.fields import Fields
from kvplan.units import round_up

DEFAULTS = {
    # configuration_xlstm.py: xLSTMConfig
    "xlstm": {"num_heads": 8, "ffn_round_up_to_multiple_of": 64},
    # configuration_rwkv5.py of the RWKV-5-World checkpoints
    "rwkv5": {"head_size": 64},
}


def rwkv(c: Fields) -> Architecture:
    """RWKV 4: two token shifts, and three numbers a channel in float32."""
    layers, hidden = c.layers(), c.hidden()
    width = c.optional_integer("attention_hidden_size") or hidden
    state = Recurrent("rwkv4", 2 * hidden, 2, 3 * width, width, model_bytes(c))

    def count() -> Weights:
        inner = c.optional_integer("intermediate_size") or 4 * hidden
        layer = [
            *_norms(hidden, "ln1", "ln2"),
            vector("attention.time_decay", width, width),
            vector("attention.time_first", width, width),
            *_mixes("attention", ("key", "value", "receptance"), hidden),
            *projection("attention.key", width, hidden, width),
            *projection("attention.value", width, hidden, width),
            *projection("attention.receptance", width, hidden, width),
            *projection("attention.output", hidden, width, width, by_column=True),
            *_channel_mix(hidden, inner),
        ]
        outside = (*vocabulary(c), *norm("rwkv.ln_out", hidden, bias=True))
        return Weights(_first_normed(layer, layers, hidden), outside)

    return Architecture([(state,)] * layers, count)


def rwkv5(c: Fields) -> Architecture:
    """RWKV 5.2: two token shifts, and a square matrix a head in float32."""
    layers, hidden = c.layers(), c.hidden()
    version = c.text("model_version")
    if version not in {None, "5_2"}:
        raise UnsupportedArchitecture("model_version", version, where=c.where, known=("5_2",))
    width, size = c.optional_integer("attention_hidden_size") or hidden, c.integer("head_size")
    if width % size:
        raise MalformedFile(c.where, f"head_size {size} does not divide {width}")
    heads = width // size
    state = Recurrent("rwkv5", 2 * hidden, 2, heads * size * size, heads, model_bytes(c))

    def count() -> Weights:
        inner = c.optional_integer("intermediate_size") or 7 * hidden // 2 // 32 * 32
        layer = [
            *_norms(hidden, "ln1", "ln2"),
            vector("attention.time_decay", width, heads),
            vector("attention.time_faaaa", width, heads),
            *_mixes("attention", ("key", "value", "receptance", "gate"), hidden),
            *projection("attention.key", width, hidden, heads),
            *projection("attention.value", width, hidden, heads),
            *projection("attention.receptance", width, hidden, heads),
            *projection("attention.gate", width, hidden, heads),
            *projection("attention.output", hidden, width, heads, by_column=True),
            Tensor(NORMS, "attention.ln_x", width, units=heads),
            Tensor(NORMS, "attention.ln_x.bias", width, units=heads),
            *_channel_mix(hidden, inner),
        ]
        outside = (*untied_vocabulary(c), *norm("rwkv.ln_out", hidden, bias=True))
        return Weights(_first_normed(layer, layers, hidden), outside)

    return Architecture([(state,)] * layers, count)


def _norms(hidden: int, *names: str) -> list[Tensor]:
    return [tensor for name in names for tensor in norm(name, hidden, bias=True)]


def _mixes(prefix: str, names: tuple[str, ...], hidden: int) -> list[Tensor]:
    return [vector(f"{prefix}.time_mix_{name}", hidden) for name in names]


def _channel_mix(hidden: int, inner: int) -> list[Tensor]:
    return [
        *_mixes("feed_forward", ("key", "receptance"), hidden),
        Tensor(MLP, "feed_forward.key", inner, hidden, units=inner),
        Tensor(MLP, "feed_forward.receptance", hidden, hidden, units=hidden),
        Tensor(MLP, "feed_forward.value", hidden, inner, units=inner, by_column=True),
    ]


def _first_normed(layer: list[Tensor], layers: int, hidden: int) -> list[tuple[Tensor, ...]]:
    """The first layer has a norm of its own on the embedding."""
    first = (*layer, *norm("pre_ln", hidden, bias=True))
    return [first, *[tuple(layer)] * (layers - 1)]


def xlstm(c: Fields) -> Architecture:
    """xLSTM: a matrix, a normaliser and a maximum a head; float32 at inference."""
    layers, hidden = c.integer("num_blocks", "num_hidden_layers"), c.hidden()
    if c.optional_integer("num_hidden_layers") not in {None, layers}:
        raise MalformedFile(c.where, f"num_blocks {layers} is not num_hidden_layers")
    heads = c.integer("num_heads")
    keys = int(hidden * number(c, "qk_dim_factor", 0.5))
    values = int(hidden * number(c, "v_dim_factor", 1.0))
    if keys % 64 or values % 64 or keys % heads or values % heads:
        raise MalformedFile(
            c.where, f"keys of {keys} and values of {values} are not multiples of 64 and of heads"
        )
    elements = keys * values // heads + keys + heads
    state = Recurrent("xlstm", 0, 1, elements, heads, model_bytes(c))

    def count() -> Weights:
        mode = c.text("weight_mode")
        if mode not in {None, "single", "fused"}:
            raise UnsupportedArchitecture("weight_mode", mode, where=c.where)
        bias = c.boolean("use_bias", default=False)
        inner = round_up(
            int(hidden * number(c, "ffn_proj_factor", 2.667)),
            c.integer("ffn_round_up_to_multiple_of"),
        )
        layer = [
            *norm("norm_mlstm", hidden, bias=bias),
            *norm("norm_ffn", hidden, bias=bias),
            *norm("mlstm_layer.multihead_norm", values, bias=bias),
        ]
        for name, rows, with_bias in (
            ("q", keys, bias),
            ("k", keys, bias),
            ("v", values, bias),
            ("ogate_preact", values, bias),
            ("igate_preact", heads, True),
            ("fgate_preact", heads, True),
        ):
            layer += projection(f"mlstm_layer.{name}", rows, hidden, heads, bias=with_bias)
        layer += projection(
            "mlstm_layer.out_proj", hidden, values, heads, bias=bias, by_column=True
        )
        for name in ("proj_up_gate", "proj_up"):
            layer += _mlp(projection(f"ffn.{name}", inner, hidden, inner, bias=bias))
        layer += _mlp(projection("ffn.proj_down", hidden, inner, inner, bias=bias, by_column=True))
        outside = (*untied_vocabulary(c), *norm("backbone.out_norm", hidden))
        return Weights([tuple(layer)] * layers, outside)

    return Architecture([(state,)] * layers, count)


def _mlp(tensors: list[Tensor]) -> list[Tensor]:
    """Projections counted to the MLP instead of the mixer."""
    return [tensor._replace(part=MLP) for tensor in tensors if tensor.part == MIXER]
