"""What vLLM keeps of the weights beyond the checkpoint's bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders import TINY_PARAMETERS, deployment, gpu, tiny_model

from kvplan.engines.vllm.loading import (
    Alignment,
    encoder_bytes,
    expert_padding_bytes,
    mxfp4_alignment,
    weight_bytes,
)
from kvplan.model.model import Checkpoint, Split
from kvplan.precision.scheme import scheme_from
from kvplan.precision.weights import weight_format
from kvplan.sources import load_model
from kvplan.units import GIB

GPT_OSS = load_model("gpt-oss-120b")


def row_bytes(columns: int) -> int:
    """A row of MXFP4: half a byte an element and a byte for each 32."""
    return columns // 2 + columns // 32


@pytest.mark.parametrize(
    ("arch", "version", "alignment"),
    [
        ("sm_90", (0, 10), Alignment(128, 256)), ("sm_90", (0, 11), Alignment(1, 256)),
        ("sm_80", (0, 33), Alignment(128, 256)), ("sm_100", (0, 32), Alignment(256, 256)),
        ("sm_100", (0, 33), Alignment(128, 256)), ("gfx942", (0, 33), Alignment(256, 256)),
    ],
)  # fmt: skip
def test_padding_of_mxfp4_kernels(
    arch: str, version: tuple[int, int], alignment: Alignment
) -> None:
    assert mxfp4_alignment(gpu(arch=arch), version) == alignment


def test_marlin_pads_both_widths_of_gpt_oss() -> None:
    """36 layers of 128 experts of 2,880: two matrices [2944, 3072] and one [3072, 2944] each,
    instead of three [2880, 2880]."""
    padded = 2 * 2944 * row_bytes(3072) + 3072 * row_bytes(2944)
    plain = 3 * 2880 * row_bytes(2880)
    more = expert_padding_bytes(GPT_OSS, GPT_OSS.scheme, Split(), 0, Alignment(128, 256))
    assert more == 36 * 128 * (padded - plain)
    # vllm-031 logged 65.9651 GiB
    total = GPT_OSS.weight_bytes(GPT_OSS.scheme) + more
    assert total / GIB == pytest.approx(65.9651, rel=0.002)


def test_padding_counts_a_ranks_own_widths() -> None:
    """tp 4: 720 columns of each expert on a rank, padded to 768; expert parallel: 32 whole ones."""
    by_tp = expert_padding_bytes(GPT_OSS, GPT_OSS.scheme, Split(4), 0, Alignment(128, 256))
    padded = 2 * 768 * row_bytes(3072) + 3072 * row_bytes(768)
    plain = 2 * 720 * row_bytes(2880) + 2880 * (720 // 2 + -(-720 // 32))
    assert by_tp == 36 * 128 * (padded - plain)
    whole = expert_padding_bytes(GPT_OSS, GPT_OSS.scheme, Split(4, 1, 4), 0, Alignment(128, 256))
    assert whole * 4 == expert_padding_bytes(
        GPT_OSS, GPT_OSS.scheme, Split(), 0, Alignment(128, 256)
    )


def test_other_formats_are_not_padded() -> None:
    mixtral = load_model("mixtral-8x7b")
    assert expert_padding_bytes(mixtral, mixtral.scheme, Split(), 0, Alignment(128, 256)) == 0


def test_nf4_scales_are_quantised_again() -> None:
    """4 + 8 / 64 bits an element instead of 4 + 32 / 64, on all matrices but embedding and head."""
    scheme = scheme_from(weight_format("nf4"))
    model = load_model("qwen2.5-7b-instruct")
    asked = deployment(model, engine="vllm", scheme=scheme, weights_are_stated=True)
    size = weight_bytes(asked, 0, (0, 8))
    assert size < model.weight_bytes(scheme)
    # vllm-017 logged 5.2045 GiB
    assert size / GIB == pytest.approx(5.2045, rel=0.01)
    own = asked._replace(weights_are_stated=False)
    assert weight_bytes(own, 0, (0, 8)) == model.weight_bytes(scheme)


def test_an_encoder_is_the_published_total_less_what_the_layers_list() -> None:
    tiny: dict[str, Any] = {"checkpoint": Checkpoint(parameters=TINY_PARAMETERS + 1000)}
    model = replace(tiny_model(), is_multimodal=True, **tiny)
    assert encoder_bytes(model) == 2000
    assert encoder_bytes(replace(model, is_multimodal=False)) == 0
    assert encoder_bytes(replace(model, checkpoint=Checkpoint())) == 0
    plain = model.weight_bytes(model.scheme, Split(2))
    asked = deployment(model, engine="vllm", tp=2)
    assert weight_bytes(asked, 0, (0, 33)) == plain + 1000, "divided over 2 ranks"
