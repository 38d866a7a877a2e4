"""Nemotron-H and Nemotron 3: each layer is one of Mamba-2, attention, an MLP or experts.

Source: transformers 5.24 ``modeling_nemotron_h.py``, ``configuration_nemotron_h.py``.
"""

from __future__ import annotations

from kvplan.errors import UnsupportedArchitecture
from kvplan.model.caches import Cache
from kvplan.model.tensors import (
    EXPERTS,
    MLP,
    ROUTER,
    SHARED_EXPERTS,
    Tensor,
    attention,
    norm,
    router,
)
from kvplan.sources.huggingface.architecture import (
    FULL,
    Architecture,
    Weights,
    head_cache,
    kv_heads,
)
from kvplan.sources.huggingface.families.recurrent import (
    DENSE,
    LINEAR,
    MOE,
    layer_kinds,
    mamba2_mixer,
    mamba2_state,
    untied_vocabulary,
)
from kvplan.sources.huggingface.fields import MAX_LAYERS, Fields, MissingField

DEFAULTS = {
    # configuration_nemotron_h.py: NemotronHConfig
    "nemotron_h": {"n_groups": 8, "conv_kernel": 4, "mamba_ssm_cache_dtype": "float32"},
}

_LETTERS = {"M": LINEAR, "*": FULL, "-": DENSE, "E": MOE}
_KINDS = (LINEAR, FULL, DENSE, MOE)


def nemotron_h(c: Fields) -> Architecture:
    """Nemotron-H and Nemotron 3 Nano, Super and Ultra; the MTP block is left out."""
    kinds = block_kinds(c)
    hidden = c.hidden()
    heads, head_size = c.integer("mamba_num_heads"), c.integer("mamba_head_dim")
    mixer = mamba2_state(
        c, heads, head_size, c.integer("n_groups", "mamba_n_groups"),
        c.integer("ssm_state_size"), c.integer("conv_kernel", "mamba_d_conv"),
    )  # fmt: skip
    caches: dict[str, tuple[Cache, ...]] = {LINEAR: (mixer,), DENSE: (), MOE: ()}
    if FULL in kinds:
        caches[FULL] = (head_cache(c),)

    def count() -> Weights:
        by_kind: dict[str, tuple[Tensor, ...]] = {}
        for kind in set(kinds):
            if kind == LINEAR:
                body = mamba2_mixer(
                    hidden, mixer, heads * head_size,
                    bias=c.boolean("use_bias", default=False),
                    conv_bias=c.boolean("use_conv_bias", "mamba_conv_bias", default=True),
                )  # fmt: skip
            elif kind == FULL:
                body = attention(
                    hidden, c.heads(), kv_heads(c, c.heads()), c.head_size(), prefix="mixer"
                )
            elif kind == DENSE:
                body = _two_layers(c, MLP, "mixer", hidden, c.integer("intermediate_size"))
            else:
                body = _experts(c, hidden)
            by_kind[kind] = (*body, *norm("norm", hidden))
        outside = (*untied_vocabulary(c), *norm("model.norm_f", hidden))
        return Weights([by_kind[kind] for kind in kinds], outside)

    return Architecture([caches[kind] for kind in kinds], count)


def block_kinds(c: Fields) -> list[str]:
    """What each layer is: ``layers_block_type``, or a letter each in ``hybrid_override_pattern``.

    The list gives the number of layers; Nemotron-3-Ultra's file states no other.
    """
    layers = c.optional_integer("num_hidden_layers", maximum=MAX_LAYERS)
    for key in ("layers_block_type", "layer_types"):
        kinds = layer_kinds(c, layers, _KINDS, key=key)
        if kinds is not None:
            return kinds
    pattern = c.text("hybrid_override_pattern")
    if pattern is None:
        raise MissingField(c.where, "hybrid_override_pattern")
    unknown = next((letter for letter in pattern if letter not in _LETTERS), None)
    if unknown is not None or (layers is not None and layers != len(pattern)):
        raise UnsupportedArchitecture(
            "hybrid_override_pattern", unknown or pattern, where=c.where, known=_LETTERS
        )
    return [_LETTERS[letter] for letter in pattern]


def _two_layers(
    c: Fields, part: str, prefix: str, hidden: int, inner: int, copies: int = 1, active: int = 1
) -> list[Tensor]:
    """Up and down projections with a squared activation between, so no gate."""
    tensors = [
        Tensor(part, f"{prefix}.up_proj", inner, hidden, copies, inner, active=active),
        Tensor(part, f"{prefix}.down_proj", hidden, inner, copies, inner, True, active),
    ]
    if part != EXPERTS and c.boolean("mlp_bias", default=False):
        tensors += [
            Tensor(part, f"{prefix}.up_proj.bias", inner, units=inner),
            Tensor(part, f"{prefix}.down_proj.bias", hidden),
        ]
    return tensors


def _experts(c: Fields, hidden: int) -> list[Tensor]:
    """Routed experts, which work in a latent of ``moe_latent_size`` where that is stated."""
    experts = c.integer("n_routed_experts")
    active = c.integer("num_experts_per_tok")
    latent = c.optional_integer("moe_latent_size")
    inner = c.integer("moe_intermediate_size")
    shared = c.integer("moe_shared_expert_intermediate_size")
    tensors = [
        *_two_layers(c, EXPERTS, "mixer.experts.*", latent or hidden, inner, experts, active),
        *router(hidden, experts, prefix="mixer.gate"),
        Tensor(ROUTER, "mixer.gate.e_score_correction_bias", experts, trained=False),
        *_two_layers(c, SHARED_EXPERTS, "mixer.shared_experts", hidden, shared),
    ]
    if latent is not None:
        bias = c.boolean("mlp_bias", default=False)
        for name, rows, columns in (
            ("mixer.fc1_latent_proj", latent, hidden),
            ("mixer.fc2_latent_proj", hidden, latent),
        ):
            tensors.append(Tensor(MLP, name, rows, columns))
            if bias:
                tensors.append(Tensor(MLP, f"{name}.bias", rows))
    return tensors
