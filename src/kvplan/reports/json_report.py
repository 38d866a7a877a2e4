"""The report as JSON: the stable contract, key for key the fields of `FitReport`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kvplan.planning.report import Record, fields_of

if TYPE_CHECKING:
    from kvplan.deployment import Deployment
    from kvplan.planning.report import FitReport


def render(report: FitReport, explained: Deployment | None, to_file: bool) -> str:  # noqa: ARG001
    """One document, indented, keys in the order of the contract."""
    return json_text(full_document(report, explained))


def json_text(document: Any) -> str:
    """A record, or plain objects, as every command prints them: indented, keys in their order."""
    return json.dumps(as_document(document), indent=2, ensure_ascii=False) + "\n"


def full_document(report: FitReport, explained: Deployment | None) -> dict[str, Any]:
    """The report, and with it the formulas of ``explained`` when they are asked for."""
    document: dict[str, Any] = as_document(report)
    if explained is not None:
        from kvplan.reports.formulas import formulas

        document["formulas"] = [line._asdict() for line in formulas(report, explained)]
    return document


def as_document(node: Any) -> Any:
    """Records as plain objects, all the way down."""
    if isinstance(node, Record):
        return {name: as_document(value) for name, value in fields_of(node).items()}
    if isinstance(node, list):
        return [as_document(item) for item in node]
    if isinstance(node, str):
        return str(node)
    return node
