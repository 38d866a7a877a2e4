"""vLLM's start-up logs, of every age: which figures are taken, and what never is."""

from __future__ import annotations

import time

import pytest

from kvplan.calibration import Observed
from kvplan.engines.vllm.log import MAX_LINE, read_log
from kvplan.errors import SourceError
from kvplan.units import GIB

V0 = """\
INFO 12-13 19:54:18 llm_engine.py:249] Initializing a V0 LLM engine (v0.8.2) with config: \
model='/home/jane/models/phi-4', speculative_config=None, dtype=torch.bfloat16, max_seq_len=512, \
quantization=bitsandbytes, enforce_eager=False, kv_cache_dtype=auto
INFO worker.py:267] the current vLLM instance can use total_gpu_memory (79.15GiB) x \
gpu_memory_utilization (0.70) = 55.09GiB
INFO worker.py:267] model weights take 8.63GiB; non_torch_memory takes 0.09GiB; PyTorch activation \
peak memory takes 1.16GiB; the rest of the memory reserved for KV Cache is 45.21GiB.
INFO executor_base.py:111] # cuda blocks: 14815, # CPU blocks: 1966
INFO executor_base.py:116] Maximum concurrency for 512 tokens per request: 462.97x
INFO model_runner.py:1570] Graph capturing finished in 59 secs, took 1.12 GiB
"""

V0_OLDEST = """\
INFO model_runner.py:1072] Loading model weights took 14.9888 GB
INFO worker.py:232] Memory profiling results: total_gpu_memory=23.58GiB \
initial_memory_usage=15.34GiB peak_torch_memory=17.98GiB memory_usage_post_profile=15.35GiB \
non_torch_memory=0.35GiB kv_cache_size=2.89GiB gpu_memory_utilization=0.90
INFO gpu_executor.py:113] # GPU blocks: 1478, # CPU blocks: 2048
ValueError: The model's max seq len (29000) is larger than the maximum number of tokens that can \
be stored in KV cache (23648). Try increasing `gpu_memory_utilization`
"""

V1 = """\
(APIServer pid=1) INFO [utils.py:233] non-default args: {'model_tag': 'Qwen/Qwen3-8B', 'model': \
'Qwen/Qwen3-8B', 'max_model_len': 1024, 'gpu_memory_utilization': 0.8, 'max_num_seqs': 64, \
'api_key': 'sk-very-secret', 'enable_expert_parallel': True, 'tensor_parallel_size': 2}
(EngineCore_0 pid=7) INFO [core.py:77] Initializing a V1 LLM engine (v0.10.2) with config: \
model='Qwen/Qwen3-8B', tokenizer='Qwen/Qwen3-8B', max_seq_len=1024, download_dir='/mnt/secret', \
tensor_parallel_size=2, pipeline_parallel_size=1, quantization=fp8, enforce_eager=True, \
kv_cache_dtype=fp8, enable_prefix_caching=False
(EngineCore_0 pid=7) DEBUG Initial free memory: 23.08 GiB; Requested memory: 0.80 (util), 18.82 GiB
(EngineCore_0 pid=7) DEBUG Total non KV cache memory: 10.22GiB; torch peak memory increase: \
1.40GiB; non-torch forward increase memory: 0.02GiB; weights memory: 8.80GiB.
(EngineCore_0 pid=7) INFO Available KV cache memory: 8.60 GiB
(EngineCore_0 pid=7) INFO GPU KV cache size: 62,608 tokens
(EngineCore_0 pid=7) INFO Maximum concurrency for 1,024 tokens per request: 61.14x
"""

NEWEST = """\
INFO Model loading took 51.1 GiB memory and 12.799889 seconds
INFO Available KV cache memory: 19.54 GiB
INFO GPU KV cache size: 313,650 tokens, Maximum concurrency for 262,144 tokens per request: 1.20x
INFO CUDA graph pool memory: 0.71 GiB (actual), 1.55 GiB (estimated), difference: 0.84 GiB (119.3%).
INFO Free memory on device (79.99/80.0 GiB) on startup. Desired GPU memory utilization is \
(0.92, 73.6 GiB). Actual usage is 51.66 GiB for consumed memory (weights + non-torch), 2.4 GiB for \
peak activation, and 0.71 GiB for CUDAGraph memory. Replace gpu_memory_utilization config with \
`--kv-cache-memory=20000000000` (18.6 GiB) to fit into requested memory. Current kv cache memory \
in use is 19.54 GiB.
"""


