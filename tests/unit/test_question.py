"""From flags to a deployment: each flag's parser, what is filled in, and what cannot be."""

from __future__ import annotations

from typing import Any

import pytest
from builders import GIB, tiny_model

from kvplan.deployment import Deployment
from kvplan.errors import InputError, KvplanError, SourceError, UnsupportedCombination
from kvplan.model.caches import FullAttention, Latent, SlidingWindow
from kvplan.question import BY_NAME, FLAGS, build_deployment, parse_flags


def ask(**flags: Any) -> Deployment:
    return build_deployment(tiny_model(), **{"gpu": "h100-sxm", **flags})


def test_defaults() -> None:
    d = ask()
    assert (d.engine, d.engine_version) == ("vllm", None)
    assert (d.tp, d.pp, d.dp, d.ep, d.batch) == (1, 1, 1, 1, 1)
    assert d.seq_len == 4096  # the model's native context
    assert d.assumptions == ("seq 4,096: the model's native context",)
    assert (d.kv.name, d.scheme.name) == ("bf16", "bf16")
    assert (d.kv_is_stated, d.weights_are_stated) == (False, False)


def test_every_flag_as_text() -> None:
    d = ask(
        seq="2k", batch="3", mean_seq="512", prefix_tokens="128", tp="2", pp="2", dp="2",
        gpu_memory="60GiB", reserve="2GB", weights="fp8", kv="fp8", engine="vLLM@0.30",
        block_size="32", max_model_len="4k", max_num_seqs="64", max_num_batched_tokens="8k",
        gpu_memory_utilization="0.8", kv_cache_memory="10GiB", enforce_eager=True,
        no_async_scheduling=True, disable_hybrid_kv_cache_manager=True,
    )  # fmt: skip
    assert (d.seq_len, d.batch, d.mean_seq, d.prefix_tokens) == (2048, 3, 512, 128)
    assert (d.tp, d.pp, d.dp, d.gpus) == (2, 2, 2, 8)
    assert (d.device_bytes, d.reserve_bytes) == (60 * GIB, 2_000_000_000)
    assert (d.scheme.name, d.kv.name) == ("fp8", "fp8_e4m3")
    assert (d.kv_is_stated, d.weights_are_stated) == (True, True)
    assert (d.engine, d.engine_version) == ("vllm", "0.30")
    args = d.args
    assert (args.block_size, args.max_model_len, args.max_num_seqs) == (32, 4096, 64)
    assert (args.max_num_batched_tokens, args.gpu_memory_utilization) == (8192, 0.8)
    assert args.kv_cache_memory_bytes == 10 * GIB
    assert (args.enforce_eager, args.async_scheduling) == (True, False)
    assert args.disable_hybrid_kv_cache_manager is True


def test_numbers_are_taken_as_well_as_text() -> None:
    d = ask(seq=2048, batch=3, gpu_memory_utilization=0.5, tp=None, enforce_eager=False)
    assert (d.seq_len, d.batch, d.args.gpu_memory_utilization) == (2048, 3, 0.5)


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("seq", "-5"), ("seq", "0"), ("seq", "32x"), ("seq", "1e30"), ("seq", ""), ("seq", 0),
        ("batch", "0"), ("batch", "-1"), ("batch", "1.5"), ("batch", "8k"), ("batch", "many"),
        ("tp", "0"), ("tp", "-2"), ("tp", "100001"), ("pp", "0"), ("dp", "x"), ("gpus", "0"),
        ("mean_seq", "0"), ("prefix_tokens", "-1"), ("input_tokens", "0"),
        ("gpu_memory", "80G"), ("gpu_memory", "-1GiB"), ("reserve", "x"),
        ("gpu_memory_utilization", "0"), ("gpu_memory_utilization", "1.5"),
        ("gpu_memory_utilization", "nan"), ("kv_cache_memory", "10"  "G"),
        ("block_size", "0"), ("max_num_seqs", "0"), ("max_model_len", "-2"),
        ("kv", "fp9"), ("kv", " "), ("weights", "int5"), ("window", "0"), ("gpu", " "),
        ("set", "num_kv_heads"), ("set", "=8"), ("set", "num_kv_heads="),
    ],
)  # fmt: skip
def test_value_that_cannot_be_names_its_flag(flag: str, value: object) -> None:
    with pytest.raises(InputError) as caught:
        build_deployment("llama-3.1-8b", **{"gpu": "h100-sxm", flag: value})
    assert f"--{flag.replace('_', '-')}" in caught.value.message


