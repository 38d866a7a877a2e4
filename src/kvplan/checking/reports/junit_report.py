"""A check as JUnit XML: a suite a file, a case for each budget of a deployment.

A warning is a case that passes and says so; what is not understood is an error, which every CI
shows as a failure.
"""

from __future__ import annotations

from xml.sax.saxutils import escape, quoteattr

from kvplan.checking.report import BudgetResult, CheckReport, DeploymentResult, FileResult, Status
from kvplan.checking.reports import findings


def render(report: CheckReport, to_file: bool) -> str:  # noqa: ARG001
    """One document; times are left out, so that the same plan gives the same bytes."""
    suites = [_suite(file) for file in report.files]
    s = report.summary
    tests = s.passed + s.warned + s.failed + s.errors + s.off
    counts = _attributes(name="kvplan check", tests=tests, failures=s.failed, errors=s.errors)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f"<testsuites{counts}>\n{''.join(suites)}</testsuites>\n"
    )


def _suite(file: FileResult) -> str:
    cases = [
        _case(
            "",
            file.path,
            f"line {fault.line}",
            _problem("error", findings.with_hint(fault.message, fault.hint), fault.line, file),
        )
        for fault in file.faults
    ]
    statuses = [Status.ERROR] * len(file.faults)
    for each in file.deployments:
        if each.fault is not None:
            text = findings.with_hint(each.fault.message, each.fault.hint)
            problem = _problem("error", text, each.fault.line, file)
            cases.append(_case("", each.name, "understood", problem))
            statuses.append(Status.ERROR)
        for budget in each.budgets:
            cases.append(_budget(file, each, budget))
            statuses.append(budget.status)
    counts = _attributes(
        name=file.path,
        tests=len(cases),
        failures=statuses.count(Status.FAILED),
        errors=statuses.count(Status.ERROR),
        skipped=statuses.count(Status.OFF),
    )
    return f"  <testsuite{counts}>\n{''.join(cases)}  </testsuite>\n"


def _budget(file: FileResult, each: DeploymentResult, budget: BudgetResult) -> str:
    said = f"{budget.budget} of {each.name}: {budget.message}"
    if budget.status is Status.FAILED:
        inner = _problem("failure", said, budget.line, file, budget)
    elif budget.status is Status.ERROR:
        inner = _problem("error", said, budget.line, file)
    elif budget.status is Status.OFF:
        inner = f"      <skipped{_attributes(message='level: off')}/>\n"
    else:
        word = "warning: " if budget.status is Status.WARNED else ""
        inner = f"      <system-out>{_text(word + said)}</system-out>\n"
    return _case(file.path, each.name, budget.budget, inner)


def _case(path: str, classname: str, name: str, inner: str) -> str:  # noqa: ARG001
    return f"    <testcase{_attributes(classname=classname, name=name)}>\n{inner}    </testcase>\n"


def _problem(
    element: str, message: str, line: int, file: FileResult, budget: BudgetResult | None = None
) -> str:
    detail = [message, f"at {file.path}:{line}"]
    if budget is not None:
        detail += [
            f"need: {findings.need(budget)}",
            f"have: {findings.have(budget)}",
            f"margin: {findings.margin(budget) or 'none'}",
        ]
    kind = budget.budget if budget is not None else findings.NOT_UNDERSTOOD
    attributes = _attributes(type=kind, message=message)
    return f"      <{element}{attributes}>{_text(chr(10).join(detail))}</{element}>\n"


def _attributes(**values: object) -> str:
    return "".join(f" {name}={quoteattr(_allowed(str(value)))}" for name, value in values.items())


def _text(text: str) -> str:
    return escape(_allowed(text))


def _allowed(text: str) -> str:
    """``text`` without the characters that XML 1.0 has no way to write."""
    return "".join(c if _is_allowed(c) else repr(c)[1:-1] for c in text)


def _is_allowed(char: str) -> bool:
    return char in "\t\n\r" or (
        char >= " " and not "\ud800" <= char <= "\udfff" and char not in "\ufffe\uffff"
    )
