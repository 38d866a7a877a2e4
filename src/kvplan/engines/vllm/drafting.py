"""What drafts the tokens of speculative decoding: a model of its own, MTP layers, or n-grams.

A draft model is divided like the target, holds its own weights, and its layers are planned beside
the target's in one pool. MTP (multi-token prediction) layers of the checkpoint are decoder layers
like the last one, with a projection ``[d, 2d]`` and three norms of ``d``; the token table and the
head are the target's. Either is there once, however many tokens it proposes. n-grams of the prompt
take nothing of the GPU.
Source: vLLM 0.33 ``v1/spec_decode/draft_model.py``, ``llm_base_proposer.py``
(``_maybe_share_embeddings``, ``_maybe_share_lm_head``), ``config/speculative.py``;
``model_executor/models/deepseek_mtp.py``, ``glm4_moe_mtp.py``, ``qwen3_5_mtp.py``.
"""

from __future__ import annotations

from typing import NamedTuple

from kvplan.deployment import Deployment, check_split
from kvplan.engines.base import Term
from kvplan.engines.vllm import loading
from kvplan.engines.vllm.versions import NEWEST, Version, said
from kvplan.errors import InputError, UnsupportedCombination
from kvplan.model.caches import Cache, FullAttention, Latent, SlidingWindow
from kvplan.model.model import Model
from kvplan.model.tensors import ATTENTION, NORMS, Tensor

_STATED = (
    "num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "num_mtp_layers",
)  # fmt: skip
"""Keys of a configuration that give the number of MTP layers."""
_WHOLE_PROJECTION = {
    "deepseek_v3": "num_nextn_predict_layers", "glm4_moe": "num_nextn_predict_layers",
}  # fmt: skip
"""``eh_proj`` is a plain 16-bit linear layer, whole on every rank."""
_SPLIT_PROJECTION = {
    "qwen3_5_text": "mtp_num_hidden_layers", "qwen3_5_moe_text": "mtp_num_hidden_layers",
}  # fmt: skip
"""``fc`` is divided by tp."""


class Draft(NamedTuple):
    """What proposes tokens and takes memory."""

    method: str
    """As ``--speculative-config`` names it."""
    caches: tuple[tuple[Cache, ...], ...]
    """What each of its layers keeps."""
    first_layer: int
    """The number that its first layer has for vLLM's lists of layers."""
    term: Term
    """Its weights on one rank."""


def draft_of(d: Deployment) -> Draft | None:
    """What drafts on the last stage; None where nothing of it is counted."""
    if not d.args.speculative_tokens:
        return None
    if d.draft is not None:
        own = d._replace(model=d.draft, scheme=d.draft.scheme, weights_are_stated=False)
        size = loading.weight_bytes(own, 0, NEWEST) if d.draft.weights_unknown is None else 0
        source = f"weights of the draft model {d.draft.name}, divided like the target's"
        term = Term("draft", size, size, size, source)
        return Draft("draft_model", tuple(layer.caches for layer in d.draft.layers), 0, term)
    layers = counted_mtp_layers(d)
    if not layers:
        return None
    model = d.model
    size = sum(_mtp_bytes(d, model.num_hidden_layers + index) for index in range(layers))
    term = Term("draft", size, size, size, f"{layers} MTP layer(s) of the checkpoint, exact rule")
    return Draft("mtp", (model.layers[-1].caches,) * layers, model.num_hidden_layers, term)


def stated_mtp_layers(model: Model) -> int:
    """MTP layers that the configuration gives."""
    for key in _STATED:
        value = model.facts.get(key)
        if isinstance(value, int) and value > 0:
            return value
    return 0


def counted_mtp_layers(d: Deployment) -> int:
    """MTP layers of the families whose layers were read in vLLM's source, where they are like the
    last decoder layer; 0 for others.

    On a later pipeline stage they bring a token table of their own, which is not modelled.
    """
    model = d.model
    key = (_WHOLE_PROJECTION | _SPLIT_PROJECTION).get(model.model_type)
    stated = model.facts.get(key) if key else None
    if not isinstance(stated, int) or stated <= 0 or d.pp > 1 or d.scheme.exact is not None:
        return 0
    if model.hidden_size is None or model.weights_unknown is not None:
        return 0
    if model.model_type in _SPLIT_PROJECTION and d.scheme.name != model.dtype.name:
        return 0  # what a quantised checkpoint leaves alone differs by file
    plain = (FullAttention, Latent)
    return stated if all(isinstance(cache, plain) for cache in model.layers[-1].caches) else 0


def _mtp_bytes(d: Deployment, number: int) -> int:
    """Weights of one MTP layer on one rank."""
    model, width = d.model, d.model.hidden_size or 0
    units = width if model.model_type in _SPLIT_PROJECTION else 1
    beside = (
        Tensor(ATTENTION, "eh_proj", width, 2 * width, units=units),
        Tensor(NORMS, "norms", width, copies=3),
    )
    block = sum(
        tensor.rank_bytes(
            d.scheme.format_for(tensor, f"model.layers.{number}.", model.dtype),
            d.tp, d.split.expert_ranks,
        )
        for tensor in model.layers[-1].tensors
    )  # fmt: skip
    return block + sum(tensor.rank_bytes(model.dtype, d.tp) for tensor in beside)


def check_draft(d: Deployment, version: Version) -> None:
    """Refuse the draft models that vLLM refuses, and those not modelled."""
    draft = d.draft
    if draft is None:
        return
    if version != NEWEST:
        raise UnsupportedCombination(
            f"draft models of vLLM {said(version)} are not known to kvplan",
            hint=f"It knows those of vllm@{said(NEWEST)}.",
        )
    if d.pp > 1:
        raise UnsupportedCombination("--draft-model with --pp: not modelled")
    if draft.vocab_size != d.model.vocab_size:
        raise InputError(
            f"--draft-model {draft.name}: its vocabulary is {draft.vocab_size:,} tokens, that of "
            f"{d.model.name} {d.model.vocab_size:,}; vLLM wants them equal"
        )
    if not all(isinstance(group.cache, (FullAttention, SlidingWindow)) for group in draft.groups):
        kinds = ", ".join(group.cache.kind.replace("_", " ") for group in draft.groups)
        raise UnsupportedCombination(
            f"--draft-model {draft.name}: drafts that keep {kinds} caches are not modelled"
        )
    check_split(d._replace(model=draft))
    if d.args.kv_cache_memory_bytes is None:
        draft.require_weights()


def said_of(d: Deployment, version: Version) -> Deployment:
    """The deployment with what is to be said of its drafts."""
    if d.draft is not None:
        source = f"the draft model {d.draft.name}"
    elif not stated_mtp_layers(d.model):
        return d.saying(
            assumption="speculative decoding: n-grams of the prompt are proposed, as no draft "
            "model is named and the model states no MTP layers"
        )
    elif version == NEWEST and counted_mtp_layers(d):
        source = "the model's MTP layers"
    else:
        return d.saying(
            warning="speculative decoding: planned with n-grams of the prompt; the MTP layers of "
            f"{d.model.name} are not counted here, and with them it needs more"
        )
    return d.saying(
        assumption=f"speculative decoding by {source}: weights and reserved KV cache are counted "
        "(bytes a token and logical bytes are the model's alone), activations and CUDA graphs of "
        "the drafts are not"
    )
