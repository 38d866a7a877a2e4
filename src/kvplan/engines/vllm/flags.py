"""The ``vllm serve`` line that realises a plan."""

from __future__ import annotations

from kvplan.deployment import Deployment


def serve_command(deployment: Deployment) -> list[str]:
    """The words of the command; arguments at vLLM's own default are left out.

    Source: vLLM 0.33 ``engine/arg_utils.py`` (names of the arguments).
    """
    d, args = deployment, deployment.args
    words = ["vllm", "serve", d.model.hub_id or d.model.name]
    for name, size in (("tensor", d.tp), ("pipeline", d.pp), ("data", d.dp)):
        if size > 1:
            words += [f"--{name}-parallel-size", str(size)]
    if d.ep > 1:
        words.append("--enable-expert-parallel")
    words += ["--max-model-len", str(args.max_model_len)]
    if d.weights_are_stated and d.scheme.name in _ONLINE:
        words += ["--quantization", _ONLINE[d.scheme.name]]
    if d.kv_is_stated and d.kv.name not in {"bf16", "fp16"}:
        words += ["--kv-cache-dtype", d.kv.name]
    if args.block_size is not None:
        words += ["--block-size", str(args.block_size)]
    words += ["--max-num-seqs", str(args.max_num_seqs)]
    words += ["--max-num-batched-tokens", str(args.max_num_batched_tokens)]
    if args.kv_cache_memory_bytes is not None:
        words += ["--kv-cache-memory-bytes", str(args.kv_cache_memory_bytes)]
    else:
        words += ["--gpu-memory-utilization", f"{args.gpu_memory_utilization:g}"]
    if args.enforce_eager:
        words.append("--enforce-eager")
    if not args.async_scheduling:
        words.append("--no-async-scheduling")
    if args.disable_hybrid_kv_cache_manager:
        words.append("--disable-hybrid-kv-cache-manager")
    return words


_ONLINE = {"fp8": "fp8", "nf4": "bitsandbytes"}
"""Formats that vLLM makes from a 16-bit checkpoint while loading; others need their own files."""
