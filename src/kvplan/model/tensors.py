"""Weights by part: shapes, what splits over ranks, what a quantiser touches.

A weight's name is its Hugging Face module path within its layer (``self_attn.q_proj``), so that
a checkpoint's own lists of excluded modules can be applied to it.
"""

from __future__ import annotations

from typing import NamedTuple

from kvplan.precision.format import Format
from kvplan.units import cdiv, round_up

EMBEDDING, HEAD, NORMS, ROUTER, VISION = "embedding", "head", "norms", "router", "vision"
ATTENTION, MLP, EXPERTS, SHARED_EXPERTS, MIXER = (
    "attention", "mlp", "experts", "shared_experts", "mixer",
)  # fmt: skip

VOCAB_PADDING = 64
"""vLLM pads the vocabulary to a multiple of 64 before splitting it over ranks.
Source: vLLM ``vocab_parallel_embedding.py``, ``DEFAULT_VOCAB_PADDING_SIZE``."""


class Tensor(NamedTuple):
    """``copies`` weights of one shape ``[rows, columns]``; a vector has one column."""

    part: str
    name: str
    rows: int
    columns: int = 1
    copies: int = 1
    """How many of them, such as one an expert."""
    units: int = 1
    """Pieces that tensor parallelism can split it into (heads, or rows); 1 means replicated."""
    by_column: bool = False
    """Split along the columns (the second matrix of a pair) instead of the rows."""
    active: int | None = None
    """How many of ``copies`` one token uses; None for all."""
    trained: bool = True
    """False for a buffer that a checkpoint stores but nobody counts as a parameter."""

    @property
    def parameters(self) -> int:
        """Elements of all of them together."""
        return self.rows * self.columns * self.copies

    @property
    def is_matrix(self) -> bool:
        """Vectors (norms, biases) are never quantised."""
        return self.columns > 1

    def rank_bytes(self, form: Format, tp: int = 1, expert_ranks: int = 1) -> int:
        """Bytes on one rank: rows (or columns) in ``ceil(units / tp)`` of ``units`` pieces.

        A rank holds at least one piece, so key and value projections are replicated once tp
        exceeds the key-value heads, and a tensor of one unit (norms, latent projections,
        routers) is whole on every rank. The vocabulary is padded to 64 before it is split.
        With ``expert_ranks`` the experts are dealt out whole over that many ranks instead.
        Source: vLLM ``layers/linear.py`` ``QKVParallelLinear``, ``RowParallelLinear``.
        """
        rows, columns, copies = self.rank_shape(tp, expert_ranks)
        return form.matrix_bytes(rows, columns) * copies

    def rank_shape(self, tp: int = 1, expert_ranks: int = 1) -> tuple[int, int, int]:
        """Rows, columns and copies on one rank: see `rank_bytes`."""
        rows, columns, copies = self.rows, self.columns, self.copies
        if self.part == EXPERTS and expert_ranks > 1:
            copies = cdiv(copies, expert_ranks)
        elif self.units > 1 and tp > 1:
            units = self.units
            if self.part in {EMBEDDING, HEAD} and not self.by_column and self.rows == self.units:
                units = rows = round_up(rows, VOCAB_PADDING)
            share = cdiv(units, tp)
            if self.by_column:
                columns = cdiv(columns * share, units)
            else:
                rows = cdiv(rows * share, units)
        return rows, columns, copies


def attention(
    hidden_size: int,
    heads: int,
    kv_heads: int,
    head_size: int,
    *,
    head_size_v: int | None = None,
    qkv_bias: bool = False,
    o_bias: bool = False,
    head_norms: bool = False,
    has_value: bool = True,
    gated: bool = False,
    prefix: str = "self_attn",
    names: tuple[str, str, str, str] = ("q_proj", "k_proj", "v_proj", "o_proj"),
) -> list[Tensor]:
    """The four projections of grouped-query attention.

    Query ``[heads * d, hidden]``, key and value ``[kv_heads * d, hidden]``, output
    ``[hidden, heads * d_v]``. ``head_norms``: a norm of size d on queries and on keys (Qwen3,
    Gemma-3). ``gated``: the query projection is doubled by an output gate (Qwen3-Next).
    """
    d_v = head_size if head_size_v is None else head_size_v
    q, k, v, o = (f"{prefix}.{name}" for name in names)
    query_rows = heads * head_size * (2 if gated else 1)
    tensors = [
        Tensor(ATTENTION, q, query_rows, hidden_size, units=heads),
        Tensor(ATTENTION, k, kv_heads * head_size, hidden_size, units=kv_heads),
        Tensor(ATTENTION, o, hidden_size, heads * d_v, units=heads, by_column=True),
    ]
    if has_value:
        tensors.append(Tensor(ATTENTION, v, kv_heads * d_v, hidden_size, units=kv_heads))
    if qkv_bias:
        tensors += [
            Tensor(ATTENTION, f"{q}.bias", query_rows, units=heads),
            Tensor(ATTENTION, f"{k}.bias", kv_heads * head_size, units=kv_heads),
            Tensor(ATTENTION, f"{v}.bias", kv_heads * d_v, units=kv_heads),
        ]
    if o_bias:
        tensors.append(Tensor(ATTENTION, f"{o}.bias", hidden_size))
    if head_norms:
        tensors += [
            Tensor(NORMS, f"{prefix}.q_norm", head_size),
            Tensor(NORMS, f"{prefix}.k_norm", head_size),
        ]
    return tensors


