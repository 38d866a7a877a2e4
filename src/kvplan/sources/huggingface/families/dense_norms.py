"""Dense models whose norms differ from Llama's: OLMo, Command, GLM-4 and others.

Source: transformers ``models/<model_type>/modeling_<model_type>.py`` and ``configuration_*.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvplan.model.tensors import ATTENTION, NORMS, Tensor, norm
from kvplan.sources.huggingface.architecture import Architecture, Weights, kv_heads
from kvplan.sources.huggingface.families.blocks import (
    FOUR_NORMS,
    POST_NORMS,
    PRE_NORMS,
    every_nth_full,
    expect,
    flat_norms,
)
from kvplan.sources.huggingface.families.dense import attention_bias, decoder, patterned
from kvplan.sources.huggingface.families.llama import all_sliding, full_caches
from kvplan.sources.huggingface.fields import Fields

DEFAULTS = {
    # configuration_<model_type>.py of each
    "olmo3": {"sliding_window": 4096},
    "cohere2": {"sliding_window": 4096, "sliding_window_pattern": 4},
    "vaultgemma": {"sliding_window": 4096, "head_dim": 256},
    "glm": {"head_dim": 128},
    "glm4": {"head_dim": 128},
}


def glm(c: Fields) -> Architecture:
    """GLM-4 (converted): biases on queries, keys and values alone."""
    return Architecture(full_caches(c), decoder(c, qkv_bias=attention_bias(c, default=True)))


def glm4(c: Fields) -> Architecture:
    """GLM-4-0414, Z1, GLM-4.1V's text: two more norms."""
    names = (*PRE_NORMS, "post_self_attn_layernorm", "post_mlp_layernorm")
    weights = decoder(c, qkv_bias=attention_bias(c, default=True), norm_names=names)
    return Architecture(full_caches(c), weights)


def olmo(c: Fields) -> Architecture:
    """OLMo 1: norms without weights."""
    bias = attention_bias(c)
    weights = decoder(c, qkv_bias=bias, o_bias=bias, norm_names=(), final=None)
    return Architecture(full_caches(c), weights)


def olmo2(c: Fields) -> Architecture:
    """OLMo 2: norms behind attention and MLP, and over all query and all key heads."""
    return Architecture(full_caches(c), _olmo2_weights(c))


def olmo3(c: Fields) -> Architecture:
    """OLMo 3: as OLMo 2, with a window in three of four layers."""
    return Architecture(patterned(c, lambda layers: every_nth_full(layers, 4)), _olmo2_weights(c))


def _olmo2_weights(c: Fields) -> Callable[[], Weights]:
    bias = attention_bias(c)
    return decoder(c, qkv_bias=bias, o_bias=bias, norm_names=POST_NORMS, more=lambda: flat_norms(c))


def nanochat(c: Fields) -> Architecture:
    """nanochat: norms without weights and an MLP of two projections."""
    bias = attention_bias(c)
    weights = decoder(c, qkv_bias=bias, o_bias=bias, norm_names=(), final=None, gated_mlp=False)
    return Architecture(full_caches(c), weights)


def cohere(c: Fields) -> Architecture:
    """Command R and Aya: attention and MLP in parallel behind one norm; tied.

    ``use_qk_norm`` (Command R+): a norm of its own for each query head and each key head.
    """
    bias = attention_bias(c)

    def per_head() -> Sequence[Tensor]:
        if not c.boolean("use_qk_norm", default=False):
            return ()
        heads, size = c.heads(), c.head_size()
        kept = kv_heads(c, heads)
        return [
            *norm("self_attn.q_norm", heads * size),
            *norm("self_attn.k_norm", kept * size),
        ]

    weights = decoder(
        c, qkv_bias=bias, o_bias=bias, norm_names=("input_layernorm",), tied=True, more=per_head
    )
    return Architecture(full_caches(c), weights)


def cohere2(c: Fields) -> Architecture:
    """Command A and Command R7B: a window of 4,096 in three of four layers."""
    bias = attention_bias(c)
    weights = decoder(c, qkv_bias=bias, o_bias=bias, norm_names=("input_layernorm",), tied=True)
    caches = patterned(
        c, lambda layers: every_nth_full(layers, c.integer("sliding_window_pattern"))
    )
    return Architecture(caches, weights)


def vaultgemma(c: Fields) -> Architecture:
    """VaultGemma: as Gemma 2 without the norms behind attention and MLP."""
    bias = attention_bias(c)
    names = (FOUR_NORMS[0], FOUR_NORMS[2])
    weights = decoder(c, qkv_bias=bias, o_bias=bias, norm_names=names, tied=True)
    return Architecture(patterned(c, lambda layers: every_nth_full(layers, 2)), weights)


def bitnet(c: Fields) -> Architecture:
    """BitNet b1.58: a norm before the output projection and one inside the MLP."""
    bias = attention_bias(c)

    def inner_norms() -> Sequence[Tensor]:
        return [
            *norm("self_attn.attn_sub_norm", c.hidden()),
            *norm("mlp.ffn_sub_norm", c.integer("intermediate_size")),
        ]

    return Architecture(full_caches(c), decoder(c, qkv_bias=bias, o_bias=bias, more=inner_norms))


def diffllama(c: Fields) -> Architecture:
    """Differential attention: four learned vectors of a head's size a layer."""
    bias = attention_bias(c)

    def lambdas() -> Sequence[Tensor]:
        return [Tensor("attention", "self_attn.lambda", c.head_size(), copies=4)]

    return Architecture(full_caches(c), decoder(c, qkv_bias=bias, o_bias=bias, more=lambdas))


def doge(c: Fields) -> Architecture:
    """Doge without experts: a learned mask that stores every token, and scaled residuals."""
    expect(c, "is_moe", False)
    bias = attention_bias(c)

    def more() -> Sequence[Tensor]:
        heads, hidden = kv_heads(c, c.heads()), c.hidden()
        mask = [
            Tensor(ATTENTION, "self_attn.A", heads),
            Tensor(ATTENTION, "self_attn.dt_proj", heads, heads * c.head_size()),
            Tensor(NORMS, "residuals", hidden, copies=2),
        ]
        if bias:
            mask.append(Tensor(ATTENTION, "self_attn.dt_proj.bias", heads))
        return mask

    weights = decoder(
        c,
        qkv_bias=bias,
        o_bias=bias,
        mlp_bias=c.boolean("mlp_bias", default=False),
        head_norms=True,
        more=more,
    )
    return Architecture(all_sliding(c), weights)
