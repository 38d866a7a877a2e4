"""Kimi delta attention beside latent attention: Kimi-Linear, Kimi-K3, Ling 3.

Source: transformers 5.24 ``modeling_kimi_linear.py``, ``modeling_bailing_hybrid.py``; vLLM 0.33
``models/kimi_k3/amd/linear.py`` and ``kda.py`` for what Kimi-K3 adds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kvplan.errors import MalformedFile, UnsupportedArchitecture
from kvplan.model.caches import Cache, Recurrent
from kvplan.model.tensors import (
    ATTENTION,
    NORMS,
    ROUTER,
    SHARED_EXPERTS,
    Tensor,
    gated_mlp,
    norm,
    router,
)
from kvplan.sources.huggingface.architecture import FULL, Architecture, Weights
from kvplan.sources.huggingface.families.deepseek import latent_cache, latent_projections
from kvplan.sources.huggingface.families.mixture import experts_of
from kvplan.sources.huggingface.families.recurrent import (
    LINEAR,
    layer_kinds,
    model_bytes,
    projection,
    state_dtype,
    untied_vocabulary,
    vector,
)
from kvplan.sources.huggingface.fields import Fields, MissingField

DENSE_MLP, SPARSE_MLP = "dense", "sparse"


class Kda(NamedTuple):
    """Heads of Kimi delta attention; queries, keys and values are alike."""

    heads: int
    head_size: int
    kernel: int

    @property
    def width(self) -> int:
        """All heads together."""
        return self.heads * self.head_size

    def state(self, c: Fields) -> Recurrent:
        """A square matrix a head, always float32 in the published code, and three convolutions."""
        size, stated = state_dtype(c)
        return Recurrent(
            "kda",
            3 * self.width,
            self.kernel,
            self.width * self.head_size,
            self.heads,
            model_bytes(c),
            size,
            stated,
        )

    def mixer(self, hidden: int, *, full_rank_gate: bool, full_rank_decay: bool) -> list[Tensor]:
        """Projections of a layer; decay and gate have the rank of one head or are full."""
        heads, width, prefix = self.heads, self.width, "self_attn"
        tensors = [
            vector(f"{prefix}.conv1d", 3 * width * self.kernel, heads),
            vector(f"{prefix}.A_log", heads, heads),
            vector(f"{prefix}.dt_bias", width, heads),
            Tensor(NORMS, f"{prefix}.o_norm", self.head_size),
            *projection(f"{prefix}.b_proj", heads, hidden, heads),
            *projection(f"{prefix}.o_proj", hidden, width, heads, by_column=True),
        ]
        for name in ("q_proj", "k_proj", "v_proj"):
            tensors += projection(f"{prefix}.{name}", width, hidden, heads)
        for name, is_full in (("f", full_rank_decay), ("g", full_rank_gate)):
            if is_full:
                tensors += projection(f"{prefix}.{name}_proj", width, hidden, heads)
            else:
                tensors += projection(f"{prefix}.{name}_a_proj", self.head_size, hidden, 1)
                tensors += projection(f"{prefix}.{name}_b_proj", width, self.head_size, heads)
        return tensors


def kimi_linear(c: Fields) -> Architecture:
    """Kimi-Linear, and Kimi-K3's text model with its gates, latent experts and residuals."""
    layers, hidden = c.layers(), c.hidden()
    section = c.nested("linear_attn_config")
    kinds = layer_kinds(c, layers, (LINEAR, FULL)) or listed_kinds(c, section, layers, first=1)
    kda = kda_heads(c, section)
    full_gate = section is not None and section.boolean("use_full_rank_gate", default=False)
    by_kind: dict[str, tuple[Cache, ...]] = {LINEAR: (kda.state(c),)}
    if FULL in kinds:
        by_kind[FULL] = (latent_cache(c),)

    def count() -> Weights:
        feed_forwards = feeds(c, hidden, layers, mlp_kinds(c, layers), _kimi_experts)
        gate = c.heads() * c.integer("v_head_dim")
        gated = c.boolean("mla_use_output_gate", default=False)
        bodies = {
            LINEAR: kda.mixer(hidden, full_rank_gate=full_gate, full_rank_decay=False),
            FULL: [*latent_projections(c), *(_output_gate(c, hidden, gate) if gated else ())],
        }
        outside = [*untied_vocabulary(c), *norm("model.norm", hidden)]
        residual: list[Tensor] = []
        if c.optional_integer("attn_res_block_size") is not None:
            residual = [*_residual("self_attention", hidden), *_residual("mlp", hidden)]
            outside += _residual("model.output_attn", hidden)
        counted = [
            (*bodies[kind], *feed, *residual)
            for kind, feed in zip(kinds, feed_forwards, strict=True)
        ]
        return Weights(counted, tuple(outside))

    return Architecture([by_kind[kind] for kind in kinds], count)


