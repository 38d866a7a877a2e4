"""Reading what vLLM prints at start-up, of any version from 0.6 to 0.33.

Every line is looked at once: a literal part of it selects the pattern, and patterns are anchored
to it and bounded, so reading takes linear time whatever the file holds. Only figures and the
names of models and formats are taken; paths, addresses and anything else never leave this module.

Lines may carry colours, timestamps and the prefixes of workers, ``(EngineCore_0 pid=7)`` or
``(Worker_TP1 pid=9)``. Sizes are GiB, also where old versions print "GB".
Source: the templates of vLLM ``v1/worker/gpu_worker.py``, ``v1/core/kv_cache_utils.py``,
``worker/worker.py`` (V0), ``engine/llm_engine.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from kvplan.calibration import Observed
from kvplan.errors import SourceError
from kvplan.units import GIB

MAX_LINE = 64 * 1024
"""Characters of a line that are looked at."""
MAX_GIB = 16 * 1024
MAX_COUNT = 10**12

LOOKED_FOR = (
    '"Model loading took … GiB"',
    '"Available KV cache memory: … GiB"',
    '"GPU KV cache size: … tokens"',
    '"model weights take …GiB; … the rest of the memory reserved for KV Cache is …GiB"',
    '"Free memory on device (…/… GiB) on startup. … Actual usage is …"',
)
"""The lines without which a log says nothing of memory."""

_ANSI = re.compile(r"\x1b\[[0-9;?]{0,32}[ -/]{0,4}[@-~]")
_WORKER = re.compile(r"\((?:Vllm)?(Worker|EngineCore)(?:Process)?[ _]?([A-Za-z0-9_]{0,32})")
_GIB = r"(-?\d{1,6}(?:\.\d{1,9})?)\s{0,2}Gi?B"
_NUM = r"(-?\d{1,6}(?:\.\d{1,9})?)"
_COUNT = r"(\d{1,3}(?:,\d{3}){1,5}|\d{1,13})"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}(?:/[A-Za-z0-9][A-Za-z0-9._-]{0,95})?\Z")
_WORD = re.compile(r"[A-Za-z0-9_]{1,32}\Z")


class _Reading:
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
    use: Callable[[_Reading, str, re.Match[str]], None]


def _size(*keys: str) -> Callable[[_Reading, str, re.Match[str]], None]:
    """Groups in turn are GiB under these keys."""

    def use(reading: _Reading, worker: str, match: re.Match[str]) -> None:
        for key, text in zip(keys, match.groups(), strict=True):
            if text is not None:
                gib = float(text)
                if abs(gib) <= MAX_GIB:
                    reading.put(worker, key, gib)

    return use


def _count(*keys: str) -> Callable[[_Reading, str, re.Match[str]], None]:
    """Groups in turn are counts under these keys, the same for all workers."""

    def use(reading: _Reading, worker: str, match: re.Match[str]) -> None:  # noqa: ARG001
        for key, text in zip(keys, match.groups(), strict=True):
            if text is None:
                continue
            value = float(text) if "." in text else int(text.replace(",", ""))
            if 0 <= value <= MAX_COUNT:
                # Several engines print their own pool: the smallest decides.
                reading.shared[key] = min(value, reading.shared.get(key, value))

    return use


def _setting(key: str) -> Callable[[_Reading, str, re.Match[str]], None]:
    def use(reading: _Reading, worker: str, match: re.Match[str]) -> None:  # noqa: ARG001
        reading.settings.setdefault(key, match[1])

    return use


def _flag(key: str) -> Callable[[_Reading, str, re.Match[str]], None]:
    def use(reading: _Reading, worker: str, match: re.Match[str]) -> None:  # noqa: ARG001
        reading.shared[key] = True

    return use


def _line(literal: str, pattern: str, use: Callable[..., None]) -> _Line:
    return _Line(literal, re.compile(pattern, re.ASCII), use)


_LINES = (
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

_CONFIG = {
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
_PAIR = re.compile(r"[{ ,]'?([a-z_]{2,40})'?[=:] ?'?([A-Za-z0-9_.+-]{1,40})'?(?=[,})\s]|\Z)")
_MODEL = re.compile(r"[{ ]'?model(?:_tag)?'?[=:] ?'([^'\x00-\x1f]{1,400})'")


def read_log(lines: Iterable[str]) -> Observed:
    """What a start-up log says. Raises where none of its lines is about memory."""
    reading = _Reading()
    for line in lines:
        _take(reading, line[:MAX_LINE])
    if not any(reading.by_worker.values()) and not reading.shared.keys() & {"tokens", "blocks"}:
        raise SourceError(
            "the log has no line of vLLM's about memory",
            hint=f"kvplan looks for lines such as {', '.join(LOOKED_FOR)}.",
        )
    return _observed(reading)


_INTERESTING = (
    "GiB", "GB", "blocks", "tokens", "LLM engine", "non-default args", "API server", "seq len (",
    "torch.compile takes", "block size", "maximum model length",
)  # fmt: skip
"""One of these is in every line that is read: most lines of a log end here."""


def _take(reading: _Reading, line: str) -> None:
    """One line's figures."""
    if not any(part in line for part in _INTERESTING):
        return
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    if "engine (v" in line or "non-default args" in line:
        _take_settings(reading, line)
    worker = None
    for kind in _LINES:
        at = line.find(kind.literal)
        if at < 0:
            continue
        match = kind.pattern.search(line, max(0, at - 64), at + 1024)
        if match is None:
            continue
        if worker is None:
            found = _WORKER.search(line, 0, 400)
            worker = f"{found[1]}{found[2]}" if found and found[1] == "Worker" else ""
        kind.use(reading, worker, match)


