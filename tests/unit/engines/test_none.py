"""The bare formula: logical bytes, no block, no overhead, every format."""

from __future__ import annotations

import pytest
from builders import GIB, cache_model, deployment, gpu

from kvplan.engines import load_engine
from kvplan.errors import UnsupportedCombination
from kvplan.model.caches import FullAttention, SlidingWindow
from kvplan.precision.kv import KV_FORMATS, kv_format

ENGINE = load_engine("none")
MODEL = cache_model([(FullAttention(8, 128, 128),)] * 2 + [(SlidingWindow(8, 128, 128, 100),)] * 3)


def test_layout_is_the_logical_rows() -> None:
    layout = ENGINE.kv_layout(deployment(MODEL, tp=2), 0)
    assert layout.block_bytes is None
    # 4 heads * 256 * 2 B = 2,048 B a token and layer: 2 full layers, 3 windows of 100 tokens
    assert layout.reserved_bytes(1000) == 2048 * (2 * 1000 + 3 * 100)


def test_claims_all_that_others_leave_and_adds_nothing() -> None:
    d = deployment(gpu=gpu(80.0), reserve_bytes=GIB)
    assert ENGINE.claim(d).size_bytes == 79 * GIB
    assert ENGINE.claim(d).outside is None
    assert list(ENGINE.overheads(d, 0)) == []


def test_nothing_to_run_to_print_or_to_change() -> None:
    d = deployment()
    assert ENGINE.flags(d) == []
    assert list(ENGINE.changes(d)) == []
    assert list(ENGINE.block_sizes(d)) == []
    assert ENGINE.pool_figures(d, ENGINE.kv_layout(d, 0), GIB) == (None, None)


def test_resolving_says_what_is_left_out() -> None:
    assert "no block rounding" in ENGINE.resolve(deployment()).assumptions[0]


def test_takes_every_format_whose_blocks_divide_the_heads() -> None:
    assert set(ENGINE.kv_formats(deployment(MODEL))) == set(KV_FORMATS.values())
    odd = cache_model([(FullAttention(8, 80, 80),)])  # 80 = 2.5 * 32 = 5 * 16
    names = {form.name for form in ENGINE.kv_formats(deployment(odd))}
    assert {"bf16", "fp8_e4m3", "nvfp4", "kivi-2", "turboquant_k8v4"} <= names
    assert names.isdisjoint({"q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl", "mxfp4"})


def test_format_that_does_not_divide_the_heads() -> None:
    odd = cache_model([(FullAttention(8, 80, 80),)])
    with pytest.raises(UnsupportedCombination, match="packs 32 elements"):
        ENGINE.resolve(deployment(odd, kv=kv_format("k=bf16,v=q8_0")))


def test_has_no_versions() -> None:
    with pytest.raises(UnsupportedCombination, match="has no versions"):
        ENGINE.resolve(deployment(engine_version="1.0"))