def latent_attention(
    hidden_size: int,
    heads: int,
    q_lora_rank: int | None,
    kv_lora_rank: int,
    qk_nope_head_dim: int,
    qk_rope_head_dim: int,
    v_head_dim: int,
    *,
    bias: bool = False,
) -> list[Tensor]:
    """Multi-head latent attention: down-projections whole on every rank, up-projections by head.

    Source: DeepSeek-V2, arXiv 2405.04434, appendix C; transformers ``DeepseekV3Attention``.
    """
    qk = qk_nope_head_dim + qk_rope_head_dim
    kv_down = kv_lora_rank + qk_rope_head_dim
    tensors = [
        Tensor(ATTENTION, "self_attn.kv_a_proj_with_mqa", kv_down, hidden_size),
        Tensor(NORMS, "self_attn.kv_a_layernorm", kv_lora_rank),
        Tensor(
            ATTENTION,
            "self_attn.kv_b_proj",
            heads * (qk_nope_head_dim + v_head_dim),
            kv_lora_rank,
            units=heads,
        ),
        Tensor(
            ATTENTION,
            "self_attn.o_proj",
            hidden_size,
            heads * v_head_dim,
            units=heads,
            by_column=True,
        ),
    ]
    if q_lora_rank is None:
        tensors.append(Tensor(ATTENTION, "self_attn.q_proj", heads * qk, hidden_size, units=heads))
    else:
        tensors += [
            Tensor(ATTENTION, "self_attn.q_a_proj", q_lora_rank, hidden_size),
            Tensor(NORMS, "self_attn.q_a_layernorm", q_lora_rank),
            Tensor(ATTENTION, "self_attn.q_b_proj", heads * qk, q_lora_rank, units=heads),
        ]
    if bias:
        if q_lora_rank is not None:
            tensors.append(Tensor(ATTENTION, "self_attn.q_a_proj.bias", q_lora_rank))
        tensors += [
            Tensor(ATTENTION, "self_attn.kv_a_proj_with_mqa.bias", kv_down),
            Tensor(ATTENTION, "self_attn.o_proj.bias", hidden_size),
        ]
    return tensors


def gated_mlp(
    hidden_size: int,
    intermediate_size: int,
    *,
    part: str = MLP,
    prefix: str = "mlp",
    copies: int = 1,
    active: int | None = None,
    bias: bool = False,
) -> list[Tensor]:
    """Gate, up and down projections (SwiGLU, GeGLU), or ``copies`` experts of them."""
    inner = intermediate_size
    tensors = [
        Tensor(part, f"{prefix}.gate_proj", inner, hidden_size, copies, inner, active=active),
        Tensor(part, f"{prefix}.up_proj", inner, hidden_size, copies, inner, active=active),
        Tensor(part, f"{prefix}.down_proj", hidden_size, inner, copies, inner, True, active),
    ]
    if bias:
        tensors += [
            Tensor(
                part, f"{prefix}.gate_proj.bias", inner, copies=copies, units=inner, active=active
            ),
            Tensor(
                part, f"{prefix}.up_proj.bias", inner, copies=copies, units=inner, active=active
            ),
            Tensor(part, f"{prefix}.down_proj.bias", hidden_size, copies=copies, active=active),
        ]
    return tensors


def plain_mlp(
    hidden_size: int,
    intermediate_size: int,
    *,
    bias: bool,
    prefix: str = "mlp",
    names: tuple[str, str] = ("fc1", "fc2"),
) -> list[Tensor]:
    """Two projections with an activation between (GPT-2, OPT, Falcon)."""
    up, down = (f"{prefix}.{name}" for name in names)
    inner = intermediate_size
    tensors = [
        Tensor(MLP, up, inner, hidden_size, units=inner),
        Tensor(MLP, down, hidden_size, inner, units=inner, by_column=True),
    ]
    if bias:
        tensors += [
            Tensor(MLP, f"{up}.bias", inner, units=inner),
            Tensor(MLP, f"{down}.bias", hidden_size),
        ]
    return tensors


def router(
    hidden_size: int, experts: int, *, bias: bool = False, prefix: str = "mlp.gate"
) -> list[Tensor]:
    """The gate that chooses experts: one row an expert, whole on every rank."""
    tensors = [Tensor(ROUTER, prefix, experts, hidden_size)]
    if bias:
        tensors.append(Tensor(ROUTER, f"{prefix}.bias", experts))
    return tensors


def norm(name: str, size: int, *, bias: bool = False) -> list[Tensor]:
    """A norm's weight, and its bias for layer norm."""
    tensors = [Tensor(NORMS, name, size)]
    if bias:
        tensors.append(Tensor(NORMS, f"{name}.bias", size))
    return tensors


def embedding(vocab_size: int, hidden_size: int, name: str = "model.embed_tokens") -> Tensor:
    """The table of token vectors, split over ranks by token."""
    return Tensor(EMBEDDING, name, vocab_size, hidden_size, units=vocab_size)


def head(vocab_size: int, hidden_size: int, name: str = "lm_head") -> Tensor:
    """The output projection of a model whose embedding does not serve for it."""
    return Tensor(HEAD, name, vocab_size, hidden_size, units=vocab_size)
