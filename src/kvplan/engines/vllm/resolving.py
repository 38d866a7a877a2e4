"""What vLLM settles before it looks at memory: version, dtype, limits of a step, and refusals."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from kvplan.deployment import Deployment
from kvplan.engines.vllm import defaults, versions
from kvplan.engines.vllm.flags import flags_missing, made_online
from kvplan.engines.vllm.further import further, understood
from kvplan.errors import InputError, UnsupportedCombination
from kvplan.model.tensors import VOCAB_PADDING
from kvplan.precision.kv import KV_FORMATS
from kvplan.precision.scheme import plain_scheme
from kvplan.units import round_up

if TYPE_CHECKING:
    from kvplan.hardware.gpu import Gpu

LONG_CONTEXT = 32_768
"""Above this many tokens V0 turns chunked prefill on by itself (``engine/arg_utils.py``)."""


def rules_of(d: Deployment) -> versions.Rules:
    """The rules of the version and of the V0 or V1 engine that this deployment runs."""
    return _cached_rules(d.engine_version, d.args.extra, d.gpu, d.kv_is_stated)


@lru_cache(maxsize=256)
def _cached_rules(
    text: str | None, extra: tuple[tuple[str, str], ...], gpu: Gpu, kv_is_stated: bool
) -> versions.Rules:
    version, v1 = versions.parse(text), understood(extra).use_v1
    if v1 is None:
        v1 = versions.uses_v1(version, gpu, kv_is_stated=kv_is_stated)
    return versions.rules(version, v1=v1)


def in_dtype(d: Deployment) -> Deployment:
    """The deployment in the dtype that is asked for; what is quantised stays as it is.

    Source: vLLM ``config/model.py`` ``_get_and_verify_dtype``.
    """
    dtype = further(d).dtype
    if dtype is None or dtype is d.model.dtype:
        return d
    plain = plain_scheme(dtype)
    is_plain = d.scheme.name == d.model.dtype.name
    model = replace(
        d.model, dtype=dtype, scheme=plain if d.model.scheme.name == d.scheme.name and is_plain
        else d.model.scheme,
    )  # fmt: skip
    follows = not d.kv_is_stated and d.kv.name == d.model.dtype.name
    # What was said of a 32-bit checkpoint's 16 bits does not hold any more.
    said = tuple(text for text in d.assumptions if "served at 16 bits" not in text)
    return d._replace(
        assumptions=said,
        model=model,
        scheme=plain if is_plain else d.scheme,
        kv=KV_FORMATS[dtype.name] if follows else d.kv,
    )


def check_version(d: Deployment) -> Deployment:
    """Refuse what this version is not known to do; say which of the two engines it runs."""
    r = rules_of(d)
    versions.check_engine(r.version, further(d).use_v1)
    versions.check(d.model, d.kv, r)
    if d.dcp > 1 and r.version != versions.NEWEST:
        versions.need(r, versions.CONTEXT_PARALLEL, f"shares (--dcp {d.dcp})", d.model)
    if not r.v1 and r.version >= (0, 8):
        d = d.saying(assumption="the V0 engine, as VLLM_USE_V1=0 or an older GPU has it")
    if d.args.speculative_tokens:
        from kvplan.engines.vllm.drafting import check_draft, said_of

        check_draft(d, r.version)
        if d.draft is not None:
            check_division(d._replace(model=d.draft))
        d = said_of(d, r.version)
    if further(d).max_loras:
        from kvplan.engines.vllm.lora import check_lora

        check_lora(d, r.version)
    for text in flags_missing(d, r.version):
        d = d.saying(warning=text)
    if d.weights_are_stated and not (
        d.scheme.name == d.model.scheme.name or made_online(d.scheme.name)
    ):
        d = d.saying(
            assumption=f"weights {d.scheme.name}: the command wants a checkpoint stored in it, "
            f"in the place of {d.model.hub_id or d.model.name}"
        )
    gone = versions.left_out_of(d.model, r.version)
    return d if gone is None else d.saying(warning=gone)


def check_hardware(deployment: Deployment) -> None:
    gpu = deployment.gpu
    capability = gpu.compute_capability
    if gpu.vendor not in {"nvidia", "amd"}:
        raise UnsupportedCombination(
            f"kvplan has no memory rules for vLLM on {gpu.display_name}, "
            "only for NVIDIA and AMD GPUs",
            hint="--engine none gives the bare formula.",
        )
    if capability is not None and capability < (7, 0):
        raise UnsupportedCombination(
            f"vLLM needs compute capability 7.0; {gpu.display_name} has "
            f"{capability[0]}.{capability[1]}",
            hint="--engine none gives the bare formula.",
        )


def check_division(deployment: Deployment) -> None:
    """Refuse a tp by which vLLM's layers do not divide, beyond what `check_split` asks.

    The padded vocabulary and the MLP must divide (``vocab_parallel_embedding.py``, ``linear.py``
    ``divide``); gpt-oss does not copy its key-value heads (``models/gpt_oss.py``).
    """
    model, tp = deployment.model, deployment.tp
    vocab = round_up(model.vocab_size or 0, VOCAB_PADDING)
    for size, what in ((vocab, "padded vocabulary"), (model.mlp_width, "MLP width")):
        if size % tp:
            raise UnsupportedCombination(
                f"vLLM cannot divide the {what} of {model.name}, {size:,}, by --tp {tp}"
            )
    if model.model_type == "gpt_oss" and tp > (model.num_kv_heads or tp):
        raise UnsupportedCombination(
            f"vLLM does not copy the {model.num_kv_heads} key-value heads of {model.name}, "
            f"as --tp {tp} would need"
        )


def batch_limits(d: Deployment, version: tuple[int, int], max_model_len: int) -> Deployment:
    """``max_num_seqs`` and ``max_num_batched_tokens``, raised to hold the asked batch."""
    args = d.args
    if args.max_num_seqs is not None and args.max_num_seqs < d.replica_batch:
        raise InputError(
            f"--max-num-seqs {args.max_num_seqs} cannot hold {d.replica_batch} sequences at once",
            hint=f"Use --max-num-seqs {d.replica_batch}, or leave it out.",
        )
    default = defaults.batch_defaults(
        device_bytes=d.total_bytes or 0,
        gpu_name=d.gpu.display_name,
        version=version,
        max_model_len=max_model_len,
        max_num_seqs=args.max_num_seqs,
        v1=rules_of(d).v1,
        chunked_prefill=rules_of(d).v1 or _chunks_by_itself(d, max_model_len),
    )
    sequences, tokens = default.max_num_seqs, default.max_num_batched_tokens
    if args.max_num_seqs is None:
        why = "vLLM's default on this GPU"
        if sequences < d.replica_batch:
            sequences, why = d.replica_batch, "raised from vLLM's default to hold the batch"
        d = d.saying(assumption=f"max_num_seqs {sequences:,}: {why}")
    if args.max_num_batched_tokens is not None:
        tokens = args.max_num_batched_tokens
        if tokens < sequences and args.max_num_seqs is None:
            sequences = max(d.replica_batch, tokens)
    else:
        tokens = max(tokens, sequences)
        d = d.saying(assumption=f"max_num_batched_tokens {tokens:,}: vLLM's default on this GPU")
    if tokens < sequences:
        raise InputError(
            f"--max-num-batched-tokens {tokens} must be at least the {sequences} sequences "
            "of a step"
        )
    return d.with_args(max_num_seqs=sequences, max_num_batched_tokens=tokens)


def _chunks_by_itself(d: Deployment, max_model_len: int) -> bool:
    """Whether V0 turns chunked prefill on: long contexts of text models without a window."""
    kinds = {group.cache.kind for group in d.model.groups}
    return (
        max_model_len > LONG_CONTEXT
        and not d.model.is_multimodal
        and not kinds & {"sliding_window", "chunked_local"}
    )
