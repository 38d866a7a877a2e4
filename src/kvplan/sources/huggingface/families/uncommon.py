"""Decoders without kin: CPM-Ant, ModernBERT decoder, GPT-NeoX Japanese, T5Gemma.

Source: transformers ``modeling_<model_type>.py`` and ``configuration_<model_type>.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.model.caches import Cache, CrossAttention, FullAttention
from kvplan.model.tensors import (
    ATTENTION,
    EMBEDDING,
    HEAD,
    MLP,
    Tensor,
    attention,
    embedding,
    gated_mlp,
    head,
    norm,
    plain_mlp,
)
from kvplan.sources.huggingface.architecture import (
    FULL,
    SLIDING,
    Architecture,
    Weights,
    head_cache,
    kv_heads,
    local,
    stated_layer_types,
    typed_caches,
    window,
)
from kvplan.sources.huggingface.families.blocks import (
    PRE_NORMS,
    every_nth_full,
    norms,
    outside,
)
from kvplan.sources.huggingface.families.dense import attention_bias
from kvplan.sources.huggingface.families.encoder_decoder import encoder, said
from kvplan.sources.huggingface.fields import Fields, MissingField

DEFAULTS = {
    # configuration_modernbert_decoder.py
    "modernbert_decoder": {"local_attention": 128, "global_attn_every_n_layers": 3},
}


def cpmant(c: Fields) -> Architecture:
    """CPM-Ant: a prompt table in front of the vocabulary, positions as a table of buckets."""
    layers, heads, size = c.layers(), c.heads(), c.integer("dim_head")

    def count() -> Weights:
        hidden, vocab = c.hidden(), c.vocab()
        layer = (
            *attention(hidden, heads, heads, size, prefix="self_att"),
            *gated_mlp(hidden, c.integer("dim_ff")),
            *norms(PRE_NORMS, hidden),
        )
        segments = c.integer("segment_types")
        prompts = c.integer("prompt_types") * c.integer("prompt_length")
        buckets = c.integer("position_bias_num_buckets") + segments * segments
        last = (
            embedding(vocab + prompts, hidden, "cpmant.input_embedding"),
            Tensor(EMBEDDING, "cpmant.segment_embedding", segments, hidden),
            Tensor(ATTENTION, "cpmant.position_bias", buckets, heads),
            *norm("cpmant.encoder.output_layernorm", hidden),
            head(vocab, hidden),
        )
        return Weights([layer] * layers, last)

    return Architecture([(FullAttention(heads, size, size),)] * layers, count)


def modernbert_decoder(c: Fields) -> Architecture:
    """ModernBERT's decoder: the window is half of ``local_attention``; tied, a bias on the head."""
    layers, cache = c.layers(), head_cache(c)
    kinds = stated_layer_types(c, layers)
    if kinds is None:
        every = c.integer("global_attn_every_n_layers")
        kinds = [SLIDING if index % every else FULL for index in range(layers)]
    span = window(c) or c.integer("local_attention", maximum=2**40) // 2

    def count() -> Weights:
        hidden, vocab, inner = c.hidden(), c.vocab(), c.integer("intermediate_size")
        bias = c.boolean("norm_bias", default=False)
        own, mlp_bias = attention_bias(c), c.boolean("mlp_bias", default=False)
        first = [
            *attention(
                hidden, c.heads(), kv_heads(c, c.heads()), cache.head_size,
                qkv_bias=own, o_bias=own,
            ),
            *gated_mlp(hidden, inner, bias=mlp_bias),
            *norm("mlp_norm", hidden, bias=bias),
        ]  # fmt: skip
        later = (*first, *norm("attn_norm", hidden, bias=bias))
        last = [
            embedding(vocab, hidden),
            *norms(("embeddings.norm", "final_norm", "lm_head.norm"), hidden, bias=bias),
            Tensor(MLP, "lm_head.dense", hidden, hidden),
        ]
        if c.boolean("classifier_bias", default=False):
            last.append(Tensor(MLP, "lm_head.dense.bias", hidden))
        if c.boolean("decoder_bias", default=True):
            last.append(Tensor(HEAD, "decoder.bias", vocab, units=vocab))
        if not c.boolean("tie_word_embeddings", default=True):
            last.append(head(vocab, hidden))
        return Weights([tuple(first), *([later] * (layers - 1))], tuple(last))

    return Architecture(typed_caches(c, cache, kinds, span), count)


