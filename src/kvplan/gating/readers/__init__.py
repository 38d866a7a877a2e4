"""From files to an `Evaluation`: one module a format, each asked in turn whether it knows the file.

A folder stands for all the results in it, as lm-evaluation-harness writes them.
"""

from __future__ import annotations

import os
from typing import Any

from kvplan.errors import MalformedFile, SourceError
from kvplan.evaluation_files import read_large_json, read_table
from kvplan.gating.readers import lm_eval, tables
from kvplan.gating.results import Evaluation
from kvplan.monitoring.bench import bench_figures, is_bench

_MOST_FILES = 2_000
_DEPTH = 2


def read_evaluation(path: str) -> Evaluation:
    """Everything that a file, or a folder of them, says about one run."""
    evaluation = Evaluation(path)
    if os.path.isdir(path):
        _read_folder(path, evaluation)
    else:
        _read_file(path, evaluation)
    if not (evaluation.scores or evaluation.calibration or evaluation.bench):
        raise MalformedFile(
            path,
            "holds no evaluation results that kvplan knows",
            hint="It reads lm-evaluation-harness results and samples, CSV with task, metric and "
            "value, JSON of scores (LongBench's result.json, perplexity), and vllm bench serve.",
        )
    return evaluation


def _read_folder(folder: str, evaluation: Evaluation) -> None:
    """Results first, in the order of their dates, then the samples behind them."""
    paths = _files(folder)
    results = [path for path in paths if not path.lower().endswith(".jsonl")]
    for path in sorted(results, key=os.path.basename):
        _read_file(path, evaluation, known_only=True)
    for path in sorted((p for p in paths if p.lower().endswith(".jsonl")), key=os.path.basename):
        lm_eval.add_samples_file(path, evaluation)


def _files(folder: str) -> list[str]:
    found: list[str] = []
    base = folder.rstrip(os.sep).count(os.sep)
    for where, folders, names in os.walk(folder):
        if where.count(os.sep) - base >= _DEPTH:
            folders.clear()
        found += [
            os.path.join(where, name)
            for name in names
            if name.lower().endswith((".json", ".jsonl", ".csv"))
        ]
        if len(found) > _MOST_FILES:
            raise SourceError(
                f"{folder} holds more than {_MOST_FILES:,} files", hint="Name the run's own folder."
            )
    return found


def _read_file(path: str, evaluation: Evaluation, *, known_only: bool = False) -> None:
    if path.lower().endswith(".csv"):
        tables.add_table(read_table(path), path, evaluation)
    elif path.lower().endswith(".jsonl"):
        lm_eval.add_samples_file(path, evaluation)
    else:
        _add_document(read_large_json(path), path, evaluation, known_only=known_only)


def _add_document(document: Any, path: str, evaluation: Evaluation, *, known_only: bool) -> None:
    if not isinstance(document, dict):
        if known_only:
            return
        raise MalformedFile(path, "is JSON, but no object of results")
    if lm_eval.is_results(document):
        lm_eval.add_results(document, evaluation)
    elif is_bench(document):
        evaluation.bench.update(bench_figures(document))
    else:
        tables.add_scores(document, evaluation)
    tables.add_calibration(document, evaluation)
