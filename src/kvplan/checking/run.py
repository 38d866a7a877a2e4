"""Plan files → a `CheckReport`."""

from __future__ import annotations

import os
from collections.abc import Iterable

from kvplan import __version__
from kvplan.checking.asking import Asker
from kvplan.checking.document import Place
from kvplan.checking.judging import Judge, fault_of
from kvplan.checking.matrix import cells
from kvplan.checking.models import Models
from kvplan.checking.paths import Folder, shown
from kvplan.checking.plan import MAX_PLAN_BYTES, Plan, Problem
from kvplan.checking.reading import read_plan
from kvplan.checking.report import (
    SCHEMA,
    CheckReport,
    DeploymentResult,
    FileResult,
    Status,
    Summary,
    gravest,
)
from kvplan.errors import (
    EXIT_DOES_NOT_FIT,
    EXIT_FITS,
    EXIT_USAGE,
    KvplanError,
    SourceError,
)
from kvplan.files import read_text
from kvplan.policy import Policy, load_policy

DEFAULT_FILE = "kvplan.yaml"


def check(
    paths: Iterable[str],
    *,
    policy: str | None = None,
    root: str | None = None,
    fail_on: str = "error",
) -> CheckReport:
    """Check plan files; ``policy`` is a file of thresholds for plans that name none."""
    thresholds = load_policy(policy)
    models = Models()
    files = [_file(path, thresholds, root, fail_on, models) for path in paths]
    return report_of(files, fail_on)


def report_of(files: list[FileResult], fail_on: str) -> CheckReport:
    """The results of files as one report."""
    return CheckReport(
        schema=SCHEMA,
        kvplan_version=__version__,
        status=gravest([file.status for file in files]),
        fail_on=fail_on,
        summary=_summary(files),
        files=files,
    )


def exit_code(report: CheckReport, *, exit_zero: bool = False) -> int:
    """2 when anything was not understood, else 1 when a budget failed, else 0."""
    if report.status is Status.ERROR:
        return EXIT_USAGE
    if report.status is Status.FAILED and not exit_zero:
        return EXIT_DOES_NOT_FIT
    return EXIT_FITS


def _file(
    path: str, thresholds: Policy, root: str | None, fail_on: str, models: Models
) -> FileResult:
    try:
        text = read_text(path, MAX_PLAN_BYTES)
    except SourceError as error:
        hint = "Write one: docs/ci.md has an example." if not os.path.exists(path) else error.hint
        problem = Problem(Place(1, 1), error.message, hint)
        return check_plan(
            Plan(shown(path), (), None, (problem,)), Folder(path, root), thresholds, models
        )
    plan = read_plan(text, shown(path))
    return check_plan(plan, Folder(path, root), thresholds, models, fail_on=fail_on)


def check_plan(
    plan: Plan, folder: Folder, thresholds: Policy, models: Models, *, fail_on: str = "error"
) -> FileResult:
    """Judge every deployment of a plan that was read."""
    problems = list(plan.problems)
    if plan.policy is not None:
        path, place = plan.policy
        try:
            thresholds = load_policy(folder.resolve(path, "policy"))
        except KvplanError as error:
            problems.append(Problem(place, error.message, error.hint))
    combined, too_many = cells(plan)
    if too_many is not None:
        problems.append(too_many)
        combined = []
    judge = Judge(thresholds, Asker(folder, models), fail_on=fail_on)
    results = [judge.result(cell) for cell in combined]
    return FileResult(
        path=plan.path,
        status=Status.ERROR if problems else gravest([result.status for result in results]),
        faults=[fault_of(problem) for problem in problems],
        deployments=results,
    )


def _summary(files: list[FileResult]) -> Summary:
    deployments: list[DeploymentResult] = [d for file in files for d in file.deployments]
    statuses = [budget.status for d in deployments for budget in d.budgets]
    faults = sum(len(file.faults) for file in files)
    return Summary(
        files=len(files),
        deployments=len(deployments),
        passed=statuses.count(Status.PASSED),
        warned=statuses.count(Status.WARNED),
        failed=statuses.count(Status.FAILED),
        errors=statuses.count(Status.ERROR)
        + faults
        + sum(d.fault is not None for d in deployments),
        off=statuses.count(Status.OFF),
    )
