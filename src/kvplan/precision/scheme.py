"""Which format each weight of a checkpoint is stored in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple, Protocol

from kvplan.precision.format import DTYPES, Format
from kvplan.precision.modules import ModuleMap
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


class ModuleRules:
    """What a checkpoint's own lists say of single modules.

    Compared by identity, so that a scheme stays cheap to look up in a cache although its lists
    can have thousands of entries; every answer is remembered by name.
    """

    def __init__(
        self, left_alone: Iterable[str] = (), chosen: Iterable[tuple[str, Format]] = ()
    ) -> None:
        self._left_alone = ModuleMap((pattern, True) for pattern in left_alone)
        self._chosen = ModuleMap(chosen)
        self._known: dict[str, tuple[bool, Format | None]] = {}
        self.names_layers = self._left_alone.names_layers or self._chosen.names_layers

    def decide(self, name: str) -> tuple[bool, Format | None]:
        """Whether the module is left alone, and the format chosen for it by name, if any."""
        answer = self._known.get(name)
        if answer is None:
            if len(self._known) > 1_000_000:
                self._known.clear()
            answer = (bool(self._left_alone.find(name)), self._chosen.find(name))
            self._known[name] = answer
        return answer


class ExactFormats:
    """The format of every single tensor, as a file lists them (GGUF). Compared by identity."""

    def __init__(self, formats: Mapping[str, Format]) -> None:
        self.formats = formats


class WeightScheme(NamedTuple):
    """A weight format together with what it leaves alone in this checkpoint."""

    name: str
    form: Format
    """The format of most weights."""
    parts: frozenset[str]
    """Parts stored in ``form`` unless a rule says otherwise."""
    rules: ModuleRules | None = None
    exact: ExactFormats | None = None
    part_forms: tuple[tuple[str, Format], ...] = ()
    """Parts that have a format of their own, such as experts at 4 bits beside 8-bit attention."""

    @property
    def names_layers(self) -> bool:
        """Whether layers must be told apart by number."""
        return self.exact is not None or (self.rules is not None and self.rules.names_layers)

    def format_for(self, weight: Weight, prefix: str, dtype: Format) -> Format:
        """The format of one weight: the scheme's own, or the 16-bit ``dtype`` it leaves it in."""
        if self.exact is not None:
            return self.exact.formats.get(prefix + weight.name, dtype)
        if not weight.is_matrix:
            return dtype
        if self.rules is not None:
            left_alone, chosen = self.rules.decide(prefix + weight.name)
            if left_alone:
                return dtype
            if chosen is not None:
                return chosen
        for part, form in self.part_forms:
            if part == weight.part:
                return form
        return self.form if weight.part in self.parts else dtype


@lru_cache(maxsize=256)
def scheme_from(form: WeightFormat) -> WeightScheme:
    """The scheme of a format applied to a 16-bit model."""
    return WeightScheme(form.name, form.form, form.parts)


@lru_cache(maxsize=256)
def plain_scheme(dtype: Format) -> WeightScheme:
    """A checkpoint stored throughout in its own dtype."""
    return WeightScheme(dtype.name, DTYPES[dtype.name], EVERY_MATRIX)
