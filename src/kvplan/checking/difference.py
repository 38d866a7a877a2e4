"""What changed between two checks: bytes, concurrency, context, GPUs and verdict.

The figures are those of `Figures`, one deployment against the one of the same name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from kvplan import __version__
from kvplan.checking.report import CheckReport, DeploymentResult, Figures, Status
from kvplan.errors import InputError, nearest_names
from kvplan.planning.report import SEVERITY, Record, Verdict
from kvplan.units import parse_size

SCHEMA = "kvplan.diff/1"


class Compared(NamedTuple):
    """A figure that is compared."""

    figure: str
    unit: str
    worse: int
    """1 when more is a regression, -1 when less is; 0 when a change is neither."""


COMPARED = (
    Compared("gpu_count", "GPUs", 1),
    Compared("weight_bytes", "bytes", 1),
    Compared("kv_bytes_per_token", "bytes", 1),
    Compared("kv_bytes_per_sequence", "bytes", 1),
    Compared("kv_needed_bytes", "bytes", 1),
    Compared("kv_pool_bytes", "bytes", -1),
    Compared("headroom_bytes", "bytes", -1),
    Compared("kv_share", "share", 1),
    Compared("concurrency", "sequences", -1),
    Compared("max_batch", "sequences", -1),
    Compared("max_seq_len", "tokens", -1),
    Compared("seq_len", "tokens", 0),
    Compared("batch", "sequences", 0),
)


class Change(StrEnum):
    """What became of a deployment."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    SAME = "same"
    ERROR = "error"
    """Not understood on one side."""


class FigureChange(Record):
    """A figure on both sides."""

    figure: str
    unit: str
    base: int | float | None
    head: int | float | None
    delta: int | float | None
    """Head less base; null when a side is not known."""
    ratio: float | None
    """The delta over the base; null when the base is 0."""
    regression: bool
    """Worse by more than the tolerance."""


class DeploymentChange(Record):
    """A deployment on both sides."""

    name: str
    change: Change
    base_verdict: Verdict | None
    head_verdict: Verdict | None
    figures: list[FigureChange]
    """Those that differ; of an added or removed deployment all of its own."""
    newly_failing: list[str]
    """Budgets of level error that fail in head and did not in base."""
    regression: bool
    message: str | None
    """What is not understood."""


class DiffReport(Record):
    """Everything that ``kvplan diff`` says."""

    schema: str
    kvplan_version: str
    base: str
    head: str
    regressions: int
    """Deployments that are worse."""
    errors: int
    """Deployments and files of head that are not understood."""
    faults: list[str]
    """What is wrong with the files themselves."""
    deployments: list[DeploymentChange]


class Tolerance(NamedTuple):
    """How much worse a figure may be: a share of the base, or an amount."""

    share: float = 0.0
    amount: float = 0.0


class Side(NamedTuple):
    """One side of the comparison."""

    label: str
    report: CheckReport
    hidden: str = ""
    """The temporary folder that its files were laid out in, which no message shows."""

    def told(self, message: str) -> str:
        """A message of this side."""
        return message.replace(self.hidden, "") if self.hidden else message


def parse_tolerances(texts: Iterable[str]) -> dict[str, Tolerance]:
    """``2%`` for every figure, ``FIGURE=2%`` or ``FIGURE=1GiB`` for one; "" is every figure."""
    found: dict[str, Tolerance] = {}
    names = [compared.figure for compared in COMPARED if compared.worse]
    for text in texts:
        name, equals, value = text.rpartition("=")
        if equals and name not in names:
            near = nearest_names(name, names, count=2) or names
            raise InputError(
                f"--tolerance {text!r}: {name!r} is not a figure that can be worse",
                hint=f"Nearest: {', '.join(near)}",
            )
        found[name if equals else ""] = _tolerance(value, text, is_any=not equals)
    return found


def _tolerance(value: str, text: str, *, is_any: bool) -> Tolerance:
    wanted = "a share such as 2%" + ("" if is_any else " or an amount such as 512MiB or 3")
    if value.endswith("%"):
        try:
            share = float(value[:-1]) / 100
        except ValueError:
            share = -1.0
        if 0 <= share < float("inf"):
            return Tolerance(share=share)
    elif not is_any:
        try:
            return Tolerance(amount=float(value) if value.isdigit() else parse_size(value, text))
        except InputError:
            pass
    raise InputError(f"--tolerance {text!r} is not {wanted}")


