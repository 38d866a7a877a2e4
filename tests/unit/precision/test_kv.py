"""KV formats: bytes of a head's keys and values in every format, and how one is asked for."""

from __future__ import annotations

import pytest

from kvplan.errors import InputError, UnsupportedCombination
from kvplan.precision.kv import KV_FORMATS, check_packs, kv_format

PAIR_BYTES = {
    # keys and values of one head and token at head size 64, 128, 256
    "bf16": (256, 512, 1024),  # 4 d
    "fp16": (256, 512, 1024),
    "fp32": (512, 1024, 2048),  # 8 d
    "fp8_e4m3": (128, 256, 512),  # 2 d, scales outside the cache
    "fp8_e5m2": (128, 256, 512),
    "int8_per_token_head": (136, 264, 520),  # 2 d + 8: a float32 scale each
    "fp8_per_token_head": (136, 264, 520),
    "int4_per_token_head": (72, 136, 264),  # d + 8
    "nvfp4": (72, 144, 288),  # 2 (d/2 + d/16)
    "nvfp4_4over6": (72, 144, 288),
    "turboquant_k8v4": (100, 196, 388),  # vLLM's slot sizes
    "turboquant_4bit_nc": (70, 134, 262),
    "turboquant_k3v4_nc": (62, 118, 230),
    "turboquant_3bit_nc": (54, 102, 198),
    "fp4_e2m1": (72, 144, 288),  # 4 bits, an 8-bit scale per 16
    "mxfp4": (68, 136, 272),  # 2 (d/2 + d/32)
    "int8": (136, 264, 520),  # 8 bits, 16-bit scale and zero point a row
    "int4": (72, 136, 264),
    "kivi-4": (80, 160, 320),  # 5 bits: 4 + 32/32
    "kivi-2": (48, 96, 192),  # 3 bits: 2 + 32/32
    "q8_0": (136, 272, 544),  # 34 B per 32
    "q5_1": (96, 192, 384),  # 24
    "q5_0": (88, 176, 352),  # 22
    "q4_1": (80, 160, 320),  # 20
    "q4_0": (72, 144, 288),  # 18
    "iq4_nl": (72, 144, 288),
}
SPARSE_LATENT = {"fp8_ds_mla", "nvfp4_ds_mla"}
WITH_OUTLIERS = {"nuq4-1%": 4, "nuq3-1%": 3, "nuq2-1%": 2}


def test_every_format_is_checked() -> None:
    assert set(KV_FORMATS) == {*PAIR_BYTES, *SPARSE_LATENT, *WITH_OUTLIERS}


@pytest.mark.parametrize("name", PAIR_BYTES)
def test_bytes_of_one_head_and_token(name: str) -> None:
    form = KV_FORMATS[name]
    sizes = tuple(form.k.row_bytes(d) + form.v.row_bytes(d) for d in (64, 128, 256))
    assert sizes == PAIR_BYTES[name]


@pytest.mark.parametrize(("name", "code"), WITH_OUTLIERS.items())
def test_one_per_cent_outliers_cost_a_third_of_a_bit(name: str, code: int) -> None:
    # 10,000 elements: code bits each, and 1 % of them with 16 + 16 bits: code + 0.32 bits
    assert KV_FORMATS[name].k.row_bytes(10_000) == 10_000 * (code * 100 + 32) // 800


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("bf16", 1152),  # 576 * 2
        ("fp8_e4m3", 576),
        ("fp8_ds_mla", 656),  # 512 fp8 + 4 float32 scales + 64 bf16
        ("nvfp4_ds_mla", 352),  # 512/2 + 512/16 + 64 fp8
        ("q8_0", 612),  # 18 blocks of 32 elements, 34 B each
    ],
)
def test_bytes_of_one_latent_state(name: str, size: int) -> None:
    assert KV_FORMATS[name].latent_bytes(512, 64) == size