def _take_settings(reading: _Reading, line: str) -> None:
    """Settings of the configuration line; the first statement of one stands."""
    model = _MODEL.search(line)
    if model is not None:
        reading.settings.setdefault("model", model[1])
    for key, value in _PAIR.findall(line):
        if key in _CONFIG and value != "None":
            reading.settings.setdefault(_CONFIG[key], value)


def _observed(reading: _Reading) -> Observed:
    workers = {name: figures for name, figures in reading.by_worker.items() if name}
    common = reading.by_worker.get("", {})
    # The worker with the least KV cache decides for all; without that figure, the heaviest.
    chosen: dict[str, float] = {}
    if workers:
        with_pool = [figures for figures in workers.values() if "pool" in figures]
        if with_pool:
            chosen = min(with_pool, key=lambda figures: figures["pool"])
        else:
            chosen = max(workers.values(), key=lambda figures: figures.get("weights", 0.0))
    figures = {**common, **chosen}
    shared = reading.shared

    def gib(key: str) -> int | None:
        return None if key not in figures else round(figures[key] * GIB)

    weights, estimate = gib("weights"), gib("estimate")
    runtime, activation = gib("runtime"), gib("activation")
    consumed, peak, torch_peak = gib("consumed"), gib("peak"), gib("torch_peak")
    if runtime is None and consumed is not None and weights is not None:
        runtime = consumed - weights
    if activation is None and torch_peak is not None and weights is not None:
        activation = torch_peak - weights
    from_peak = activation is None and peak is not None
    if activation is None and peak is not None:
        # From 0.20 this line already holds the estimate of the graphs.
        activation = peak - (estimate or 0)
    pool = gib("pool")
    model = reading.settings.get("model", "")
    return Observed(
        model=model if _NAME.match(model) else None,
        flags=_flags(reading, figures.get("share")),
        workers=max(1, len(workers)),
        device_bytes=gib("total"),
        free_bytes=gib("free"),
        claim_bytes=gib("claim"),
        weight_bytes=weights,
        runtime_bytes=runtime,
        activation_bytes=activation,
        activation_holds_graphs=from_peak and estimate is None,
        graph_estimate_bytes=estimate,
        graph_bytes=gib("graphs"),
        pool_bytes=gib("available") if pool is None else pool,
        pool_blocks=shared.get("blocks"),
        pool_tokens=shared.get("tokens"),
        max_concurrency=shared.get("concurrency"),
        needed_bytes=gib("needed"),
        longest=shared.get("longest"),
        cold_compile=bool(shared.get("compiled")),
    )


_WEIGHTS = {
    "fp8": "fp8", "fbgemm_fp8": "fp8", "awq": "awq", "awq_marlin": "awq", "gptq": "gptq",
    "gptq_marlin": "gptq", "bitsandbytes": "nf4", "mxfp4": "mxfp4",
}  # fmt: skip
"""vLLM's quantisation methods that are one weight format; others say nothing of it."""
_KV = {"auto": None, "fp8": "fp8_e4m3", "bfloat16": "bf16", "float16": "fp16"}
_SIZES = ("tp", "pp", "dp", "max_num_seqs", "max_num_batched_tokens", "block_size")


def _flags(reading: _Reading, share: float | None) -> dict[str, Any]:
    """The settings as flags of the question; a value that is not one is left out."""
    stated = reading.settings
    flags: dict[str, Any] = {name: _whole(stated.get(name)) for name in _SIZES}
    length = _whole(stated.get("max_model_len")) or reading.shared.get("length")
    flags["max_model_len"] = flags["seq"] = length
    flags["gpu_memory_utilization"] = _share(stated.get("gpu_memory_utilization"), share)
    version = stated.get("version")
    flags["engine"] = None if version is None else "vllm@" + ".".join(version.split(".")[:2])
    kv = stated.get("kv", "")
    flags["kv"] = _KV.get(kv, kv if _WORD.match(kv) else None)
    flags["weights"] = _WEIGHTS.get(stated.get("weights", ""))
    flags["enforce_eager"] = stated.get("enforce_eager") == "True"
    flags["no_prefix_caching"] = stated.get("prefix_caching") == "False"
    if stated.get("expert_parallel") == "True" and (flags["tp"] or flags["dp"]):
        flags["ep"] = (flags["tp"] or 1) * (flags["dp"] or 1)
    if version is not None and version.startswith(("0.8.", "0.9.", "0.10.")) and "engine" in stated:
        flags["engine_arg"] = [f"use_v1={int(stated['engine'] == 'V1')}"]
    return {name: value for name, value in flags.items() if value}


def _whole(text: str | None) -> int | None:
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 12:
        return None
    return int(text) or None


def _share(text: str | None, printed: float | None) -> float | None:
    """The share as it was given; else as printed, which is rounded to a hundredth."""
    try:
        value = float(text) if text is not None else printed
    except ValueError:
        value = printed
    return value if value is not None and 0 < value <= 1 else None
