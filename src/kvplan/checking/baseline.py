"""A check's JSON, read back: the baseline that a difference is taken against.

The document may come from anywhere, so every field is checked to be of its kind: the records' own
annotations are the form.
"""

from __future__ import annotations

from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from kvplan.checking.report import SCHEMA, CheckReport
from kvplan.errors import MalformedFile
from kvplan.files import read_json_object
from kvplan.planning.report import Record

_PRODUCER = "Make one with: kvplan check --format json --output baseline.json"


def read_baseline(path: str) -> CheckReport:
    """The report in a JSON file that ``kvplan check`` wrote."""
    document = read_json_object(path)
    schema = document.get("schema")
    if schema != SCHEMA:
        raise MalformedFile(
            path, f"its schema is {str(schema)[:60]!r}; expected {SCHEMA!r}", hint=_PRODUCER
        )
    try:
        report: CheckReport = _record(CheckReport, document, "")
    except _Unlike as unlike:
        raise MalformedFile(
            path, f"{unlike} is not as kvplan check writes it", hint=_PRODUCER
        ) from None
    return report


class _Unlike(Exception):
    """Carries the name of the field that is of another kind."""


def _record(form: type[Record], value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise _Unlike(where)
    hints = {name: hint for name, hint in get_type_hints(form).items() if name in _fields(form)}
    for name in sorted(value.keys() ^ hints.keys()):
        raise _Unlike(f"{where}.{name[:60]!r}".lstrip("."))
    return form(
        **{
            name: _value(hint, value[name], f"{where}.{name}".lstrip("."))
            for name, hint in hints.items()
        }
    )


def _fields(form: type[Record]) -> set[str]:
    return set(form.__annotations__)


def _value(hint: Any, value: Any, where: str) -> Any:
    if isinstance(hint, UnionType):
        for choice in get_args(hint):
            try:
                return _value(choice, value, where)
            except _Unlike:
                continue
        raise _Unlike(where)
    if get_origin(hint) is list:
        if not isinstance(value, list):
            raise _Unlike(where)
        (inner,) = get_args(hint)
        return [_value(inner, item, f"{where}[{number}]") for number, item in enumerate(value)]
    if isinstance(hint, type) and issubclass(hint, Record):
        return _record(hint, value, where)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        if isinstance(value, str) and value in {str(member) for member in hint}:
            return hint(value)
        raise _Unlike(where)
    kinds = (int, float) if hint is float else (hint,)
    is_of_kind = value is None if hint is NoneType else isinstance(value, kinds)
    if not is_of_kind or (isinstance(value, bool) and hint is not bool):
        raise _Unlike(where)
    return value
