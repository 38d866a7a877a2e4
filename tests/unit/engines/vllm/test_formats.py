"""Which KV formats and block sizes vLLM takes: its own refusals, and what it accepts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders import cache_model, deployment, gpu, tiny_model

from kvplan.engines import load_engine
from kvplan.errors import KvplanError, UnsupportedCombination
from kvplan.hardware.profiles import load_gpu
from kvplan.model.caches import FullAttention, Indexer, Latent
from kvplan.model.model import Model
from kvplan.precision.kv import KV_FORMATS
from kvplan.question import build_deployment
from kvplan.sources import load_model

Row = dict[str, Any]
ENGINE = load_engine("vllm")
DATA = Path(__file__).parents[3] / "data" / "vllm_refusals.jsonl"
REFUSALS: list[Row] = [json.loads(line) for line in DATA.read_text().splitlines()[1:]]
GPUS = {"H200": "h200-sxm", "B200": "b200-sxm"}
BUNDLED = {"gpt-oss-20b", "gpt-oss-120b", "gemma-3-27b", "deepseek-v3", "phi-4-14b"}
"""Models of those rows that are looked at here; the others are not bundled under that name."""
NAMES = {"phi-4-14b": "phi-4"}
HERE = [row for row in REFUSALS if row["model"] in BUNDLED]


def label(row: Row) -> str:
    return f"{row['model']}-{row['device']}-{row['kv_cache_dtype']}-tp{row['tp']}"


def test_rows_looked_at() -> None:
    assert len(REFUSALS) == 36
    assert len(HERE) == 19
    assert len({label(row) for row in HERE}) == 19


@pytest.mark.parametrize("row", HERE, ids=label)
def test_what_vllm_refuses_is_refused(row: Row) -> None:
    flags: dict[str, Any] = {"gpu": GPUS[row["device"]], "seq": row["max_model_len"]}
    if row["kv_cache_dtype"] != "auto":
        flags["kv"] = row["kv_cache_dtype"]
    with pytest.raises(UnsupportedCombination):
        ENGINE.resolve(
            build_deployment(NAMES.get(row["model"], row["model"]), tp=row["tp"], **flags)
        )


@pytest.mark.parametrize("row", HERE, ids=label)
def test_refusal_is_for_the_reason_in_the_row(row: Row) -> None:
    """The same start without its odd format or size is accepted."""
    ENGINE.resolve(
        build_deployment(
            NAMES.get(row["model"], row["model"]),
            gpu=GPUS[row["device"]],
            seq=row["max_model_len"],
            tp=8 if row["model"] == "deepseek-v3" else 1,
        )
    )


def accepted(model: Model, name: str = "h100-sxm") -> set[str]:
    d = deployment(model, engine="vllm", gpu=load_gpu(name).gpu)
    return {form.name for form in ENGINE.kv_formats(d)}


PLAIN = cache_model([(FullAttention(8, 128, 128),)] * 8, vocab_size=128)
LATENT = cache_model([(Latent(512, 64),)] * 8, heads=128)
SPARSE = cache_model([(Latent(512, 64), Indexer(128))] * 8, heads=128)


def test_plain_attention_takes_16_bits_fp8_and_scales_by_head() -> None:
    taken = accepted(PLAIN)
    assert {
        "bf16", "fp8_e4m3", "fp8_e5m2", "int8_per_token_head", "fp8_per_token_head",
        "int4_per_token_head", "nvfp4",
    } <= taken  # fmt: skip
    # other engines' formats, latent formats, and the 16-bit type that is not the model's
    assert taken.isdisjoint(
        {"fp16", "fp32", "q8_0", "int8", "int4", "mxfp4", "fp4_e2m1", "kivi-2", "fp8_ds_mla"}
    )


def test_latent_attention_takes_only_16_bits_and_fp8() -> None:
    assert accepted(LATENT) == {"bf16", "fp8_e4m3"}
    assert accepted(LATENT, "b200-sxm") == {"bf16", "fp8_e4m3"}


def test_sparse_latent_formats_need_an_indexer_and_nvfp4_needs_blackwell() -> None:
    assert "fp8_ds_mla" in accepted(SPARSE)
    assert "nvfp4_ds_mla" not in accepted(SPARSE)
    assert "nvfp4_ds_mla" in accepted(SPARSE, "b200-sxm")
    assert "fp8_ds_mla" not in accepted(LATENT)


def test_nvfp4_by_gpu_and_head_size() -> None:
    small = cache_model([(FullAttention(8, 64, 64),)])
    assert "nvfp4" in accepted(PLAIN, "h100-sxm")
    assert "nvfp4" not in accepted(small, "h100-sxm")  # head size 64 below Blackwell
    assert "nvfp4" in accepted(small, "b200-sxm")
    assert "nvfp4" not in accepted(PLAIN, "v100-16g-sxm")  # 7.0
    assert "nvfp4_4over6" not in accepted(PLAIN, "h100-sxm")
    assert "nvfp4_4over6" in accepted(PLAIN, "b200-sxm")


def test_fp8_e5m2_cannot_go_with_an_fp8_checkpoint() -> None:
    checkpoint = tiny_model(quantization_config={"quant_method": "fp8"})
    d = build_deployment(checkpoint, gpu="h100-sxm", kv="fp8_e5m2")
    with pytest.raises(UnsupportedCombination, match="fp8_e5m2 cannot be used with an fp8"):
        ENGINE.resolve(d)


def test_16_bit_cache_must_match_the_model() -> None:
    half = tiny_model(torch_dtype="float16")
    assert "fp16" in accepted(half)
    assert "bf16" not in accepted(half)


@pytest.mark.parametrize("name", ["q8_0", "k=q8_0,v=q4_0", "fp32", "kivi-4", "int8", "mxfp4"])
def test_refusal_says_what_is_taken_instead(name: str) -> None:
    with pytest.raises(UnsupportedCombination, match=r"does not take --kv") as caught:
        ENGINE.resolve(build_deployment(tiny_model(), gpu="h100-sxm", kv=name))
    assert "bf16, fp8_e4m3" in (caught.value.hint or "")
    assert "--engine none" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("arch", "kv", "size"),
    [
        ("sm_90", "bf16", 16),  # FLASH_ATTN_MLA
        ("sm_90", "fp8_e4m3", 64),  # FLASHMLA
        ("sm_100", "bf16", 32),  # FLASHINFER_MLA
        ("sm_80", "bf16", 16),  # TRITON_MLA
    ],
)
def test_block_of_latent_attention_follows_its_backend(arch: str, kv: str, size: int) -> None:
    d = deployment(LATENT, engine="vllm", gpu=gpu(arch=arch), kv=KV_FORMATS[kv])
    assert ENGINE.resolve(d).args.block_size == size
    assert list(ENGINE.block_sizes(d)) == [size]


def test_block_of_plain_attention() -> None:
    d = deployment(PLAIN, engine="vllm")
    assert ENGINE.resolve(d).args.block_size == 16
    assert min(ENGINE.block_sizes(d)) == 16
    assert all(size % 16 == 0 for size in ENGINE.block_sizes(d))


def test_every_size_and_format_offered_is_accepted() -> None:
    for model in (PLAIN, LATENT, SPARSE):
        for name in ("h100-sxm", "b200-sxm", "a100-80g-sxm"):
            d = deployment(model, engine="vllm", gpu=load_gpu(name).gpu, kv_is_stated=True)
            for form in ENGINE.kv_formats(d):
                ENGINE.resolve(d._replace(kv=form))
            for size in ENGINE.block_sizes(d):
                ENGINE.resolve(d.with_args(block_size=size))


def test_every_format_is_either_offered_or_refused() -> None:
    d = deployment(PLAIN, engine="vllm", kv_is_stated=True)
    offered = {form.name for form in ENGINE.kv_formats(d)}
    for name, form in KV_FORMATS.items():
        if name in offered or form.k.bits == 16:
            continue
        with pytest.raises(KvplanError):
            ENGINE.resolve(d._replace(kv=form))


def test_bundled_model_of_each_kind_starts_with_its_own_format() -> None:
    for name in ("llama-3.1-8b", "deepseek-v3", "gemma-3-27b", "gpt-oss-20b", "falcon-7b"):
        d = build_deployment(load_model(name), gpu="h200-sxm", seq="2k")
        assert ENGINE.resolve(d).kv.bits == 16
