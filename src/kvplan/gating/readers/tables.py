"""Plain tables of scores: CSV, and JSON such as LongBench's ``result.json`` or a perplexity.

CSV columns by name: ``task``, ``metric``, ``value`` (or ``score``), and where they are known ``n``
and ``stderr``. With a column ``sample`` (or ``id``, ``doc_id``) each line is one sample. A table
without ``value`` has one column a task and one line.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from kvplan.errors import MalformedFile
from kvplan.gating.results import Evaluation, Score, kind_of

_TASK = ("task", "dataset", "benchmark")
_VALUE = ("value", "score", "result", "correct")
_SAMPLE = ("sample", "sample_id", "doc_id", "id")
_COUNT = ("n", "count", "samples", "num_samples")
_STDERR = ("stderr", "std_err", "standard_error")

CALIBRATION = {
    "calibration_samples": ("calibration_samples", "num_calibration_samples"),
    "kv_mse": ("kv_mse", "kv_matching_mse", "kv_cache_mse"),
    "quantisation_error": ("quantisation_error", "quantization_error"),
}
"""What a distillation or calibration step may state, with the spellings that are read."""


def add_table(rows: Sequence[Mapping[str, str]], path: str, evaluation: Evaluation) -> None:
    """Every score of a CSV file."""
    if not rows:
        raise MalformedFile(path, "has a header and no lines")
    columns = list(rows[0])
    value = _first(columns, _VALUE)
    if value is None:
        _add_wide(rows, path, evaluation)
    elif _first(columns, _SAMPLE) is not None:
        _add_samples(rows, value, path, evaluation)
    else:
        for number, row in enumerate(rows, start=2):
            task, metric = _names(row)
            count = _number(row.get(_first(columns, _COUNT) or "", ""))
            evaluation.add(
                Score(
                    task,
                    metric,
                    _needed(row[value], path, number),
                    kind_of(task, metric),
                    stderr=_number(row.get(_first(columns, _STDERR) or "", "")),
                    size=int(count) if count is not None and count >= 1 else None,
                )
            )
    first = {name: _number(text) for name, text in rows[0].items()}
    add_calibration({k: v for k, v in first.items() if v is not None}, evaluation)


def _add_wide(rows: Sequence[Mapping[str, str]], path: str, evaluation: Evaluation) -> None:
    if len(rows) > 1:
        raise MalformedFile(
            path, "has no column value or score, and more than one line",
            hint="Write one line a score: task,metric,value.",
        )  # fmt: skip
    for name, text in rows[0].items():
        number = _number(text)
        if number is not None and not _is_calibration(name):
            evaluation.add(_named(name, number))


def _add_samples(
    rows: Sequence[Mapping[str, str]], value: str, path: str, evaluation: Evaluation
) -> None:
    identity = _first(list(rows[0]), _SAMPLE) or ""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for number, row in enumerate(rows, start=2):
        samples = found.setdefault(_names(row), {})
        if row[identity] in samples:
            raise MalformedFile(path, f"line {number:,} repeats the sample {row[identity][:60]!r}")
        samples[row[identity]] = _needed(row[value], path, number)
    for (task, metric), samples in found.items():
        mean = sum(samples.values()) / len(samples)
        kind = kind_of(task, metric)
        evaluation.add(Score(task, metric, mean, kind, None, len(samples), None, dict(samples)))


def add_scores(document: Mapping[str, Any], evaluation: Evaluation) -> None:
    """Numbers by task, ``{"qasper": 44.1}``, or by task and metric, ``{"wiki": {"ppl": 5.5}}``."""
    for name, value in document.items():
        number = _finite(value)
        if number is not None and not _is_calibration(name):
            evaluation.add(_named(str(name), number))
        elif isinstance(value, dict):
            for part, inner in value.items():
                number = _finite(inner)
                if number is None:
                    continue
                if kind_of(str(name), "score").value == "longbench":  # LongBench-E: by length
                    evaluation.add(_named(f"{name}/{part}", number))
                else:
                    kind = kind_of(str(name), str(part))
                    evaluation.add(Score(str(name), str(part), number, kind))


def add_calibration(document: Mapping[str, Any], evaluation: Evaluation) -> None:
    """What the file states about calibration or distillation."""
    for key, spellings in CALIBRATION.items():
        for spelling in spellings:
            number = _finite(document.get(spelling))
            if number is not None:
                evaluation.calibration[key] = number


def _named(name: str, value: float) -> Score:
    """A score of which only one name is known: a metric such as ``perplexity``, or a task."""
    kind = kind_of("", name)
    task, metric = (name, "score") if kind.value in {"score", "longbench"} else ("all", name)
    return Score(task, metric, value, kind_of(task, metric))


def _is_calibration(name: object) -> bool:
    return any(name in spellings for spellings in CALIBRATION.values())


def _names(row: Mapping[str, str]) -> tuple[str, str]:
    task = row.get(_first(list(row), _TASK) or "", "") or "all"
    return task, row.get("metric", "") or "score"


def _first(columns: Sequence[str], names: Sequence[str]) -> str | None:
    return next((name for name in names if name in columns), None)


def _number(text: str) -> float | None:
    try:
        return _finite(float(text.removesuffix("%"))) if text else None
    except ValueError:
        return None


def _finite(value: Any) -> float | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None


def _needed(text: str, path: str, line: int) -> float:
    value = {"true": 1.0, "false": 0.0}.get(text.lower(), _number(text))
    if value is None:
        raise MalformedFile(path, f"line {line:,}: {text[:60]!r} is not a number")
    return value