def read(text: str) -> Observed:
    return read_log(text.splitlines(keepends=True))


def gib(size: int | None) -> float:
    assert size is not None
    return round(size / GIB, 4)


def test_v0() -> None:
    o = read(V0)
    assert [gib(x) for x in (o.device_bytes, o.claim_bytes, o.weight_bytes)] == [79.15, 55.09, 8.63]
    assert [gib(x) for x in (o.runtime_bytes, o.activation_bytes)] == [0.09, 1.16]
    assert [gib(x) for x in (o.pool_bytes, o.graph_bytes)] == [45.21, 1.12]
    assert (o.pool_blocks, o.max_concurrency) == (14815, 462.97)
    assert o.flags == {
        "engine": "vllm@0.8", "engine_arg": ["use_v1=0"], "max_model_len": 512, "seq": 512,
        "gpu_memory_utilization": 0.70, "weights": "nf4",
    }  # fmt: skip


def test_oldest_lines_in_gb_and_a_refusal() -> None:
    o = read(V0_OLDEST)
    assert [gib(x) for x in (o.device_bytes, o.weight_bytes)] == [23.58, 14.9888]
    # peak of torch less weights: 17.98 - 14.9888
    assert gib(o.activation_bytes) == pytest.approx(2.9912, abs=1e-4)
    assert (o.pool_blocks, o.pool_tokens) == (1478, 23648)
    assert (o.flags["max_model_len"], o.flags["gpu_memory_utilization"]) == (29000, 0.9)


def test_v1_with_settings() -> None:
    o = read(V1)
    assert o.model == "Qwen/Qwen3-8B"
    assert o.flags == {
        "engine": "vllm@0.10", "engine_arg": ["use_v1=1"], "tp": 2, "pp": 1, "ep": 2,
        "max_model_len": 1024, "seq": 1024, "max_num_seqs": 64, "gpu_memory_utilization": 0.8,
        "kv": "fp8_e4m3", "weights": "fp8", "enforce_eager": True, "no_prefix_caching": True,
    }  # fmt: skip
    assert [gib(x) for x in (o.free_bytes, o.claim_bytes, o.weight_bytes)] == [23.08, 18.82, 8.8]
    assert [gib(x) for x in (o.activation_bytes, o.runtime_bytes)] == [1.4, 0.02]
    assert o.pool_tokens == 62_608


def test_peak_activation_of_0_20_and_later_loses_the_estimate_it_holds() -> None:
    o = read(NEWEST)
    # 2.4 printed, of which 1.55 is the estimate; 51.66 consumed less 51.1 of weights
    assert gib(o.activation_bytes) == pytest.approx(0.85)
    assert gib(o.runtime_bytes) == pytest.approx(0.56)
    assert not o.activation_holds_graphs
    assert [gib(x) for x in (o.graph_estimate_bytes, o.graph_bytes)] == [1.55, 0.71]
    assert (o.pool_tokens, o.max_concurrency) == (313_650, 1.2)
    assert gib(o.pool_bytes) == 19.54
    without = read("\n".join(line for line in NEWEST.splitlines() if "graph pool" not in line))
    assert without.activation_holds_graphs
    assert gib(without.activation_bytes) == 2.4


def test_one_worker_decides_for_all() -> None:
    o = read(
        "(Worker_TP0 pid=1) INFO Model loading took 16.96 GiB memory and 3.0 seconds\n"
        "(Worker_TP1 pid=2) INFO Model loading took 16.90 GiB memory and 3.0 seconds\n"
        "(VllmWorkerProcess pid=3) INFO Model loading took 16.80 GiB\n"
        "(Worker_TP0 pid=1) INFO Available KV cache memory: 40.17 GiB\n"
        "(Worker_TP1 pid=2) INFO Available KV cache memory: 39.50 GiB\n"
        "(EngineCore_0 pid=9) INFO GPU KV cache size: 1,391,552 tokens\n"
    )
    assert (gib(o.pool_bytes), gib(o.weight_bytes)) == (39.5, 16.9)
    assert (o.workers, o.pool_tokens) == (3, 1_391_552)


def test_colours_and_timestamps_are_seen_through() -> None:
    o = read(
        "\x1b[1;36m(EngineCore_DP0 pid=7)\x1b[0;0m \x1b[32mINFO\x1b[0m 10-02 10:00:00 "
        "[gpu_worker.py:298] \x1b[1mAvailable KV cache memory: \x1b[33m51.38\x1b[0m GiB\r\n"
    )
    assert gib(o.pool_bytes) == 51.38


