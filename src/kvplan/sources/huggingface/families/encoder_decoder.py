"""Encoder-decoders: T5, BART and its kin, Whisper. The decoder's self attention keeps the output so
far, its cross attention keeps the encoder's tokens, and the encoder itself keeps nothing.

Source: transformers ``modeling_t5.py``, ``modeling_bart.py``, ``modeling_whisper.py`` and the
modules of the other names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kvplan.model.caches import Cache, CrossAttention, FullAttention
from kvplan.model.tensors import (
    EMBEDDING,
    MIXER,
    Tensor,
    attention,
    embedding,
    gated_mlp,
    head,
    norm,
    plain_mlp,
)
from kvplan.sources.huggingface.architecture import Architecture, Weights
from kvplan.sources.huggingface.families.blocks import expect, norms
from kvplan.sources.huggingface.families.gpt import positions
from kvplan.sources.huggingface.fields import Fields

DEFAULTS = {
    # configuration_t5.py: T5Config. Published files of T5 state 512 positions, which are no limit.
    "t5": {"n_positions": 512, "relative_attention_num_buckets": 32, "feed_forward_proj": "relu"},
    "mt5": {
        "n_positions": 512,
        "relative_attention_num_buckets": 32,
        "feed_forward_proj": "gated-gelu",
    },
    "umt5": {
        "n_positions": 512,
        "relative_attention_num_buckets": 32,
        "feed_forward_proj": "gated-gelu",
    },
    # configuration_whisper.py: WhisperConfig
    "whisper": {"max_source_positions": 1500, "max_target_positions": 448, "num_mel_bins": 80},
}

_BIASED = ("q_proj", "k_proj", "v_proj", "out_proj")


def said(tokens: int) -> str:
    """The assumption behind the cross-attention cache."""
    return f"cross attention keeps {tokens:,} encoder tokens, the longest input of the encoder"


def encoder(tensors: Sequence[Tensor], layers: int) -> list[Tensor]:
    """The weights of an encoder of ``layers`` layers that are all alike."""
    return [
        t._replace(name=f"encoder.layers.*.{t.name}", copies=t.copies * layers) for t in tensors
    ]


def crossed(cache: FullAttention, tokens: int | None) -> tuple[Cache, ...]:
    """Self attention, and cross attention of the same heads unless there is no encoder."""
    if tokens is None:
        return (cache,)
    return (cache, CrossAttention(*cache[:3], tokens))


def t5(c: Fields) -> Architecture:
    """T5, Flan-T5 and mT5: relative positions, heads of ``d_kv``.

    The class ties the head to the embedding whatever the file says, because the files of T5 1.1
    mean something else by ``tie_word_embeddings: false`` (``configuration_t5.py``).
    """
    return _t5(c, bias_in_every_layer=False)


mt5 = t5


def umt5(c: Fields) -> Architecture:
    """UMT5: every layer has relative positions of its own."""
    return _t5(c, bias_in_every_layer=True)


def longt5(c: Fields) -> Architecture:
    """LongT5 with local attention in the encoder: the same weights as T5."""
    expect(c, "encoder_attention_type", "local")
    return _t5(c, bias_in_every_layer=False)


def _t5(c: Fields, *, bias_in_every_layer: bool) -> Architecture:
    encoder_layers = c.integer("num_layers")
    layers = c.optional_integer("num_decoder_layers") or encoder_layers
    heads, size = c.heads(), c.integer("d_kv")
    tokens = c.optional_integer("n_positions", "max_position_embeddings", maximum=2**40) or 512
    cache = FullAttention(heads, size, size)

    def count() -> Weights:
        hidden, width = c.hidden(), c.integer("d_ff")
        named = (c.text("feed_forward_proj") or "relu").startswith("gated")
        is_gated = c.boolean("is_gated_act", default=named)
        own = attention(hidden, heads, heads, size, prefix="SelfAttention")
        mlp = gated_mlp(hidden, width) if is_gated else plain_mlp(hidden, width, bias=False)
        buckets = c.optional_integer("relative_attention_num_buckets") or 32
        bias = Tensor(MIXER, "relative_attention_bias", buckets, heads)
        every = [bias] if bias_in_every_layer else []
        layer = [
            *own,
            *attention(hidden, heads, heads, size, prefix="EncDecAttention"),
            *mlp,
            *every,
            Tensor("norms", "layer_norm", hidden, copies=3),
        ]
        below = [*own, *mlp, *every, Tensor("norms", "layer_norm", hidden, copies=2)]
        once = [] if bias_in_every_layer else [bias, bias]
        last = [
            embedding(c.vocab(), hidden, "shared"),
            *encoder(below, encoder_layers),
            *once,
            *norms(("encoder.final_layer_norm", "decoder.final_layer_norm"), hidden),
        ]
        return Weights([tuple(layer)] * layers, tuple(last))

    return Architecture([crossed(cache, tokens)] * layers, count, (said(tokens),))


class Bart(NamedTuple):
    """What tells the kin of BART apart."""

    offset: int = 0
    """Positions in the table beyond the stated ones."""
    embedding_norm: bool = False
    final_norm: bool = False
    learned_positions: bool = True


_KIN = {
    "bart": Bart(offset=2, embedding_norm=True),
    "plbart": Bart(offset=2, embedding_norm=True),
    "mvp": Bart(offset=2, embedding_norm=True),
    "mbart": Bart(offset=2, embedding_norm=True, final_norm=True),
    "marian": Bart(),
    "pegasus": Bart(final_norm=True),
    "blenderbot": Bart(final_norm=True),
    "blenderbot-small": Bart(embedding_norm=True),
    "m2m_100": Bart(final_norm=True, learned_positions=False),
}


def bart(c: Fields) -> Architecture:
    """BART, mBART, Marian, Pegasus, Blenderbot, M2M-100, MVP, PLBART.

    Files that say ``is_decoder`` or deny ``is_encoder_decoder`` describe the decoder alone.
    """
    kin = _KIN[c.text("model_type") or "bart"]
    alone = is_decoder_alone(c)
    layers, heads = c.integer("decoder_layers"), c.integer("decoder_attention_heads")
    size = c.hidden() // heads
    longest = c.integer("max_position_embeddings", maximum=2**40)
    tokens = None if alone else longest
    cache = FullAttention(heads, size, size)

    def count() -> Weights:
        expect(c, "use_prompt", False)
        expect(c, "share_encoder_decoder_embeddings", True)
        expect(c, "decoder_vocab_size", c.vocab())
        hidden, vocab = c.hidden(), c.vocab()
        table = [positions(longest + kin.offset, hidden)] if kin.learned_positions else []
        around = [
            *table,
            *(norm("layernorm_embedding", hidden, bias=True) if kin.embedding_norm else []),
            *(norm("layer_norm", hidden, bias=True) if kin.final_norm else []),
        ]
        last = [embedding(vocab, hidden, "shared"), *around]
        if not alone:
            width, queries = c.integer("encoder_ffn_dim"), c.integer("encoder_attention_heads")
            below = _bart_layer(hidden, queries, width, cross=False)
            last += [*encoder(below, c.integer("encoder_layers")), *around]
        if not c.boolean("tie_word_embeddings", default=True):
            last.append(head(vocab, hidden))
            if not alone:  # encoder and decoder then have tables of their own as well
                last += [embedding(vocab, hidden, "embed_tokens")] * 2
        layer = _bart_layer(hidden, heads, c.integer("decoder_ffn_dim"), cross=True)
        return Weights([tuple(layer)] * layers, tuple(last))

    assumed = () if tokens is None else (said(tokens),)
    return Architecture([crossed(cache, tokens)] * layers, count, assumed, heads)


def is_decoder_alone(c: Fields) -> bool:
    """The config was saved with the decoder's causal class."""
    return not c.boolean("is_encoder_decoder", default=True)


