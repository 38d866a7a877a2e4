"""A check's JSON, read back: the baseline that a difference is taken against.

The document may come from anywhere, so every field is checked to be of its kind.
"""

from __future__ import annotations

from typing import Any

from kvplan.checking.report import SCHEMA, CheckReport
from kvplan.errors import MalformedFile
from kvplan.files import read_json_object

_PRODUCER = "Make one with: kvplan check --format json --output baseline.json"


def read_baseline(path: str) -> CheckReport:
    """The report in a JSON file that ``kvplan check`` wrote."""
    document: dict[str, Any] = read_json_object(path)
    schema = document.get("schema")
    if schema != SCHEMA:
        raise MalformedFile(
            path, f"its schema is {str(schema)[:60]!r}; expected {SCHEMA!r}", hint=_PRODUCER
        )
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(CheckReport).validate_python(document, strict=False)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in fault["loc"])
        raise MalformedFile(
            path, f"{where} is not as kvplan check writes it: {fault['msg']}", hint=_PRODUCER
        ) from None
