"""The report's figures against numbers worked out by hand or published."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders import GIB, TINY_PARAMETERS, tiny_model

from kvplan.errors import InputError, MalformedFile, UnsupportedCombination
from kvplan.model.model import Model
from kvplan.planning.fit import fit
from kvplan.planning.report import FitReport, Verdict
from kvplan.policy import load_policy
from kvplan.question import build_deployment


def judge(model: str | Model, **flags: Any) -> FitReport:
    return fit(build_deployment(model, **flags))


def bare(model: str | Model, **flags: Any) -> FitReport:
    return judge(model, **{"gpu": "a100-80g", "engine": "none", **flags})


# LLaMA-7B: 32 layers, 32 heads of 128, fp16: 32 * 2 * 32 * 128 * 2 B = 524,288 B a token


def test_llama_7b_at_4k() -> None:
    report = bare("llama-7b", seq=4096)
    assert report.kv_cache.bytes_per_token == 524_288
    assert report.kv_cache.needed_bytes == 2_147_483_648  # 524,288 * 4,096: 2 GiB
    assert report.memory.weight_bytes == 13_476_831_232  # 6,738,415,616 * 2 B
    assert report.model.parameters == 6_738_415_616


def test_llama_7b_at_32k_on_an_a100() -> None:
    report = judge("llama-7b", gpu="a100-80g", seq="32k")
    assert report.kv_cache.logical_bytes_per_sequence == 17_179_869_184  # 524,288 * 32,768: 16 GiB
    assert report.kv_cache.reserved_bytes_per_sequence == 17_179_869_184  # 2,048 whole blocks
    assert report.kv_cache.blocks_per_sequence == 2048
    assert report.kv_cache.page_bytes == 8_388_608  # 524,288 * 16 tokens
    assert report.verdict is Verdict.FITS
    assert report.limits.max_batch == 3
    assert any("native context of 2,048" in warning for warning in report.warnings)


def test_llama_7b_at_32k_batch_8_does_not_fit() -> None:
    report = judge("llama-7b", gpu="a100-80g", seq="32k", batch=8)
    assert report.kv_cache.needed_bytes == 137_438_953_472  # 8 * 16 GiB
    assert (report.verdict, report.limiting_term) == (Verdict.OOM, "kv_cache")
    assert report.limits.max_batch == 3
    assert report.options


def test_llama_7b_by_the_bare_formula() -> None:
    report = bare("llama-7b", seq="32k")
    # 79.25 GiB = 85,094,039,552; less the weights 71,617,208,320
    assert report.memory.claim_bytes == 85_094_039_552
    assert report.memory.kv_pool_bytes == 71_617_208_320
    assert report.limits.max_batch == 4  # 71,617,208,320 / 17,179,869,184 = 4.17
    assert report.limits.max_seq_len == 136_598  # 71,617,208,320 / 524,288 = 136,598.98


@pytest.mark.parametrize(
    ("kv", "size"),
    [
        ("q8_0", 9_126_805_504),  # 16 GiB * 8.5 / 16 = 8.5 GiB
        ("q4_0", 4_831_838_208),  # 4.5 GiB
        ("fp8", 8_589_934_592),
        ("k=q8_0,v=q4_0", 6_979_321_856),  # 6.5 GiB
    ],
)
def test_llama_2_7b_at_32k_with_a_quantised_cache(kv: str, size: int) -> None:
    assert bare("llama-2-7b", seq="32k", kv=kv).kv_cache.needed_bytes == size


def test_llama_3_1_8b_groups_its_queries() -> None:
    # 32 layers * 8 kv heads * 128 * 2 * 2 B; with all 32 query heads it would be 524,288
    assert bare("llama-3.1-8b", seq="8k").kv_cache.bytes_per_token == 131_072


def test_tp_beyond_the_kv_heads_replicates() -> None:
    eight, sixteen = (judge("llama-3.1-8b", gpu="h100", tp=tp, seq="128k") for tp in (8, 16))
    # one head a GPU: 32 * 1 * 256 * 2 B = 16,384 B a token
    assert eight.kv_cache.bytes_per_token == sixteen.kv_cache.bytes_per_token == 16_384
    assert eight.kv_cache.page_bytes == sixteen.kv_cache.page_bytes == 262_144
    assert not any("key-value heads" in warning for warning in eight.warnings)
    assert any("tp 16 is more than the 8 key-value heads" in w for w in sixteen.warnings)


@pytest.mark.parametrize("tp", [1, 2, 8, 16])
def test_deepseek_v3_is_not_divided_by_tp(tp: int) -> None:
    report = bare("deepseek-v3", seq="4k", tp=tp, gpu="h200")
    assert report.kv_cache.bytes_per_token == 70_272  # 61 layers * (512 + 64) * 2 B
    assert any("latent attention is not divided" in w for w in report.warnings) is (tp > 1)


def test_falcon_7b_has_one_kv_head() -> None:
    # 32 layers * 1 head * 64 * 2 * 2 B; its 71 query heads would make it 581,632
    assert bare("falcon-7b", seq="2k").kv_cache.bytes_per_token == 8192


def test_gemma_3_27b_at_128k() -> None:
    report = bare("gemma-3-27b", seq="128k")
    # 16 heads * 256 * 2 B = 8,192 B: 10 full layers in full, 52 of them 1,024 tokens
    assert report.kv_cache.logical_bytes_per_sequence == (10 * 131_072 + 52 * 1024) * 8192
    assert report.kv_cache.logical_bytes_per_sequence == 11_173_625_856  # 10.40625 GiB
    groups = {(g.kind, g.layers, g.bytes_per_token, g.window) for g in report.kv_cache.groups}
    assert groups == {("full", 10, 81_920, None), ("sliding_window", 52, 425_984, 1024)}
    assert report.kv_cache.bytes_per_token == 81_920  # beyond the window only full layers grow


def test_vllm_reserves_more_for_gemma_3_27b_than_the_mathematics() -> None:
    report = judge("gemma-3-27b", gpu="h200", seq="128k", kv_cache_memory="60GiB")
    # 8,192 blocks of full layers and 6 * 1,089 of windows with 16,384 tokens in flight
    assert report.kv_cache.blocks_per_sequence == 14_726
    assert report.kv_cache.page_bytes == 1_310_720
    assert report.kv_cache.reserved_bytes_per_sequence == 14_726 * 1_310_720
    assert report.kv_cache.logical_bytes_per_sequence == 11_173_625_856


def test_memory_adds_up() -> None:
    for model, flags in (("llama-3.1-8b", {}), ("gemma-3-27b", {"tp": 2}), ("gpt-oss-20b", {})):
        memory = judge(model, gpu="h100", seq="8k", **flags).memory
        assert memory.claim_bytes is not None
        assert memory.weight_bytes is not None
        assert memory.kv_pool_bytes == (
            memory.claim_bytes
            - memory.weight_bytes
            - memory.activation_bytes
            - memory.cuda_graph_bytes
            - memory.runtime_bytes
        )
        assert {term.key for term in memory.terms} == {"activation", "cuda_graph", "runtime"}


def test_vllm_claims_92_per_cent_of_the_total() -> None:
    memory = judge("llama-3.1-8b", gpu="a100-80g", seq="8k").memory
    assert memory.device_bytes == 85_094_039_552  # 79.25 GiB
    assert memory.claim_bytes == 78_286_516_388  # ceil(0.92 * 85,094,039,552)


def test_question_as_understood() -> None:
    d = judge(tiny_model(), gpu="h100", seq="2k", batch=3, tp=2, kv="fp8").deployment
    assert (d.model, d.architecture, d.gpu, d.gpu_count) == ("tiny", "llama", "h100-sxm", 2)
    assert (d.engine, d.engine_version) == ("vllm", "0.33")
    assert (d.seq_len, d.batch, d.tp, d.kv_cache_dtype) == (2048, 3, 2, "fp8_e4m3")
    assert (d.weight_format, d.block_size, d.max_model_len) == ("bf16", 16, 2048)


def test_shares() -> None:
    report = bare(tiny_model(), gpu_memory="1MiB", seq=512)
    # 512 tokens * 512 B = 262,144 of 1,048,576 B, and of 1,048,576 - 328,832 left by the weights
    assert report.memory.kv_share == 0.25
    assert report.memory.pool_use == 262_144 / 719_744
    assert report.memory.headroom_bytes == 457_600
    assert report.model.parameters == TINY_PARAMETERS


def test_concurrency_at_the_mean_length() -> None:
    report = bare(tiny_model(), gpu_memory="1MiB", seq=512, mean_seq=100, dp=2)
    assert report.kv_cache.mean_concurrency == 2 * 719_744 / 51_200
    assert bare(tiny_model(), seq=512).kv_cache.mean_concurrency is None


def test_page_waste_is_half_a_block_less_a_token_a_sequence() -> None:
    report = judge(tiny_model(), gpu="h100", seq=512, batch=4)
    # 4 sequences * (16 - 1) / 2 tokens * 512 B
    assert report.kv_cache.page_waste_bytes == 15_360
    assert bare(tiny_model(), seq=512, batch=4).kv_cache.page_waste_bytes == 0


def test_policy_sets_the_headroom() -> None:
    d = build_deployment(tiny_model(), gpu="h100", engine="none", gpu_memory="1MiB", seq=512)
    # 457,600 of 1,048,576 B are left: 43.6 %
    assert fit(d, load_policy()._replace(min_headroom=0.43)).verdict is Verdict.FITS
    strict = fit(d, load_policy()._replace(min_headroom=0.44))
    assert (strict.verdict, strict.limiting_term) == (Verdict.TIGHT, "headroom")


def test_weights_alone_do_not_fit() -> None:
    report = judge("llama-3.1-70b", gpu="a100-80g", seq="8k")
    # 70,553,706,496 * 2 B = 141.1 GB
    assert report.memory.weight_bytes == 141_107_412_992
    assert (report.verdict, report.limiting_term) == (Verdict.OOM, "weights")
    assert report.memory.kv_pool_bytes == 0
    assert (report.limits.max_batch, report.limits.max_seq_len) == (0, 0)
    assert "no room for any KV cache" in report.reason


def test_claim_that_leaves_no_room_for_others_does_not_start() -> None:
    report = judge("llama-3.1-8b", gpu="h100", seq="8k", reserve="10GiB")
    assert (report.verdict, report.limiting_term) == (Verdict.OOM, "gpu_memory_utilization")
    assert "would not start" in report.reason
    assert report.limits.min_gpu_memory_utilization is not None


def test_unknown_weights() -> None:
    model = replace(tiny_model(), weights_unknown="intermediate_size is missing")
    with pytest.raises(MalformedFile, match="intermediate_size is missing"):
        judge(model, gpu="h100", seq=512)
    report = judge(model, gpu="h100", seq=512, kv_cache_memory="5GiB")
    assert report.memory.weight_bytes is None
    assert report.model.parameters is None
    assert report.verdict is Verdict.FITS
    assert any("weights are not counted" in warning for warning in report.warnings)


def test_gpu_of_unknown_memory_needs_it_stated() -> None:
    from builders import deployment, gpu

    unknown = deployment(gpu=gpu(memory={}, uncertain=["memory"]))
    with pytest.raises(InputError, match="memory of test-gpu"):
        fit(unknown)
    assert fit(unknown._replace(device_bytes=GIB)).verdict is Verdict.FITS


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"model": "llama-3.1-8b", "gpu": "a100-80g", "kv": "fp8"}, "fp8 is not native"),
        ({"model": "llama-3.1-8b", "gpu": "a100-80g", "weights": "fp8"}, "fp8 weights are not"),
        ({"model": "llama-3.1-8b", "gpu": "h100", "kv": "nvfp4"}, "nvfp4 is not native"),
        ({"model": "llama-3.1-8b", "gpu": "l40s", "tp": 2}, "wants a link of 200 GB/s"),
        ({"model": "llama-3.1-8b", "gpu": "h100", "kv_cache_memory": "90GiB"}, "more than the GPU"),
        ({"model": "llama-7b", "gpu": "h100", "seq": 2049}, "beyond the model's native context"),
    ],
)
def test_warnings(flags: dict[str, Any], words: str) -> None:
    report = judge(**{"seq": 1024, **flags})
    assert any(words in warning for warning in report.warnings)


def test_no_warning_without_a_reason() -> None:
    assert judge("llama-3.1-8b", gpu="h100", seq="8k", tp=2).warnings == []


def test_assumptions_name_what_was_filled_in() -> None:
    said = " ".join(judge("llama-3.1-8b", gpu="h100").assumptions)
    for word in ("h100-sxm", "native context", "gpu_memory_utilization", "max_num_seqs"):
        assert word in said


def test_flags_realise_the_plan() -> None:
    report = judge("llama-3.1-8b", gpu="h100", seq="8k", tp=2, kv="fp8")
    line = " ".join(report.flags)
    assert line.startswith("vllm serve ")
    for words in ("--tensor-parallel-size 2", "--max-model-len 8192", "--kv-cache-dtype fp8_e4m3"):
        assert words in line
    assert bare("llama-7b", seq="4k").flags == []


def test_format_that_an_engine_does_not_take() -> None:
    with pytest.raises(UnsupportedCombination, match="q8_0"):
        judge("llama-3.1-8b", gpu="h100", seq="8k", kv="q8_0")


def test_matrix_agrees_with_fit() -> None:
    report = bare("llama-7b", seq="32k")
    contexts, rows = report.matrix.contexts, report.matrix.rows
    assert contexts == [2048, 4096, 8192, 16_384, 32_768]
    assert rows[0].kv_cache_dtype == "fp16"
    # 71,617,208,320 B over 524,288 * length
    assert rows[0].max_batch == [66, 33, 16, 8, 4]
    bits = [row.kv_bits for row in rows]
    assert bits == sorted(bits, reverse=True)
    for narrower in rows[1:]:
        assert all(a >= b for a, b in zip(narrower.max_batch, rows[0].max_batch, strict=True))