def gpt_neox_japanese(c: Fields) -> Architecture:
    """GPT-NeoX Japanese: no biases but one on the last layer's output; tied."""
    layers, heads = c.layers(), c.heads()
    size = c.hidden() // heads

    def count() -> Weights:
        hidden = c.hidden()
        width = hidden * c.integer("intermediate_multiple_size")
        layer = (
            *attention(hidden, heads, heads, size, prefix="attention"),
            *plain_mlp(hidden, width, bias=False),
            *norms(PRE_NORMS, hidden, bias=True),
        )
        final = (*layer, Tensor(ATTENTION, "attention.dense_bias", hidden))
        last = outside(c, tied=True, final="final_layer_norm", norm_bias=True)
        return Weights([*([layer] * (layers - 1)), final], last)

    return Architecture([(FullAttention(heads, size, size),)] * layers, count)


_T5GEMMA_NORMS = (
    "pre_self_attn_layernorm",
    "post_self_attn_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)


def t5gemma(c: Fields) -> Architecture:
    """T5Gemma: an encoder and a decoder of Gemma 2 layers, each with a table of its own.

    Every other layer of the decoder has a window; cross attention keeps the encoder's tokens.
    """
    below, above = c.nested("encoder"), c.nested("decoder")
    if below is None or above is None:
        raise MissingField(c.where, "encoder" if below is None else "decoder")
    layers, cache, span = above.layers(), head_cache(above), window(above)
    kinds = stated_layer_types(above, layers) or every_nth_full(layers, 2)
    tokens = below.context() or 8192
    crossed = CrossAttention(*cache[:3], tokens)
    caches: list[tuple[Cache, ...]] = [
        (local(cache, kind, span, c.where), crossed) for kind in kinds
    ]

    def count() -> Weights:
        hidden = above.hidden()
        inputs = above.optional_integer("cross_attention_hidden_size") or below.hidden()
        layer = [
            *_t5gemma_layer(above),
            *(
                t._replace(columns=inputs)
                if t.name.startswith(("cross_attn.k", "cross_attn.v")) and t.is_matrix
                else t
                for t in _t5gemma_attention(above, "cross_attn")
            ),
            *norms(("pre_cross_attn_layernorm", "post_cross_attn_layernorm"), hidden),
        ]
        last = [
            embedding(above.vocab(), hidden, "decoder.embed_tokens"),
            embedding(below.vocab(), below.hidden(), "encoder.embed_tokens"),
            *encoder(_t5gemma_layer(below), below.layers()),
            *norm("encoder.norm", below.hidden()),
            *norm("decoder.norm", hidden),
        ]
        if not c.boolean("tie_word_embeddings", default=True):
            last.append(head(above.vocab(), hidden))
        return Weights([tuple(layer)] * layers, tuple(last))

    return Architecture(caches, count, (said(tokens),), above.heads())


def _t5gemma_attention(c: Fields, prefix: str) -> list[Tensor]:
    bias = attention_bias(c)
    return attention(
        c.hidden(), c.heads(), kv_heads(c, c.heads()), c.head_size(),
        qkv_bias=bias, o_bias=bias, prefix=prefix,
    )  # fmt: skip


def _t5gemma_layer(c: Fields) -> Sequence[Tensor]:
    return [
        *_t5gemma_attention(c, "self_attn"),
        *gated_mlp(c.hidden(), c.integer("intermediate_size")),
        *norms(_T5GEMMA_NORMS, c.hidden()),
    ]
