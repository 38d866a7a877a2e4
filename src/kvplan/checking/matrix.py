"""Lists in a deployment → one deployment for each combination of their values."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

from kvplan.checking.plan import MAX_COMBINATIONS, Choice, Plan, Planned, Problem, Stated


class Cell(NamedTuple):
    """One combination."""

    planned: Planned
    name: str
    """With the values that vary, where any do: ``chat [seq=8k, kv=fp8]``."""
    choices: dict[str, Choice]
    """One value for each flag."""

    def stated(self, flag: str) -> Stated | None:
        """How the flag was stated."""
        return self.planned.flags.get(flag)


def cells(plan: Plan) -> tuple[list[Cell], Problem | None]:
    """Every combination of the plan, in its order; a problem where they are too many."""
    found: list[Cell] = []
    for planned in plan.deployments:
        count = 1
        for stated in planned.flags.values():
            count *= len(stated.choices)
        if len(found) + count > MAX_COMBINATIONS:
            return found, Problem(
                planned.place,
                f"with {planned.name} the plan has more than {MAX_COMBINATIONS:,} combinations",
                "Shorten its lists, or split the plan into files.",
            )
        found += _of(planned)
    return found, None


def _of(planned: Planned) -> list[Cell]:
    names = list(planned.flags)
    varied = [name for name in names if len(planned.flags[name].choices) > 1]
    found = []
    for chosen in product(*(planned.flags[name].choices for name in names)):
        choices = dict(zip(names, chosen, strict=True))
        shown = ", ".join(f"{name}={choices[name].text}" for name in varied)
        found.append(Cell(planned, f"{planned.name} [{shown}]" if shown else planned.name, choices))
    return found
