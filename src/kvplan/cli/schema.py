"""``kvplan schema``: JSON Schemas of what kvplan writes."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer

from kvplan.cli.options import OutputOption, new_app
from kvplan.cli.output import emit
from kvplan.errors import InputError, nearest_names
from kvplan.reports.json_report import json_text

DOCUMENTS = {
    "fit": ("kvplan.planning.report", "FitReport"),
    "calibrate": ("kvplan.planning.calibrate", "CalibrationReport"),
    "explain": ("kvplan.reports.explanation", "Explanation"),
    "check": ("kvplan.checking.schema", "kvplan.yaml"),
    "check-report": ("kvplan.checking.report", "CheckReport"),
    "diff": ("kvplan.checking.difference", "DiffReport"),
    "watch": ("kvplan.monitoring.watch", "Observation"),
    "gate": ("kvplan.gating.gate", "GateReport"),
}
"""Each document's name, the command that writes it, and the class that is its form."""

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema(
    document: Annotated[
        str,
        typer.Argument(
            metavar="DOCUMENT",
            help=f"The command whose --format json is described: {', '.join(DOCUMENTS)}.",
            show_default=False,
        ),
    ],
    output: OutputOption = None,
) -> None:
    """Print the JSON Schema (2020-12) of a document that kvplan writes.

    kvplan schema fit
    """
    if document not in DOCUMENTS:
        near = nearest_names(document, DOCUMENTS) or list(DOCUMENTS)
        raise InputError(
            f"{document!r} is not a document of {', '.join(DOCUMENTS)}",
            hint=f"Try: kvplan schema {near[0]}",
        )
    emit(json_text(json_schema(document)), output)


def json_schema(document: str) -> dict[str, Any]:
    """The schema; its ``$id`` changes only with the version of the document."""
    if document == "check":  # what `kvplan check` reads; check-report is what it writes
        from kvplan.checking.schema import plan_schema

        return plan_schema()
    from pydantic import TypeAdapter

    module_name, name = DOCUMENTS[document]
    module = import_module(module_name)
    for room in ("kvplan.planning.report", module_name):
        _make_dataclasses(import_module(room))
    adapter: TypeAdapter[Any] = TypeAdapter(getattr(module, name))
    generated = adapter.json_schema(mode="serialization")
    version = module.SCHEMA
    properties = generated["properties"]
    properties["schema"] = {"const": version, "type": "string", "title": "Schema"}
    if document == "fit":
        properties["formulas"] = _formulas()
    return {"$schema": _DIALECT, "$id": f"urn:{version.replace('.', ':', 1)}", **generated}


def _make_dataclasses(module: object) -> None:
    """Give pydantic the records of ``module`` in a form whose fields it can read."""
    from dataclasses import dataclass

    from kvplan.planning.report import Record

    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, Record) and value is not Record:
            dataclass(eq=False, repr=False)(value)


def _formulas() -> dict[str, Any]:
    """What ``--explain`` adds."""
    from kvplan.reports.formula import Formula

    return {
        "title": "Formulas",
        "description": "The formula of each figure with its numbers; present with --explain.",
        "type": "array",
        "items": {
            "type": "object",
            "properties": {name: {"type": "string"} for name in Formula._fields},
            "required": list(Formula._fields),
            "additionalProperties": False,
        },
    }


app = new_app(schema)
