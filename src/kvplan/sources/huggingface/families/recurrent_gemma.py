"""RecurrentGemma: a gated linear recurrence in two layers of three, a window in the third.

Source: transformers 5.24 ``modeling_recurrent_gemma.py``, ``configuration_recurrent_gemma.py``.
"""

from __future__ import annotations

from kvplan.errors import UnsupportedArchitecture
from kvplan.model.caches import Cache, FullAttention, Recurrent, SlidingWindow
from kvplan.model.tensors import Tensor, attention, gated_mlp, norm
from kvplan.sources.huggingface.architecture import Architecture, Weights, kv_heads, vocabulary
from kvplan.sources.huggingface.families.recurrent import model_bytes, projection, vector
from kvplan.sources.huggingface.fields import Fields

DEFAULTS = {
    # configuration_recurrent_gemma.py: RecurrentGemmaConfig
    "recurrent_gemma": {
        "attention_window_size": 2048,
        "conv1d_width": 4,
        "block_types": ["recurrent", "recurrent", "attention"],
        "tie_word_embeddings": True,
    },
}

_RECURRENT, _ATTENTION = "recurrent", "attention"


def recurrent_gemma(c: Fields) -> Architecture:
    """RecurrentGemma 2B and 9B; ``block_types`` is repeated over the layers."""
    layers, hidden, heads = c.layers(), c.hidden(), c.heads()
    cycle = c.sequence("block_types", "_block_types") or []
    for index, kind in enumerate(cycle):
        if kind not in {_RECURRENT, _ATTENTION}:
            raise UnsupportedArchitecture(
                f"block_types[{index}]", kind, where=c.where, known=(_RECURRENT, _ATTENTION)
            )
    if not cycle:
        raise UnsupportedArchitecture("block_types", cycle, where=c.where)
    kinds = [cycle[index % len(cycle)] for index in range(layers)]
    width = c.optional_integer("lru_width") or hidden
    kept, size = kv_heads(c, heads), c.head_size()
    state = Recurrent("rg_lru", width, c.integer("conv1d_width"), width, width, model_bytes(c))
    full = FullAttention(kept, size, size)
    span = c.integer("attention_window_size", "sliding_window")
    by_kind: dict[str, tuple[Cache, ...]] = {
        _RECURRENT: (state,),
        _ATTENTION: (SlidingWindow(*full[:3], span),),
    }

    def count() -> Weights:
        common = [
            *gated_mlp(hidden, c.integer("intermediate_size") // 2, prefix="mlp_block", bias=True),
            *norm("temporal_pre_norm", hidden),
            *norm("channel_pre_norm", hidden),
        ]
        bodies = {
            _RECURRENT: _recurrent_block(hidden, width, heads, state.conv_kernel),
            _ATTENTION: attention(
                hidden, heads, kept, size, qkv_bias=c.boolean("attention_bias", default=False),
                o_bias=True, prefix="temporal_block",
            ),
        }  # fmt: skip
        outside = (*vocabulary(c, tied_by_default=True), *norm("model.final_norm", hidden))
        return Weights([(*bodies[kind], *common) for kind in kinds], outside)

    return Architecture([by_kind[kind] for kind in kinds], count)


def _recurrent_block(hidden: int, width: int, heads: int, kernel: int) -> list[Tensor]:
    """Two branches, a convolution, and gates that are square blocks a head."""
    block = width // heads
    prefix = "temporal_block"
    tensors = [
        *projection(f"{prefix}.linear_y", width, hidden, heads, bias=True),
        *projection(f"{prefix}.linear_x", width, hidden, heads, bias=True),
        *projection(f"{prefix}.linear_out", hidden, width, heads, bias=True, by_column=True),
        vector(f"{prefix}.conv_1d", width * kernel, heads),
        vector(f"{prefix}.conv_1d.bias", width, heads),
        vector(f"{prefix}.rg_lru.recurrent_param", width, heads),
    ]
    for gate in ("input_gate", "recurrent_gate"):
        tensors += [
            vector(f"{prefix}.rg_lru.{gate}_weight", heads * block * block, heads),
            vector(f"{prefix}.rg_lru.{gate}_bias", heads * block, heads),
        ]
    return tensors
