"""The rows of a sweep as columns: the sections of the fit report, evaluated on arrays.

A cell is one value for all rows, or an array of shape (lengths, 1), (1, batches) or both.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvplan.deployment import Deployment
from kvplan.errors import KvplanError
from kvplan.planning.budget import Budget, causes
from kvplan.planning.cautions import CODES, cautions
from kvplan.planning.edges import Bools, Ints
from kvplan.planning.fit import deployment_report, kv_cache_report, memory_report
from kvplan.planning.limits import Question
from kvplan.planning.report import SEVERITY, Record, Verdict, fields_of
from kvplan.policy import Policy

VERDICTS = tuple(str(verdict) for verdict in SEVERITY)


class Coded(NamedTuple):
    """A column of words: numbers of labels."""

    labels: tuple[str, ...]
    codes: NDArray[np.integer[Any]]

    def words(self) -> NDArray[np.object_]:
        """The labels themselves."""
        words: NDArray[np.object_] = np.array(self.labels, dtype=object)[self.codes]
        return words


class Piece(NamedTuple):
    """Some rows of a grid: those of the numbered lengths by the numbered batches."""

    rows: Ints
    columns: Ints
    cells: dict[str, Any]


def array_rows(question: Question, budgets: list[Budget], policy: Policy) -> dict[str, Any]:
    """The columns of budgets whose loads are arrays: one budget for each stage."""
    severity, term, fits = _judged(budgets, policy.min_headroom)
    verdict: dict[str, Any] = {"verdict": severity, "limiting_term": term}
    parts = [_columns(question, budget, fits, policy) for budget in budgets]
    if len(parts) > 1:
        return _of_least(budgets, parts) | verdict
    return parts[0] | verdict


def answer_rows(question: Question, budget: Budget, policy: Policy) -> dict[str, Any]:
    """The columns of a single answer."""
    found = _columns(question, budget, np.array([[budget.fits]]), policy)
    return found | {"verdict": str(budget.verdict), "limiting_term": budget.limiting_term}


def error_rows(asked: Deployment, error: KvplanError) -> dict[str, Any]:
    """The columns of a load that cannot be: what was asked and why not."""
    return _scalars(deployment_report(asked)) | error_cells(error)


def error_cells(error: KvplanError) -> dict[str, Any]:
    """The code of an error and its words."""
    code = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(error).__name__).lower()
    return {"error": code, "error_message": error.message}


def _judged(budgets: list[Budget], min_headroom: float) -> tuple[Coded, Coded, Bools]:
    """The worst verdict of all stages and its term, of equals that of the stage with least; and
    which rows fit."""
    shape = np.shape(budgets[0].needed_bytes)
    which = np.zeros(shape, dtype=np.int16)
    severities: list[int] = []
    terms: list[str] = []
    numbered = []
    for budget in budgets:
        which = np.zeros(shape, dtype=np.int16)
        for cause in reversed(list(causes(budget, min_headroom))):
            if cause.when is False:
                continue
            if cause.when is True:
                which[...] = len(terms)
            else:
                np.putmask(which, np.broadcast_to(cause.when, shape), len(terms))
            severities.append(SEVERITY[cause.verdict])
            terms.append(cause.limiting_term)
        numbered.append(which)
    severity = np.array(severities, dtype=np.int8)
    if len(budgets) > 1:
        which = np.choose(_least_stage(budgets), numbered)
        for one in numbered:
            which = np.where(severity[one] > severity[which], one, which)
    verdict = Coded(tuple(VERDICTS[number] for number in severities), which)
    fits: Bools = (severity < SEVERITY[Verdict.OOM])[which]
    return verdict, Coded(tuple(terms), which), fits


def _least_stage(budgets: list[Budget]) -> Ints:
    """For each row the number of the stage that holds least, the first of equals."""
    least: Any = 0
    best: Any = None
    for number, budget in enumerate(budgets):
        headroom = np.asarray(budget.headroom_bytes)
        blocks = budget.layout.pool_blocks(budget.pool_bytes)
        room = (headroom if blocks is None else blocks, headroom)
        if best is None:
            best, least = room, np.zeros(headroom.shape, dtype=np.int64)
            continue
        less = (room[0] < best[0]) | ((room[0] == best[0]) & (room[1] < best[1]))
        least = np.where(less, number, least)
        best = (np.where(less, room[0], best[0]), np.where(less, room[1], best[1]))
    found: Ints = least
    return found


def _of_least(budgets: list[Budget], parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Each figure from the stage that holds least in that row."""
    order = _least_stage(budgets)
    if (order == order.flat[0]).all():
        return parts[int(order.flat[0])]
    return {key: _chosen(order, [part[key] for part in parts]) for key in parts[0]}


def _chosen(order: Ints, cells: list[Any]) -> Any:
    first = cells[0]
    if isinstance(first, Coded):
        labels = tuple(dict.fromkeys(label for cell in cells for label in cell.labels))
        numbers = [
            np.array([labels.index(label) for label in cell.labels])[cell.codes] for cell in cells
        ]
        return Coded(labels, np.choose(order, numbers))
    if all(not isinstance(cell, np.ndarray) and cell == first for cell in cells):
        return first
    if any(cell is None for cell in cells):
        return np.choose(order, [np.asarray(cell, dtype=object) for cell in cells])
    return np.choose(order, cells)


def _columns(question: Question, b: Budget, fits: Bools, policy: Policy) -> dict[str, Any]:
    d = b.deployment
    found = _scalars(deployment_report(d))
    found |= _scalars(kv_cache_report(question, b))
    found |= _scalars(memory_report(b))
    found["kv_cache_bits"] = d.kv.bits
    found["mean_seq"] = d.mean_seq
    found["prefix_tokens"] = d.prefix_tokens
    found["dcp"] = d.dcp
    found["reserve_bytes"] = d.reserve_bytes
    found["warning_codes"] = _warnings(b, fits, policy)
    found["error"] = found["error_message"] = None
    return found


def _scalars(section: Record) -> dict[str, Any]:
    """The figures of a section of the fit report that are no lists."""
    found = fields_of(section)
    return {name: value for name, value in found.items() if not isinstance(value, list)}


def _warnings(b: Budget, fits: Bools, policy: Policy) -> Coded:
    """The codes that hold in each row, in words."""
    d = b.deployment
    always = [] if not d.model.warnings else ["model"]
    always += [] if not d.warnings else ["engine"]
    which: Any = np.zeros((1, 1), dtype=np.int8)
    sometimes: list[str] = []
    for caution in cautions(b._replace(verdict=Verdict.FITS), policy):
        when = caution.when & fits if caution.code == "kv_share" else caution.when
        if when is True:
            always.append(caution.code)
        elif not isinstance(when, bool) and np.any(when):
            which = which + np.asarray(when).astype(np.int8) * np.int8(1 << len(sometimes))
            sometimes.append(caution.code)
    labels = []
    for number in range(1 << len(sometimes)):
        codes = {code for bit, code in enumerate(sometimes) if number >> bit & 1}
        labels.append(" ".join(code for code in CODES if code in codes or code in always))
    return Coded(tuple(labels), which)
