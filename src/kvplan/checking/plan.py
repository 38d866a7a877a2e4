"""The plan as it was written: deployments with their flags and budgets, each with its place."""

from __future__ import annotations

from typing import NamedTuple

from kvplan.checking.budgets import Budget
from kvplan.checking.document import Place
from kvplan.question import FLAGS

VERSION = "1"
MAX_PLAN_BYTES = 1 << 20
MAX_COMBINATIONS = 10_000
"""Deployments of one file, matrices counted out."""

ROOT_KEYS = ("version", "policy", "defaults", "deployments")
OWN_KEYS = ("name", "from", "command", "container", "ignore_args", "budgets")
"""Keys of a deployment that are not flags."""

FLAG_KEYS: dict[str, str] = {"model": "model"}
"""Every spelling of a flag as a key, with the flag's own name."""
for _flag in FLAGS:
    for _spelling in (_flag.option, *_flag.also):
        FLAG_KEYS[_spelling.lstrip("-").replace("-", "_")] = _flag.name

DEPLOYMENT_KEYS = (*OWN_KEYS[:1], *FLAG_KEYS, *OWN_KEYS[1:])
DEFAULT_KEYS = (*FLAG_KEYS, "budgets")


class Problem(NamedTuple):
    """A fault of the plan and where it stands."""

    place: Place
    message: str
    hint: str | None = None


class Choice(NamedTuple):
    """One value of a flag: text, true for a switch, or the words of a flag that repeats."""

    value: str | bool | tuple[str, ...]
    place: Place

    @property
    def text(self) -> str:
        """As a name shows it."""
        return " ".join(self.value) if isinstance(self.value, tuple) else str(self.value)


class Stated(NamedTuple):
    """What was stated for one flag: several choices make a matrix."""

    choices: tuple[Choice, ...]
    place: Place
    is_default: bool


class StatedBudget(NamedTuple):
    """What was stated for one budget; text None leaves the value to the policy."""

    budget: Budget
    text: str | None
    level: str
    place: Place


class Manifest(NamedTuple):
    """Where the engine's command line is read from."""

    path: str | None
    command: tuple[str, ...] | str | None
    container: str | None
    ignore: tuple[str, ...]
    place: Place


class Planned(NamedTuple):
    """One entry of ``deployments``."""

    name: str
    place: Place
    flags: dict[str, Stated]
    budgets: dict[str, StatedBudget]
    manifest: Manifest | None
    problems: tuple[Problem, ...]
    """What is wrong with it; it is then not judged."""


class Plan(NamedTuple):
    """One file."""

    path: str
    deployments: tuple[Planned, ...]
    policy: tuple[str, Place] | None
    problems: tuple[Problem, ...]
    """What is wrong outside of the deployments."""
