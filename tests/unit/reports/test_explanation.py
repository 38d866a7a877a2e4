"""What a model keeps and why."""

from __future__ import annotations

import json

import pytest
from builders import cache_model, deployment, tiny_model
from report_builders import evaluate

from kvplan.model.caches import FullAttention, Latent, Recurrent, SlidingWindow
from kvplan.reports.explanation import Explanation, explain
from kvplan.reports.explanation_report import FORMATS, render, table_lines
from kvplan.reports.layout import cell_width

GEMMA = cache_model(
    [*([(SlidingWindow(16, 128, 128, 1024),)] * 5 + [(FullAttention(16, 128, 128),)]) * 10,
     *[(SlidingWindow(16, 128, 128, 1024),)] * 2],
    heads=32, hidden_size=5376, max_position_embeddings=131072,
)  # fmt: skip
"""Gemma-3-27B: 52 windows and 10 full layers of 16 heads of 128."""

DEEPSEEK = cache_model(
    [(Latent(512, 64),)] * 61,
    heads=128,
    hidden_size=7168,
    max_position_embeddings=163840,
    facts={"qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128},
)
HYBRID = cache_model(
    [(Recurrent("mamba2", 16, 4, 64, 4),)] * 3 + [(FullAttention(2, 64, 64),)],
    heads=4,
    hidden_size=256,
    max_position_embeddings=4096,
)


def ratios(x: Explanation) -> dict[str, float]:
    return {naive.mistake: round(naive.ratio, 1) for naive in x.naive}


def test_what_grows_what_is_capped_and_what_is_constant() -> None:
    window, full = explain(deployment(GEMMA), None).groups
    assert (window.growth, window.window, window.most_bytes) == ("capped", 1024, 425984 * 1024)
    assert (full.growth, full.window, full.most_bytes) == ("grows", None, None)
    state, _ = explain(deployment(HYBRID), None).groups
    # Three layers of 16 channels x 3 inputs x 2 B and 64 elements x 4 B: 3 x (96 + 256).
    assert (state.growth, state.constant_bytes, state.most_bytes) == ("constant", 1056, 1056)


def test_bytes_of_a_token_fall_once_windows_are_full() -> None:
    contexts = {c.tokens: c for c in explain(deployment(GEMMA), None).contexts}
    # 10 full layers x 8,192 B a token, and 52 windows of 1,024 x 8,192 B.
    assert contexts[131072].next_token_bytes == 81920
    assert contexts[131072].logical_bytes == 81920 * 131072 + 425984 * 1024
    assert contexts[2048].mean_bytes_per_token == 81920 + 425984 // 2


def test_short_cuts_and_how_far_they_are_off() -> None:
    assert ratios(explain(deployment(DEEPSEEK), None)) == {
        # 2 x 7,168 and 128 x (192 + 128) elements, where 576 are kept.
        "hidden_size taken for the keys and values of a layer": 24.9,
        "latent attention taken for ordinary heads": 71.1,
    }
    gemma = ratios(explain(deployment(GEMMA), None))
    assert gemma["windows left out: every layer keeps every token"] == 6.0
    assert gemma["query heads taken for key-value heads"] == 11.9
    hybrid = ratios(explain(deployment(HYBRID), None))
    assert hybrid["every layer taken for attention"] == 4.0


def test_no_short_cut_is_blamed_where_it_is_right() -> None:
    model = cache_model(
        [(FullAttention(32, 128, 128),)] * 32, heads=32, hidden_size=4096,
        max_position_embeddings=4096,
    )  # fmt: skip
    assert explain(deployment(model), None).naive == []


@pytest.mark.parametrize("model", [GEMMA, DEEPSEEK, HYBRID], ids=["gemma", "deepseek", "hybrid"])
def test_arithmetic_of_short_cuts_and_groups_adds_up(model: object) -> None:
    x = explain(deployment(model), 50_000)  # type: ignore[arg-type]
    for naive in x.naive:
        assert evaluate(naive.numbers) == naive.bytes
    for group in x.groups:
        want = float(group.result.split(" ")[0].replace(",", ""))
        assert evaluate(group.numbers) == want


def test_parts_add_up_to_the_parameters() -> None:
    x = explain(deployment(), None)
    assert sum(part.parameters for part in x.parts) == x.parameters == 164_416
    assert sum(part.weight_bytes or 0 for part in x.parts) == 2 * 164_416


def test_unknown_weights_leave_the_cache_explained() -> None:
    model = tiny_model(vocab_size=None)
    x = explain(deployment(model), None)
    assert x.parts == []
    assert x.parameters is None
    assert x.groups
    assert any("weights are not counted" in warning for warning in x.warnings)


@pytest.mark.parametrize("width", [40, 60, 80, 100, 140])
@pytest.mark.parametrize(
    "model", [GEMMA, DEEPSEEK, HYBRID, None], ids=["gemma", "deepseek", "hybrid", "tiny"]
)
def test_table_is_never_wider_than_the_screen(model: object, width: int) -> None:
    lines = table_lines(explain(deployment(model), None), width)  # type: ignore[arg-type]
    shown = ["".join(span.text for span in line).rstrip() for line in lines]
    assert max(map(cell_width, shown)) <= width


def test_layers_are_drawn_with_their_repetition() -> None:
    lines = table_lines(explain(deployment(GEMMA), None), 80)
    shown = ["".join(span.text for span in line).rstrip() for line in lines]
    assert "  5 x sliding(1,024) + 1 x full, 10 times, then 2 x sliding(1,024)" in shown
    assert "  " + "SSSSSF " * 10 + "SS" in shown
    assert "  S sliding(1,024), F full" in shown


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_names_the_formula(name: str) -> None:
    text = render(explain(deployment(GEMMA), None), name, to_file=True)
    assert "10 layers x ceil(16 / 1) heads x (128 + 128) x 2 B" in text
    assert "\x1b" not in text


def test_json_is_the_explanation() -> None:
    document = json.loads(render(explain(deployment(GEMMA), 50_000), "json"))
    assert document["schema"] == "kvplan.explain/1"
    assert [c["tokens"] for c in document["contexts"]] == [2048, 8192, 32768, 50000, 131072]
    assert len(document["layer_labels"]) == 62
