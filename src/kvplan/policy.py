"""The thresholds that answers are judged by: the bundled policy, or a user's own file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kvplan.catalogue import bundled_policy
from kvplan.errors import MalformedFile, nearest_names
from kvplan.files import read_yaml_object


class MonitoringPolicy(NamedTuple):
    """When a running server needs someone's attention."""

    max_pool_use: float
    near_full: float
    ttft_ms: float
    tpot_ms: float
    slo_share: float
    min_throughput: float
    min_prefix_hits: float
    max_plan_drift: float
    max_memory_over_plan: float
    offload_below_gpu_use: float


class QualityPolicy(NamedTuple):
    """When a changed KV cache is rolled back to 16 bits and every token."""

    max_drop: float
    max_perplexity_ratio: float
    perplexity_ceiling: float
    min_longbench: float
    min_bleu: float
    max_hallucination: float
    confidence: float
    power: float
    min_calibration_samples: int
    max_kv_mse: float
    max_quantisation_error: float


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
    monitoring: MonitoringPolicy
    quality: QualityPolicy


_SECTIONS: dict[str, type[MonitoringPolicy] | type[QualityPolicy]] = {
    "monitoring": MonitoringPolicy,
    "quality": QualityPolicy,
}


def load_policy(path: str | None = None) -> Policy:
    """The bundled policy, with what the user's file changes put over it."""
    values = bundled_policy()
    if path is not None:
        values = _over(path, read_yaml_object(path), values, "")
    sections = {name: kind(**values[name]) for name, kind in _SECTIONS.items()}
    return Policy(**{**values, **sections})


def _over(
    path: str, changes: Mapping[Any, Any], defaults: Mapping[str, Any], section: str
) -> dict[str, Any]:
    """``defaults`` with the file's changes in place, section by section."""
    values = dict(defaults)
    for key, value in changes.items():
        name = f"{section}{key}" if section else key
        if key not in values:
            near = ", ".join(nearest_names(str(key), values) or values)
            raise MalformedFile(path, f"{name!r} is not a threshold", hint=f"Nearest: {near}")
        if isinstance(values[key], dict):
            if not isinstance(value, dict):
                raise MalformedFile(path, f"{name} must be a mapping of thresholds, not {value!r}")
            values[key] = _over(path, value, values[key], f"{name}.")
        else:
            values[key] = _checked(path, name, value, values[key])
    return values


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
