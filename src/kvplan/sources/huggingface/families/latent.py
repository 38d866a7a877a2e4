"""Latent attention outside DeepSeek: MiniCPM 3, GLM-4.7-Flash, LongCat, Youtu, A.X K1, Mistral 4.

Source: transformers ``modeling_<model_type>.py`` and ``configuration_<model_type>.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvplan.model.tensors import Tensor, gated_mlp, norm
from kvplan.sources.huggingface.architecture import Architecture, Weights
from kvplan.sources.huggingface.families.blocks import (
    PRE_NORMS,
    after_first,
    by_kind,
    experts,
    layer_mlp,
    mlp_kinds,
    norms,
    outside,
)
from kvplan.sources.huggingface.families.deepseek import latent_caches, latent_projections
from kvplan.sources.huggingface.families.routed import active, deepseek_experts
from kvplan.sources.huggingface.fields import Fields

DEFAULTS = {
    # configuration_minicpm3.py and so on: sizes that every published file states are not here.
    "minicpm3": {"v_head_dim": 64, "kv_lora_rank": 256, "qk_rope_head_dim": 32},
}


def latent_weights(
    c: Fields,
    *,
    sparse: Callable[[], Sequence[Tensor]] | None = None,
    is_sparse: Callable[[], Sequence[bool]] | None = None,
    mlp_bias: bool = False,
    tied: bool = False,
) -> Callable[[], Weights]:
    """Counts layers of latent attention with an MLP, or with experts where ``is_sparse`` says."""

    def count() -> Weights:
        kinds = [sparse is not None] * c.layers() if is_sparse is None else is_sparse()
        common = (*latent_projections(c), *norms(PRE_NORMS, c.hidden()))

        def layer(has_experts: bool) -> Sequence[Tensor]:
            if has_experts and sparse is not None:
                return (*common, *sparse())
            return (*common, *layer_mlp(c, bias=mlp_bias))

        return Weights(by_kind(kinds, layer), outside(c, tied=tied))

    return count


def minicpm3(c: Fields) -> Architecture:
    """MiniCPM 3: dense, tied."""
    weights = latent_weights(c, mlp_bias=c.boolean("mlp_bias", default=False), tied=True)
    return Architecture(latent_caches(c), weights)


def youtu(c: Fields) -> Architecture:
    """Youtu-LLM: dense, tied."""
    return Architecture(latent_caches(c), latent_weights(c, tied=True))


def glm4_moe_lite(c: Fields) -> Architecture:
    """GLM-4.7-Flash: one dense layer, then experts."""
    weights = latent_weights(
        c,
        sparse=lambda: deepseek_experts(c),
        is_sparse=lambda: mlp_kinds(c, c.layers(), lambda: after_first(c, c.layers(), default=1)),
    )
    return Architecture(latent_caches(c), weights)


def mistral4(c: Fields) -> Architecture:
    """Mistral Small 4: experts from layer ``first_k_dense_replace`` on, no correction bias."""

    def sparse() -> Sequence[Tensor]:
        inner = c.integer("moe_intermediate_size")
        shared = c.optional_integer("n_shared_experts", minimum=0) or 0
        return experts(
            c.hidden(), c.integer("n_routed_experts"), inner, active(c), shared=inner * shared
        )

    weights = latent_weights(c, sparse=sparse, is_sparse=lambda: after_first(c, c.layers()))
    return Architecture(latent_caches(c), weights)


def axk1(c: Fields) -> Architecture:
    """A.X K1: as DeepSeek V3 with a norm behind the experts."""

    def is_sparse() -> list[bool]:
        every = c.optional_integer("moe_layer_freq") or 1
        late = after_first(c, c.layers(), default=1)
        return [is_late and index % every == 0 for index, is_late in enumerate(late)]

    weights = latent_weights(
        c,
        sparse=lambda: [*deepseek_experts(c), *norm("mlp.post_mlp_layernorm", c.hidden())],
        is_sparse=lambda: mlp_kinds(c, c.layers(), is_sparse),
    )
    return Architecture(latent_caches(c), weights)


def longcat_flash(c: Fields) -> Architecture:
    """LongCat-Flash: every layer has two attentions, two MLPs and one set of experts.

    So it keeps two caches. The router also chooses among ``zero_expert_num`` experts that do
    nothing and have no weights.
    """
    layers = c.optional_integer("num_layers") or c.integer("num_hidden_layers") // 2
    cache = latent_caches(c)[0][0]

    def count() -> Weights:
        hidden = c.hidden()
        width = c.integer("ffn_hidden_size", "intermediate_size")
        half = [*latent_projections(c), *gated_mlp(hidden, width), *norms(PRE_NORMS, hidden)]
        routed = c.integer("n_routed_experts")
        layer = [
            *half,
            *half,
            *experts(
                hidden,
                routed,
                c.integer("expert_ffn_hidden_size"),
                active(c, "moe_topk"),
            ),
        ]
        idle = c.optional_integer("zero_expert_num", minimum=0) or 0
        layer = [
            tensor._replace(rows=routed + idle) if tensor.name == "mlp.gate" else tensor
            for tensor in layer
        ]
        if c.boolean("router_bias", default=False):
            layer.append(Tensor("router", "mlp.gate.bias", routed + idle))
        return Weights([tuple(layer)] * layers, outside(c))

    return Architecture([(cache, cache)] * layers, count)