@pytest.mark.parametrize(
    ("name", "bits"),
    [("bf16", 16), ("fp8_e4m3", 8), ("int8_per_token_head", 8.25), ("int4_per_token_head", 4.25),
     ("nvfp4", 4.5), ("q8_0", 8.5), ("q5_1", 6), ("q4_0", 4.5), ("kivi-2", 3), ("kivi-4", 5),
     ("turboquant_k8v4", 6.125), ("turboquant_4bit_nc", 4.1875), ("turboquant_k3v4_nc", 3.6875),
     ("turboquant_3bit_nc", 3.1875)],
)  # fmt: skip
def test_bits_at_head_size_128(name: str, bits: float) -> None:
    assert KV_FORMATS[name].bits == bits


def test_every_format_carries_its_source() -> None:
    for name, form in KV_FORMATS.items():
        assert form.name == name
        assert form.source
        assert form.quality_note
        assert form.quality_cost is None or form.quality_cost >= 0


def test_kivi_keeps_128_recent_tokens_wide() -> None:
    wide = {name for name, form in KV_FORMATS.items() if form.residual_tokens}
    assert wide == {"kivi-2", "kivi-4"}
    assert KV_FORMATS["kivi-2"].residual_tokens == 128


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("fp8", "fp8_e4m3"),
        ("FP8_E5M2", "fp8_e5m2"),
        (" bf16 ", "bf16"),
        ("bfloat16", "bf16"),
        ("half", "fp16"),
        ("float32", "fp32"),
        ("nuq4", "nuq4-1%"),
        ("kivi2", "kivi-2"),
        ("k=fp8,v=fp8_e4m3", "fp8_e4m3"),
        ("k=q8_0,v=q4_0", "k=q8_0,v=q4_0"),
        ("V=q4_0, K=q8_0", "k=q8_0,v=q4_0"),
        ("k=q8_0", "k=q8_0,v=fp16"),  # the other side stays at 16 bits
        ("v=q5_1", "k=fp16,v=q5_1"),
    ],
)
def test_asked_for(text: str, name: str) -> None:
    assert kv_format(text).name == name


def test_keys_and_values_apart() -> None:
    form = kv_format("k=q8_0,v=q4_0")
    assert (form.k.row_bytes(128), form.v.row_bytes(128)) == (136, 72)  # 4 * 34, 4 * 18
    assert form.bits == 6.5  # (8.5 + 4.5) / 2
    assert form.engines == ("llamacpp",)
    assert kv_format("k=fp8,v=q4_0").engines == ()  # no engine takes both
    assert kv_format("k=q8_0,v=q5_0").quality_cost is None  # one of them was never measured


@pytest.mark.parametrize(
    "text",
    ["", "fp9", "int3", "8", "=", "k=", "k=q8_0,k=q4_0", "x=q8_0", "k=q8_0,v=", "q8_0,q4_0",
     "k=q8_0,v=q4_0,k=q8_0", "fp8;rm -rf"],
)  # fmt: skip
def test_not_a_format(text: str) -> None:
    with pytest.raises(InputError, match="--kv") as caught:
        kv_format(text)
    assert caught.value.hint


def test_unknown_format_offers_the_nearest() -> None:
    with pytest.raises(InputError) as caught:
        kv_format("fp8_e4m4")
    assert "fp8_e4m3" in (caught.value.hint or "")


def test_blocks_must_divide_a_head() -> None:
    check_packs(KV_FORMATS["q8_0"], (64, 128))
    check_packs(KV_FORMATS["bf16"], (80,))
    check_packs(KV_FORMATS["nvfp4"], (80,))  # 80 = 5 * 16
    with pytest.raises(UnsupportedCombination, match=r"packs 32 elements.* head size of 80"):
        check_packs(KV_FORMATS["q8_0"], (128, 80))
    with pytest.raises(UnsupportedCombination, match=r"packs 32 elements.* head size of 80"):
        check_packs(kv_format("k=bf16,v=q4_0"), (80,))
    with pytest.raises(UnsupportedCombination, match=r"packs 16 elements.* head size of 72"):
        check_packs(KV_FORMATS["nvfp4"], (72,))
