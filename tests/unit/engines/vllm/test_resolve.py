"""vLLM's defaults on a GPU, what it claims, and what it refuses to start with."""

from __future__ import annotations

from typing import Any

import pytest
from builders import GIB, deployment, gpu, tiny_model

from kvplan.deployment import Deployment, EngineArgs
from kvplan.engines import load_engine
from kvplan.errors import KvplanError, UnsupportedCombination
from kvplan.hardware.profiles import load_gpu

ENGINE = load_engine("vllm")


def resolved(args: dict[str, Any] | None = None, **changes: Any) -> Deployment:
    d = deployment(**{"engine": "vllm", **changes})
    return ENGINE.resolve(d._replace(args=EngineArgs(**(args or {}))))


@pytest.mark.parametrize(
    ("name", "version", "sequences", "tokens", "share"),
    [
        ("a100-80g-sxm", None, 256, 2048, 0.92),
        ("h100-sxm", None, 1024, 8192, 0.92),
        ("h200-sxm", None, 1024, 8192, 0.92),
        ("b200-sxm", None, 1024, 16_384, 0.92),  # 160 GiB and more, from 0.28
        ("b200-sxm", "0.27", 1024, 8192, 0.92),
        ("l40s", None, 256, 2048, 0.92),
        ("h100-sxm", "0.21", 1024, 8192, 0.92),
        ("h100-sxm", "0.19", 1024, 8192, 0.9),  # config/cache.py of 0.19.0
    ],
)
def test_defaults_on_a_gpu(
    name: str, version: str | None, sequences: int, tokens: int, share: float
) -> None:
    d = resolved(gpu=load_gpu(name).gpu, engine_version=version, seq_len=4096)
    args = d.args
    assert (args.max_num_seqs, args.max_num_batched_tokens) == (sequences, tokens)
    assert args.gpu_memory_utilization == share
    assert (args.max_model_len, args.block_size) == (4096, 16)
    said = " ".join(d.assumptions)
    for word in ("max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization", "block_size"):
        assert word in said


def test_what_is_given_is_kept_and_not_said() -> None:
    args = {
        "max_num_seqs": 8, "max_num_batched_tokens": 512, "gpu_memory_utilization": 0.5,
        "block_size": 32, "max_model_len": 2048,
    }  # fmt: skip
    d = resolved(args)
    assert all(getattr(d.args, name) == value for name, value in args.items())
    assert d.assumptions == ()


def test_default_version_is_the_newest() -> None:
    assert resolved().engine_version == "0.33"
    assert resolved(engine_version="v0.28.1").engine_version == "0.28"


@pytest.mark.parametrize("version", ["0.5", "0.34", "1.0", "99.0"])
def test_version_that_is_not_modelled(version: str) -> None:
    with pytest.raises(UnsupportedCombination, match=r"not modelled: kvplan knows 0\.6 to 0\.33"):
        resolved(engine_version=version)


@pytest.mark.parametrize("version", ["", "latest", "0", "0.x", "0.33.0.1", "0.33rc1", "-1.2"])
def test_version_that_is_none(version: str) -> None:
    with pytest.raises(KvplanError, match="not a version"):
        resolved(engine_version=version)


def test_batch_raises_the_sequences_and_is_said() -> None:
    d = resolved(gpu=load_gpu("a100-80g-sxm").gpu, batch=3000)
    assert (d.args.max_num_seqs, d.args.max_num_batched_tokens) == (3000, 3000)
    assert any("max_num_seqs 3,000: raised" in said for said in d.assumptions)


def test_replicas_share_the_batch() -> None:
    d = resolved(gpu=load_gpu("a100-80g-sxm").gpu, batch=600, dp=2)
    assert d.args.max_num_seqs == 300


