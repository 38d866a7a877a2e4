"""Step 3.5 and 3.7: window layers with query heads of their own.

Source: transformers ``modeling_step3p7.py``, ``configuration_step3p7.py``; vLLM
``model_executor/models/step3p5.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.model.tensors import ATTENTION, Tensor, attention
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
    PRE_NORMS,
    by_kind,
    expect,
    experts,
    layer_mlp,
    mlp_kinds,
    norms,
    outside,
)
from kvplan.sources.huggingface.families.dense import attention_bias
from kvplan.sources.huggingface.families.routed import active
from kvplan.sources.huggingface.fields import Fields, MissingField

DEFAULTS = {
    # configuration_step3p7.py: Step3p7TextConfig
    "step3p7": {"head_dim": 128},
}


def step3p7(c: Fields) -> Architecture:
    """Step 3.5 and 3.7: window layers have query heads of their own, the same key-value heads."""
    layers, cache = c.layers(), head_cache(c)
    kinds = stated_layer_types(c, layers) or [FULL] * layers
    expect(c, "use_head_wise_attn_gate", True)

    def count() -> Weights:
        hidden, bias, heads = c.hidden(), attention_bias(c), c.heads()
        sparse = mlp_kinds(c, layers, lambda: _step_sparse(c, layers))
        own = {FULL: heads}
        if SLIDING in kinds:
            own[SLIDING] = _step_window_heads(c, heads)

        def layer(kind: tuple[str, bool]) -> Sequence[Tensor]:
            queries = own[kind[0]]
            tensors = [
                *attention(
                    hidden, queries, cache.num_kv_heads, cache.head_size,
                    qkv_bias=bias, o_bias=bias, head_norms=True,
                ),
                Tensor(ATTENTION, "self_attn.g_proj", queries, hidden, units=queries),
                *norms(PRE_NORMS, hidden),
            ]  # fmt: skip
            if not kind[1]:
                return [*tensors, *layer_mlp(c)]
            return [
                *tensors,
                *experts(
                    hidden,
                    c.integer("n_routed_experts", "moe_num_experts", "num_experts"),
                    c.integer("moe_intermediate_size"),
                    active(c, "num_experts_per_tok", "moe_top_k"),
                    shared=c.integer("share_expert_dim"),
                    correction="mlp.router_bias",
                ),
            ]

        return Weights(by_kind(list(zip(kinds, sparse, strict=True)), layer), outside(c))

    return Architecture(typed_caches(c, cache, kinds, window(c)), count)


def _step_window_heads(c: Fields, heads: int) -> int:
    stated = c.optional_integer("num_sliding_attention_heads")
    if stated is not None:
        return stated
    other = c.nested("attention_other_setting")
    if other is None:
        raise MissingField(c.where, "num_sliding_attention_heads")
    return other.optional_integer("num_attention_heads") or heads


def _step_sparse(c: Fields, layers: int) -> list[bool]:
    listed = c.raw("moe_layers_enum")
    if isinstance(listed, str):
        sparse = {c.checked(int(i), "moe_layers_enum", 0) for i in listed.split(",") if i.strip()}
    elif listed is None:
        sparse = set(range(3, layers))
    else:
        sparse = c.indices("moe_layers_enum") or set()
    return [index in sparse for index in range(layers)]