def _bart_layer(
    hidden: int, heads: int, width: int, *, cross: bool, key_bias: bool = True
) -> list[Tensor]:
    def projected(prefix: str) -> list[Tensor]:
        tensors = attention(
            hidden, heads, heads, hidden // heads,
            qkv_bias=True, o_bias=True, prefix=prefix, names=_BIASED,
        )  # fmt: skip
        return [t for t in tensors if key_bias or not t.name.endswith("k_proj.bias")]

    layer = [
        *projected("self_attn"),
        *plain_mlp(hidden, width, bias=True, prefix="fc"),
        *norms(("self_attn_layer_norm", "final_layer_norm"), hidden, bias=True),
    ]
    if cross:
        layer += projected("encoder_attn")
        layer += norm("encoder_attn_layer_norm", hidden, bias=True)
    return layer


def whisper(c: Fields) -> Architecture:
    """Whisper: keys have no bias; 30 seconds are always 1,500 encoder tokens."""
    layers, heads = c.integer("decoder_layers"), c.integer("decoder_attention_heads")
    size = c.hidden() // heads
    alone = is_decoder_alone(c)
    tokens = None if alone else c.integer("max_source_positions")
    cache = FullAttention(heads, size, size)

    def count() -> Weights:
        hidden, vocab = c.hidden(), c.vocab()
        last = [
            embedding(vocab, hidden, "model.decoder.embed_tokens"),
            positions(c.integer("max_target_positions"), hidden),
            *norm("model.decoder.layer_norm", hidden, bias=True),
        ]
        if not alone:
            width, queries = c.integer("encoder_ffn_dim"), c.integer("encoder_attention_heads")
            below = _bart_layer(hidden, queries, width, cross=False, key_bias=False)
            mels = c.integer("num_mel_bins")
            last += [
                *encoder(below, c.integer("encoder_layers")),
                Tensor(EMBEDDING, "encoder.conv1", hidden, 3 * mels),
                Tensor(EMBEDDING, "encoder.conv2", hidden, 3 * hidden),
                Tensor("norms", "encoder.conv.bias", hidden, copies=2),
                positions(c.integer("max_source_positions"), hidden),
                *norm("encoder.layer_norm", hidden, bias=True),
            ]
        if not c.boolean("tie_word_embeddings", default=True):
            last.append(head(vocab, hidden))
        layer = _bart_layer(hidden, heads, c.integer("decoder_ffn_dim"), cross=True, key_bias=False)
        return Weights([tuple(layer)] * layers, tuple(last))

    assumed = () if tokens is None else (said(tokens),)
    return Architecture([crossed(cache, tokens)] * layers, count, assumed, heads)


def trocr(c: Fields) -> Architecture:
    """TrOCR's decoder: always read with a picture encoder of its own file."""
    layers, heads = c.integer("decoder_layers"), c.integer("decoder_attention_heads")
    size = c.hidden() // heads
    expect(c, "use_learned_position_embeddings", True)
    expect(c, "cross_attention_hidden_size", c.hidden())

    def count() -> Weights:
        hidden, vocab = c.hidden(), c.vocab()
        last = [
            embedding(vocab, hidden),
            positions(c.integer("max_position_embeddings") + 2, hidden),
        ]
        if c.boolean("layernorm_embedding", default=True):
            last += norm("layernorm_embedding", hidden, bias=True)
        if not c.boolean("tie_word_embeddings", default=True):
            last.append(head(vocab, hidden))
        layer = _bart_layer(hidden, heads, c.integer("decoder_ffn_dim"), cross=True)
        return Weights([tuple(layer)] * layers, tuple(last))

    cache = FullAttention(heads, size, size)
    return Architecture([(cache,)] * layers, count, (), heads)
