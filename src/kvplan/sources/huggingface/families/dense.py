"""Dense models that differ from Llama in a bias, a norm, the MLP or the pattern of their windows.

Source: transformers ``models/<model_type>/modeling_<model_type>.py`` and ``configuration_*.py`` of
each; where there is none, the module named beside the function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvplan.model.caches import Cache
from kvplan.model.tensors import MLP, Tensor
from kvplan.sources.huggingface.architecture import (
    FULL,
    SLIDING,
    Architecture,
    Weights,
    head_cache,
    stated_layer_types,
    typed_caches,
    window,
)
from kvplan.sources.huggingface.families.blocks import (
    POST_NORMS,
    PRE_NORMS,
    every_nth_full,
    expect,
    first_of_four_full,
    layer_mlp,
    norms,
    outside,
    projections,
)
from kvplan.sources.huggingface.families.llama import all_sliding, full_caches
from kvplan.sources.huggingface.fields import Fields

DEFAULTS = {
    # configuration_smollm3.py, configuration_cwm.py, configuration_olmo3.py and so on
    "cwm": {"sliding_window": 8192, "head_dim": 128},
    "exaone4": {"sliding_window": 4096, "sliding_window_pattern": 4},
    "granite_swa": {"sliding_window": 128},
    "ernie4_5": {"head_dim": 128},
    "helium": {"head_dim": 128},
    "seed_oss": {"head_dim": 128},
    "ministral3": {"head_dim": 128},
}


def decoder(
    c: Fields,
    *,
    qkv_bias: bool = False,
    o_bias: bool = False,
    mlp_bias: bool = False,
    head_norms: bool = False,
    norm_names: Sequence[str] = PRE_NORMS,
    norm_bias: bool = False,
    gated_mlp: bool = True,
    final: str | None = "model.norm",
    tied: bool = False,
    head_bias: bool = False,
    more: Callable[[], Sequence[Tensor]] = tuple,
) -> Callable[[], Weights]:
    """Counts layers that are all alike; ``tied`` is the class default, ``more`` adds to a layer."""

    def count() -> Weights:
        layer = (
            *projections(c, qkv_bias=qkv_bias, o_bias=o_bias, head_norms=head_norms),
            *layer_mlp(c, gated=gated_mlp, bias=mlp_bias),
            *norms(norm_names, c.hidden(), bias=norm_bias),
            *more(),
        )
        last = outside(c, tied=tied, final=final, norm_bias=norm_bias, head_bias=head_bias)
        return Weights([layer] * c.layers(), last)

    return count


def attention_bias(c: Fields, *, default: bool = False) -> bool:
    """``attention_bias``, which most classes apply to all four projections."""
    return c.boolean("attention_bias", default=default)


def patterned(c: Fields, otherwise: Callable[[int], Sequence[str]]) -> Sequence[tuple[Cache, ...]]:
    """Windows and full layers by ``layer_types``, else by the family's own rule."""
    layers, cache = c.layers(), head_cache(c)
    kinds = stated_layer_types(c, layers) or otherwise(layers)
    return typed_caches(c, cache, kinds, window(c))


def granite(c: Fields) -> Architecture:
    """Granite 3: as Llama with multipliers."""
    bias = attention_bias(c)
    return Architecture(
        full_caches(c),
        decoder(c, qkv_bias=bias, o_bias=bias, mlp_bias=c.boolean("mlp_bias", default=False)),
    )


def granite_swa(c: Fields) -> Architecture:
    """Granite with windows in three of four layers and an attention sink a head."""
    bias = attention_bias(c)
    weights = decoder(
        c,
        qkv_bias=bias,
        o_bias=bias,
        mlp_bias=c.boolean("mlp_bias", default=False),
        tied=True,
        more=lambda: [sinks(c)],
    )
    return Architecture(patterned(c, first_of_four_full), weights)


def sinks(c: Fields) -> Tensor:
    """One learned attention sink a query head."""
    return Tensor("attention", "self_attn.sinks", c.heads(), units=c.heads())


def smollm3(c: Fields) -> Architecture:
    """SmolLM 3: tied; windows only with ``use_sliding_window``, on the layers without rotation."""
    bias = attention_bias(c)

    def kinds(layers: int) -> Sequence[str]:
        if not c.boolean("use_sliding_window", default=False):
            return [FULL] * layers
        every = c.optional_integer("no_rope_layer_interval") or 4
        rotated = c.sequence("no_rope_layers", length=layers) or [
            (index + 1) % every != 0 for index in range(layers)
        ]
        return [FULL if has_rope else SLIDING for has_rope in rotated]

    weights = decoder(
        c,
        qkv_bias=bias,
        o_bias=bias,
        mlp_bias=c.boolean("mlp_bias", default=False),
        tied=True,
    )
    return Architecture(patterned(c, kinds), weights)


