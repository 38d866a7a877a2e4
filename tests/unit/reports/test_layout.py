"""Text that fits a width."""

from __future__ import annotations

import pytest

from kvplan.reports.layout import (
    Column,
    Line,
    Span,
    cell_width,
    facts,
    grid,
    heading,
    paragraph,
    printable,
    side_by_side,
    table,
    wrap,
)


def text(lines: list[Line]) -> list[str]:
    return ["".join(span.text for span in line).rstrip() for line in lines]


def test_wrap_breaks_between_words_and_indents_what_follows() -> None:
    assert wrap("one two three four", 9, hang=2) == ["one two", "  three", "  four"]


def test_wrap_keeps_a_number_with_its_unit() -> None:
    assert wrap("needs 59.35 GiB here", 12) == ["needs", "59.35 GiB", "here"]
    assert wrap("takes 27.0 % of it", 11) == ["takes", "27.0 % of", "it"]
    assert wrap("up to 32,768 tokens.", 14) == ["up to", "32,768 tokens."]


def test_wrap_cuts_only_a_word_longer_than_the_line() -> None:
    assert wrap("a/very/long/path here", 6) == ["a/very", "/long/", "path", "here"]


def test_wrap_of_nothing_is_one_empty_line() -> None:
    assert wrap("", 10) == [""]
    assert wrap("   ", 10) == [""]


@pytest.mark.parametrize(
    ("shown", "width"),
    [("abc", 3), ("─█▓░▚▞▒·▶", 9), ("é", 1), ("日本", 4), ("e\u0301", 1), ("", 0)],
)
def test_cell_width(shown: str, width: int) -> None:
    assert cell_width(shown) == width


def test_printable_shows_control_characters_instead_of_sending_them() -> None:
    assert printable("a\x1b[31mb\nc") == "a\\x1b[31mb\\nc"
    assert printable("plain") == "plain"


def test_table_aligns_numbers_to_the_right() -> None:
    rows = [["a", "1"], ["bcd", "23"]]
    lines = table([Column("name"), Column("n", right=True)], rows, 40, indent=0)
    assert text(lines) == ["name   n", "a      1", "bcd   23"]


def test_table_without_titles_has_no_title_line() -> None:
    assert text(table([Column(), Column()], [["a", "b"]], 40)) == ["  a  b"]


def test_table_wraps_its_words_beside_the_figures() -> None:
    columns = [Column("n"), Column("why", flexible=True)]
    lines = table(columns, [["1", "one two three four five six"]], 26, indent=0)
    assert text(lines) == ["n  why", "1  one two three four five", "   six"]


def test_words_go_under_their_row_where_that_is_shorter() -> None:
    columns = [Column("a-long-name-of-a-column"), Column("why", flexible=True)]
    rows = [["1", "one two three four five six seven eight nine"]]
    under = table(columns, rows, 46, indent=0)
    assert text(under)[1:] == ["1", "  one two three four five six seven eight nine"]
    beside = table(columns, rows, 46, indent=0, under=False)
    assert text(beside)[1:] == [
        "1                        one two three four", " " * 25 + "five six seven eight",
        " " * 25 + "nine",
    ]  # fmt: skip


def test_narrow_table_puts_words_under_their_row() -> None:
    columns = [Column("name"), Column("n", right=True), Column("why", flexible=True)]
    lines = table(columns, [["a-long-name", "123", "because of it all"]], 22, indent=0)
    assert text(lines) == ["name           n", "a-long-name  123", "  because of it all"]


def test_narrower_table_drops_the_columns_that_matter_least() -> None:
    columns = [Column("a"), Column("bbbb", drop=2), Column("cccc", drop=1)]
    rows = [["1", "2", "3"]]
    assert text(table(columns, rows, 13, indent=0))[0] == "a  bbbb  cccc"
    assert text(table(columns, rows, 12, indent=0))[0] == "a  cccc"
    assert text(table(columns, rows, 6, indent=0))[0] == "a"


def test_narrowest_table_wraps_its_first_column_and_no_number() -> None:
    rows = [["a name of words", "1,234,567"]]
    lines = table([Column(), Column(right=True)], rows, 20, indent=0)
    assert text(lines) == ["a name of", "words      1,234,567"]


def test_facts_wrap_under_their_value() -> None:
    lines = facts([("label", "one two three four five six")], 29)
    assert text(lines) == ["  label  one two three four", "         five six"]


def test_grid_reads_downwards_and_takes_as_many_columns_as_fit() -> None:
    pairs = [(name, Span("1")) for name in ("a", "b", "c", "d", "e")]
    assert text(grid(pairs, 30)) == ["  a  1   c  1   e  1", "  b  1   d  1"]
    assert text(grid(pairs, 12)) == ["  a  1", "  b  1", "  c  1", "  d  1", "  e  1"]


def test_heading_has_a_rule_to_the_edge() -> None:
    assert text([heading("Memory", 12)]) == ["Memory ─────"]
    assert text([heading("A title too long", 7)]) == ["A title"]


def test_paragraph_indents_to_its_mark() -> None:
    lines = paragraph("one two three", 9, mark="  ! ")
    assert text(lines) == ["  ! one", "    two", "    three"]


def test_side_by_side_pads_the_left_block() -> None:
    left: list[Line] = [[Span("ab")], [Span("c")]]
    right: list[Line] = [[Span("1")], [Span("2")], [Span("3")]]
    assert text(side_by_side(left, right, 4, gap=2)) == ["ab    1", "c     2", "      3"]
