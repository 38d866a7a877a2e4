"""``FIELD=VALUE`` flags as axes, one for each field: ``--set num_kv_heads=4,8`` is two values."""

from __future__ import annotations

from collections.abc import Iterable

from kvplan.errors import InputError
from kvplan.question import BY_NAME
from kvplan.sweeping.axes import split_list


def read_settings(name: str, texts: Iterable[str]) -> dict[str, list[str]]:
    """The values of each field, in order. Arguments of an engine and lists are kept whole."""
    option = BY_NAME[name].option
    found: dict[str, list[str]] = {}
    for text in texts:
        field, equals, values = text.partition("=")
        field, values = field.strip(), values.strip()
        if not (field and equals and values):
            raise InputError(f"{option} {text!r} is not NAME=VALUE")
        whole = name != "set" or values[0] in "[{\"'"
        parts = [values] if whole else split_list(values, f"{option} {field}=")
        found.setdefault(field, []).extend(parts)
    return {field: list(dict.fromkeys(values)) for field, values in found.items()}