def bailing_hybrid(c: Fields) -> Architecture:
    """Ling 3: latent attention in the last layer of each group of ``layer_group_size``.

    Layers beyond the last whole group are told apart by readers of these files (transformers
    takes them for linear, vLLM for latent), so such a file must list its ``layer_types``.
    """
    layers, hidden = c.layers(), c.hidden()
    kinds = layer_kinds(c, layers, (LINEAR, FULL))
    if kinds is None:
        group = c.integer("layer_group_size")
        if layers % group:
            raise UnsupportedArchitecture("layer_group_size", group, where=c.where)
        kinds = [LINEAR if (index + 1) % group else FULL for index in range(layers)]
    size = c.integer("linear_head_dim", "head_dim")
    kda = Kda(c.heads(), size, c.integer("linear_conv_kernel_dim", "short_conv_kernel_size"))
    by_kind: dict[str, tuple[Cache, ...]] = {LINEAR: (kda.state(c),)}
    if FULL in kinds:
        by_kind[FULL] = (latent_cache(c),)

    def count() -> Weights:
        feed_forwards = feeds(c, hidden, layers, mlp_kinds(c, layers), _kimi_experts)
        bodies = {
            LINEAR: kda.mixer(hidden, full_rank_gate=True, full_rank_decay=True),
            FULL: [*latent_projections(c), *_output_gate(c, hidden, c.heads())],
        }
        counted = [(*bodies[kind], *feed) for kind, feed in zip(kinds, feed_forwards, strict=True)]
        return Weights(counted, (*untied_vocabulary(c), *norm("model.norm", hidden)))

    return Architecture([by_kind[kind] for kind in kinds], count)


def kda_heads(c: Fields, section: Fields | None) -> Kda:
    """The heads from ``linear_attn_config``, or from the flat keys of newer files."""
    if section is not None:
        return Kda(
            section.integer("num_heads"),
            section.integer("head_dim"),
            section.integer("short_conv_kernel_size"),
        )
    return Kda(
        c.integer("linear_num_heads"),
        c.integer("linear_head_dim"),
        c.integer("linear_conv_kernel_dim"),
    )


def listed_kinds(c: Fields, section: Fields | None, layers: int, *, first: int) -> list[str]:
    """Kinds from two lists of layer numbers, which Kimi counts from 1 and GLM from 0."""
    if section is None:
        raise MissingField(c.where, "layer_types")
    kinds = [""] * layers
    for key, kind in (("full_attn_layers", FULL), ("kda_layers", LINEAR)):
        for number in section.sequence(key) or ():
            place = section.checked(number, key, first, layers - 1 + first) - first
            if kinds[place]:
                raise MalformedFile(section.where, f"layer {number} is listed twice")
            kinds[place] = kind
    if "" in kinds:
        raise MalformedFile(
            section.where,
            f"layer {kinds.index('') + first} is in neither full_attn_layers nor kda_layers",
        )
    return kinds


def _output_gate(c: Fields, hidden: int, rows: int) -> list[Tensor]:
    return [Tensor(ATTENTION, "self_attn.g_proj", rows, hidden, units=c.heads())]


def _residual(name: str, hidden: int) -> list[Tensor]:
    """Attention residuals of Kimi-K3: a norm and one row that weighs earlier blocks."""
    return [
        Tensor(NORMS, f"{name}_res_norm", hidden),
        *projection(f"{name}_res_proj", 1, hidden, 1),
    ]


def mlp_kinds(c: Fields, layers: int) -> Sequence[str]:
    """Which layers have experts: a list, or all from ``first_k_dense_replace`` on."""
    kinds = c.sequence("mlp_layer_types", length=layers)
    if kinds is None:
        first = c.integer("first_k_dense_replace", minimum=0)
        every = c.optional_integer("moe_layer_freq") or 1
        kinds = [
            SPARSE_MLP if index >= first and index % every == 0 else DENSE_MLP
            for index in range(layers)
        ]
    for index, kind in enumerate(kinds):
        if kind not in {DENSE_MLP, SPARSE_MLP}:
            raise UnsupportedArchitecture(f"mlp_layer_types[{index}]", kind, where=c.where)
    return kinds


def feeds(
    c: Fields,
    hidden: int,
    layers: int,
    kinds: Sequence[str],
    experts: Callable[[Fields, int], list[Tensor]],
) -> list[list[Tensor]]:
    """The MLP or experts of each layer, with the layer's two norms."""
    norms = [*norm("input_layernorm", hidden), *norm("post_attention_layernorm", hidden)]
    bodies = {}
    if DENSE_MLP in kinds:
        bodies[DENSE_MLP] = [*gated_mlp(hidden, c.integer("intermediate_size")), *norms]
    if SPARSE_MLP in kinds:
        bodies[SPARSE_MLP] = [*experts(c, hidden), *norms]
    return [bodies[kinds[index]] for index in range(layers)]


def _kimi_experts(c: Fields, hidden: int) -> list[Tensor]:
    """Experts that may work in a narrower stream (``routed_expert_hidden_size``)."""
    experts, inner = c.integer("num_experts"), c.integer("moe_intermediate_size")
    narrow = c.optional_integer("routed_expert_hidden_size")
    tensors = sparse_mlp(
        c, hidden, narrow or hidden, experts, inner,
        c.integer("num_shared_experts", minimum=0),
    )  # fmt: skip
    if narrow is not None:
        tensors += projection("mlp.routed_expert_down_proj", narrow, hidden, 1)
        tensors += projection("mlp.routed_expert_up_proj", hidden, narrow, 1)
        if c.boolean("latent_moe_use_norm", default=False):
            tensors += norm("mlp.routed_expert_norm", narrow)
    return tensors


def sparse_mlp(
    c: Fields, hidden: int, stream: int, experts: int, inner: int, shared: int
) -> list[Tensor]:
    """Experts on a stream that may be narrower, their router with its correction bias, and the
    shared experts."""
    tensors = [
        *experts_of(c, stream, experts, inner),
        *router(hidden, experts),
        Tensor(ROUTER, "mlp.gate.e_score_correction_bias", experts, trained=False),
    ]
    if shared:
        tensors += gated_mlp(
            hidden, inner * shared, part=SHARED_EXPERTS, prefix="mlp.shared_experts"
        )
    return tensors
