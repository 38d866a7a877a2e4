"""Mamba, Falcon-Mamba and Mamba-2: a recurrent state in every layer and no attention.

Source: transformers 5.24 ``modeling_mamba.py``, ``modeling_falcon_mamba.py``,
``modeling_mamba2.py`` and their configurations.
"""

from __future__ import annotations

from kvplan.errors import MalformedFile
from kvplan.model.tensors import norm
from kvplan.sources.huggingface.architecture import Architecture, Weights, alike, vocabulary
from kvplan.sources.huggingface.families.recurrent import (
    mamba1_mixer,
    mamba1_state,
    mamba2_mixer,
    mamba2_state,
    time_step_rank,
)
from kvplan.sources.huggingface.fields import Fields

_COMMON = {"expand": 2, "conv_kernel": 4}

DEFAULTS = {
    # configuration_mamba.py: MambaConfig; configuration_falcon_mamba.py: FalconMambaConfig
    "mamba": {**_COMMON, "state_size": 16},
    # configuration_mamba2.py: Mamba2Config
    "mamba2": {**_COMMON, "state_size": 128, "head_dim": 64, "n_groups": 8},
}


def mamba(c: Fields) -> Architecture:
    """Mamba and Falcon-Mamba.

    ``intermediate_size`` wins over ``expand``, which Falcon-Mamba's file states wrongly (16).
    """
    layers, hidden = c.layers(), c.hidden()
    inner = c.optional_integer("intermediate_size") or c.integer("expand") * hidden
    state, kernel = c.integer("state_size"), c.integer("conv_kernel")
    cache = mamba1_state(c, inner, state, kernel)

    def count() -> Weights:
        layer = [
            *norm("norm", hidden),
            *mamba1_mixer(
                hidden, inner, state, kernel, time_step_rank(c, "time_step_rank", hidden),
                bias=c.boolean("use_bias", default=False),
                conv_bias=c.boolean("use_conv_bias", default=True),
            ),
        ]  # fmt: skip
        outside = (*vocabulary(c, tied_by_default=True), *norm("backbone.norm_f", hidden))
        return Weights(alike(layer, layers), outside)

    return Architecture([(cache,)] * layers, count)


def mamba2(c: Fields) -> Architecture:
    """Mamba-2 and Codestral-Mamba."""
    layers, hidden = c.layers(), c.hidden()
    inner = c.integer("expand") * hidden
    head_size = c.integer("head_dim")
    heads = c.optional_integer("num_heads") or inner // head_size
    if heads * head_size != inner:
        raise MalformedFile(
            c.where, f"num_heads {heads} x head_dim {head_size} is not expand x hidden_size {inner}"
        )
    cache = mamba2_state(
        c, heads, head_size, c.integer("n_groups"), c.integer("state_size"),
        c.integer("conv_kernel"),
    )  # fmt: skip

    def count() -> Weights:
        layer = [
            *norm("norm", hidden),
            *mamba2_mixer(
                hidden, cache, inner,
                bias=c.boolean("use_bias", default=False),
                conv_bias=c.boolean("use_conv_bias", default=True),
            ),
        ]  # fmt: skip
        return Weights(alike(layer, layers), (*vocabulary(c), *norm("backbone.norm_f", hidden)))

    return Architecture([(cache,)] * layers, count)
