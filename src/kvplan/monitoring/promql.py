"""Writing PromQL with values that come from strangers: quoted, so that they stay values.

Also what PromQL cannot do by itself: comparing a number that stands in a label.
"""

from __future__ import annotations

import re

from kvplan.errors import InputError

_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_WINDOW = re.compile(r"[1-9][0-9]{0,5}[smhd]\Z")


def quoted(value: str) -> str:
    """A PromQL string. Source: Prometheus, "String literals": escapes as in Go."""
    out = []
    for char in value:
        if char in '"\\':
            out.append("\\" + char)
        elif char.isprintable():
            out.append(char)
        else:
            code = ord(char)
            out.append(f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
    return '"' + "".join(out) + '"'


def equals(label: str, value: str) -> str:
    """``label="value"``."""
    return f"{label}={quoted(value)}"


def matches(label: str, pattern: str) -> str:
    """``label=~"pattern"``; Prometheus anchors it at both ends."""
    return f"{label}=~{quoted(pattern)}"


def differs(label: str, pattern: str) -> str:
    """``label!~"pattern"``."""
    return f"{label}!~{quoted(pattern)}"


def select(name: str, *matchers: str) -> str:
    """``name{matchers}``."""
    return f"{name}{{{','.join(matchers)}}}" if matchers else name


def number(value: float) -> str:
    """A PromQL number, every digit kept."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def check_label(name: str, flag: str) -> str:
    """``name`` where Prometheus takes it as a label."""
    if _LABEL.match(name) is None:
        raise InputError(f"{flag} {name!r} is not a Prometheus label: letters, digits and _ only")
    return name


def check_window(text: str) -> str:
    """A time span as Prometheus writes it, such as ``5m``."""
    if _WINDOW.match(text) is None:
        raise InputError(f"--rate-window {text!r} is not a time such as 30s, 5m or 1h")
    return text


def as_text(value: str) -> str:
    """``value`` for an alert's annotation, which is a Go template: no braces that would run."""
    return value.replace("{{", '{{ "{{" }}') if "{{" in value else value


def whole_numbers(low: int, high: int) -> str:
    """A regular expression for the decimal whole numbers from ``low`` to ``high``.

    A label's value cannot be compared as a number, so a tolerated range becomes a pattern. The
    range is cut where the leading digits agree: 26673 to 29481 is 2667[3-9], 266[8-9][0-9] and on.
    """
    if not 0 <= low <= high:
        raise ValueError(f"no range: {low} to {high}")
    parts = []
    start = low
    for end in _ends(low, high):
        parts.append(_same_length(str(start), str(end)))
        start = end + 1
    return "|".join(parts)


def _ends(low: int, high: int) -> list[int]:
    """The last number of each piece that one digit pattern covers."""
    ends = set()
    nines = 1
    while (end := low // 10**nines * 10**nines + 10**nines - 1) < high:
        if end >= low:
            ends.add(end)
        nines += 1
    zeros = 1
    while (end := (high + 1) // 10**zeros * 10**zeros - 1) > low:
        if end < high:
            ends.add(end)
        zeros += 1
    return sorted({*ends, high})


def _same_length(start: str, end: str) -> str:
    digits = []
    for first, last in zip(start, end, strict=True):
        digits.append(first if first == last else f"[{first}-{last}]")
    return "".join(digits)