def compare(base: Side, head: Side, tolerances: Mapping[str, Tolerance]) -> DiffReport:
    """The difference of two checks."""
    before, after = _by_name(base.report), _by_name(head.report)
    names = [*after, *(name for name in before if name not in after)]
    changes = [
        _not_understood(name, base, before.get(name))
        or _not_understood(name, head, after.get(name))
        or _change(name, before.get(name), after.get(name), tolerances)
        for name in names
    ]
    faults = [
        side.told(f"{side.label}: {file.path}:{fault.line}: {fault.message}")
        for side in (base, head)
        for file in side.report.files
        for fault in file.faults
    ]
    return DiffReport(
        schema=SCHEMA,
        kvplan_version=__version__,
        base=base.label,
        head=head.label,
        regressions=sum(change.regression for change in changes),
        errors=len(faults) + sum(change.change is Change.ERROR for change in changes),
        faults=faults,
        deployments=changes,
    )


def _by_name(report: CheckReport) -> dict[str, DeploymentResult]:
    several = len(report.files) > 1
    return {
        f"{file.path}: {each.name}" if several else each.name: each
        for file in report.files
        for each in file.deployments
    }


def _not_understood(
    name: str, side: Side, result: DeploymentResult | None
) -> DeploymentChange | None:
    """The change of a deployment that one side could not judge."""
    if result is None or result.fault is None:
        return None
    message = side.told(f"{side.label}, line {result.fault.line}: {result.fault.message}")
    return DeploymentChange(
        name=name,
        change=Change.ERROR,
        base_verdict=None,
        head_verdict=None,
        figures=[],
        newly_failing=[],
        regression=False,
        message=message,
    )


def _change(
    name: str,
    base: DeploymentResult | None,
    head: DeploymentResult | None,
    tolerances: Mapping[str, Tolerance],
) -> DeploymentChange:
    before = None if base is None else base.figures
    after = None if head is None else head.figures
    figures = [
        figure
        for compared in COMPARED
        if (figure := _figure(compared, before, after, tolerances)) is not None
    ]
    failing = _failing(head) if head is not None else []
    newly = failing if base is None else [b for b in failing if b not in _failing(base)]
    verdicts = (
        None if before is None else before.verdict,
        None if after is None else after.verdict,
    )
    worse = None not in verdicts and (
        SEVERITY[verdicts[1] or Verdict.OOM] > SEVERITY[verdicts[0] or Verdict.OOM]
    )
    if before is None or after is None:
        change = Change.ADDED if before is None else Change.REMOVED
    else:
        differs = bool(figures) or verdicts[0] is not verdicts[1] or bool(newly)
        change = Change.CHANGED if differs else Change.SAME
    regression = worse or bool(newly) or any(figure.regression for figure in figures)
    return DeploymentChange(
        name=name,
        change=change,
        base_verdict=verdicts[0],
        head_verdict=verdicts[1],
        figures=figures,
        newly_failing=newly,
        regression=regression,
        message=None,
    )


def _failing(result: DeploymentResult) -> list[str]:
    return [
        budget.budget
        for budget in result.budgets
        if budget.level == "error" and budget.status in {Status.FAILED, Status.ERROR}
    ]


def _figure(
    compared: Compared,
    base: Figures | None,
    head: Figures | None,
    tolerances: Mapping[str, Tolerance],
) -> FigureChange | None:
    """The figure when it differs, or when only one side has it."""
    before = None if base is None else getattr(base, compared.figure)
    after = None if head is None else getattr(head, compared.figure)
    if before == after:
        return None
    delta = ratio = None
    regression = False
    if before is not None and after is not None:
        delta = after - before
        ratio = delta / abs(before) if before else None
        allowed = tolerances.get(compared.figure, tolerances.get("", Tolerance()))
        limit = max(allowed.share * abs(before), allowed.amount)
        regression = bool(compared.worse) and delta * compared.worse > limit
    return FigureChange(
        figure=compared.figure,
        unit=compared.unit,
        base=before,
        head=after,
        delta=delta,
        ratio=ratio,
        regression=regression,
    )