@pytest.mark.parametrize(
    ("args", "changes", "why"),
    [
        ({"max_model_len": 1023}, {}, "--seq 1,024 is longer than --max-model-len 1,023"),
        ({"max_num_seqs": 7}, {"batch": 8}, "--max-num-seqs 7 cannot hold 8"),
        (
            {"max_num_seqs": 64, "max_num_batched_tokens": 63},
            {},
            "--max-num-batched-tokens 63 must be at least the 64",
        ),
        ({"block_size": 8}, {}, "multiples of 16"),
        ({"block_size": 24}, {}, "multiples of 16"),
        ({"block_size": 4096}, {}, "multiples of 16 up to 1024"),
    ],
)
def test_arguments_that_vllm_refuses(args: dict[str, int], changes: Any, why: str) -> None:
    with pytest.raises(KvplanError, match=why):
        resolved(args, **changes)


def test_sequences_give_way_to_a_small_step() -> None:
    assert resolved({"max_num_batched_tokens": 64}).args.max_num_seqs == 64


def test_hardware_without_rules() -> None:
    for name in ("m2-ultra-192g", "gaudi3"):
        with pytest.raises(UnsupportedCombination, match="no memory rules for vLLM"):
            resolved(gpu=load_gpu(name).gpu)
    with pytest.raises(UnsupportedCombination, match=r"needs compute capability 7\.0"):
        resolved(gpu=load_gpu("p100-16g").gpu)


def test_claim_is_a_share_of_the_whole_device() -> None:
    d = resolved({"gpu_memory_utilization": 0.9}, gpu=gpu(80.0))
    assert ENGINE.claim(d).size_bytes == 77_309_411_328  # 0.9 * 85,899,345,920
    # what others hold is not left out of the claim
    assert ENGINE.claim(d._replace(reserve_bytes=GIB)).size_bytes == 77_309_411_328


def test_claim_is_rounded_up() -> None:
    d = resolved({"gpu_memory_utilization": 0.5}, gpu=gpu(80.0), device_bytes=101)
    assert ENGINE.claim(d).size_bytes == 51


def test_eager_mode_has_no_graphs() -> None:
    def graphs(d: Deployment) -> int:
        return sum(term.high for term in ENGINE.overheads(d, 0) if term.key == "cuda_graph")

    assert graphs(resolved({"enforce_eager": True})) == 0
    assert graphs(resolved()) > 0


def test_sampler_runs_on_the_last_stage_only() -> None:
    model = tiny_model(vocab_size=128_000)
    d = resolved(model=model, pp=2, gpu=load_gpu("h100-sxm").gpu)
    first, last = ({t.key: t for t in ENGINE.overheads(d, stage)} for stage in (0, 1))
    # 1,024 sequences * 128,000 logits * 14 B, and the 8,192 hidden rows of 64 * 2 B
    assert last["activation"].likely == 1_835_008_000 + 1_048_576
    # no sampler: 8,192 tokens * 2 B * (3 * 128 + 4 * 64)
    assert first["activation"].likely == 10_485_760
    # the sampler's tables: 4 * 1,024 * 128,000 + 4 * 1,024 * 4,000
    assert last["runtime"].likely - first["runtime"].likely == 540_672_000


def test_overheads_are_ordered_and_sourced() -> None:
    for term in ENGINE.overheads(resolved(), 0):
        assert 0 <= term.low <= term.likely <= term.high
        assert term.source


def test_settings_that_may_free_memory_are_smaller() -> None:
    d = resolved(gpu=load_gpu("h100-sxm").gpu)
    found = dict(ENGINE.changes(d))
    assert found["--max-num-seqs 16"].args.max_num_seqs == 16
    assert found["--max-num-batched-tokens 2048"].args.max_num_batched_tokens == 2048
    assert found["--enforce-eager"].args.enforce_eager
    assert found["--gpu-memory-utilization 0.95"].args.gpu_memory_utilization == 0.95
    eager = resolved({"enforce_eager": True, "max_num_seqs": 1, "max_num_batched_tokens": 2048})
    assert not any("eager" in words or "seqs" in words for words, _ in ENGINE.changes(eager))
