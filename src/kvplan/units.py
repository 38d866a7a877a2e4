"""Bytes and tokens: how people write them, how kvplan prints them, and whole-number arithmetic.

Inside kvplan a size is an ``int`` of bytes and a length an ``int`` of tokens. Only the
functions here turn text into them and back.

* Tokens: ``32k`` = 32 x 1,024 = 32,768 and ``1M`` = 1,048,576, as model cards mean them;
  ``32000`` is itself.
* Sizes: ``80GiB`` = 80 x 2**30, ``80GB`` = 80 x 10**9, a bare integer is bytes. A bare ``80G``
  is refused, because half of its readers take it for the other one.
* GiB is printed as GiB, never as GB.

The arithmetic (`cdiv`, `at_most`, `at_least`) uses plain operators, so that one formula serves a
Python ``int`` and a NumPy array alike and NumPy is not imported for a single answer.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

from kvplan.errors import InputError

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray

    IntArray = NDArray[int64]

N = TypeVar("N", int, "IntArray")
"""A count: one exact integer, or an array of them."""

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40
KB, MB, GB, TB = 10**3, 10**6, 10**9, 10**12

INT64_MAX = 2**63 - 1
MAX_TOKENS = 2**40
"""Longest length accepted: far beyond any model, small enough that products stay exact."""

_TOKEN_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SIZE_UNITS = {
    "": 1, "b": 1, "kib": KIB, "mib": MIB, "gib": GIB, "tib": TIB,
    "kb": KB, "mb": MB, "gb": GB, "tb": TB,
}  # fmt: skip
_NUMBER = re.compile(r"\s*(-?\d{1,100}(?:\.\d{1,6})?)\s*([A-Za-z]*)\s*\Z")


def parse_tokens(text: str, name: str = "--seq") -> int:
    """A number of tokens from ``4096``, ``32k`` or ``1M`` (powers of 1,024); at least 1."""
    return _parse_count(text, name, _TOKEN_UNITS, "a number of tokens such as 4096, 32k or 1M")


def parse_count(text: str, name: str, *, minimum: int = 1, maximum: int = MAX_TOKENS) -> int:
    """A plain whole number within bounds, such as a batch or a parallel size."""
    return _parse_count(text, name, {"": 1}, "a whole number", minimum=minimum, maximum=maximum)


def _parse_count(
    text: str,
    name: str,
    units: dict[str, int],
    wanted: str,
    *,
    minimum: int = 1,
    maximum: int = MAX_TOKENS,
) -> int:
    match = _NUMBER.match(text)
    factor = units.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise InputError(f"{name} {text!r} is not {wanted}")
    value = _scaled(match[1], factor)
    if value is None:
        of = " of tokens" if len(units) > 1 else ""
        raise InputError(f"{name} {text!r} is not a whole number{of}")
    if value < minimum:
        raise InputError(f"{name} {text!r} is too small: it must be {minimum:,} or more")
    if value > maximum:
        raise InputError(f"{name} {text!r} is too large: at most {maximum:,}")
    return value


def parse_size(text: str, name: str) -> int:
    """A size in bytes from ``80GiB``, ``80GB`` or a bare number of bytes."""
    match = _NUMBER.match(text)
    if match is None:
        raise InputError(f"{name} {text!r} is not a size such as 80GiB, 80GB or a number of bytes")
    unit = match[2].lower()
    if unit in {"k", "m", "g", "t"}:
        letter = unit.upper()
        raise InputError(
            f"{name} {text!r} can mean two sizes",
            hint=f"Write {match[1]}{letter}iB (powers of 1,024) or "
            f"{match[1]}{letter}B (powers of 1,000).",
        )
    if unit not in _SIZE_UNITS:
        raise InputError(
            f"{name} {text!r}: {match[2]!r} is not a unit; use B, KiB, MiB, GiB, KB, MB, GB"
        )
    value = _scaled(match[1], _SIZE_UNITS[unit], whole=False)
    if value is None or value < 0:
        raise InputError(f"{name} {text!r} must not be negative")
    if value > INT64_MAX:
        raise InputError(f"{name} {text!r} is larger than any memory (at most 2**63 - 1 bytes)")
    return value


def _scaled(number: str, factor: int, *, whole: bool = True) -> int | None:
    """``number * factor`` in exact integers; None where ``whole`` is asked and it is not."""
    integer, _, fraction = number.partition(".")
    denominator = int(10 ** len(fraction))
    numerator = int(integer + fraction) * factor
    if whole and numerator % denominator:
        return None
    return numerator // denominator


def parse_fraction(text: str, name: str) -> float:
    """A share in (0, 1], such as the part of a GPU's memory that an engine may claim."""
    try:
        value = float(text)
    except ValueError:
        raise InputError(f"{name} {text!r} is not a number between 0 and 1") from None
    if not 0 < value <= 1:
        raise InputError(f"{name} {text!r} must be above 0 and at most 1")
    return value


def cdiv(count: N, divisor: int) -> N:
    """``count / divisor`` rounded up."""
    return -(-count // divisor)


def at_most(count: N, limit: int) -> N:
    """The smaller of the two, element by element, with plain operators only."""
    return count - (count > limit) * (count - limit)


def round_up(count: N, multiple: int) -> N:
    """``count`` raised to the next multiple."""
    return cdiv(count, multiple) * multiple


def truncated(value: Any) -> Any:
    """A float, or an array of them, without its fraction."""
    return value.astype("int64") if hasattr(value, "astype") else int(value)


def checked_bytes(value: int, what: str) -> int:
    """``value`` unless it is beyond a signed 64-bit integer, where other programs would wrap."""
    if value > INT64_MAX:
        raise InputError(
            f"{what} comes to more than 2**63 - 1 bytes (8 EiB)",
            hint="Ask for fewer tokens or a smaller batch.",
        )
    return value


def format_gib(size: int) -> str:
    """``size`` bytes as GiB with two decimals, ``<0.01`` for a small remainder."""
    if 0 < size * 200 < GIB:
        return "<0.01 GiB"
    return f"{size / GIB:,.2f} GiB"


def format_bytes(size: int) -> str:
    """The exact number of bytes, grouped by thousands."""
    return f"{size:,} B"


def format_tokens(count: int) -> str:
    """Tokens the short way when that is exact: 32,768 is ``32k``."""
    for suffix, unit in (("M", 1 << 20), ("k", 1 << 10)):
        if count >= unit and count % unit == 0:
            return f"{count // unit}{suffix}"
    return f"{count:,}"
