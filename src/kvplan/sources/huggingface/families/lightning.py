"""MiniMax-Text-01: lightning attention in most layers, plain attention in the others.

Source: transformers 5.24 ``modeling_minimax.py``, ``configuration_minimax.py``; vLLM 0.33
``MambaStateShapeCalculator.linear_attention_state_shape``.
"""

from __future__ import annotations

from kvplan.errors import UnsupportedArchitecture
from kvplan.model.caches import Cache, Recurrent
from kvplan.model.tensors import NORMS, Tensor, attention, norm, router
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
    layer_kinds,
    model_bytes,
    projection,
    state_dtype,
)
from kvplan.sources.huggingface.fields import Fields, MissingField


def minimax(c: Fields) -> Architecture:
    """MiniMax-Text-01 and M1: one square matrix a head, and no convolution."""
    layers, hidden = c.layers(), c.hidden()
    kinds = layer_kinds(c, layers, (LINEAR, FULL)) or _numbered_kinds(c, layers)
    heads, size = c.heads(), c.head_size()
    element_bytes, stated = state_dtype(c)
    state = Recurrent(
        "lightning", 0, 1, heads * size * size, heads, model_bytes(c), element_bytes, stated
    )
    by_kind: dict[str, tuple[Cache, ...]] = {LINEAR: (state,), FULL: (head_cache(c),)}

    def count() -> Weights:
        shared = c.raw("shared_intermediate_size")
        if shared not in (None, 0, [], [0]):
            raise UnsupportedArchitecture("shared_intermediate_size", shared, where=c.where)
        width = heads * size
        prefix = "self_attn"
        lightning = [
            *projection(f"{prefix}.qkv_proj", 3 * width, hidden, heads),
            *projection(f"{prefix}.output_gate", width, hidden, heads),
            *projection(f"{prefix}.out_proj", hidden, width, heads, by_column=True),
            Tensor(NORMS, f"{prefix}.norm", width, units=heads),
        ]
        bodies = {LINEAR: lightning, FULL: attention(hidden, heads, kv_heads(c, heads), size)}
        experts = c.integer("num_local_experts")
        common = [
            *experts_of(c, hidden, experts, c.integer("intermediate_size"), "mlp.experts.*"),
            *router(hidden, experts),
            *norm("input_layernorm", hidden),
            *norm("post_attention_layernorm", hidden),
        ]
        counted = [(*bodies[kind], *common) for kind in kinds]
        return Weights(counted, (*vocabulary(c), *norm("model.norm", hidden)))

    return Architecture([by_kind[kind] for kind in kinds], count)


def _numbered_kinds(c: Fields, layers: int) -> list[str]:
    """``attn_type_list``: 0 is lightning attention, 1 is plain attention."""
    numbers = c.sequence("attn_type_list", length=layers)
    if numbers is None:
        raise MissingField(c.where, "layer_types")
    for index, number in enumerate(numbers):
        if isinstance(number, bool) or number not in (0, 1):
            raise UnsupportedArchitecture(
                f"attn_type_list[{index}]", number, where=c.where, known=("0", "1")
            )
    return [FULL if number else LINEAR for number in numbers]
