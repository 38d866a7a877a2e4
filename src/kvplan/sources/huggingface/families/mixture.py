"""Dense attention with a mixture of experts in place of the MLP.

Source: transformers ``modeling_mixtral.py``, ``modeling_qwen3_moe.py``, ``modeling_gpt_oss.py``.
"""

from __future__ import annotations

from kvplan.model.tensors import ATTENTION, EXPERTS, Tensor, attention, gated_mlp, norm, router
from kvplan.sources.huggingface.architecture import (
    FULL,
    SLIDING,
    Architecture,
    Weights,
    alike,
    head_cache,
    kv_heads,
    stated_layer_types,
    typed_caches,
    vocabulary,
    window,
)
from kvplan.sources.huggingface.families.llama import all_sliding, qwen_caches
from kvplan.sources.huggingface.fields import Fields


def mixtral(c: Fields) -> Architecture:
    """Mixtral: ``num_local_experts`` gated experts and a router in every layer."""

    def count() -> Weights:
        hidden, heads = c.hidden(), c.heads()
        experts = c.integer("num_local_experts")
        layer = [
            *attention(hidden, heads, kv_heads(c, heads), c.head_size()),
            *experts_of(
                c, hidden, experts, c.integer("intermediate_size"), "block_sparse_moe.experts.*"
            ),
            *router(hidden, experts, prefix="block_sparse_moe.gate"),
            *norm("input_layernorm", hidden),
            *norm("post_attention_layernorm", hidden),
        ]
        return Weights(alike(layer, c.layers()), (*vocabulary(c), *norm("model.norm", hidden)))

    return Architecture(all_sliding(c), count)


def qwen3_moe(c: Fields) -> Architecture:
    """Qwen 3 with experts; layers in ``mlp_only_layers`` or off the sparse step keep an MLP."""

    def count() -> Weights:
        hidden, heads = c.hidden(), c.heads()
        bias = c.boolean("attention_bias", default=False)
        common = [
            *attention(
                hidden, heads, kv_heads(c, heads), c.head_size(),
                qkv_bias=bias, o_bias=bias, head_norms=True,
            ),
            *norm("input_layernorm", hidden),
            *norm("post_attention_layernorm", hidden),
        ]  # fmt: skip
        experts = c.integer("num_experts", "num_local_experts", "n_routed_experts", minimum=0)
        step = c.optional_integer("decoder_sparse_step") or 1
        dense_layers = c.indices("mlp_only_layers") or set()
        layers: list[tuple[Tensor, ...]] = []
        sparse = dense = None
        for index in range(c.layers()):
            if experts and index not in dense_layers and (index + 1) % step == 0:
                sparse = sparse or (
                    *common,
                    *experts_of(c, hidden, experts, c.integer("moe_intermediate_size")),
                    *router(hidden, experts),
                )
                layers.append(sparse)
            else:
                dense = dense or (*common, *gated_mlp(hidden, c.integer("intermediate_size")))
                layers.append(dense)
        return Weights(layers, (*vocabulary(c), *norm("model.norm", hidden)))

    # A window that is switched on is in every layer, unlike Qwen 3 without experts.
    slides = c.boolean("use_sliding_window", default=False)
    return Architecture(all_sliding(c) if slides else qwen_caches(c), count)


def gpt_oss(c: Fields) -> Architecture:
    """gpt-oss: layers alternate window and full attention; biases and sinks everywhere."""
    layers, cache = c.layers(), head_cache(c)
    kinds = stated_layer_types(c, layers) or [
        SLIDING if index % 2 == 0 else FULL for index in range(layers)
    ]

    def count() -> Weights:
        hidden, heads = c.hidden(), c.heads()
        experts = c.integer("num_local_experts", "num_experts")
        active = c.optional_integer("num_experts_per_tok", "experts_per_token")
        inner = c.integer("intermediate_size")
        bias = c.boolean("attention_bias", default=True)
        layer = [
            *attention(
                hidden, heads, kv_heads(c, heads), c.head_size(), qkv_bias=bias, o_bias=bias
            ),
            Tensor(ATTENTION, "self_attn.sinks", heads, units=heads),
            *gated_mlp(
                hidden,
                inner,
                part=EXPERTS,
                prefix="mlp.experts",
                copies=experts,
                active=active,
                bias=True,
            ),
            *router(hidden, experts, bias=True, prefix="mlp.router"),
            *norm("input_layernorm", hidden),
            *norm("post_attention_layernorm", hidden),
        ]
        return Weights(alike(layer, layers), (*vocabulary(c), *norm("model.norm", hidden)))

    return Architecture(typed_caches(c, cache, kinds, window(c)), count)


def experts_of(
    c: Fields, hidden: int, experts: int, inner: int, prefix: str = "mlp.experts.*"
) -> list[Tensor]:
    """``experts`` gated MLPs, of which a token uses ``num_experts_per_tok``."""
    active = c.optional_integer("num_experts_per_tok", "num_experts_per_token")
    return gated_mlp(hidden, inner, part=EXPERTS, prefix=prefix, copies=experts, active=active)
