"""Which format each weight of a checkpoint is stored in."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from kvplan.precision.format import DTYPES, Format
from kvplan.precision.weights import EVERY_MATRIX, WeightFormat


class Weight(Protocol):
    """What deciding a format needs to know of a weight."""

    @property
    def part(self) -> str:
        """Its part of the model."""

    @property
    def name(self) -> str:
        """Its module path within the layer."""

    @property
    def is_matrix(self) -> bool:
        """Vectors are never quantised."""


class Exclusion(NamedTuple):
    """Modules that a checkpoint says it left alone, by the pieces of a name in order."""

    pieces: tuple[str, ...]
    anchored: bool
    """The first piece starts the name and the last one ends it."""

    def matches(self, name: str) -> bool:
        """Whether the pieces occur in ``name`` one after the other."""
        position = 0
        for number, piece in enumerate(self.pieces):
            found = name.find(piece, position)
            if found < 0 or (self.anchored and number == 0 and found > 0):
                return False
            position = found + len(piece)
        return not self.anchored or name.endswith(self.pieces[-1])


class WeightScheme(NamedTuple):
    """A weight format together with what it leaves alone in this checkpoint."""

    name: str
    form: Format
    parts: frozenset[str]
    excluded: tuple[Exclusion, ...] = ()

    @property
    def names_layers(self) -> bool:
        """Whether an exclusion singles out layers by number, so that they must be told apart."""
        return any("layers." in piece for exclusion in self.excluded for piece in exclusion.pieces)

    def format_for(self, weight: Weight, prefix: str, dtype: Format) -> Format:
        """The format of one weight: the scheme's own, or the 16-bit ``dtype`` it leaves it in."""
        if not weight.is_matrix or weight.part not in self.parts:
            return dtype
        if self.excluded:
            full = prefix + weight.name
            if any(exclusion.matches(full) for exclusion in self.excluded):
                return dtype
        return self.form


def scheme_from(form: WeightFormat) -> WeightScheme:
    """The scheme of a format applied to a 16-bit model."""
    return WeightScheme(form.name, form.form, form.parts)


def plain_scheme(dtype: Format) -> WeightScheme:
    """A checkpoint stored throughout in its own dtype."""
    return WeightScheme(dtype.name, DTYPES[dtype.name], EVERY_MATRIX)
