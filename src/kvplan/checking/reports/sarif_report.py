"""A check as SARIF 2.1.0, for code scanning: a rule a budget, a result for each that is not met."""

from __future__ import annotations

import hashlib
from typing import Any
from urllib.parse import quote

from kvplan.checking.budgets import BUDGETS
from kvplan.checking.report import CheckReport, Status
from kvplan.checking.reports.findings import (
    NOT_UNDERSTOOD,
    NOT_UNDERSTOOD_HELP,
    Finding,
    findings,
)
from kvplan.reports.json_report import json_text

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVEL = {Status.WARNED: "warning", Status.FAILED: "error", Status.ERROR: "error"}


def render(report: CheckReport, to_file: bool) -> str:  # noqa: ARG001
    """One log with one run."""
    rules = [*((b.rule, b.name, b.help) for b in BUDGETS),
             (NOT_UNDERSTOOD, "understood", NOT_UNDERSTOOD_HELP)]  # fmt: skip
    numbers = {rule: number for number, (rule, _, _) in enumerate(rules)}
    run = {
        "tool": {
            "driver": {
                "name": "kvplan",
                "version": report.kvplan_version,
                "rules": [
                    {
                        "id": rule,
                        "name": name,
                        "shortDescription": {"text": name},
                        "fullDescription": {"text": help_text},
                    }
                    for rule, name, help_text in rules
                ],
            }
        },
        "automationDetails": {"id": "kvplan/check/"},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": report.status is not Status.ERROR}],
        "results": [_result(found, numbers[found.rule]) for found in findings(report)],
    }
    log = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}
    return json_text(log)


def _result(found: Finding, rule: int) -> dict[str, Any]:
    subject = " of ".join(filter(None, (found.budget, found.deployment)))
    identity = "\0".join((found.path, found.deployment, found.budget or found.message))
    return {
        "ruleId": found.rule,
        "ruleIndex": rule,
        "level": _LEVEL[found.status],
        "message": {"text": f"{subject}: {found.message}" if subject else found.message},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": quote(found.path)},
                    "region": {"startLine": found.line, "startColumn": found.column},
                }
            }
        ],
        "partialFingerprints": {"kvplan/v1": hashlib.sha256(identity.encode()).hexdigest()},
    }
