"""The layer pattern in words."""

from __future__ import annotations

import pytest
from builders import cache_model

from kvplan.model.caches import FullAttention, Indexer, Latent, Recurrent, SlidingWindow
from kvplan.reports.pattern import contexts, find_pattern, layer_labels, letters

S, F = "S", "F"


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([F] * 32, "32 x F"),
        (([S] * 5 + [F]) * 10 + [S] * 2, "5 x S + 1 x F, 10 times, then 2 x S"),
        ([S, F] * 18, "1 x S + 1 x F, 18 times"),
        ([F] + ([S] * 3 + [F]) * 4, "1 x F + 3 x S, 4 times, then 1 x F"),
        ([F, F] + ([S] * 3 + ["R"]) * 4, "2 x F, then 3 x S + 1 x R, 4 times"),
        ([F], "1 x F"),
        ([F, S], "1 x F + 1 x S"),
        ([F] * 3 + [S] * 29, "3 x F + 29 x S"),
        ([], ""),
    ],
)
def test_words(labels: list[str], words: str) -> None:
    assert find_pattern(labels).words() == words


@pytest.mark.parametrize(
    "labels", [[F] * 7, [S, F] * 5 + [S], [F, S, S, F, S, F, F, F, S, S, S, F, S], ["R"] * 3 + [F]]
)
def test_pieces_are_the_layers_in_order(labels: list[str]) -> None:
    pieces = find_pattern(labels).groups()
    assert [label for piece in pieces for label in piece] == labels


def test_no_simple_order_is_counted() -> None:
    labels = [F if n in {0, 2, 3, 7, 12, 13, 19, 21, 26, 29, 30} else S for n in range(37)]
    assert find_pattern(labels).words() == "in no simple order: 11 x F + 26 x S"


def test_labels_say_what_is_kept() -> None:
    latent = (Latent(512, 64), Indexer(128))
    state = (Recurrent("mamba2", 16, 4, 64, 4),)
    window = (SlidingWindow(8, 64, 64, 1024),)
    model = cache_model([latent, state, window, ()])
    assert layer_labels(model) == [
        "latent + indexer", "recurrent(mamba2)", "sliding(1,024)", "nothing",
    ]  # fmt: skip


def test_layers_of_another_shape_have_another_label() -> None:
    model = cache_model([(FullAttention(8, 64, 64),), (FullAttention(2, 128, 128),)] * 2)
    assert layer_labels(model) == ["full", "full #2"] * 2
    assert letters(layer_labels(model), ["full"] * 4) == {"full": "F", "full #2": "f"}


def test_contexts_end_at_the_native_one_and_hold_the_asked() -> None:
    assert contexts(131072, None) == [2048, 8192, 32768, 131072]
    assert contexts(4096, None) == [2048, 4096]
    assert contexts(4096, 32768) == [2048, 8192, 32768]
    assert contexts(40960, 5000) == [2048, 5000, 8192, 32768, 40960]
    assert contexts(None, None) == [2048, 8192, 32768, 131072]
