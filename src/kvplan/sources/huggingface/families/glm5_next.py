"""GLM-5.3-Flash: Kimi delta attention, and latent attention chosen by a pooled indexer.

Source: transformers 5.24 ``modeling_glm5_next.py``, ``configuration_glm5_next.py``; vLLM 0.33
``models/glm5next/common/attention.py``.
"""

from __future__ import annotations

from kvplan.errors import UnsupportedArchitecture
from kvplan.model.caches import Cache, Indexer
from kvplan.model.tensors import ATTENTION, Tensor, norm
from kvplan.sources.huggingface.architecture import FULL, Architecture, Weights, vocabulary
from kvplan.sources.huggingface.families.deepseek import latent_cache, latent_projections
from kvplan.sources.huggingface.families.delta import INDEXED
from kvplan.sources.huggingface.families.kda import (
    feeds,
    kda_heads,
    listed_kinds,
    mlp_kinds,
    sparse_mlp,
)
from kvplan.sources.huggingface.families.recurrent import (
    LINEAR,
    SPELLINGS,
    layer_kinds,
    projection,
    vector,
)
from kvplan.sources.huggingface.fields import Fields


def glm5_next(c: Fields) -> Architecture:
    """GLM-5.3-Flash: latent attention without a rotary part, chosen by a pooled indexer.

    One index key is kept for each ``index_kpool`` tokens, on the layers that own an indexer.
    """
    layers, hidden = c.layers(), c.hidden()
    section = c.nested("linear_attn_config")
    spellings = {
        **SPELLINGS, "attention": INDEXED, FULL: INDEXED, "deepseek_sparse_attention": INDEXED,
    }  # fmt: skip
    kinds = layer_kinds(c, layers, (LINEAR, INDEXED), spellings=spellings)
    if kinds is None:
        listed = listed_kinds(c, section, layers, first=0)
        kinds = [INDEXED if kind == FULL else kind for kind in listed]
    owners = c.sequence("indexer_types", length=layers) or ["full"] * layers
    kda = kda_heads(c, section)
    caches: list[tuple[Cache, ...]] = []
    for index, kind in enumerate(kinds):
        if owners[index] not in {"full", "shared"}:
            raise UnsupportedArchitecture(f"indexer_types[{index}]", owners[index], where=c.where)
        if kind == LINEAR:
            caches.append((kda.state(c),))
        elif owners[index] == "full":
            caches.append(
                (latent_cache(c), Indexer(c.integer("index_head_dim"), c.integer("index_kpool")))
            )
        else:
            caches.append((latent_cache(c),))

    def count() -> Weights:
        feed_forwards = feeds(c, hidden, layers, mlp_kinds(c, layers), _glm_experts)
        streams = c.integer("hc_mult")
        mixed = streams * (streams + 2)
        connections = [
            tensor
            for name in ("attn_hc", "ffn_hc")
            for tensor in (
                *projection(f"{name}.fn", mixed, streams * hidden, 1),
                vector(f"{name}.base", mixed),
                vector(f"{name}.scale", 3),
            )
        ]
        linear = kda.mixer(hidden, full_rank_gate=False, full_rank_decay=False)
        counted = []
        for index, kind in enumerate(kinds):
            body = linear
            if kind != LINEAR:
                owns = owners[index] == "full"
                body = [*latent_projections(c), *(_pooled_indexer(c, hidden) if owns else ())]
            counted.append((*body, *feed_forwards[index], *connections))
        return Weights(counted, (*vocabulary(c), *norm("model.norm", hidden)))

    return Architecture(caches, count)


def _pooled_indexer(c: Fields, hidden: int) -> list[Tensor]:
    heads, size = c.integer("index_n_heads"), c.integer("index_head_dim")
    pool = c.integer("index_kpool")
    prefix = "self_attn.indexer"
    return [
        Tensor(ATTENTION, f"{prefix}.wq_b", heads * size, c.integer("q_lora_rank")),
        Tensor(ATTENTION, f"{prefix}.wk", size, hidden),
        *norm(f"{prefix}.k_norm", size, bias=True),
        Tensor(ATTENTION, f"{prefix}.weights_proj", heads, hidden),
        vector(f"{prefix}.index_kpool_compress_ape", pool * size),
        Tensor(ATTENTION, f"{prefix}.index_kpool_compress_gate", size, hidden),
    ]


def _glm_experts(c: Fields, hidden: int) -> list[Tensor]:
    return sparse_mlp(
        c, hidden, hidden, c.integer("n_routed_experts"), c.integer("moe_intermediate_size"),
        c.integer("n_shared_experts", minimum=0),
    )  # fmt: skip
