"""A figure's formula, and arithmetic that is written and worked out at once."""

from __future__ import annotations

from typing import NamedTuple


class Formula(NamedTuple):
    """One figure and how it comes about."""

    name: str
    formula: str
    """In words and symbols."""
    numbers: str
    """The same with the numbers put in: ``x``, ``/``, ``+``, ``-``, ceil, floor, min and max."""
    result: str
    """What that comes to."""
    source: str = ""

    @property
    def equation(self) -> str:
        """Numbers and result; the result alone where nothing is worked out."""
        return (
            self.result
            if self.result.startswith(self.numbers)
            else f"{self.numbers} = {self.result}"
        )


class Expression(NamedTuple):
    """Arithmetic as it is written, with what it comes to."""

    text: str
    value: int
