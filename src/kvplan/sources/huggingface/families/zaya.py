"""ZAYA and Inkling: attention in every layer, with short convolutions on its inputs.

Source: transformers 5.24 ``modeling_zaya.py``, ``modeling_inkling.py`` and their configurations.
"""

from __future__ import annotations

from kvplan.errors import UnsupportedArchitecture
from kvplan.model.caches import Cache, FullAttention, Recurrent
from kvplan.model.tensors import (
    ATTENTION,
    EXPERTS,
    HEAD,
    NORMS,
    ROUTER,
    SHARED_EXPERTS,
    Tensor,
    embedding,
    gated_mlp,
    head,
    norm,
)
from kvplan.sources.huggingface.architecture import (
    SLIDING,
    Architecture,
    Weights,
    kv_heads,
    local,
    vocabulary,
    window,
)
from kvplan.sources.huggingface.families.kda import DENSE_MLP, SPARSE_MLP
from kvplan.sources.huggingface.families.mixture import experts_of
from kvplan.sources.huggingface.families.recurrent import HYBRID, layer_kinds, model_bytes, vector
from kvplan.sources.huggingface.fields import Fields, MissingField

HYBRID_SLIDING = "hybrid_sliding"

DEFAULTS = {
    # configuration_zaya.py: ZayaConfig
    "zaya": {"cca_time0": 2, "cca_time1": 2, "head_dim": 128, "tie_word_embeddings": True},
    # configuration_inkling.py: InklingTextConfig
    "inkling": {"conv_kernel_size": 4, "head_dim": 128, "swa_head_dim": 128},
}


def zaya(c: Fields) -> Architecture:
    """ZAYA: queries and keys pass two convolutions, half of each value comes a token late."""
    layers, hidden = c.layers(), c.hidden()
    heads, size = c.heads(), c.head_size()
    kept = kv_heads(c, heads)
    kinds = layer_kinds(c, layers, (HYBRID, HYBRID_SLIDING), spellings={}) or [HYBRID] * layers
    span = window(c)
    if HYBRID_SLIDING in kinds and span is None:
        raise MissingField(c.where, "sliding_window")
    first, second = c.integer("cca_time0"), c.integer("cca_time1")
    channels, element_bytes = (heads + kept) * size, model_bytes(c)
    delayed = kept * size // 2
    state = Recurrent(
        "cca", channels, first + second - 1, delayed, delayed, element_bytes, element_bytes
    )
    full = FullAttention(kept, size, size)
    by_kind: dict[str, tuple[Cache, ...]] = {
        HYBRID: (full, state),
        HYBRID_SLIDING: (local(full, SLIDING, span, c.where), state),
    }

    def count() -> Weights:
        bias = c.boolean("attention_bias", default=False)
        prefix = "self_attn.qkv_proj"
        common = [
            *_linear("self_attn.o_proj", hidden, heads * size, heads, bias=bias, by_column=True),
            *_linear(f"{prefix}.q_proj", heads * size, hidden, heads, bias=bias),
            *_linear(f"{prefix}.k_proj", kept * size, hidden, kept, bias=bias),
            *_linear(f"{prefix}.v_proj_current", delayed, hidden, kept, bias=bias),
            *_linear(f"{prefix}.v_proj_delayed", delayed, hidden, kept, bias=bias),
            vector(f"{prefix}.conv_qk_depthwise", channels * first),
            vector(f"{prefix}.conv_qk_depthwise.bias", channels),
            vector(f"{prefix}.conv_qk_grouped", channels * size * second),
            vector(f"{prefix}.conv_qk_grouped.bias", channels),
            Tensor(NORMS, "self_attn.qk_norm.temp", kept),
            *norm("input_layernorm", hidden),
            *norm("post_attention_layernorm", hidden),
            Tensor(NORMS, "residual_scales", hidden, copies=8),
            *_zaya_experts(c, hidden),
        ]
        later = (*common, Tensor(ROUTER, "mlp.gate.router_states_scale", _router_width(c)))
        outside = [*vocabulary(c, tied_by_default=True), *norm("model.norm", hidden)]
        outside.append(Tensor(NORMS, "model.input_hidden_states", hidden, copies=2))
        if c.boolean("lm_head_bias", default=False):
            outside.append(Tensor(HEAD, "lm_head.bias", c.vocab(), units=c.vocab()))
        return Weights([tuple(common), *[later] * (layers - 1)], tuple(outside))

    return Architecture([by_kind[kind] for kind in kinds], count)


