"""Inkling 2 and its looped Mini: attention with four convolutions a layer, kept in float32.

The looped model runs its middle layers several times, and each pass keeps caches of its own.

Source: transformers 5.24 ``modeling_inkling2.py``, ``modeling_inkling2_loop.py`` and their
configurations.
"""

from __future__ import annotations

from kvplan.errors import MalformedFile
from kvplan.model.tensors import ATTENTION, MIXER, NORMS, Tensor, embedding, head, norm, router
from kvplan.sources.huggingface.architecture import (
    Architecture,
    Weights,
)
from kvplan.sources.huggingface.families.mixture import experts_of
from kvplan.sources.huggingface.families.recurrent import HYBRID, layer_kinds, projection, vector
from kvplan.sources.huggingface.families.zaya import HYBRID_SLIDING, inkling_caches, inkling_heads
from kvplan.sources.huggingface.fields import Fields

_COMMON = {"conv_kernel_size": 4, "d_rel": 16, "rel_extent": 1024}

DEFAULTS = {
    # configuration_inkling2.py: Inkling2TextConfig
    "inkling2": _COMMON,
    # configuration_inkling2_loop.py: Inkling2LoopTextConfig
    "inkling2_loop": _COMMON,
}


def inkling2(c: Fields) -> Architecture:
    """Inkling 2: every sixth layer is full, the others have a window."""
    return _inkling2(c, range(0), 1)


def inkling2_loop(c: Fields) -> Architecture:
    """Inkling 2 Mini: the layers of the loop run ``loop_num_passes`` times."""
    section = c.nested("loop_config")
    if section is not None:
        start, end, passes = (
            section.integer("core_start"), section.integer("core_end"),
            section.integer("num_passes"),
        )  # fmt: skip
    else:
        start, end, passes = (
            c.integer("loop_layer_index_start"), c.integer("loop_layer_index_end"),
            c.integer("loop_num_passes"),
        )  # fmt: skip
    if not start < end <= c.layers():
        raise MalformedFile(c.where, f"layers {start} to {end} of the loop do not exist")
    return _inkling2(c, range(start, end), passes)


def _inkling2(c: Fields, loop: range, passes: int) -> Architecture:
    layers, hidden = c.layers(), c.hidden()
    kinds = layer_kinds(c, layers, (HYBRID, HYBRID_SLIDING), spellings={})
    if kinds is None:
        kinds = [HYBRID_SLIDING if (index + 1) % 6 else HYBRID for index in range(layers)]
    kernel = c.integer("conv_kernel_size", "sconv_kernel_size")
    by_kind = {kind: inkling_caches(c, kind, kernel) for kind in set(kinds)}

    def count() -> Weights:
        rank = 0
        if loop:
            section = c.nested("loop_config")
            rank = section.integer("gate_rank") if section else c.integer("loop_gate_rank")
        common = _common(c, hidden, kernel)
        bodies = {kind: [*_attention(c, hidden, kind, kernel), *common] for kind in set(kinds)}
        counted = []
        for index, kind in enumerate(kinds):
            layer = list(bodies[kind])
            if index:
                queries = 1 if kind == HYBRID_SLIDING else 3
                layer.append(vector("attention_input.query", queries * hidden))
            if index in loop:
                layer += _message_gates(hidden, rank)
            counted.append(tuple(layer))
        outside = [
            embedding(c.vocab(), hidden),
            *norm("model.embed_tokens.embed_norm", hidden),
            *norm("model.norm", hidden),
            Tensor(MIXER, "model.final_input.query", hidden),
            head(c.integer("unpadded_vocab_size", maximum=10**8), hidden),
        ]
        if loop:
            outside.append(Tensor(MIXER, "model.message_input.query", len(loop) * 4 * hidden))
        return Weights(counted, tuple(outside))

    caches = [by_kind[kind] * (passes if index in loop else 1) for index, kind in enumerate(kinds)]
    return Architecture(caches, count)


def _attention(c: Fields, hidden: int, kind: str, kernel: int) -> list[Tensor]:
    """Gated attention with a relative bias and a sink; full layers derive their convolutions."""
    heads, kept, size = inkling_heads(c, kind)
    relative, prefix = c.integer("d_rel"), "self_attn"
    extent = c.integer("sliding_window_size" if kind == HYBRID_SLIDING else "rel_extent")
    tensors = [
        Tensor(ATTENTION, f"{prefix}.q_proj.linear", heads * size, hidden, units=heads),
        Tensor(ATTENTION, f"{prefix}.k_proj.linear", kept * size, hidden, units=kept),
        Tensor(ATTENTION, f"{prefix}.v_proj.linear", kept * size, hidden, units=kept),
        Tensor(ATTENTION, f"{prefix}.o_proj.gate_proj", heads * size, hidden, units=heads),
        Tensor(
            ATTENTION, f"{prefix}.o_proj.linear", hidden, heads * size, units=heads, by_column=True
        ),
        Tensor(ATTENTION, f"{prefix}.sink_proj", heads, hidden, units=heads),
        Tensor(NORMS, f"{prefix}.q_proj.norm.scale", heads * size, units=heads),
        Tensor(
            ATTENTION, f"{prefix}.relative_position_bias.linear", heads * relative, hidden,
            units=heads,
        ),
        Tensor(NORMS, f"{prefix}.relative_position_bias.norm.scale", heads * relative, units=heads),
        vector(f"{prefix}.relative_position_bias.proj", relative * extent),
    ]  # fmt: skip
    for name in ("k_proj", "v_proj"):
        tensors.append(vector(f"{prefix}.{name}.sconv", kept * size * kernel, kept))
        if kind == HYBRID:
            tensors += projection(f"{prefix}.{name}.sconv.weight_proj", kept * kernel, hidden, kept)
    inputs = ("q_", "k_", "v_") if kind == HYBRID else ("",)
    for name in inputs:
        tensors += norm(f"{name}input_layernorm", hidden)
    return tensors


def _common(c: Fields, hidden: int, kernel: int) -> list[Tensor]:
    """What both kinds of layer have besides attention."""
    experts = c.integer("n_routed_experts")
    return [
        *experts_of(c, hidden, experts, c.integer("moe_intermediate_size", "intermediate_size")),
        *router(hidden, experts),
        *norm("post_attention_layernorm", hidden),
        vector("mlp_input.query", hidden),
        vector("post_attention_convolution.conv1d", hidden * kernel),
        vector("post_mlp_convolution.conv1d", hidden * kernel),
    ]


def _message_gates(hidden: int, rank: int) -> list[Tensor]:
    """Four gates that mix the last pass into this one."""
    tensors: list[Tensor] = []
    for name in ("q", "k", "v", "mlp"):
        prefix = f"{name}_message_gate"
        tensors += projection(f"{prefix}.down_proj", rank, 2 * hidden, 1)
        tensors += projection(f"{prefix}.forget_gate_proj", hidden, rank, 1)
        tensors += projection(f"{prefix}.message_gate_proj", hidden, rank, 1)
    return tensors
