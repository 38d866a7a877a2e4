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
from collections.abc import Iterable
from typing import Any

from kvplan.calibration import Observed
from kvplan.engines.vllm.log_lines import CONFIG, LINES, MODEL, PAIR, Reading
from kvplan.errors import SourceError
from kvplan.units import GIB

MAX_LINE = 64 * 1024
"""Characters of a line that are looked at."""

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
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}(?:/[A-Za-z0-9][A-Za-z0-9._-]{0,95})?\Z")
_WORD = re.compile(r"[A-Za-z0-9_]{1,32}\Z")


def read_log(lines: Iterable[str]) -> Observed:
    """What a start-up log says. Raises where none of its lines is about memory."""
    reading = Reading()
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


def _take(reading: Reading, line: str) -> None:
    """One line's figures."""
    if not any(part in line for part in _INTERESTING):
        return
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    if "engine (v" in line or "non-default args" in line:
        _take_settings(reading, line)
    worker = None
    for kind in LINES:
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


def _take_settings(reading: Reading, line: str) -> None:
    """Settings of the configuration line; the first statement of one stands."""
    model = MODEL.search(line)
    if model is not None:
        reading.settings.setdefault("model", model[1])
    for key, value in PAIR.findall(line):
        if key in CONFIG and value != "None":
            reading.settings.setdefault(CONFIG[key], value)


def _observed(reading: Reading) -> Observed:
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


def _flags(reading: Reading, share: float | None) -> dict[str, Any]:
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
