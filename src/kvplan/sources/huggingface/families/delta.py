"""Gated delta net beside attention: Qwen3-Next and Qwen3.5.

A linear layer holds one ``value x key`` matrix a value head and the last inputs of its
convolution, whatever the length; every fourth layer or so keeps keys and values.

Source: transformers 5.24 ``modeling_qwen3_next.py``, ``modeling_qwen3_5.py``,
``modeling_qwen3_5_moe.py`` and their configurations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kvplan.model.caches import Cache, Recurrent
from kvplan.model.tensors import (
    NORMS,
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
    SPELLINGS,
    layer_kinds,
    model_bytes,
    projection,
    state_dtype,
    vector,
)
from kvplan.sources.huggingface.fields import Fields

INDEXED = "indexed_attention"

QWEN = {
    # configuration_qwen3_next.py: Qwen3NextConfig; configuration_qwen3_5.py: Qwen3_5TextConfig
    "head_dim": 256,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "full_attention_interval": 4,
}

DEFAULTS = {
    "qwen3_next": QWEN,
    "qwen3_5": QWEN,
    "qwen3_5_moe": QWEN,
}


class Delta(NamedTuple):
    """Heads of a gated delta net."""

    key_heads: int
    key_size: int
    value_heads: int
    value_size: int
    kernel: int

    @property
    def key_width(self) -> int:
        """All key heads together."""
        return self.key_heads * self.key_size

    @property
    def value_width(self) -> int:
        """All value heads together."""
        return self.value_heads * self.value_size

    def state(self, c: Fields) -> Recurrent:
        """A matrix a value head, and convolutions over queries, keys and values."""
        size, stated = state_dtype(c)
        return Recurrent(
            "gated_delta_net",
            2 * self.key_width + self.value_width,
            self.kernel,
            self.value_width * self.key_size,
            self.value_heads,
            model_bytes(c),
            size,
            stated,
        )

    def mixer(self, hidden: int, inputs: Sequence[tuple[str, int]], output: str) -> list[Tensor]:
        """The input projections by name and rows, two numbers a head, and the output."""
        heads, channels = self.value_heads, 2 * self.key_width + self.value_width
        tensors = [
            vector("linear_attn.conv1d", channels * self.kernel, heads),
            vector("linear_attn.A_log", heads, heads),
            vector("linear_attn.dt_bias", heads, heads),
            Tensor(NORMS, "linear_attn.norm", self.value_size),
        ]
        for name, rows in inputs:
            tensors += projection(f"linear_attn.{name}", rows, hidden, heads)
        out = f"linear_attn.{output}"
        tensors += projection(out, hidden, self.value_width, heads, by_column=True)
        return tensors

    def fused_mixer(self, hidden: int) -> list[Tensor]:
        """Qwen3-Next: query, key, value and gate in one projection, the two numbers in another."""
        rows = 2 * self.key_width + 2 * self.value_width
        inputs = (("in_proj_qkvz", rows), ("in_proj_ba", 2 * self.value_heads))
        return self.mixer(hidden, inputs, "out_proj")

    def split_mixer(self, hidden: int) -> list[Tensor]:
        """Qwen3.5 and kin: one projection each."""
        inputs = (
            ("in_proj_qkv", 2 * self.key_width + self.value_width),
            ("in_proj_z", self.value_width),
            ("in_proj_b", self.value_heads),
            ("in_proj_a", self.value_heads),
        )
        return self.mixer(hidden, inputs, "out_proj")

    def separate_mixer(self, hidden: int) -> list[Tensor]:
        """OLMo-Hybrid: every projection apart."""
        inputs = (
            ("q_proj", self.key_width),
            ("k_proj", self.key_width),
            ("v_proj", self.value_width),
            ("g_proj", self.value_width),
            ("a_proj", self.value_heads),
            ("b_proj", self.value_heads),
        )
        return self.mixer(hidden, inputs, "o_proj")


def qwen_delta(c: Fields) -> Delta:
    """The heads by the names of Qwen's files."""
    return Delta(
        c.integer("linear_num_key_heads"),
        c.integer("linear_key_head_dim"),
        c.integer("linear_num_value_heads"),
        c.integer("linear_value_head_dim"),
        c.integer("linear_conv_kernel_dim"),
    )