def _router_width(c: Fields) -> int:
    return c.integer("router_hidden_size")


def _zaya_experts(c: Fields, hidden: int) -> list[Tensor]:
    """Experts, and a router of three layers that may also choose to skip them."""
    experts, width = c.integer("num_experts"), _router_width(c)
    return [
        *experts_of(c, hidden, experts, c.integer("moe_intermediate_size")),
        Tensor(ROUTER, "mlp.gate.down_proj", width, hidden),
        Tensor(ROUTER, "mlp.gate.down_proj.bias", width),
        Tensor(NORMS, "mlp.gate.router_mlp.norm", width),
        Tensor(ROUTER, "mlp.gate.router_mlp.fc1", width, width),
        Tensor(ROUTER, "mlp.gate.router_mlp.fc1.bias", width),
        Tensor(ROUTER, "mlp.gate.router_mlp.fc2", width, width),
        Tensor(ROUTER, "mlp.gate.router_mlp.fc2.bias", width),
        Tensor(ROUTER, "mlp.gate.router_mlp.out_proj", experts + 1, width),
        Tensor(ROUTER, "mlp.gate.balancing_biases", experts + 1, trained=False),
    ]


def _linear(
    name: str, rows: int, columns: int, units: int, *, bias: bool, by_column: bool = False
) -> list[Tensor]:
    tensors = [Tensor(ATTENTION, name, rows, columns, units=units, by_column=by_column)]
    if bias:
        tensors.append(Tensor(ATTENTION, f"{name}.bias", rows, units=1 if by_column else units))
    return tensors


def inkling(c: Fields) -> Architecture:
    """Inkling: four convolutions a layer, kept in float32; windows have heads of their own."""
    layers, hidden = c.layers(), c.hidden()
    kinds = layer_kinds(c, layers, (HYBRID, HYBRID_SLIDING), spellings={})
    if kinds is None:
        listed = c.sequence("local_layer_ids")
        nearby = {i for i in range(layers) if (i + 1) % 6} if listed is None else set(listed)
        kinds = [HYBRID_SLIDING if index in nearby else HYBRID for index in range(layers)]
    kernel = c.integer("conv_kernel_size", "sconv_kernel_size")
    by_kind = {kind: inkling_caches(c, kind, kernel) for kind in set(kinds)}

    def count() -> Weights:
        bodies = {kind: _inkling_attention(c, hidden, kind, kernel) for kind in set(kinds)}
        feeds = _inkling_feeds(c, hidden, layers)
        common = [
            *norm("input_layernorm", hidden),
            *norm("post_attention_layernorm", hidden),
            vector("attn_sconv.conv1d", hidden * kernel),
            vector("mlp_sconv.conv1d", hidden * kernel),
        ]
        counted = [(*bodies[kind], *feed, *common) for kind, feed in zip(kinds, feeds, strict=True)]
        outside = (
            embedding(c.vocab(), hidden),
            *norm("model.embed_tokens.embed_norm", hidden),
            *norm("model.norm", hidden),
            head(c.vocab(), hidden),
        )
        return Weights(counted, outside)

    return Architecture([by_kind[kind] for kind in kinds], count)


