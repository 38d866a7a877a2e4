"""One deployment out of a ``kvplan.yaml``, by its name."""

from __future__ import annotations

import os
import re

from kvplan.checking.asking import Asker
from kvplan.checking.matrix import cells
from kvplan.checking.models import Models
from kvplan.checking.paths import Folder
from kvplan.checking.plan import MAX_PLAN_BYTES, Problem
from kvplan.checking.reading import read_plan
from kvplan.checking.values import Refused
from kvplan.deployment import Deployment
from kvplan.errors import InputError, MalformedFile, nearest_names
from kvplan.files import read_text

_DEPLOYMENTS = re.compile(r"^deployments\s*:", re.MULTILINE)


def is_plan_file(path: str) -> bool:
    """Whether ``path`` is a ``kvplan.yaml``, rather than a model's own YAML profile."""
    if not (path.lower().endswith((".yaml", ".yml")) and os.path.isfile(path)):
        return False
    return _DEPLOYMENTS.search(read_text(path, MAX_PLAN_BYTES)) is not None


def deployment_named(path: str, name: str | None) -> Deployment:
    """The deployment of that name; without one, the only one there is."""
    plan = read_plan(read_text(path, MAX_PLAN_BYTES), path)
    for problem in plan.problems:
        raise _malformed(path, problem)
    found, too_many = cells(plan)
    if too_many is not None:
        raise _malformed(path, too_many)
    by_name = {cell.name: cell for cell in found}
    if name is None and len(found) != 1:
        raise InputError(
            f"{path} has {len(found)} deployments",
            hint=f"Name one with --deployment: {', '.join(list(by_name)[:8])}",
        )
    if name is not None and name not in by_name:
        near = nearest_names(name, by_name) or list(by_name)[:8]
        raise InputError(
            f"--deployment {name!r}: {path} has no such deployment",
            hint=f"It has: {', '.join(near)}",
        )
    cell = found[0] if name is None else by_name[name]
    try:
        return Asker(Folder(path), Models()).ask(cell)
    except Refused as error:
        raise _malformed(path, error.problem) from None


def _malformed(path: str, problem: Problem) -> MalformedFile:
    return MalformedFile(path, f"line {problem.place.line}: {problem.message}", hint=problem.hint)