def test_unknown_flag_offers_the_nearest() -> None:
    with pytest.raises(InputError, match="'sequ' is not a flag") as caught:
        ask(sequ="4k")
    assert "seq" in (caught.value.hint or "")


def test_gpu_is_needed() -> None:
    with pytest.raises(InputError, match="no GPU was named"):
        build_deployment(tiny_model())


def test_flags_not_given_are_left_out() -> None:
    assert parse_flags({"seq": None, "enforce_eager": False, "set": (), "tp": "2"}) == {"tp": 2}


def test_every_flag_has_one_name_and_help() -> None:
    assert len(BY_NAME) == len(FLAGS)
    spellings = [s for f in FLAGS for s in (f.option, *f.also, *([f.short] if f.short else ()))]
    assert len(set(spellings)) == len(spellings)
    assert all(flag.help.endswith(".") for flag in FLAGS)


@pytest.mark.parametrize(
    ("flags", "sizes"),
    [
        ({}, (1, 1, 1)),
        ({"gpus": 1}, (1, 1, 1)),
        ({"tp": 4}, (4, 1, 1)),
        ({"gpus": 4}, (4, 1, 1)),  # what is left open is tensor parallelism
        ({"gpus": 4, "tp": 4}, (4, 1, 1)),
        ({"gpus": 4, "tp": 2}, (2, 1, 2)),  # with tp given, replicas
        ({"gpus": 4, "pp": 2}, (1, 2, 2)),
        ({"gpus": 4, "dp": 2}, (2, 1, 2)),
        ({"gpus": 8, "tp": 2, "pp": 2}, (2, 2, 2)),
        ({"tp": 2, "pp": 2, "dp": 2}, (2, 2, 2)),
    ],
)
def test_gpus_are_divided(flags: dict[str, int], sizes: tuple[int, int, int]) -> None:
    d = ask(**flags)
    assert (d.tp, d.pp, d.dp) == sizes
    assert d.gpus == flags.get("gpus", d.gpus)


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ({"gpus": 2, "tp": 4}, "needs 4 GPUs, but --gpus is 2"),
        ({"gpus": 3, "tp": 2}, "which is not the 3 of --gpus"),
        ({"gpus": 8, "tp": 2, "dp": 2}, "which is not the 8 of --gpus"),
        ({"gpus": 1, "tp": 2, "pp": 2, "dp": 2}, "needs 8 GPUs"),
    ],
)
def test_gpus_that_do_not_come_out(flags: dict[str, int], why: str) -> None:
    with pytest.raises(InputError, match=why):
        ask(**flags)


def test_gpus_filled_in_are_said() -> None:
    assert "tp 4: 4 GPUs as tensor-parallel ranks" in ask(gpus=4).assumptions
    assert "dp 2: 4 GPUs as replicas" in ask(gpus=4, tp=2).assumptions


def test_tp_that_the_heads_do_not_allow() -> None:
    with pytest.raises(UnsupportedCombination, match="--tp 3 does not divide the 4"):
        ask(tp=3)
    with pytest.raises(UnsupportedCombination, match="--tp 8 does not divide the 4"):
        ask(gpus=8)


def test_length_from_its_parts() -> None:
    assert ask(input_tokens="1k", output_tokens="512").seq_len == 1536
    assert ask(input_tokens="1k").seq_len == 1024
    assert ask(seq="2k", input_tokens="1k", output_tokens="1k").seq_len == 2048
    with pytest.raises(InputError, match="--seq 2,047 is less than the 2,048 tokens"):
        ask(seq=2047, input_tokens="1k", output_tokens="1k")


