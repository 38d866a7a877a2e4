"""One deployment of a plan → its figures, held against its budgets.

The arithmetic is `planning`'s: `judge` for the budget, the functions of ``fit`` for its figures and
`max_batch` and `max_seq_len` for the two limits. Options, the matrix and the other limits that
``fit`` solves are left out, which is what makes a hundred deployments cheap.
"""

from __future__ import annotations

from kvplan.checking.asking import Asker, problem_of
from kvplan.checking.budgets import BY_NAME as BUDGET_BY_NAME
from kvplan.checking.budgets import Held, Outcome, amount, hold
from kvplan.checking.matrix import Cell
from kvplan.checking.plan import Problem, StatedBudget
from kvplan.checking.report import BudgetResult, DeploymentResult, Fault, Figures, Status, gravest
from kvplan.checking.values import Refused
from kvplan.errors import KvplanError
from kvplan.planning.budget import Budget
from kvplan.planning.fit import (
    deployment_report,
    judge,
    kv_cache_report,
    memory_report,
    reason_of,
    warnings_of,
)
from kvplan.planning.limits import Question, max_batch, max_seq_len
from kvplan.planning.report import Verdict
from kvplan.policy import Policy


class Judge:
    """Judges the deployments of one plan."""

    def __init__(self, policy: Policy, asker: Asker, *, fail_on: str) -> None:
        self._policy = policy
        self._asker = asker
        self._fail_on = fail_on

    def result(self, cell: Cell) -> DeploymentResult:
        """How one deployment comes out; one that is not understood carries the fault."""
        if cell.planned.problems:
            return _faulty(cell, *cell.planned.problems)
        try:
            question, budget = judge(self._asker.ask(cell), self._policy)
            figures = figures_of(question, budget)
        except Refused as found:
            return _faulty(cell, found.problem)
        except KvplanError as error:
            return _faulty(cell, problem_of(error, cell))
        return self._held(cell, budget, figures)

    def _held(self, cell: Cell, budget: Budget, figures: Figures) -> DeploymentResult:
        d = budget.deployment
        stated = dict(cell.planned.budgets)
        if "fits" not in stated:
            fits = StatedBudget(BUDGET_BY_NAME["fits"], "true", "error", cell.planned.place)
            stated = {"fits": fits, **stated}
        reason = reason_of(budget)
        results = [self._budget(each, figures, reason) for each in stated.values()]
        return DeploymentResult(
            name=cell.name,
            line=cell.planned.place.line,
            column=cell.planned.place.column,
            status=gravest([result.status for result in results]),
            fault=None,
            reason=reason,
            deployment=deployment_report(d),
            figures=figures,
            budgets=results,
            warnings=[*d.model.warnings, *d.warnings, *warnings_of(budget, self._policy)],
            assumptions=[*d.model.assumptions, *d.assumptions],
        )

    def _budget(self, stated: StatedBudget, figures: Figures, reason: str) -> BudgetResult:
        held = held_to(stated, self._policy)
        budget = stated.budget
        outcome = hold(held, figures)
        if stated.level == "off":
            status, message = Status.OFF, "not checked"
        elif outcome.met is None:
            status, message = Status.ERROR, f"cannot be judged: {budget.missing}"
        else:
            grave = stated.level == "error" or self._fail_on == "warn"
            missed = Status.FAILED if grave else Status.WARNED
            status = Status.PASSED if outcome.met else missed
            message = reason if budget.name == "fits" else _compared(held, outcome)
        return BudgetResult(
            budget=budget.name,
            rule=budget.rule,
            level=stated.level,
            status=status,
            need=outcome.need,
            have=outcome.have,
            margin=outcome.margin,
            unit=outcome.unit,
            message=message,
            line=stated.place.line,
            column=stated.place.column,
        )


def held_to(stated: StatedBudget, policy: Policy) -> Held:
    """The limit in force: the plan's, or the policy's where the plan states none."""
    budget = stated.budget
    limit: int | float | bool
    if stated.text is not None:
        limit = budget.parse(stated.text, budget.name)
    else:
        limit = budget.from_policy(policy) if budget.from_policy is not None else 0
    unit = budget.unit
    if budget.name == "min_headroom" and (stated.text is None or limit < 1):
        unit = "share"
    return Held(budget, limit, stated.level, unit)


def figures_of(question: Question, budget: Budget) -> Figures:
    """Everything that budgets are held against."""
    memory, kv = memory_report(budget), kv_cache_report(question, budget)
    d = budget.deployment
    held = budget.available_bytes / budget.reserved_bytes if budget.reserved_bytes else 0.0
    if d.args.max_num_seqs is not None:
        held = min(held, float(d.args.max_num_seqs))
    return Figures(
        fits=budget.verdict is not Verdict.OOM,
        verdict=budget.verdict,
        limiting_term=budget.limiting_term,
        gpu_count=d.gpus,
        seq_len=d.seq_len,
        batch=d.batch,
        usable_bytes=memory.usable_bytes,
        weight_bytes=memory.weight_bytes,
        kv_pool_bytes=memory.kv_pool_bytes,
        kv_needed_bytes=memory.kv_needed_bytes,
        headroom_bytes=memory.headroom_bytes,
        kv_share=memory.kv_share,
        pool_use=memory.pool_use,
        kv_bytes_per_token=kv.bytes_per_token,
        kv_bytes_per_sequence=kv.reserved_bytes_per_sequence,
        concurrency=d.dp * held,
        mean_concurrency=kv.mean_concurrency,
        max_batch=max_batch(question, budget),
        max_seq_len=max_seq_len(question, budget),
    )


def _compared(held: Held, outcome: Outcome) -> str:
    """Need, have and margin in one line."""
    unit, is_minimum = outcome.unit, held.budget.is_minimum
    margin = outcome.margin or 0
    spare = "to spare" if margin >= 0 else ("short" if is_minimum else "over")
    return (
        f"have {amount(outcome.have, unit)}, need at {'least' if is_minimum else 'most'} "
        f"{amount(outcome.need, unit)}: {amount(abs(margin), unit)} {spare}"
    )


def fault_of(problem: Problem) -> Fault:
    """A problem as the report has it."""
    return Fault(
        message=problem.message,
        hint=problem.hint,
        line=problem.place.line,
        column=problem.place.column,
    )


def _faulty(cell: Cell, problem: Problem, *more: Problem) -> DeploymentResult:
    """A deployment that is not judged; its first problem, and the others with their lines."""
    message = problem.message
    for other in more:
        message += f"; line {other.place.line}: {other.message}"
    return DeploymentResult(
        name=cell.name,
        line=cell.planned.place.line,
        column=cell.planned.place.column,
        status=Status.ERROR,
        fault=fault_of(problem._replace(message=message)),
        reason=None,
        deployment=None,
        figures=None,
        budgets=[],
        warnings=[],
        assumptions=[],
    )
