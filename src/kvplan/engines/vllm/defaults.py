"""What vLLM takes where the user names no share of memory and no limits of a step."""

from __future__ import annotations

from typing import NamedTuple

from kvplan.engines.vllm.versions import GRAPHS_IN_BUDGET, Version
from kvplan.units import GIB

_LARGEST_TIER = (0, 28)
_GB10_IS_SMALL = (0, 27)


class BatchDefaults(NamedTuple):
    """What one step of the engine may hold when the user names neither limit."""

    max_num_batched_tokens: int
    max_num_seqs: int


def default_gpu_memory_utilization(version: Version) -> float:
    """Share of total memory the engine claims when not told: 0.90, and 0.92 from 0.20.

    Source: ``config/cache.py`` of 0.19.0 (0.9) and of 0.20.0 (0.92); vllm#38284 raised it together
    with taking graphs into the budget. Logs of 0.26 to 0.29 print 0.92, logs up to 0.16 print 0.90.
    """
    return 0.92 if version >= GRAPHS_IN_BUDGET else 0.90


def batch_defaults(
    *,
    device_bytes: int,
    gpu_name: str,
    version: Version,
    max_model_len: int,
    api_server: bool = True,
    v1: bool = True,
    chunked_prefill: bool = True,
    max_num_seqs: int | None = None,
) -> BatchDefaults:
    """``max_num_batched_tokens`` and ``max_num_seqs`` where the user gives none or only the latter.

    V1 rule (``engine/arg_utils.py: get_batch_defaults`` and
    ``_set_default_max_num_seqs_and_batched_tokens_args``): tokens for the API server [for the
    ``LLM`` class], sequences:

    - 160 GiB and more, from 0.28 (vllm#51726): 16,384 [16,384], 1,024
    - 70 GiB and more, no A100 and, from 0.27, no GB10: 8,192 [16,384], 1,024
    - others: 2,048 [8,192], 256

    Then, without chunked prefill, at least ``max_model_len`` tokens; then ``min(tokens, S *
    max_model_len)``; then, for a default S only, ``min(S, tokens)``. Not modelled:
    ``performance_mode=throughput`` (doubles both), CPU, TPU and batched data-parallel MoE.

    0.8: the larger tier goes by name (H100, H200); S was 1,024 on every GPU in its first releases
    (vllm#15105, vllm#15617: "warming up sampler with 1024 dummy requests" on 24 GB cards) and 256
    on small ones later; the careful 1,024 is returned. The GB10 exception is read in 0.33; a log
    of 0.27.1 captures 35 decode graphs, as 256 sequences would, so it is assumed from 0.27.

    V0 (``v1=False``): S = 256; tokens = ``max(max_model_len, 2048)``, or 2,048 with chunked prefill
    (512 up to 0.6.4, not modelled), which V0 turned on by itself above 32,768 tokens: its KV pool
    is not monotonic in ``max_model_len`` (vllm-014: 29,000 fails on a card where 35,000 runs).

    Goes wrong otherwise: on an H100 a model needs 4 times the sampler memory it needs on an A100.
    """
    if not v1:
        sequences = max_num_seqs or 256
        tokens = 2048 if chunked_prefill else max(max_model_len, 2048)
        return BatchDefaults(max(tokens, sequences), sequences)

    name = gpu_name.lower()
    if version < (0, 9):
        large = "h100" in name or "h200" in name
    else:
        small_despite_memory = "a100" in name or ("gb10" in name and version >= _GB10_IS_SMALL)
        large = device_bytes >= 70 * GIB and not small_despite_memory
    if version >= _LARGEST_TIER and device_bytes >= 160 * GIB:
        tokens, sequences = 16384, 1024
    elif large:
        tokens, sequences = (8192 if api_server else 16384), 1024
    else:
        tokens, sequences = (2048 if api_server else 8192), (1024 if version < (0, 9) else 256)
    if not chunked_prefill:
        tokens = max(tokens, max_model_len)
    if max_num_seqs is not None:
        return BatchDefaults(min(tokens, max_num_seqs * max_model_len), max_num_seqs)
    tokens = min(tokens, sequences * max_model_len)
    return BatchDefaults(tokens, min(sequences, tokens))
