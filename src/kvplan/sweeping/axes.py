"""The values of one flag: ``4k,32k``, ``1k..100k:1k``, ``1..256:x2``, or several of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation

from kvplan.errors import InputError
from kvplan.question import BY_NAME, Flag
from kvplan.units import parse_count, parse_fraction, parse_size, parse_tokens

Values = Sequence[object]
"""Numbers (a `range` where they are many) or texts, in order and each once."""

MOST_LISTED = 1_000_000
"""Values of a list or a geometric range; a linear range costs nothing to keep."""
_PROBES = {parse_tokens, parse_size}
_RANGE = re.compile(r"(.*?)\.\.(.*)", re.DOTALL)
_WANTED = "a range is FIRST..LAST, FIRST..LAST:STEP or FIRST..LAST:xFACTOR"


def read_axis(name: str, texts: Iterable[str]) -> Values:
    """The values of a flag, from every time that it was given."""
    flag = BY_NAME[name]
    tokens = [token for text in texts for token in split_list(text, flag.option)]
    segments = [_segment(flag, token) for token in tokens]
    if not segments:
        raise InputError(f"{flag.option} has no value")
    if len(segments) == 1:
        return segments[0]
    count = sum(len(segment) for segment in segments)
    if count > MOST_LISTED:
        raise InputError(
            f"{flag.option} lists {count:,} values beside a range; at most {MOST_LISTED:,}",
            hint="Give one range with a step, such as 1k..1M:1k.",
        )
    return list(dict.fromkeys(value for segment in segments for value in segment))


def split_list(text: str, option: str) -> list[str]:
    """The values between commas; ``k=FORMAT,v=FORMAT`` is one of them."""
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        where = "is empty" if len(parts) == 1 else "has an empty value between its commas"
        raise InputError(f"{option} {text!r} {where}")
    joined: list[str] = []
    for part in parts:
        sides = joined[-1].partition("=")[0] + part.partition("=")[0] if joined else ""
        if sides in {"kv", "vk"} and "=" in part and "," not in joined[-1]:
            joined[-1] += f",{part}"
        else:
            joined.append(part)
    return joined


def _segment(flag: Flag, token: str) -> Values:
    """The values of one part of a list."""
    match = _RANGE.fullmatch(token)
    if match is None or not _is_number(flag):
        return [_value(flag, token)]
    first, rest = match[1], match[2]
    last, colon, step = rest.partition(":")
    if not (first.strip() and last.strip()) or (colon and not step.strip()):
        raise InputError(f"{flag.option} {token!r} is not complete", hint=f"{_WANTED}.")
    if flag.parse is parse_fraction:
        return _fractions(flag, token, first, last, step)
    low, high = _number(flag, first), _number(flag, last)
    if low > high:
        raise InputError(
            f"{flag.option} {token!r} runs backwards: {first.strip()} is more than {last.strip()}",
            hint=f"Write {flag.option} {last.strip()}..{first.strip()}"
            f"{':' + step if step else ''}.",
        )
    if step.strip().lower().startswith("x"):
        return _geometric(flag, token, low, high, step.strip()[1:])
    width = _number(flag, step) if colon else 1
    if width < 1:
        raise InputError(f"{flag.option} {token!r}: the step must be 1 or more")
    return range(low, high + 1, width)


def _geometric(flag: Flag, token: str, low: int, high: int, factor: str) -> list[int]:
    try:
        by = Decimal(factor)
    except InvalidOperation:
        by = Decimal(0)
    if not by.is_finite() or by < Decimal("1.01") or low < 1:
        raise InputError(
            f"{flag.option} {token!r}: {'x' + factor!r} is not a factor such as x2 or x1.5"
        )
    values, exact = [], Decimal(low)
    while int(exact) <= high:
        values.append(int(exact))
        exact *= by
    return list(dict.fromkeys(values))


def _fractions(flag: Flag, token: str, first: str, last: str, step: str) -> list[float]:
    """A range of shares, in exact decimals."""
    for text in (first, last):
        parse_fraction(text, flag.option)
    low, high = Decimal(first.strip()), Decimal(last.strip())
    width = Decimal(step) if re.fullmatch(r"0?\.\d{1,6}", step.strip()) else Decimal(0)
    if low > high:
        raise InputError(f"{flag.option} {token!r} runs backwards", hint=f"{_WANTED}.")
    if width <= 0:
        raise InputError(f"{flag.option} {token!r} needs a step such as :0.05")
    return [float(low + n * width) for n in range(int((high - low) / width) + 1)]


def _is_number(flag: Flag) -> bool:
    """Whether the flag takes numbers: its parser reads ``1``."""
    if flag.parse is None:
        return False
    return isinstance(flag.parse("1", flag.option), (int, float))


def _number(flag: Flag, text: str) -> int:
    """A bound or a step; a step may be smaller than the least value of the flag."""
    if flag.parse in _PROBES:
        return int(flag.parse(text, flag.option))
    return parse_count(text, flag.option)


def _value(flag: Flag, token: str) -> object:
    return flag.parse(token, flag.option) if flag.parse is not None else token
