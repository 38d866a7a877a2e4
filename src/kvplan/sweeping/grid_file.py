"""``--grid grid.yaml``: the flags of a grid in a file, each a value, a list or a range."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvplan.errors import MalformedFile, nearest_names
from kvplan.files import read_yaml_object
from kvplan.question import BY_NAME

_MODEL = "model"


def read_grid_file(path: str) -> tuple[list[str], dict[str, Any]]:
    """The models and the flags that a file gives, as the command line would."""
    models: list[str] = []
    flags: dict[str, Any] = {}
    for key, value in read_yaml_object(path).items():
        name = str(key).replace("-", "_")
        if name == _MODEL:
            models = _texts(path, name, value)
            continue
        flag = BY_NAME.get(name)
        if flag is None:
            near = ", ".join(nearest_names(name, [_MODEL, *BY_NAME]) or [_MODEL, *BY_NAME])
            raise MalformedFile(path, f"{key!r} is not a flag", hint=f"Nearest: {near}")
        if flag.repeats and isinstance(value, Mapping):
            pairs = [(field, _texts(path, f"{name}.{field}", one)) for field, one in value.items()]
            flags[name] = [f"{field}={text}" for field, texts in pairs for text in texts]
        else:
            flags[name] = _texts(path, name, value)
    return models, flags


def _texts(path: str, name: str, value: object) -> list[str]:
    values = value if isinstance(value, list) else [value]
    if not values:
        raise MalformedFile(path, f"{name} is an empty list")
    for one in values:
        if isinstance(one, (dict, list)) or one is None:
            raise MalformedFile(path, f"{name} must be a value, a list of them or a range")
    return [str(one).lower() if isinstance(one, bool) else str(one) for one in values]
