"""Plain attention with a mixture of experts, in the spellings of many families.

Source: transformers ``modeling_<model_type>.py`` and ``configuration_<model_type>.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvplan.model.caches import Cache
from kvplan.model.tensors import SHARED_EXPERTS, Tensor
from kvplan.sources.huggingface.architecture import FULL, SLIDING, Architecture, Weights
from kvplan.sources.huggingface.families.blocks import (
    POST_NORMS,
    PRE_NORMS,
    after_first,
    by_kind,
    experts,
    flat_norms,
    layer_mlp,
    mlp_kinds,
    norms,
    outside,
    projections,
)
from kvplan.sources.huggingface.families.dense import (
    attention_bias,
    exaone_caches,
    patterned,
    sinks,
)
from kvplan.sources.huggingface.families.llama import all_sliding, full_caches, qwen_caches
from kvplan.sources.huggingface.fields import Fields

DEFAULTS = {
    # configuration_<model_type>.py of each
    "exaone_moe": {"sliding_window": 4096, "sliding_window_pattern": 4},
    "granitemoe_swa": {"sliding_window": 128},
    "minimax_m2": {"head_dim": 128},
    "solar_open": {"head_dim": 128},
}


def mixture(
    c: Fields,
    caches: Sequence[tuple[Cache, ...]],
    attention: Callable[[], Sequence[Tensor]],
    sparse: Callable[[], Sequence[Tensor]],
    *,
    is_sparse: Callable[[], Sequence[bool]] | None = None,
    dense: Callable[[], Sequence[Tensor]] | None = None,
    norm_names: Sequence[str] = PRE_NORMS,
    norm_bias: bool = False,
    tied: bool = False,
    head_bias: bool = False,
) -> Architecture:
    """Layers of attention and norms with experts, or with an MLP where ``is_sparse`` says no."""

    def count() -> Weights:
        kinds = [True] * c.layers() if is_sparse is None else is_sparse()
        common = (*attention(), *norms(norm_names, c.hidden(), bias=norm_bias))

        def layer(has_experts: bool) -> Sequence[Tensor]:
            if has_experts:
                return (*common, *sparse())
            return (*common, *(dense() if dense is not None else layer_mlp(c)))

        last = outside(c, tied=tied, norm_bias=norm_bias, head_bias=head_bias)
        return Weights(by_kind(kinds, layer), last)

    return Architecture(caches, count)


def active(c: Fields, *names: str) -> int | None:
    """Experts that a token is sent to."""
    return c.optional_integer(*(names or ("num_experts_per_tok",)))


def qwen2_moe(c: Fields) -> Architecture:
    """Qwen 1.5 and 2 with experts: a shared expert behind a gate; biases as in Qwen 2."""

    def is_sparse() -> list[bool]:
        step = c.optional_integer("decoder_sparse_step") or 1
        dense_layers = c.indices("mlp_only_layers") or set()
        return [i not in dense_layers and (i + 1) % step == 0 for i in range(c.layers())]

    def sparse() -> Sequence[Tensor]:
        hidden = c.hidden()
        shared = c.integer("shared_expert_intermediate_size")
        return [
            *experts(
                hidden,
                c.integer("num_experts"),
                c.integer("moe_intermediate_size"),
                active(c),
                shared=shared,
                shared_prefix="mlp.shared_expert",
            ),
            Tensor(SHARED_EXPERTS, "mlp.shared_expert_gate", 1, hidden),
        ]

    bias = c.boolean("qkv_bias", default=True)
    return mixture(
        c, _qwen2_moe_caches(c), lambda: projections(c, qkv_bias=bias), sparse, is_sparse=is_sparse
    )


def _qwen2_moe_caches(c: Fields) -> Sequence[tuple[Cache, ...]]:
    """Unlike Qwen 2, windows are on every other layer below ``max_window_layers``."""
    if not c.boolean("use_sliding_window", default=False):
        return qwen_caches(c)
    limit = c.optional_integer("max_window_layers", minimum=0)
    first_full = 28 if limit is None else limit  # the class default
    return patterned(
        c,
        lambda layers: [SLIDING if i % 2 == 0 and i < first_full else FULL for i in range(layers)],
    )


def olmoe(c: Fields) -> Architecture:
    """OLMoE: norms over all query and all key heads."""
    return _olmo_experts(c, PRE_NORMS)


def flex_olmo(c: Fields) -> Architecture:
    """FlexOlmo: as OLMo 2 with experts."""
    return _olmo_experts(c, POST_NORMS)


def _olmo_experts(c: Fields, norm_names: Sequence[str]) -> Architecture:
    bias = attention_bias(c)
    return mixture(
        c,
        full_caches(c),
        lambda: [*projections(c, qkv_bias=bias, o_bias=bias), *flat_norms(c)],
        lambda: experts(
            c.hidden(), c.integer("num_experts"), c.integer("intermediate_size"), active(c)
        ),
        norm_names=norm_names,
    )


def phimoe(c: Fields) -> Architecture:
    """Phi-3.5-MoE: layer norms, optional biases, the stated window in every layer."""
    bias = attention_bias(c)
    return mixture(
        c,
        all_sliding(c),
        lambda: projections(c, qkv_bias=bias, o_bias=bias),
        lambda: experts(
            c.hidden(), c.integer("num_local_experts"), c.integer("intermediate_size"), active(c)
        ),
        norm_bias=True,
        head_bias=c.boolean("lm_head_bias", default=False),
    )


def granitemoe(c: Fields) -> Architecture:
    """Granite with experts, and with a shared MLP where its width is stated."""
    return _granite_experts(c, full_caches(c))


def granitemoe_swa(c: Fields) -> Architecture:
    """The same with windows in three of four layers and a sink a head."""
    caches = patterned(c, lambda layers: [SLIDING if i % 4 else FULL for i in range(layers)])
    return _granite_experts(c, caches, with_sinks=True)


def _granite_experts(
    c: Fields, caches: Sequence[tuple[Cache, ...]], *, with_sinks: bool = False
) -> Architecture:
    bias = attention_bias(c)
    return mixture(
        c,
        caches,
        lambda: [
            *projections(c, qkv_bias=bias, o_bias=bias),
            *([sinks(c)] if with_sinks else []),
        ],
        lambda: experts(
            c.hidden(),
            c.integer("num_local_experts"),
            c.integer("intermediate_size"),
            active(c),
            gate="block_sparse_moe.router",
            prefix="block_sparse_moe.experts.*",
            shared=c.optional_integer("shared_intermediate_size", minimum=0) or 0,
            shared_prefix="shared_mlp",
        ),
    )


def deepseek_experts(c: Fields, *, shared_bias: bool = False) -> Sequence[Tensor]:
    """Routed and shared experts in DeepSeek's spelling, with a correction bias."""
    inner = c.integer("moe_intermediate_size")
    shared = c.optional_integer("n_shared_experts", "num_shared_experts", minimum=0) or 0
    return experts(
        c.hidden(),
        c.integer("n_routed_experts", "num_experts", "num_local_experts"),
        inner,
        active(c),
        shared=inner * shared,
        shared_bias=shared_bias,
        correction="mlp.gate.e_score_correction_bias",
    )


