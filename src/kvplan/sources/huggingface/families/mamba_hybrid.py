"""Attention beside Mamba: Jamba, Bamba, Falcon-H1 and Granite 4.

Source: transformers 5.24 ``modeling_jamba.py``, ``modeling_bamba.py``, ``modeling_falcon_h1.py``,
``modeling_granitemoehybrid.py`` and their configurations.
"""

from __future__ import annotations

from kvplan.errors import MalformedFile
from kvplan.model.caches import Cache, Recurrent
from kvplan.model.tensors import (
    MLP,
    SHARED_EXPERTS,
    Tensor,
    attention,
    gated_mlp,
    norm,
    router,
)
from kvplan.sources.huggingface.architecture import (
    FULL,
    Architecture,
    Weights,
    head_cache,
    kv_heads,
    vocabulary,
)
from kvplan.sources.huggingface.families.mixture import experts_of
from kvplan.sources.huggingface.families.recurrent import (
    LINEAR,
    head_size_or,
    layer_kinds,
    mamba1_mixer,
    mamba1_state,
    mamba2_mixer,
    mamba2_state,
    time_step_rank,
)
from kvplan.sources.huggingface.fields import Fields

_MAMBA = {"mamba_expand": 2, "mamba_d_conv": 4, "mamba_n_groups": 1, "mamba_d_state": 256}

DEFAULTS = {
    # configuration_jamba.py: JambaConfig
    "jamba": {
        "mamba_expand": 2,
        "mamba_d_conv": 4,
        "mamba_d_state": 16,
        "attn_layer_period": 8,
        "attn_layer_offset": 4,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
    },
    # configuration_bamba.py: BambaConfig
    "bamba": _MAMBA,
    # configuration_falcon_h1.py: FalconH1Config
    "falcon_h1": _MAMBA,
    # configuration_granitemoehybrid.py: GraniteMoeHybridConfig
    "granitemoehybrid": _MAMBA,
}


def jamba(c: Fields) -> Architecture:
    """Jamba: attention in every ``attn_layer_period``-th layer, experts in every other one."""
    layers, hidden = c.layers(), c.hidden()
    inner = c.integer("mamba_expand") * hidden
    state, kernel = c.integer("mamba_d_state"), c.integer("mamba_d_conv")
    attends = _periodic(c, "attn_layer", layers)
    full, mixer = head_cache(c), mamba1_state(c, inner, state, kernel)

    def count() -> Weights:
        feed = _feed_forwards(c, hidden, layers)
        attending = _attention(c, hidden)
        mixing = mamba1_mixer(
            hidden, inner, state, kernel, time_step_rank(c, "mamba_dt_rank", hidden),
            bias=c.boolean("mamba_proj_bias", default=False),
            conv_bias=c.boolean("mamba_conv_bias", default=True),
            norms=True,
            prefix="mamba",
        )  # fmt: skip
        norms = [*norm("input_layernorm", hidden), *norm("pre_ff_layernorm", hidden)]
        counted = [
            (*(attending if attends[i] else mixing), *feed[i], *norms) for i in range(layers)
        ]
        return Weights(counted, (*vocabulary(c), *norm("model.final_layernorm", hidden)))

    return Architecture([(full if attends[i] else mixer,) for i in range(layers)], count)


def _periodic(c: Fields, name: str, layers: int) -> list[bool]:
    """Layers whose number leaves ``NAME_offset`` when divided by ``NAME_period``."""
    period = c.integer(f"{name}_period")
    offset = c.integer(f"{name}_offset", minimum=0)
    if offset >= period:
        raise MalformedFile(c.where, f"{name}_offset {offset} is not less than its period {period}")
    return [index % period == offset for index in range(layers)]


def _feed_forwards(c: Fields, hidden: int, layers: int) -> list[list[Tensor]]:
    """Jamba's MLPs; a layer with one expert is a plain MLP."""
    inner = c.integer("intermediate_size")
    experts = c.integer("num_experts", "num_local_experts")
    dense = gated_mlp(hidden, inner, prefix="feed_forward")
    if experts == 1:
        return [dense] * layers
    sparse = [
        *experts_of(c, hidden, experts, inner, "feed_forward.experts.*"),
        *router(hidden, experts, prefix="feed_forward.router"),
    ]
    return [sparse if chosen else dense for chosen in _periodic(c, "expert_layer", layers)]


def bamba(c: Fields) -> Architecture:
    """Bamba: attention in the layers listed in ``attn_layer_indices``, Mamba-2 in the others."""
    layers, hidden = c.layers(), c.hidden()
    mixer, inner = _expanded_mamba2(c, hidden)
    listed = {
        c.checked(index, "attn_layer_indices", 0, layers - 1)
        for index in c.sequence("attn_layer_indices") or ()
    }
    full = head_cache(c) if listed else None
    caches: list[tuple[Cache, ...]] = [
        (full if full is not None and index in listed else mixer,) for index in range(layers)
    ]

    def count() -> Weights:
        mixing = mamba2_mixer(
            hidden, mixer, inner,
            bias=c.boolean("mamba_proj_bias", default=False),
            conv_bias=c.boolean("mamba_conv_bias", default=True),
            prefix="mamba",
        )  # fmt: skip
        common = _mlp_and_norms(c, hidden)
        attending = _attention(c, hidden) if listed else []
        counted = [
            (*(attending if index in listed else mixing), *common) for index in range(layers)
        ]
        return Weights(counted, (*vocabulary(c), *norm("model.final_layernorm", hidden)))

    return Architecture(caches, count)


