"""The bundled catalogue: profiles found by any spelling of their name.

`configs/` holds one YAML file a model or GPU for people to read and edit; `compile.py` turns
them into the JSON-lines files beside this module, which the wheel carries. The first line of a
file is the index of names; each further line is one profile, so that looking one up parses only
that line and never imports a YAML reader.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from kvplan.errors import BundledDataError

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_SEPARATORS = re.compile(r"[\s_.\-/]+")
_GIGABYTES = re.compile(r"(\d+)gi?b(?![a-z0-9])")
_DECIMAL_SIZE = re.compile(r"(\d)\.(\d+[bm])(?![a-z0-9])")


def name_key(name: str) -> str:
    """The spelling-free form of a name: ``meta-llama/Llama-3.1-8B`` and ``llama_3_1-8b`` agree.

    Case, ``_``, ``.``, ``-`` and an ``org/`` in front do not count, and ``80GB`` is ``80g``. Only
    the point in a number of parameters counts: ``opt-1.3b`` is not ``opt-13b``.
    """
    tail = _DECIMAL_SIZE.sub(r"\1p\2", name.rsplit("/", 1)[-1].lower())
    return _SEPARATORS.sub("", _GIGABYTES.sub(r"\1g", tail))


class Match(NamedTuple):
    """A profile found by name."""

    profile: dict[str, Any]
    implied: bool
    """The name left something out (a GPU's form factor) that the profile fills in."""


class Catalogue:
    """One kind of profile (models or GPUs), looked up by name."""

    def __init__(self, kind: str) -> None:
        import json

        self._loads = json.loads
        path = os.path.join(_FOLDER, f"{kind}.jsonl")
        try:
            with open(path, encoding="utf-8") as file:
                self._lines = file.read().split("\n")
            index = json.loads(self._lines[0])
        except (OSError, ValueError, IndexError) as error:
            raise BundledDataError(
                f"the bundled catalogue of {kind} cannot be read: {error}"
            ) from error
        self.names: list[str] = index["names"]
        self._keys: dict[str, int] = index["keys"]
        self._implied: dict[str, int] = index["implied"]
        self._families: dict[str, list[str]] = index["families"]

    def find(self, name: str) -> Match | None:
        """The profile that ``name`` or one of its spellings means; None when there is none."""
        key = name_key(name)
        if key in self._keys:
            return Match(self._line(self._keys[key]), implied=False)
        if key in self._implied:
            return Match(self._line(self._implied[key]), implied=True)
        return None

    def candidates(self, name: str) -> list[str]:
        """The profiles an incomplete name could mean, such as every A100 for ``a100``."""
        return self._families.get(name_key(name), [])

    def spellings(self) -> list[str]:
        """Every name that `find` or `candidates` takes, for suggestions."""
        return [*self.names, *self._keys, *self._implied, *self._families]

    def canonical(self, spelling: str) -> str:
        """The profile's own name behind a spelling; the spelling itself if it is a family."""
        key = name_key(spelling)
        line = self._keys.get(key) or self._implied.get(key)
        return self.names[line - 1] if line else spelling

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self._line(number + 1) for number in range(len(self.names)))

    def _line(self, number: int) -> dict[str, Any]:
        profile: dict[str, Any] = self._loads(self._lines[number])
        return profile


@cache
def catalogue(kind: str) -> Catalogue:
    """The bundled catalogue of ``models`` or ``gpus``, read once."""
    return Catalogue(kind)


@cache
def bundled_policy() -> dict[str, Any]:
    """The default policy, compiled from ``configs/policies/default.yaml``."""
    import json

    try:
        with open(os.path.join(_FOLDER, "policy.json"), encoding="utf-8") as file:
            policy: dict[str, Any] = json.load(file)
    except (OSError, ValueError) as error:
        raise BundledDataError(f"the bundled policy cannot be read: {error}") from error
    return policy
