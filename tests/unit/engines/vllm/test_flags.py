"""The ``vllm serve`` line: the arguments that realise a plan, and only those."""

from __future__ import annotations

import json
from dataclasses import replace
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


def test_every_argument_that_the_plan_depends_on_is_in_the_line() -> None:
    line = words(
        tp=4, dcp=2, no_prefix_caching=True, speculative_tokens=3,
        engine_arg=[
            "num_gpu_blocks_override=500", "kv_cache_dtype_skip_layers=0,sliding_window",
            "mamba_ssm_cache_dtype=float32",
        ],
    )  # fmt: skip
    assert value(line, "--decode-context-parallel-size") == "2"
    assert "--no-enable-prefix-caching" in line
    assert json.loads(value(line, "--speculative-config")) == {
        "method": "ngram", "num_speculative_tokens": 3,
    }  # fmt: skip
    assert value(line, "--num-gpu-blocks-override") == "500"
    at = line.index("--kv-cache-dtype-skip-layers")
    assert line[at + 1 : at + 3] == ["0", "sliding_window"]
    assert value(line, "--mamba-ssm-cache-dtype") == "float32"


def test_the_older_engine_is_chosen_by_the_environment() -> None:
    assert words(engine="vllm@0.9", engine_arg=["use_v1=0"])[:2] == ["VLLM_USE_V1=0", "vllm"]


def test_sixteen_bits_against_a_checkpoint_that_declares_eight() -> None:
    model = replace(tiny_model(), kv_cache_dtype="fp8_e4m3")
    d = build_deployment(model, gpu="h100-sxm", seq="2k", kv="bf16")
    assert value(ENGINE.flags(ENGINE.resolve(d)), "--kv-cache-dtype") == "bfloat16"


def test_a_block_size_that_vllm_raises_by_itself_is_not_asked_for() -> None:
    d = build_deployment("qwen3-next-80b-a3b", gpu="h200-sxm", seq="32k")
    resolved = ENGINE.resolve(d)
    assert resolved.args.block_size == 576  # vLLM 0.33 on an H200, tests/data/vllm_planner.jsonl
    assert "--block-size" not in ENGINE.flags(resolved)


def test_a_format_that_wants_its_own_checkpoint_is_said() -> None:
    def said(weights: str) -> bool:
        d = build_deployment(tiny_model(), gpu="h100-sxm", seq="2k", weights=weights)
        return any("wants a checkpoint" in text for text in ENGINE.resolve(d).assumptions)

    assert said("awq")
    assert not said("fp8")  # made while loading
    assert not said("bf16")  # the checkpoint's own


def test_the_dtype_that_a_model_is_run_in() -> None:
    """Pages and weights at 32 bits are twice those at the tiny model's own 16."""
    d = build_deployment(tiny_model(), gpu="h100-sxm", seq="2k", engine_arg=["dtype=float32"])
    resolved = ENGINE.resolve(d)
    assert resolved.kv.name == resolved.scheme.name == "fp32"
    assert value(ENGINE.flags(resolved), "--dtype") == "float32"
    own = ENGINE.resolve(build_deployment(tiny_model(), gpu="h100-sxm", seq="2k"))
    pages = [ENGINE.kv_layout(asked, 0).block_bytes or 0 for asked in (resolved, own)]
    weights = [ENGINE.weight_bytes(asked, 0) for asked in (resolved, own)]
    assert pages[0] == 2 * pages[1]
    assert weights[0] == 2 * weights[1]
    quantised = build_deployment(
        tiny_model(), gpu="h100-sxm", seq="2k", kv="fp8", weights="awq", engine_arg=["dtype=half"]
    )
    kept = ENGINE.resolve(quantised)
    assert (kept.kv.name, kept.scheme.name) == ("fp8_e4m3", "awq")


def test_arguments_that_an_older_version_does_not_have() -> None:
    """``--kv-cache-memory-bytes`` and ``--no-async-scheduling``: in 0.10.2, not in 0.9.2."""
    asked: dict[str, Any] = {"kv_cache_memory": "10GiB", "no_async_scheduling": True}
    newer, older = words(engine="vllm@0.10", **asked), words(engine="vllm@0.9", **asked)
    assert {"--kv-cache-memory-bytes", "--no-async-scheduling"} <= set(newer)
    assert not {"--kv-cache-memory-bytes", "--no-async-scheduling"} & set(older)
    assert value(older, "--gpu-memory-utilization") == "0.9"
    flags = {"gpu": "h100-sxm", "seq": "2k", **asked}
    for version, count in (("0.10", 0), ("0.9", 2)):
        d = ENGINE.resolve(build_deployment(tiny_model(), engine=f"vllm@{version}", **flags))
        assert sum("has no --" in text for text in d.warnings) == count