def falcon_h1(c: Fields) -> Architecture:
    """Falcon-H1: attention and Mamba-2 side by side in every layer.

    The mixer's width is ``mamba_d_ssm``; where it is left out, its heads give it.
    """
    layers, hidden = c.layers(), c.hidden()
    heads = c.integer("mamba_n_heads")
    inner = c.optional_integer("mamba_d_ssm")
    if inner is None:
        stated = c.raw("mamba_d_head")
        if stated is None or stated == "auto":
            inner = c.integer("mamba_expand") * hidden
        else:
            inner = heads * c.checked(stated, "mamba_d_head")
    mixer = mamba2_state(
        c, heads, _divided(c, "mamba_d_head", inner, heads), c.integer("mamba_n_groups"),
        c.integer("mamba_d_state"), c.integer("mamba_d_conv"),
    )  # fmt: skip
    full = head_cache(c)

    def count() -> Weights:
        layer = [
            *_attention(c, hidden),
            *mamba2_mixer(
                hidden, mixer, inner,
                bias=c.boolean("mamba_proj_bias", default=False),
                out_bias=c.boolean("projectors_bias", default=False),
                conv_bias=c.boolean("mamba_conv_bias", default=True),
                gated_norm=c.boolean("mamba_rms_norm", default=False),
                prefix="mamba",
            ),
            *_mlp_and_norms(c, hidden),
        ]  # fmt: skip
        outside = (*vocabulary(c), *norm("model.final_layernorm", hidden))
        return Weights([tuple(layer)] * layers, outside)

    return Architecture([(full, mixer)] * layers, count)


def granitemoehybrid(c: Fields) -> Architecture:
    """Granite 4: Mamba-2 or attention as ``layer_types`` says, experts where there are any."""
    layers, hidden = c.layers(), c.hidden()
    kinds = (
        layer_kinds(c, layers, (LINEAR, FULL))
        or layer_kinds(c, layers, (LINEAR, FULL), key="layers_block_type")
        or [LINEAR] * layers
    )
    mixer, inner = _expanded_mamba2(c, hidden) if LINEAR in kinds else (None, 0)
    full = head_cache(c) if FULL in kinds else None
    caches: list[tuple[Cache, ...]] = []
    for kind in kinds:
        cache = full if kind == FULL else mixer
        caches.append((cache,) if cache is not None else ())

    def count() -> Weights:
        shared = c.integer("shared_intermediate_size")
        common = [
            *norm("input_layernorm", hidden),
            *norm("post_attention_layernorm", hidden),
            Tensor(
                SHARED_EXPERTS, "shared_mlp.input_linear", 2 * shared, hidden, units=2 * shared
            ),
            Tensor(
                SHARED_EXPERTS, "shared_mlp.output_linear", hidden, shared, units=shared,
                by_column=True,
            ),
        ]  # fmt: skip
        experts = c.integer("num_local_experts", "num_experts", minimum=0)
        if experts:
            wide = c.integer("intermediate_size")
            common += experts_of(c, hidden, experts, wide, "block_sparse_moe.experts.*")
            common += router(hidden, experts, prefix="block_sparse_moe.router")
        else:
            common = [t._replace(part=MLP) if t.part == SHARED_EXPERTS else t for t in common]
        by_kind: dict[str, list[Tensor]] = {}
        if full is not None:
            by_kind[FULL] = _attention(c, hidden)
        if mixer is not None:
            by_kind[LINEAR] = mamba2_mixer(
                hidden, mixer, inner,
                bias=c.boolean("mamba_proj_bias", default=False),
                conv_bias=c.boolean("mamba_conv_bias", default=True),
                prefix="mamba",
            )  # fmt: skip
        counted = [(*by_kind[kind], *common) for kind in kinds]
        return Weights(counted, (*vocabulary(c), *norm("model.norm", hidden)))

    return Architecture(caches, count)


def _expanded_mamba2(c: Fields, hidden: int) -> tuple[Recurrent, int]:
    """A Mamba-2 state of ``mamba_expand`` times the hidden size, and that width."""
    inner, heads = c.integer("mamba_expand") * hidden, c.integer("mamba_n_heads")
    head_size = _divided(c, "mamba_d_head", inner, heads)
    state = mamba2_state(
        c, heads, head_size, c.integer("mamba_n_groups"), c.integer("mamba_d_state"),
        c.integer("mamba_d_conv"),
    )  # fmt: skip
    return state, inner


def _divided(c: Fields, key: str, inner: int, heads: int) -> int:
    """The mixer's head size, which times its heads must be its width."""
    size = head_size_or(c, key, inner, heads)
    if size * heads != inner:
        raise MalformedFile(
            c.where, f"mamba_n_heads {heads} x {key} {size} is not the mixer's width {inner}"
        )
    return size


def _attention(c: Fields, hidden: int) -> list[Tensor]:
    """The attention of these families, with biases only where the config switches them on."""
    bias = c.boolean("attention_bias", default=False)
    return attention(
        hidden, c.heads(), kv_heads(c, c.heads()), c.head_size(),
        qkv_bias=bias, o_bias=bias,
    )  # fmt: skip


def _mlp_and_norms(c: Fields, hidden: int) -> list[Tensor]:
    return [
        *gated_mlp(
            hidden, c.integer("intermediate_size"), prefix="feed_forward",
            bias=c.boolean("mlp_bias", default=False),
        ),
        *norm("input_layernorm", hidden),
        *norm("pre_ff_layernorm", hidden),
    ]  # fmt: skip
