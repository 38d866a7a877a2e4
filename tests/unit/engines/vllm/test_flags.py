"""The ``vllm serve`` line: the arguments that realise a plan, and only those."""

from __future__ import annotations

from typing import Any

from builders import tiny_model

from kvplan.engines import load_engine
from kvplan.question import build_deployment

ENGINE = load_engine("vllm")


def words(**flags: Any) -> list[str]:
    d = build_deployment(tiny_model(), **{"gpu": "h100-sxm", "seq": "2k", **flags})
    return ENGINE.flags(ENGINE.resolve(d))


def value(line: list[str], flag: str) -> str:
    assert line.count(flag) == 1
    return line[line.index(flag) + 1]


def test_one_gpu() -> None:
    line = words()
    assert line[:3] == ["vllm", "serve", "tiny"]
    assert value(line, "--max-model-len") == "2048"
    assert value(line, "--gpu-memory-utilization") == "0.92"
    assert value(line, "--max-num-seqs") == "1024"  # the default on an H100
    assert value(line, "--max-num-batched-tokens") == "8192"
    for flag in ("--tensor-parallel-size", "--kv-cache-dtype", "--quantization", "--enforce-eager"):
        assert flag not in line


def test_what_is_asked_is_in_the_line() -> None:
    line = words(
        tp=2, pp=2, dp=2, kv="fp8", weights="fp8", enforce_eager=True, no_async_scheduling=True,
        disable_hybrid_kv_cache_manager=True, block_size=32, max_num_seqs=7,
        gpu_memory_utilization=0.5,
    )  # fmt: skip
    assert value(line, "--tensor-parallel-size") == "2"
    assert value(line, "--pipeline-parallel-size") == "2"
    assert value(line, "--data-parallel-size") == "2"
    assert value(line, "--kv-cache-dtype") == "fp8_e4m3"
    assert value(line, "--quantization") == "fp8"
    assert value(line, "--block-size") == "32"
    assert value(line, "--max-num-seqs") == "7"
    assert value(line, "--gpu-memory-utilization") == "0.5"
    assert {
        "--enforce-eager", "--no-async-scheduling", "--disable-hybrid-kv-cache-manager",
    } <= set(line)  # fmt: skip


def test_given_pool_takes_the_place_of_the_share() -> None:
    line = words(kv_cache_memory="10GiB")
    assert value(line, "--kv-cache-memory-bytes") == "10737418240"
    assert "--gpu-memory-utilization" not in line


def test_batch_beyond_the_default_raises_the_sequences() -> None:
    assert value(words(batch=3000), "--max-num-seqs") == "3000"