def glm4_moe(c: Fields) -> Architecture:
    """GLM-4.5 to 4.7: biases on queries, keys and values, norms on heads with ``use_qk_norm``.

    Without ``head_dim`` the class takes the hidden size over the heads, rounded down.
    """
    if not c.states("head_dim"):
        c.defaults["head_dim"] = c.hidden() // c.heads()
    bias = attention_bias(c)
    has_norms = c.boolean("use_qk_norm", default=False)
    return mixture(
        c,
        full_caches(c),
        lambda: projections(c, qkv_bias=bias, head_norms=has_norms),
        lambda: deepseek_experts(c),
        is_sparse=lambda: after_first(c, c.layers(), default=1),
    )


def solar_open(c: Fields) -> Architecture:
    """Solar Open: experts in every layer."""
    bias = attention_bias(c)
    return mixture(
        c, full_caches(c), lambda: projections(c, qkv_bias=bias), lambda: deepseek_experts(c)
    )


def dots1(c: Fields) -> Architecture:
    """dots.llm1: norms on query and key heads."""
    bias = attention_bias(c)
    return mixture(
        c,
        patterned(c, lambda layers: [FULL] * layers),
        lambda: projections(c, qkv_bias=bias, o_bias=bias, head_norms=True),
        lambda: deepseek_experts(c),
        is_sparse=lambda: after_first(c, c.layers()),
    )


def exaone_moe(c: Fields) -> Architecture:
    """K-EXAONE: windows as in EXAONE 4, norms on heads, a first dense layer."""
    return mixture(
        c,
        exaone_caches(c),
        lambda: projections(c, head_norms=True),
        lambda: deepseek_experts(c),
        is_sparse=lambda: mlp_kinds(c, c.layers(), lambda: after_first(c, c.layers(), default=1)),
    )


def minimax_m2(c: Fields) -> Architecture:
    """MiniMax M2: full attention again; norms over all query and all key heads."""
    return mixture(
        c,
        full_caches(c),
        lambda: [*projections(c), *flat_norms(c)],
        lambda: experts(
            c.hidden(),
            c.integer("num_local_experts"),
            c.integer("intermediate_size"),
            active(c),
            gate="block_sparse_moe.gate",
            prefix="block_sparse_moe.experts.*",
            correction="block_sparse_moe.e_score_correction_bias",
        ),
    )
