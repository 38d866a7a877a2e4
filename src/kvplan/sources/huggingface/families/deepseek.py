"""DeepSeek V2 and V3: latent attention, a few dense layers, then many experts.

Source: DeepSeek-V2, arXiv 2405.04434; transformers ``modeling_deepseek_v2.py`` and ``_v3.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvplan.errors import UnsupportedArchitecture
from kvplan.model.caches import Cache, Latent
from kvplan.model.tensors import (
    ROUTER,
    SHARED_EXPERTS,
    Tensor,
    gated_mlp,
    latent_attention,
    norm,
    router,
)
from kvplan.sources.huggingface.architecture import Architecture, Weights, vocabulary
from kvplan.sources.huggingface.families.mixture import experts_of
from kvplan.sources.huggingface.fields import Fields

DEFAULTS = {
    # configuration_deepseek_v2.py and _v3.py. V2-Lite states null: its queries have no rank.
    "deepseek_v2": {"q_lora_rank": 1536},
    "deepseek_v3": {"q_lora_rank": 1536},
}


def deepseek_v2(c: Fields) -> Architecture:
    """DeepSeek V2, V2-Lite and Coder-V2."""
    return Architecture(latent_caches(c), moe_weights(c, correction_bias=False))


def deepseek_v3(c: Fields) -> Architecture:
    """DeepSeek V3, V3.1, R1 and Kimi K2: as V2, with a correction bias for the router.

    The multi-token prediction layer is loaded only for speculative decoding and is left out.
    """
    return Architecture(latent_caches(c), moe_weights(c, correction_bias=True))


def latent_caches(c: Fields) -> Sequence[tuple[Cache, ...]]:
    """One latent vector in every layer."""
    return [(latent_cache(c),)] * c.layers()


def latent_cache(c: Fields) -> Latent:
    """The cache of latent attention; a model without rotary positions has no second part.

    ``head_dim`` in these files has no meaning for it.
    """
    return Latent(c.integer("kv_lora_rank"), c.integer("qk_rope_head_dim", minimum=0))


def latent_projections(c: Fields) -> list[Tensor]:
    """The projections of latent attention; ``q_lora_rank`` is null where queries have no rank."""
    return latent_attention(
        c.hidden(),
        c.heads(),
        c.optional_integer("q_lora_rank"),
        c.integer("kv_lora_rank"),
        c.integer("qk_nope_head_dim"),
        c.integer("qk_rope_head_dim", minimum=0),
        c.integer("v_head_dim"),
        bias=c.boolean("attention_bias", default=False),
    )


def moe_weights(c: Fields, *, correction_bias: bool) -> Callable[[], Weights]:
    """Counts layers that are dense up to ``first_k_dense_replace`` and sparse from there on.

    The correction bias (one number an expert) is stored but not trained by gradient; it counts
    as a buffer, as in transformers.
    """

    def count() -> Weights:
        if c.boolean("mlp_bias", default=False):
            raise UnsupportedArchitecture("mlp_bias", True, where=c.where)
        hidden, layers = c.hidden(), c.layers()
        experts = c.optional_integer("n_routed_experts", minimum=0) or 0
        first = c.optional_integer("first_k_dense_replace", minimum=0) or 0
        every = c.optional_integer("moe_layer_freq") or 1
        common = [
            *latent_projections(c),
            *norm("input_layernorm", hidden),
            *norm("post_attention_layernorm", hidden),
        ]
        counted: list[tuple[Tensor, ...]] = []
        dense = sparse = None
        for index in range(layers):
            if experts and index >= first and index % every == 0:
                sparse = sparse or (*common, *mixture_layer(c, hidden, experts, correction_bias))
                counted.append(sparse)
            else:
                dense = dense or (*common, *gated_mlp(hidden, c.integer("intermediate_size")))
                counted.append(dense)
        return Weights(counted, (*vocabulary(c), *norm("model.norm", hidden)))

    return count


def mixture_layer(c: Fields, hidden: int, experts: int, correction_bias: bool) -> list[Tensor]:
    """Routed experts, shared experts and the router of one layer."""
    inner = c.integer("moe_intermediate_size")
    tensors = [*experts_of(c, hidden, experts, inner), *router(hidden, experts)]
    shared = c.optional_integer("n_shared_experts", minimum=0) or 0
    if shared:
        tensors += gated_mlp(
            hidden, inner * shared, part=SHARED_EXPERTS, prefix="mlp.shared_experts"
        )
    if correction_bias:
        tensors.append(Tensor(ROUTER, "mlp.gate.e_score_correction_bias", experts, trained=False))
    return tensors
