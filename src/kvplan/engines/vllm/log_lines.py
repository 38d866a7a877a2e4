"""The lines of vLLM's start-up logs that say something, with what each of their figures is.

A line is selected by a literal part; its pattern is anchored to that and bounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

MAX_GIB = 16 * 1024
MAX_COUNT = 10**12

_GIB = r"(-?\d{1,6}(?:\.\d{1,9})?)\s{0,2}Gi?B"
_NUM = r"(-?\d{1,6}(?:\.\d{1,9})?)"
_COUNT = r"(\d{1,3}(?:,\d{3}){1,5}|\d{1,13})"


class Reading:
    """Figures found so far, by worker."""

    def __init__(self) -> None:
        self.by_worker: dict[str, dict[str, float]] = {}
        self.shared: dict[str, Any] = {}
        self.settings: dict[str, Any] = {}

    def put(self, worker: str, key: str, value: float) -> None:
        self.by_worker.setdefault(worker, {})[key] = value


class _Line(NamedTuple):
    """One kind of line: the literal that selects it, its pattern, what to do with the groups."""

    literal: str
    pattern: re.Pattern[str]
    use: Callable[[Reading, str, re.Match[str]], None]


def _size(*keys: str) -> Callable[[Reading, str, re.Match[str]], None]:
    """Groups in turn are GiB under these keys."""

    def use(reading: Reading, worker: str, match: re.Match[str]) -> None:
        for key, text in zip(keys, match.groups(), strict=True):
            if text is not None:
                gib = float(text)
                if abs(gib) <= MAX_GIB:
                    reading.put(worker, key, gib)

    return use


def _count(*keys: str) -> Callable[[Reading, str, re.Match[str]], None]:
    """Groups in turn are counts under these keys, the same for all workers."""

    def use(reading: Reading, worker: str, match: re.Match[str]) -> None:  # noqa: ARG001
        for key, text in zip(keys, match.groups(), strict=True):
            if text is None:
                continue
            value = float(text) if "." in text else int(text.replace(",", ""))
            if 0 <= value <= MAX_COUNT:
                # Several engines print their own pool: the smallest decides.
                reading.shared[key] = min(value, reading.shared.get(key, value))

    return use


def _setting(key: str) -> Callable[[Reading, str, re.Match[str]], None]:
    def use(reading: Reading, worker: str, match: re.Match[str]) -> None:  # noqa: ARG001
        reading.settings.setdefault(key, match[1])

    return use


def _flag(key: str) -> Callable[[Reading, str, re.Match[str]], None]:
    def use(reading: Reading, worker: str, match: re.Match[str]) -> None:  # noqa: ARG001
        reading.shared[key] = True

    return use


def _line(literal: str, pattern: str, use: Callable[..., None]) -> _Line:
    return _Line(literal, re.compile(pattern, re.ASCII), use)


LINES = (
    _line("odel loading took", r"odel loading took " + _GIB, _size("weights")),
    _line("oading model weights took", r"oading model weights took " + _GIB, _size("weights")),
    _line(
        "Available KV cache memory", r"Available KV cache memory: " + _GIB, _size("pool")
    ),
    _line(
        "GPU KV cache size",
        rf"GPU KV cache size: {_COUNT} tokens",
        _count("tokens"),
    ),
    _line(
        "aximum concurrency for",
        rf"aximum concurrency for {_COUNT} tokens per request: (\d{{1,9}}\.\d{{1,6}})x",
        _count("length", "concurrency"),
    ),
    _line("# GPU blocks", rf"# GPU blocks: {_COUNT}", _count("blocks")),
    _line("# cuda blocks", rf"# cuda blocks: {_COUNT}", _count("blocks")),
    _line("# CUDA blocks", rf"# CUDA blocks: {_COUNT}", _count("blocks")),
    _line("num_gpu_blocks is", rf"num_gpu_blocks is: {_COUNT}", _count("blocks")),
    _line("Graph capturing finished", r"took " + _GIB, _size("graphs")),
    _line(
        "CUDA graph pool memory",
        rf"CUDA graph pool memory: {_GIB} \(actual\), {_GIB} \(estimated\)",
        _size("graphs", "estimate"),
    ),
    _line(
        "Estimated CUDA graph memory",
        r"Estimated CUDA graph memory: " + _GIB,
        _size("estimate"),
    ),
    _line(
        "total_gpu_memory (",
        rf"total_gpu_memory \({_GIB}\) x gpu_memory_utilization \({_NUM}\)(?: = {_GIB})?",
        _size("total", "share", "claim"),
    ),
    _line(
        "model weights take",
        rf"model weights take {_GIB}; non_torch_memory takes {_GIB}; PyTorch activation peak "
        rf"memory takes {_GIB}; (?:the )?rest of the memory reserved for KV Cache (?:is )?{_GIB}",
        _size("weights", "runtime", "activation", "pool"),
    ),
    # The same figures, one to a line, as developers print them.
    _line("total_gpu_memory ", r"total_gpu_memory {1,16}" + _GIB, _size("total")),
    _line(
        "current vLLM instance can use", r"instance can use {1,16}" + _GIB, _size("claim")
    ),
    _line("model weights take ", r"model weights take {1,16}" + _GIB, _size("weights")),
    _line("non_torch_memory ", r"non_torch_memory {1,16}" + _GIB, _size("runtime")),
    _line(
        "activation peak memory ", r"activation peak memory {1,16}" + _GIB, _size("activation")
    ),
    _line(
        "available_kv_cache_memory ", r"available_kv_cache_memory {1,16}" + _GIB, _size("pool")
    ),
    _line(
        "Memory profiling results",
        rf"total_gpu_memory={_GIB} initial_memory_usage={_GIB} peak_torch_memory={_GIB} "
        rf"memory_usage_post_profile={_GIB} non_torch_memory={_GIB} kv_cache_size={_GIB} "
        rf"gpu_memory_utilization={_NUM}",
        _size("total", "initial", "torch_peak", "after", "runtime", "pool", "share"),
    ),
    _line(
        "Initial free memory",
        rf"Initial free memory: {_GIB}; Requested memory: {_NUM} \(util\), {_GIB}",
        _size("free", "share", "claim"),
    ),
    _line(
        "torch peak memory increase",
        rf"torch peak memory increase: {_GIB}; non-torch forward increase memory: {_GIB}; "
        rf"weights memory: {_GIB}",
        _size("activation", "runtime", "weights"),
    ),
    _line(
        "Free memory on device",
        rf"Free memory on device [^(]{{0,24}}\({_NUM}/{_NUM} GiB\) on startup",
        _size("free", "total"),
    ),
    _line(
        "Desired GPU memory utilization is",
        rf"Desired GPU memory utilization is \({_NUM}, {_GIB}\)",
        _size("share", "claim"),
    ),
    _line(
        "less than desired GPU memory utilization",
        rf"less than desired GPU memory utilization \({_NUM}, {_GIB}\)",
        _size("share", "claim"),
    ),
    _line(
        "for consumed memory",
        rf"Actual usage is {_GIB} for consumed memory \(weights \+ non-torch\), {_GIB} for peak "
        rf"activation, and {_GIB} for CUDAGraph memory",
        _size("consumed", "peak", "graphs"),
    ),
    _line(
        " for weight, ",
        rf"Actual usage is {_GIB} for weight, {_GIB} for peak activation, {_GIB} for non-torch "
        rf"memory, and {_GIB} for CUDAGraph memory",
        _size("weights", "peak", "runtime", "graphs"),
    ),
    _line(
        "Current kv cache memory in use",
        r"Current kv cache memory in use is " + _GIB,
        _size("pool"),
    ),
    _line(
        "KV cache is needed",
        rf"{_GIB} KV cache is needed, which is larger than the available KV cache memory "
        rf"\({_GIB}\)",
        _size("needed", "available"),
    ),
    _line(
        "estimated maximum model length is",
        rf"estimated maximum model length is {_COUNT}",
        _count("longest"),
    ),
    _line(
        "max seq len (",
        rf"max seq len \({_COUNT}\)(?: is larger than the maximum number of tokens that can be "
        rf"stored in KV cache \({_COUNT}\))?",
        _count("length", "tokens"),
    ),
    _line(
        "Chunked prefill is enabled with",
        r"max_num_batched_tokens=(\d{1,9})",
        _setting("max_num_batched_tokens"),
    ),
    _line("attention block size to", r"attention block size to (\d{1,5})", _setting("settled")),
    _line("API server version", r"version v?(\d{1,3}\.\d{1,3}(?:\.\d{1,3})?)", _setting("version")),
    _line("torch.compile takes", r"torch\.compile takes (\d{1,6})", _flag("compiled")),
    _line("LLM engine (v", r"LLM engine \(v(\d{1,3}\.\d{1,3}(?:\.\d{1,3})?)", _setting("version")),
    _line("a V0 LLM engine", r"Initializing a (V0) LLM engine", _setting("engine")),
    _line("a V1 LLM engine", r"Initializing a (V1) LLM engine", _setting("engine")),
)  # fmt: skip

CONFIG = {
    "max_seq_len": "max_model_len",
    "max_model_len": "max_model_len",
    "tensor_parallel_size": "tp",
    "pipeline_parallel_size": "pp",
    "data_parallel_size": "dp",
    "max_num_seqs": "max_num_seqs",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "block_size": "block_size",
    "kv_cache_dtype": "kv",
    "quantization": "weights",
    "enforce_eager": "enforce_eager",
    "enable_prefix_caching": "prefix_caching",
    "enable_expert_parallel": "expert_parallel",
}
"""Keys of the engine's configuration line and of "non-default args"."""
PAIR = re.compile(r"[{ ,]'?([a-z_]{2,40})'?[=:] ?'?([A-Za-z0-9_.+-]{1,40})'?(?=[,})\s]|\Z)")
MODEL = re.compile(r"[{ ]'?model(?:_tag)?'?[=:] ?'([^'\x00-\x1f]{1,400})'")
