"""The thresholds that answers are judged by: the bundled policy, or a user's own file."""

from __future__ import annotations

from typing import Any, NamedTuple

from kvplan.catalogue import bundled_policy
from kvplan.errors import MalformedFile, nearest_names
from kvplan.files import read_yaml_object


class Policy(NamedTuple):
    """Thresholds; each is explained in ``configs/policies/default.yaml``."""

    min_headroom: float
    max_kv_share: float
    min_window: int
    max_window: int
    min_share_outside_window: float
    min_kv_bits: int
    max_kv_bits: int
    min_tp_link_gb_per_s: float


def load_policy(path: str | None = None) -> Policy:
    """The bundled policy, with what the user's file changes put over it."""
    values = dict(bundled_policy())
    if path is not None:
        for key, value in read_yaml_object(path).items():
            if key not in values:
                near = ", ".join(nearest_names(str(key), values) or values)
                raise MalformedFile(path, f"{key!r} is not a threshold", hint=f"Nearest: {near}")
            values[key] = _checked(path, key, value, values[key])
    return Policy(**values)


def _checked(path: str, key: str, value: object, default: Any) -> Any:
    """A number of the default's kind; a share stays a share."""
    wanted = "a whole number" if isinstance(default, int) else "a number"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise MalformedFile(path, f"{key} must be {wanted}, not {value!r}")
    if isinstance(default, int) and not isinstance(value, int):
        raise MalformedFile(path, f"{key} must be {wanted}, not {value!r}")
    limit = 1 if isinstance(default, float) and default <= 1 else 2**40
    if not 0 <= value <= limit:
        raise MalformedFile(path, f"{key} is {value}; it must be from 0 to {limit:,}")
    return value