def qwen3_next(c: Fields) -> Architecture:
    """Qwen3-Next and Qwen3-Coder-Next: experts in every layer, attention in every fourth."""
    return _qwen(c, Delta.fused_mixer, _mixture(c))


def qwen3_5(c: Fields) -> Architecture:
    """Qwen3.5 and 3.6, dense."""

    def feed(hidden: int, _: int) -> list[Tensor]:
        return gated_mlp(hidden, c.integer("intermediate_size"))

    return _qwen(c, Delta.split_mixer, feed)


def qwen3_5_moe(c: Fields) -> Architecture:
    """Qwen3.5 and later, with experts in every layer."""
    return _qwen(c, Delta.split_mixer, _mixture(c))


Feed = Callable[[int, int], list[Tensor]]
"""The tensors of a layer's MLP or experts, from the hidden size and the layer's number."""


def interval_kinds(c: Fields, layers: int, full: str = FULL) -> list[str]:
    """The stated list, or attention in every ``full_attention_interval``-th layer."""
    kinds = layer_kinds(c, layers, (LINEAR, full), spellings=_spellings(full))
    if kinds is not None:
        return kinds
    interval = c.integer("full_attention_interval")
    return [LINEAR if (index + 1) % interval else full for index in range(layers)]


def _spellings(full: str) -> dict[str, str]:
    extra = {FULL: full, "qwen_sparse_attention": full} if full == INDEXED else {}
    return {**SPELLINGS, "attention": full, **extra}


def _qwen(c: Fields, mixer: Callable[[Delta, int], list[Tensor]], feed: Feed) -> Architecture:
    layers, hidden = c.layers(), c.hidden()
    kinds, delta = interval_kinds(c, layers), qwen_delta(c)
    by_kind: dict[str, tuple[Cache, ...]] = {
        LINEAR: (delta.state(c),) if LINEAR in kinds else (),
        FULL: (head_cache(c),) if FULL in kinds else (),
    }

    def count() -> Weights:
        bodies = {LINEAR: mixer(delta, hidden), FULL: gated_attention(c, hidden)}
        norms = [*norm("input_layernorm", hidden), *norm("post_attention_layernorm", hidden)]
        counted = [
            (*bodies[kind], *feed(hidden, index), *norms) for index, kind in enumerate(kinds)
        ]
        return Weights(counted, (*vocabulary(c), *norm("model.norm", hidden)))

    return Architecture([by_kind[kind] for kind in kinds], count)


def gated_attention(c: Fields, hidden: int) -> list[Tensor]:
    """Attention whose query projection also yields a gate; norms on query and key heads."""
    bias = c.boolean("attention_bias", default=False)
    return attention(
        hidden, c.heads(), kv_heads(c, c.heads()), c.head_size(),
        qkv_bias=bias, o_bias=bias, head_norms=True,
        gated=c.boolean("attn_output_gate", default=True),
    )  # fmt: skip


def _mixture(c: Fields) -> Feed:
    """Experts with a gated shared expert, or an MLP where the config says so."""

    def feed(hidden: int, index: int) -> list[Tensor]:
        step = c.optional_integer("decoder_sparse_step") or 1
        dense_layers = c.sequence("mlp_only_layers") or ()
        experts = c.integer("num_experts", "n_routed_experts", minimum=0)
        if experts and index not in dense_layers and (index + 1) % step == 0:
            return shared_mixture(c, hidden, experts, gated=True)
        return gated_mlp(hidden, c.integer("intermediate_size"))

    return feed


def shared_mixture(c: Fields, hidden: int, experts: int, *, gated: bool) -> list[Tensor]:
    """Routed experts and one shared expert, whose output is gated in Qwen's models."""
    tensors = [
        *experts_of(c, hidden, experts, c.integer("moe_intermediate_size")),
        *router(hidden, experts),
        *gated_mlp(
            hidden, c.integer("shared_expert_intermediate_size"),
            part=SHARED_EXPERTS, prefix="mlp.shared_expert",
        ),
    ]  # fmt: skip
    if gated:
        tensors += router(hidden, 1, prefix="mlp.shared_expert_gate")
    return tensors