def inkling_caches(c: Fields, kind: str, kernel: int) -> tuple[Cache, ...]:
    """Keys and values, and the last inputs of the convolutions on them and on the layer's sums."""
    _, kept, size = inkling_heads(c, kind)
    full = FullAttention(kept, size, size)
    span = c.integer("sliding_window_size", "sliding_window") if kind != HYBRID else None
    channels = 2 * kept * size + 2 * c.hidden()
    state = Recurrent("short_conv", channels, kernel, 0, channels, conv_bytes=4)
    return local(full, SLIDING, span, c.where), state


def inkling_heads(c: Fields, kind: str) -> tuple[int, int, int]:
    """Query heads, key-value heads and their size, which differ between windows and full layers."""
    if kind == HYBRID_SLIDING:
        return (
            c.integer("swa_num_attention_heads"),
            c.integer("swa_num_key_value_heads"),
            c.integer("swa_head_dim"),
        )
    return c.heads(), kv_heads(c, c.heads()), c.head_size()


def _inkling_attention(c: Fields, hidden: int, kind: str, kernel: int) -> list[Tensor]:
    heads, kept, size = inkling_heads(c, kind)
    relative = c.integer("d_rel")
    key = "sliding_window_size" if kind == HYBRID_SLIDING else "rel_extent"
    return [
        *_linear("self_attn.q_proj", heads * size, hidden, heads, bias=False),
        *_linear("self_attn.k_proj", kept * size, hidden, kept, bias=False),
        *_linear("self_attn.v_proj", kept * size, hidden, kept, bias=False),
        *_linear("self_attn.r_proj", heads * relative, hidden, heads, bias=False),
        *_linear("self_attn.o_proj", hidden, heads * size, heads, bias=False, by_column=True),
        vector("self_attn.k_sconv.conv1d", kept * size * kernel, kept),
        vector("self_attn.v_sconv.conv1d", kept * size * kernel, kept),
        vector("self_attn.rel_logits_proj.proj", relative * c.integer(key)),
        Tensor(NORMS, "self_attn.q_norm", size),
        Tensor(NORMS, "self_attn.k_norm", size),
    ]


def _inkling_feeds(c: Fields, hidden: int, layers: int) -> list[list[Tensor]]:
    """Dense layers first; ``dense_intermediate_size`` moves the experts' width to the other key."""
    kinds = c.sequence("mlp_layer_types", length=layers)
    if kinds is None:
        first = c.optional_integer("dense_mlp_idx", minimum=0) or 0
        kinds = [DENSE_MLP if index < first else SPARSE_MLP for index in range(layers)]
    moved = c.optional_integer("dense_intermediate_size")
    bodies = {}
    for kind in kinds:
        if kind in bodies:
            continue
        if kind == DENSE_MLP:
            dense = moved or c.integer("intermediate_size")
            bodies[kind] = [*gated_mlp(hidden, dense), vector("mlp.global_scale", 1)]
        elif kind == SPARSE_MLP:
            inner = c.integer("intermediate_size" if moved else "moe_intermediate_size")
            bodies[kind] = _inkling_experts(c, hidden, inner)
        else:
            raise UnsupportedArchitecture("mlp_layer_types", kind, where=c.where)
    return [bodies[kind] for kind in kinds]


def _inkling_experts(c: Fields, hidden: int, inner: int) -> list[Tensor]:
    experts, shared = c.integer("n_routed_experts"), c.integer("n_shared_experts", minimum=0)
    active = c.optional_integer("num_experts_per_tok")
    return [
        *gated_mlp(
            hidden, inner, part=EXPERTS, prefix="mlp.experts.*", copies=experts, active=active
        ),
        *gated_mlp(hidden, inner, part=SHARED_EXPERTS, prefix="mlp.shared_experts", copies=shared),
        Tensor(ROUTER, "mlp.gate", experts + shared, hidden),
        Tensor(ROUTER, "mlp.gate.global_scale", 1),
        Tensor(ROUTER, "mlp.gate.e_score_correction_bias", experts, trained=False),
    ]
