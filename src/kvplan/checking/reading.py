"""kvplan.yaml → `Plan`: every key known, every value of its kind, every fault with its line.

Nothing is left out silently: a key without a value is a fault, since a budget that was meant and
lost would be a check that passes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from kvplan.checking.budgets import BY_NAME as BUDGET_BY_NAME
from kvplan.checking.document import Items, Keys, Place, Tree, kind_name, parse_document, shorten
from kvplan.checking.plan import (
    DEFAULT_KEYS,
    DEPLOYMENT_KEYS,
    FLAG_KEYS,
    ROOT_KEYS,
    VERSION,
    Plan,
    Planned,
    Problem,
    Stated,
    StatedBudget,
)
from kvplan.checking.values import (
    Refused,
    budget_of,
    choices_of,
    manifest_of,
    text_of,
    unknown_keys,
    wrong,
)
from kvplan.errors import MalformedFile

T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+/-]{0,99}\Z")
_START = Place(1, 1)


def read_plan(text: str, path: str) -> Plan:
    """The plan in YAML text; its faults are in the result, each with its line."""
    try:
        documents = parse_document(text, path)
    except MalformedFile as error:
        place = Place(error.line or 1, error.column or 1)
        return Plan(path, (), None, (Problem(place, error.problem, error.hint),))
    if len(documents) != 1 or not isinstance(documents[0], Keys):
        what = "is empty" if not documents else "holds several documents"
        if len(documents) == 1:
            what = f"holds {kind_name(documents[0])}"
        place = documents[-1].place if documents else _START
        hint = "A plan begins with: version: 1"
        return Plan(path, (), None, (Problem(place, f"the plan {what}, not keys", hint),))
    return _Reader().plan(documents[0], path)


class _Reader:
    """Collects problems while it reads, so that one run tells all of them."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def plan(self, root: Keys, path: str) -> Plan:
        """The whole file."""
        self._known(root, ROOT_KEYS, "", "the plan")
        self._try(self._version, root)
        policy = self._try(text_of, root, "policy")
        flags, budgets = self._defaults(root)
        deployments = self._deployments(root, flags, budgets)
        return Plan(path, deployments, policy, tuple(self.problems))

    def _version(self, root: Keys) -> None:
        stated = text_of(root, "version")
        if stated is None:
            raise Refused(Problem(root.place, "version is missing", "Write: version: 1"))
        if stated[0] != VERSION:
            raise Refused(
                Problem(
                    stated[1],
                    f"version {shorten(stated[0])!r} is not one that this kvplan reads",
                    f"It reads version {VERSION}.",
                )
            )

    def _defaults(self, root: Keys) -> tuple[dict[str, Stated], dict[str, StatedBudget]]:
        tree = root.get("defaults")
        if tree is None:
            return {}, {}
        if not isinstance(tree, Keys):
            self.problems.append(wrong("defaults", tree, "a mapping of flags and budgets"))
            return {}, {}
        self._known(tree, DEFAULT_KEYS, "defaults.", "defaults")
        return self._flags(tree, "defaults.", is_default=True), self._budgets(tree, "defaults.")

    def _deployments(
        self, root: Keys, flags: dict[str, Stated], budgets: dict[str, StatedBudget]
    ) -> tuple[Planned, ...]:
        tree = root.get("deployments")
        if not isinstance(tree, Items) or not tree.items:
            place = root.place if tree is None else tree.place
            what = "is missing" if tree is None else "should be a list with a deployment or more"
            self.problems.append(
                Problem(place, f"deployments {what}", "A deployment needs a name, model and gpu.")
            )
            return ()
        found: dict[str, Planned] = {}
        outer, names = self.problems, set[str]()
        for number, item in enumerate(tree.items):
            self.problems = []
            planned = self._deployment(item, f"deployments[{number}]", flags, budgets)
            if planned.name in names:
                problem = Problem(planned.place, f"the name {planned.name!r} is used twice")
                planned = planned._replace(
                    name=f"{planned.name} ({number + 1})",
                    problems=(*planned.problems, problem),
                )
            names.add(planned.name)
            found[planned.name] = planned
        self.problems = outer
        return tuple(found.values())

    def _deployment(
        self, tree: Tree, where: str, flags: dict[str, Stated], budgets: dict[str, StatedBudget]
    ) -> Planned:
        if not isinstance(tree, Keys):
            problem = wrong(where, tree, "a mapping with name, model and gpu")
            return Planned(where, tree.place, {}, {}, None, (problem,))
        self._known(tree, DEPLOYMENT_KEYS, f"{where}.", "a deployment")
        name, place = where, tree.place
        stated = self._try(text_of, tree, "name", f"{where}.")
        if stated is None:
            if "name" not in tree.entries:
                self.problems.append(Problem(place, f"{where}.name is missing"))
        elif not _NAME.match(stated[0]):
            self.problems.append(
                Problem(
                    stated[1],
                    f"{where}.name = {shorten(stated[0])!r} is not a name",
                    "Letters, digits, spaces and . _ + - / only, at most 100.",
                )
            )
        else:
            name, place = stated
        own = self._flags(tree, f"{where}.", is_default=False)
        planned = Planned(
            name,
            place,
            {**flags, **own},
            {**budgets, **self._budgets(tree, f"{where}.")},
            self._try(manifest_of, tree, f"{where}."),
            (),
        )
        if not self.problems:
            self._complete(planned, tree, where)
        return planned._replace(problems=tuple(self.problems))

    def _complete(self, planned: Planned, tree: Keys, where: str) -> None:
        needed = ["gpu"] if planned.manifest is not None else ["model", "gpu"]
        self.problems += [
            Problem(tree.place, f"{where}.{key} is missing", _MISSING[key])
            for key in needed
            if key not in planned.flags
        ]

    def _flags(self, tree: Keys, where: str, *, is_default: bool) -> dict[str, Stated]:
        found: dict[str, Stated] = {}
        for key, (place, value) in tree.entries.items():
            name = FLAG_KEYS.get(key)
            if name is None:
                continue
            if name in found:
                self.problems.append(Problem(place, f"{where}{key} is {name}, stated before"))
                continue
            choices = self._try(choices_of, name, f"{where}{key}", value)
            if choices:
                found[name] = Stated(choices, place, is_default)
        return found

    def _budgets(self, tree: Keys, where: str) -> dict[str, StatedBudget]:
        stated = tree.get("budgets")
        if stated is None:
            return {}
        if not isinstance(stated, Keys):
            self.problems.append(wrong(f"{where}budgets", stated, "a mapping of budgets"))
            return {}
        where = f"{where}budgets."
        self._known(stated, BUDGET_BY_NAME, where, "budgets")
        found = {}
        for key, (place, value) in stated.entries.items():
            if key not in BUDGET_BY_NAME:
                continue
            budget = self._try(budget_of, key, f"{where}{key}", place, value)
            if budget is not None:
                found[key] = budget
        return found

    def _known(self, tree: Keys, keys: Iterable[str], where: str, noun: str) -> None:
        self.problems += unknown_keys(tree, keys, where, noun)

    def _try(self, read: Callable[..., T], *args: Any) -> T | None:
        try:
            return read(*args)
        except Refused as refused:
            self.problems.append(refused.problem)
            return None


_MISSING = {
    "model": "A bundled name, or the path of a config.json; or say where it is deployed with from.",
    "gpu": "For example gpu: h100-sxm; kvplan gpus list shows all.",
}
