"""Results of lm-evaluation-harness, in both of its layouts, and its per-sample files.

Sources: ``lm_eval/loggers/evaluation_tracker.py`` and ``lm_eval/evaluator.py``. To 0.3 a task's
figures are ``{"acc": …, "acc_stderr": …}``; from 0.4 ``{"acc,none": …, "acc_stderr,none": …}``,
where the part after the comma is the filter. ``samples_<task>_<date>.jsonl`` holds one document a
line.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from kvplan.evaluation_files import read_json_lines
from kvplan.gating.results import Evaluation, Pair, Score, base_metric, kind_of

_NOT_METRICS = {"alias", "sample_len", "samples", "name"}
_SAMPLES_FILE = re.compile(r"samples_(.+?)(?:_\d{4}-\d{2}-\d{2}T[\d.-]+)?\.jsonl\Z")


def is_results(document: Mapping[str, Any]) -> bool:
    """Whether a document is a result file: tasks under ``results``, each a table of figures."""
    results = document.get("results")
    return isinstance(results, dict) and all(isinstance(v, dict) for v in results.values())


def add_results(document: Mapping[str, Any], evaluation: Evaluation) -> None:
    """Every figure of every task; groups are left out, since their tasks are there."""
    groups = _object(document, "group_subtasks")
    for task, figures in document["results"].items():
        if groups.get(task):
            continue
        better = _object(_object(document, "higher_is_better"), task)
        count = _object(_object(document, "n-samples"), task).get("effective")
        shots = _object(document, "n-shot").get(task)
        for name, value in figures.items():
            if _is_figure(name, value):
                evaluation.add(
                    Score(
                        task=str(task),
                        metric=_metric(name),
                        value=float(value),
                        kind=kind_of(str(task), name, better.get(base_metric(name))),
                        stderr=_stderr(figures, name),
                        size=count if _is_count(count) else None,
                        shots=shots if _is_count(shots) else None,
                    )
                )
    for task, samples in _object(document, "samples").items():
        if isinstance(samples, list):
            _add_samples(str(task), (s for s in samples if isinstance(s, dict)), evaluation)


def add_samples_file(path: str, evaluation: Evaluation) -> None:
    """The samples of the task that a file is named after."""
    match = _SAMPLES_FILE.search(os.path.basename(path))
    if match is not None:
        _add_samples(match[1], read_json_lines(path), evaluation)


def _add_samples(task: str, samples: Iterable[Mapping[str, Any]], evaluation: Evaluation) -> None:
    """Put each sample's figures under the score that they make up, where there is one."""
    wanted = {key: score for key, score in evaluation.scores.items() if _same(key[0], task)}
    found: dict[tuple[str, str], dict[str, float | Pair]] = {}
    for sample in samples:
        identity = f"{sample.get('doc_id')}/{sample.get('doc_hash', '')}"
        chosen = sample.get("filter", "none")
        for key in wanted:
            name, _, only = key[1].partition(",")
            if only not in {"", chosen}:
                continue
            value = _figure(sample.get(name))
            if value is not None:
                found.setdefault(key, {})[identity] = value
    for key, figures in found.items():
        evaluation.add(wanted[key]._replace(samples=figures, size=len(figures)))


def _same(task: str, named: str) -> bool:
    return task == named or re.sub(r"\W", "_", task) == re.sub(r"\W", "_", named)


def _figure(value: Any) -> float | Pair | None:
    """A sample's figure: a number, or a log-likelihood with the words it is over."""
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, (int, float)):
        return float(value) if math.isfinite(value) else None
    if (
        isinstance(value, list)
        and len(value) == 2
        and all(isinstance(v, (int, float)) for v in value)
    ):
        return float(value[0]), float(value[1])
    return None


def _metric(name: str) -> str:
    """``acc,none`` as ``acc``; another filter stays, since its figures differ."""
    return name.removesuffix(",none")


def _is_figure(name: str, value: Any) -> bool:
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and math.isfinite(value)
        and base_metric(name) not in _NOT_METRICS
        and not base_metric(name).endswith("_stderr")
    )


def _stderr(figures: Mapping[str, Any], name: str) -> float | None:
    metric, comma, chosen = name.partition(",")
    value = figures.get(f"{metric}_stderr{comma}{chosen}")
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        return float(value) if value >= 0 else None
    return None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _object(document: Mapping[str, Any], key: Any) -> Mapping[str, Any]:
    value = document.get(key)
    return value if isinstance(value, dict) else {}
