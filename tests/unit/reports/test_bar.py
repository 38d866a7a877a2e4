"""The memory bar: its characters add up to its width, and nothing that is there is left out."""

from __future__ import annotations

from report_builders import GIB, changed, fits, oom

from kvplan.reports.bar import bar, memory_parts


def drawn(width: int, **memory: object) -> str:
    report = changed(fits().memory, **memory)  # type: ignore[arg-type]
    parts = memory_parts(report, fits=True)
    return "".join(span.text for span in bar(parts, report.usable_bytes, width))


def test_bar_is_to_scale() -> None:
    # 40 GiB in 40 characters: 12 weights, 1 activation, 2 graphs, 1 runtime, 16 needed, 4 free
    # and 4 that the engine does not claim.
    assert drawn(40) == "█" * 12 + "▚" + "▞▞" + "▒" + "▓" * 16 + "░" * 4 + "·" * 4


def test_bar_shows_at_least_one_character_of_everything() -> None:
    assert set(drawn(20)) == set("█▚▞▒▓░·")
    assert len(drawn(20)) == 20


def test_bar_ends_with_an_arrow_where_the_memory_ends() -> None:
    report = oom()
    parts = memory_parts(report.memory, fits=False)
    line = bar(parts, report.memory.usable_bytes, 41)
    text = "".join(span.text for span in line)
    assert text == "█" * 12 + "▚" + "▞▞" + "▒" + "▓" * 20 + "▶" + "·" * 4
    assert [span.style for span in line if span.text[0] in "▓▶"] == ["over", "over"]


def test_weights_beyond_the_claim_fill_it() -> None:
    text = drawn(41, weight_bytes=50 * GIB, kv_pool_bytes=0)
    assert text == "█" * 36 + "▶" + "·" * 4


def test_given_pool_leaves_the_rest_outside() -> None:
    # 12 + 1 + 2 + 1 + 20 of pool are 36 of 40; without a claim the other 4 are nobody's.
    text = drawn(40, claim_bytes=None)
    assert text.endswith("·" * 4)
    assert text.count("░") == 4


def test_unknown_memory_scales_to_what_is_known() -> None:
    report = changed(fits().memory, usable_bytes=None, claim_bytes=None)
    parts = memory_parts(report, fits=True)
    text = "".join(span.text for span in bar(parts, None, 36))
    assert text == "█" * 12 + "▚" + "▞▞" + "▒" + "▓" * 16 + "░" * 4
    assert bar([], None, 10) == []
