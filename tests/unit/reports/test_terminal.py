"""Width, colour and characters of the screen behind stdout."""

from __future__ import annotations

import io
import re
import sys

import pytest

from kvplan.reports.layout import Line, Span
from kvplan.reports.terminal import Screen, screen, to_text

LINES: list[Line] = [
    [Span("FITS", "fits"), Span("  "), Span("█▓░▚▞▒·─▶", "free")],
    [],
    [Span("trailing   ")],
]


class Terminal(io.StringIO):
    """A stdout that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def test_terminal_has_colour_and_a_pipe_has_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert screen().colour
    assert not screen(to_file=True).colour
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert not screen().colour


@pytest.mark.parametrize("value", ["1", "0", "false"])
def test_no_color_wins_whatever_it_says(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", value)
    assert not screen().colour
    monkeypatch.setenv("NO_COLOR", "")
    assert screen().colour


def test_dumb_terminal_has_no_colour_unless_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("TERM", "dumb")
    assert not screen().colour
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert screen().colour
    assert not screen(to_file=True).colour


@pytest.mark.parametrize(
    ("columns", "width"), [("100", 100), ("30", 40), ("500", 160), ("no", 80), ("", 80)]
)
def test_width_follows_columns_within_reason(
    monkeypatch: pytest.MonkeyPatch, columns: str, width: int
) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setenv("COLUMNS", columns)
    assert screen().width == width
    assert screen(to_file=True).width == width


def test_file_is_always_unicode_and_a_terminal_as_it_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Latin(Terminal):
        encoding = "latin-1"

    monkeypatch.setattr(sys, "stdout", Latin())
    assert not screen().unicode
    assert screen(to_file=True).unicode


def test_plain_text_has_neither_codes_nor_trailing_blanks() -> None:
    text = to_text(LINES, Screen(80, colour=False, unicode=True))
    assert text == "FITS  █▓░▚▞▒·─▶\n\ntrailing\n"


def test_ascii_stands_in_for_every_drawn_character() -> None:
    text = to_text(LINES, Screen(80, colour=False, unicode=False))
    assert text == "FITS  #=-%&+.->\n\ntrailing\n"


@pytest.mark.parametrize("unicode", [True, False])
def test_colour_changes_no_letter(unicode: bool) -> None:
    plain = to_text(LINES, Screen(80, colour=False, unicode=unicode))
    coloured = to_text(LINES, Screen(80, colour=True, unicode=unicode))
    assert "\x1b[" in coloured
    stripped = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert [line.rstrip() for line in stripped.split("\n")] == plain.split("\n")


def test_forced_colour_works_where_the_terminal_is_not_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b[" in to_text(LINES, Screen(80, colour=True, unicode=True))