def test_model_without_a_native_context_asks_for_the_length() -> None:
    model = tiny_model(max_position_embeddings=None)
    assert build_deployment(model, gpu="h100-sxm", seq="1k").seq_len == 1024
    with pytest.raises(InputError, match="does not state its context") as caught:
        build_deployment(model, gpu="h100-sxm")
    assert "--seq" in (caught.value.hint or "")


def test_gpu_without_its_form_factor_is_said() -> None:
    d = build_deployment(tiny_model(), gpu="h100")
    assert d.gpu.name == "h100-sxm"
    assert any("h100-sxm" in said for said in d.assumptions)


def test_kv_follows_the_model() -> None:
    assert build_deployment(tiny_model(torch_dtype="float16"), gpu="h100").kv.name == "fp16"
    d = ask(kv="auto", weights="auto")
    assert (d.kv.name, d.kv_is_stated) == ("bf16", False)
    assert (d.scheme.name, d.weights_are_stated) == ("bf16", False)


def test_32_bit_checkpoint_is_served_at_16_bits() -> None:
    d = build_deployment(tiny_model(torch_dtype="float32"), gpu="h100")
    assert (d.scheme.name, d.kv.name, d.model.dtype.name) == ("bf16", "bf16", "bf16")
    assert any("32-bit" in said for said in d.assumptions)
    kept = build_deployment(tiny_model(torch_dtype="float32"), gpu="h100", weights="fp32")
    assert kept.scheme.name == "fp32"


def test_window_over_the_model() -> None:
    d = ask(window="1k")
    assert d.model.layers[0].caches == (SlidingWindow(2, 16, 16, 1024),)


def bundled(**flags: Any) -> Deployment:
    return build_deployment("llama-3.1-8b", **{"gpu": "h100-sxm", **flags})


def test_facts_of_the_config_changed() -> None:
    d = bundled(set=["num_kv_heads=4", "num_hidden_layers=16"])
    assert [layer.caches for layer in d.model.layers] == [(FullAttention(4, 128, 128),)] * 16
    assert bundled(set="num_kv_heads=4").model.num_kv_heads == 4  # one may come alone
    latent = bundled(set=["kv_lora_rank=512"])
    assert latent.model.layers[0].caches == (Latent(512, 64),)


def test_changed_facts_are_said() -> None:
    said = bundled(set=["num_kv_heads=4"]).model.assumptions
    assert said == ("what if: num_key_value_heads = 4 instead of 8",)


@pytest.mark.parametrize(
    "setting",
    ["num_kv_heds=8", "num_kv_heads=-1", "num_kv_heads=eight", "num_kv_heads=1.5",
     "num_hidden_layers=1000000000", "kv_lora_rank=-3", "hidden_size=NaN", "head_dim=[1,2]"],
)  # fmt: skip
def test_facts_that_cannot_be(setting: str) -> None:
    with pytest.raises((InputError, SourceError)) as caught:
        bundled(set=[setting], seq="1k")
    field = setting.partition("=")[0]
    known = {"num_kv_heads": "num_key_value_heads"}.get(field, field)
    assert known in caught.value.message


def test_unknown_assumption() -> None:
    with pytest.raises(KvplanError, match="'magic' is not an assumption"):
        bundled(assume="magic")


def test_a_draft_model_needs_a_number_of_tokens() -> None:
    flags = {"gpu": "h100-sxm", "draft_model": "llama-3.2-1b"}
    with pytest.raises(InputError, match="--draft-model without --speculative-tokens"):
        build_deployment("llama-3.1-8b", **flags)
    d = build_deployment("llama-3.1-8b", speculative_tokens=4, **flags)
    assert d.draft is not None
    assert (d.draft.name, d.args.speculative_tokens) == ("llama-3.2-1b", 4)
    assert build_deployment("llama-3.1-8b", gpu="h100-sxm").draft is None
