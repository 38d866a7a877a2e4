"""The ``vllm serve`` line that realises a plan."""

from __future__ import annotations

import json

from kvplan.deployment import Deployment
from kvplan.engines.vllm.further import Further
from kvplan.engines.vllm.versions import NEWEST, Version, said

KV_CACHE_MEMORY: Version = (0, 10)
"""``--kv-cache-memory-bytes``: in 0.10.2, not in 0.9.2."""
ASYNC_SCHEDULING: Version = (0, 10)
"""``--no-async-scheduling``: in 0.10.2, not in 0.9.2, which never schedules ahead."""


def flags_missing(deployment: Deployment, version: Version) -> list[str]:
    """What to say of arguments that this version does not have."""
    args, missing = deployment.args, []
    if args.kv_cache_memory_bytes is not None and version < KV_CACHE_MEMORY:
        missing.append(
            f"vLLM {said(version)} has no --kv-cache-memory-bytes (from {said(KV_CACHE_MEMORY)}): "
            "the command gives the share of the GPU instead, whose pool may differ"
        )
    if not args.async_scheduling and version < ASYNC_SCHEDULING:
        missing.append(
            f"vLLM {said(version)} has no --no-async-scheduling (from {said(ASYNC_SCHEDULING)}): "
            "it never schedules ahead, and the command leaves it out"
        )
    return missing


def serve_command(
    deployment: Deployment,
    more: Further,
    block_size: int | None,
    version: Version = NEWEST,
    draft_method: str = "ngram",
) -> list[str]:
    """The words of the command; arguments at vLLM's own default are left out.

    ``block_size`` is what to ask for, None where vLLM settles on the plan's by itself. Draft
    tokens come from what the plan counts: a draft model, MTP layers, or n-grams of the prompt.
    Source: vLLM 0.33 ``engine/arg_utils.py`` (names of the arguments).
    """
    d, args = deployment, deployment.args
    words = ["vllm", "serve", d.model.hub_id or d.model.name]
    if more.use_v1 is not None:
        words.insert(0, f"VLLM_USE_V1={int(more.use_v1)}")
    for name, size in (
        ("tensor", d.tp), ("pipeline", d.pp), ("data", d.dp), ("decode-context", d.dcp),
    ):  # fmt: skip
        if size > 1:
            words += [f"--{name}-parallel-size", str(size)]
    if d.ep > 1:
        words.append("--enable-expert-parallel")
    words += ["--max-model-len", str(args.max_model_len)]
    if more.dtype is not None:
        words += ["--dtype", _DTYPES[more.dtype.name]]
    if d.weights_are_stated and d.scheme.name in _ONLINE:
        words += ["--quantization", _ONLINE[d.scheme.name]]
    if d.kv_is_stated and (d.kv.name not in _SIXTEEN_BIT or d.model.kv_cache_dtype is not None):
        words += ["--kv-cache-dtype", _SIXTEEN_BIT.get(d.kv.name, d.kv.name)]
    if block_size is not None:
        words += ["--block-size", str(block_size)]
    words += ["--max-num-seqs", str(args.max_num_seqs)]
    words += ["--max-num-batched-tokens", str(args.max_num_batched_tokens)]
    if args.kv_cache_memory_bytes is not None and version >= KV_CACHE_MEMORY:
        words += ["--kv-cache-memory-bytes", str(args.kv_cache_memory_bytes)]
    else:
        words += ["--gpu-memory-utilization", f"{args.gpu_memory_utilization:g}"]
    if args.enforce_eager:
        words.append("--enforce-eager")
    if not args.prefix_caching:
        words.append("--no-enable-prefix-caching")
    if not args.async_scheduling and version >= ASYNC_SCHEDULING:
        words.append("--no-async-scheduling")
    if args.disable_hybrid_kv_cache_manager:
        words.append("--disable-hybrid-kv-cache-manager")
    if args.speculative_tokens:
        proposal: dict[str, str | int] = {"method": draft_method}
        if d.draft is not None:
            proposal["model"] = d.draft.hub_id or d.draft.name
        proposal["num_speculative_tokens"] = args.speculative_tokens
        words += ["--speculative-config", json.dumps(proposal)]
    if more.max_loras:
        words += ["--enable-lora", "--max-loras", str(more.max_loras)]
        words += ["--max-lora-rank", str(more.max_lora_rank)]
    extra = dict(args.extra)
    if more.num_gpu_blocks_override is not None:
        words += ["--num-gpu-blocks-override", str(more.num_gpu_blocks_override)]
    if "kv_cache_dtype_skip_layers" in extra:
        skipped = extra["kv_cache_dtype_skip_layers"].split(",")
        words += ["--kv-cache-dtype-skip-layers", *(part.strip() for part in skipped if part)]
    if "mamba_ssm_cache_dtype" in extra:
        words += ["--mamba-ssm-cache-dtype", extra["mamba_ssm_cache_dtype"]]
    return words


_SIXTEEN_BIT = {"bf16": "bfloat16", "fp16": "float16"}
"""KV formats that vLLM uses unless told otherwise or the checkpoint declares its own."""
_DTYPES = {**_SIXTEEN_BIT, "fp32": "float32"}
_ONLINE = {"fp8": "fp8", "nf4": "bitsandbytes"}
"""Formats that vLLM makes from a 16-bit checkpoint while loading; others need their own files."""


def made_online(weight_format: str) -> bool:
    """Whether vLLM makes the format from a 16-bit checkpoint while loading."""
    return weight_format in _ONLINE