def seed_oss(c: Fields) -> Architecture:
    """Seed-OSS: biases on queries, keys and values, and separately on the output."""
    return Architecture(
        full_caches(c),
        decoder(
            c,
            qkv_bias=attention_bias(c, default=True),
            o_bias=c.boolean("attention_out_bias", default=False),
            mlp_bias=c.boolean("mlp_bias", default=False),
        ),
    )


def ernie4_5(c: Fields) -> Architecture:
    """ERNIE 4.5 without experts: tied, one switch for all biases."""
    bias = c.boolean("use_bias", default=False)
    weights = decoder(c, qkv_bias=bias, o_bias=bias, mlp_bias=bias, tied=True)
    return Architecture(full_caches(c), weights)


def helium(c: Fields) -> Architecture:
    """Helium: the output projection is ``[hidden, hidden]`` and never has a bias."""
    weights = decoder(c, qkv_bias=attention_bias(c), mlp_bias=c.boolean("mlp_bias", default=False))
    return Architecture(full_caches(c), weights)


def cwm(c: Fields) -> Architecture:
    """Code World Model: a window of 8,192 in three of four layers."""
    weights = decoder(c, mlp_bias=c.boolean("mlp_bias", default=False))
    return Architecture(patterned(c, first_of_four_full), weights)


def ministral3(c: Fields) -> Architecture:
    """Ministral 3 and Devstral 2: as Mistral, the window off unless stated."""
    return Architecture(all_sliding(c), decoder(c))


def arcee(c: Fields) -> Architecture:
    """AFM: an MLP of two projections (squared ReLU)."""
    bias = attention_bias(c)
    mlp_bias = c.boolean("mlp_bias", default=False)
    weights = decoder(c, qkv_bias=bias, o_bias=bias, mlp_bias=mlp_bias, gated_mlp=False)
    return Architecture(full_caches(c), weights)


def jais2(c: Fields) -> Architecture:
    """Jais 2: as AFM, with biases on the norms too."""
    bias = attention_bias(c, default=True)
    mlp_bias = c.boolean("mlp_bias", default=True)
    weights = decoder(
        c, qkv_bias=bias, o_bias=bias, mlp_bias=mlp_bias, gated_mlp=False, norm_bias=True
    )
    return Architecture(full_caches(c), weights)


def apertus(c: Fields) -> Architecture:
    """Apertus: norms on query and key heads, two projections, an xIELU with two learned slopes."""
    for key, value in (("post_norm", False), ("qk_norm", True), ("hidden_act", "xielu")):
        expect(c, key, value)
    expect(c, "output_vocab_size", c.raw("vocab_size"))
    bias = attention_bias(c)
    weights = decoder(
        c,
        qkv_bias=bias,
        o_bias=bias,
        head_norms=True,
        norm_names=("attention_layernorm", "feedforward_layernorm"),
        gated_mlp=False,
        more=lambda: [
            Tensor(MLP, "mlp.act_fn.alpha_p", 1),
            Tensor(MLP, "mlp.act_fn.alpha_n", 1),
        ],
    )
    return Architecture(full_caches(c), weights)


def exaone4(c: Fields) -> Architecture:
    """EXAONE 4: norms behind attention and MLP and on heads; every fourth layer is full.

    The 1.2B has no window at all: ``sliding_window`` is null and every layer full.
    """
    return Architecture(exaone_caches(c), decoder(c, head_norms=True, norm_names=POST_NORMS))


def exaone_caches(c: Fields) -> Sequence[tuple[Cache, ...]]:
    """Windows by ``layer_types``, else by the number in ``sliding_window_pattern``."""

    def kinds(layers: int) -> Sequence[str]:
        if window(c) is None:
            return [FULL] * layers
        return every_nth_full(layers, c.integer("sliding_window_pattern"))

    return patterned(c, kinds)


def hunyuan_v1_dense(c: Fields) -> Architecture:
    """Hunyuan dense: norms on query and key heads."""
    bias = attention_bias(c)
    return Architecture(full_caches(c), decoder(c, qkv_bias=bias, o_bias=bias, head_norms=True))


def hyperclovax(c: Fields) -> Architecture:
    """HyperCLOVA X: two more norms with ``use_post_norm``."""
    bias = attention_bias(c)
    after = ("post_norm1", "post_norm2") if c.boolean("use_post_norm", default=False) else ()
    weights = decoder(
        c,
        qkv_bias=bias,
        o_bias=bias,
        mlp_bias=c.boolean("mlp_bias", default=False),
        norm_names=(*PRE_NORMS, *after),
    )
    return Architecture(full_caches(c), weights)
