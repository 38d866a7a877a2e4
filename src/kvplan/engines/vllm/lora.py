"""LoRA slots: ``max_loras`` adapters of ``max_lora_rank``, set aside beside every linear layer.

    slot = rank x (input + output widths of one rank) elements of the model's dtype

``lora_a`` is ``[max_loras, 1, rank, input]`` and ``lora_b`` ``[max_loras, 1, output, rank]``. Of a
column-parallel layer A is whole and B divided by tp, of a row-parallel one A is divided and B
whole, and experts have a pair each; so the widths are those of the weight itself on that rank.
Where the model class names embedding modules, the token table and the logits have a pair too, whole
on every rank.
Source: vLLM 0.33 ``lora/layers/base_linear.py``, ``column_parallel_linear.py``, ``fused_moe.py``,
``vocab_parallel_embedding.py``, ``logits_processor.py``; ``lora/utils.py``
``get_supported_lora_modules``.
"""

from __future__ import annotations

from collections import Counter

from kvplan.deployment import Deployment
from kvplan.engines.base import Term
from kvplan.engines.vllm.further import Further
from kvplan.engines.vllm.versions import NEWEST, Version, said
from kvplan.errors import UnsupportedCombination
from kvplan.model.caches import FullAttention, Latent, SlidingWindow
from kvplan.model.model import stage_layers
from kvplan.model.tensors import EMBEDDING, Tensor

WITH_EMBEDDINGS = frozenset({"llama", "qwen3", "qwen3_moe", "mixtral"})
"""Model types whose class has ``embedding_modules``: ``embed_tokens`` and ``lm_head``."""
LINEAR_ONLY = frozenset(
    {
        "mistral", "ministral3", "qwen2", "qwen2_moe", "gemma", "gemma2", "gemma3_text", "glm4_moe",
        "deepseek_v2", "deepseek_v3",
    }
)  # fmt: skip
"""Model types whose class has none; both lists have the packed projections apart (q, k, v, gate,
up), as the shapes here do."""
LARGEST_VOCABULARY = 258_048
"""``LogitsProcessorWithLoRA`` refuses more."""


def check_lora(d: Deployment, version: Version) -> None:
    """Refuse the models whose adapters were not read in vLLM's source."""
    model = d.model
    if version != NEWEST:
        raise UnsupportedCombination(
            f"the LoRA slots of vLLM {said(version)} are not known to kvplan",
            hint=f"It knows those of vllm@{said(NEWEST)}.",
        )
    plain = (FullAttention, SlidingWindow, Latent)
    is_known = model.model_type in WITH_EMBEDDINGS | LINEAR_ONLY
    if not is_known or not all(isinstance(group.cache, plain) for group in model.groups):
        raise UnsupportedCombination(
            f"the LoRA slots of {model.name} ({model.model_type}) are not known to kvplan",
            hint=f"It knows those of {', '.join(sorted(WITH_EMBEDDINGS | LINEAR_ONLY))}.",
        )
    if model.model_type in WITH_EMBEDDINGS and (model.vocab_size or 0) > LARGEST_VOCABULARY:
        raise UnsupportedCombination(
            f"vLLM takes no LoRA for a vocabulary of {model.vocab_size:,}: "
            f"{LARGEST_VOCABULARY:,} at most"
        )


def lora_term(d: Deployment, stage: int, more: Further) -> Term:
    """The slots on one rank of a stage."""
    size = lora_bytes(d, stage, more.max_loras, more.max_lora_rank)
    words = f"{more.max_loras} LoRA slots of rank {more.max_lora_rank}, exact rule"
    return Term("lora", size, size, size, words)


def lora_bytes(d: Deployment, stage: int, max_loras: int, rank: int) -> int:
    """Bytes of all slots on one rank of a stage."""
    model, form = d.model, d.model.dtype

    def pair(rows: int, columns: int, copies: int) -> int:
        return copies * (form.matrix_bytes(rank, columns) + form.matrix_bytes(rows, rank))

    def linear(tensor: Tensor) -> int:
        return pair(*tensor.rank_shape(d.tp, d.split.expert_ranks)) if tensor.is_matrix else 0

    start, end = stage_layers(model.num_hidden_layers, d.pp, stage)
    slot = sum(
        count * sum(map(linear, layer.tensors))
        for layer, count in Counter(model.layers[start:end]).items()
    )
    if model.model_type in WITH_EMBEDDINGS:
        # The table may be held by the last stage as well, where it serves as the head.
        first, last = stage == 0, stage == d.pp - 1
        tables = [t for t in model.outside if t.part == EMBEDDING and t.rows == model.vocab_size]
        for table in tables:
            whole = pair(table.rows, table.columns, 1)
            slot += whole * (first or (last and model.is_tied)) + whole * last
    return max_loras * slot