def test_negative_pools_and_refusals() -> None:
    o = read(
        "Available KV cache memory: -2.14 GiB\n"
        "ValueError: To serve at least one request with the model's max seq len (262144), (24.0 "
        "GiB KV cache is needed, which is larger than the available KV cache memory (3.18 GiB). "
        "Based on the available memory, the estimated maximum model length is 34736.\n"
    )
    assert (gib(o.pool_bytes), gib(o.needed_bytes)) == (-2.14, 24.0)
    assert (o.longest, o.flags["max_model_len"]) == (34_736, 262_144)


def test_no_path_and_no_secret_is_taken() -> None:
    said = repr(read(V0)) + repr(read(V1))
    for secret in ("jane", "phi-4", "sk-very-secret", "/mnt", "secret", "home"):
        assert secret not in said


@pytest.mark.parametrize("text", ["", "\n\n", "hello\n", "INFO vLLM API server version 0.11.0\n"])
def test_a_log_that_says_nothing_names_the_lines_it_looks_for(text: str) -> None:
    with pytest.raises(SourceError, match="no line of vLLM's about memory") as caught:
        read(text)
    assert "Model loading took" in (caught.value.hint or "")
    assert "Available KV cache memory" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "line",
    [
        "Available KV cache memory: " + "9" * 5000 + " GiB",
        "Available KV cache memory: 999999.0 GiB",
        "Available KV cache memory: 1e999 GiB",
        "Available KV cache memory: nan GiB",
        "GPU KV cache size: " + "9," * 9999 + " tokens",
        "GPU KV cache size: " + "1" * 40 + " tokens",
        "# GPU blocks: -5",
        "Model loading took \u0663.\u0665 GiB",
    ],
)
def test_figures_that_cannot_be_are_not_taken(line: str) -> None:
    with pytest.raises(SourceError):
        read(line)


def test_settings_that_cannot_be_are_left_out() -> None:
    o = read(
        "engine (v0.33.0) with config: model='a b c', max_seq_len=" + "9" * 30 + ", "
        "tensor_parallel_size=0, kv_cache_dtype=../x, quantization=`rm`\n"
        "Available KV cache memory: 1.0 GiB\n"
    )
    assert o.model is None
    assert set(o.flags) <= {"engine"}


@pytest.mark.parametrize(
    "line",
    [
        "Free memory on device " + "(" * MAX_LINE,
        "Actual usage is " * (MAX_LINE // 16) + "for consumed memory",
        "engine (v" + "model='" * (MAX_LINE // 7),
        "engine (v0.1.0) " + "a=" * (MAX_LINE // 2),
        "engine (v0.1.0) " + ",tp" * (MAX_LINE // 3) + "=1",
        "GPU KV cache size: " + "1," * (MAX_LINE // 2) + "GiB",
        "GiB " + "\x1b[" + "0;" * MAX_LINE,
        "GiB " * MAX_LINE,
        "non-default args: {" + "'model': " * (MAX_LINE // 9),
    ],
)
def test_hostile_lines_take_linear_time(line: str) -> None:
    begun = time.perf_counter()
    with pytest.raises(SourceError):
        read_log([line] * 20)
    assert time.perf_counter() - begun < 5.0


def test_a_cold_compile_is_noticed() -> None:
    o = read("torch.compile takes 31.07 s in total\nAvailable KV cache memory: 1.0 GiB\n")
    assert o.cold_compile


ONE_TO_A_LINE = """\
INFO 12-13 19:54:18 worker.py:243] total_gpu_memory     79.22GiB
the current vLLM instance can use    71.29GiB
model weights take   14.96GiB
non_torch_memory     1.79GiB
PyTorch activation peak memory       1.26GiB
available_kv_cache_memory    53.29GiB
"""
"""vllm-011 of https://github.com/vllm-project/vllm/pull/10511."""


def test_figures_one_to_a_line() -> None:
    o = read_log(ONE_TO_A_LINE.splitlines())
    figures = (
        o.device_bytes, o.claim_bytes, o.weight_bytes, o.runtime_bytes, o.activation_bytes,
        o.pool_bytes,
    )  # fmt: skip
    assert figures == tuple(round(gib * GIB) for gib in (79.22, 71.29, 14.96, 1.79, 1.26, 53.29))
