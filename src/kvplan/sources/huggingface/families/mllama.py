"""Llama 3.2 Vision, text part: some layers attend only to pictures.

Source: transformers ``modeling_mllama.py``, ``configuration_mllama.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.errors import UnsupportedArchitecture
from kvplan.model.caches import Cache, CrossAttention
from kvplan.model.tensors import ATTENTION, Tensor, embedding, head, norm
from kvplan.sources.huggingface.architecture import Architecture, Weights, head_cache
from kvplan.sources.huggingface.families.blocks import (
    PRE_NORMS,
    by_kind,
    layer_mlp,
    norms,
    projections,
)
from kvplan.sources.huggingface.fields import Fields

DEFAULTS = {
    # configuration_mllama.py: MllamaTextConfig
    "mllama": {"cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38]},
}

IMAGE_TOKENS = 8
"""Tokens that only the embedding knows."""


def mllama(c: Fields) -> Architecture:
    """Cross-attention layers keep a picture's tokens and nothing of the text.

    A picture of up to four tiles is ``4 * ((image_size / patch_size)**2 + 1)`` tokens (6,404 of
    Llama 3.2); without one they keep nothing, which is what is counted.
    """
    layers, cache = c.layers(), head_cache(c)
    listed = c.sequence("cross_attention_layers") or []
    crossed = {c.checked(index, "cross_attention_layers", minimum=0) for index in listed}
    if crossed and max(crossed) >= layers:
        raise UnsupportedArchitecture("cross_attention_layers", listed, where=c.where)
    picture = CrossAttention(*cache[:3], encoder_tokens=0)
    caches: list[tuple[Cache, ...]] = [
        (picture if index in crossed else cache,) for index in range(layers)
    ]

    def count() -> Weights:
        hidden = c.hidden()

        def layer(is_crossed: bool) -> Sequence[Tensor]:
            tensors = [*layer_mlp(c), *norms(PRE_NORMS, hidden)]
            if not is_crossed:
                return [*projections(c), *tensors]
            return [
                *projections(c, head_norms=True, prefix="cross_attn"),
                *tensors,
                Tensor(ATTENTION, "cross_attn_attn_gate", 1),
                Tensor(ATTENTION, "cross_attn_mlp_gate", 1),
            ]

        vocab = c.vocab()
        last = [embedding(vocab + IMAGE_TOKENS, hidden), *norm("model.norm", hidden)]
        if not c.boolean("tie_word_embeddings", default=False):
            last.append(head(vocab, hidden))
        kinds = [index in crossed for index in range(layers)]
        return Weights(by_kind(kinds, layer), tuple(last))

    said = f"no picture: the {len(crossed)} cross-attention layers keep nothing of the text"
    return Architecture(caches, count, (said,))
