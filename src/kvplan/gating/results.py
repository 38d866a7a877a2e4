"""What an evaluation found, in one form whatever file it came from."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """How a figure is judged."""

    SCORE = "score"
    """Higher is better, lost in points: accuracy, exact match, F1."""
    PERPLEXITY = "perplexity"
    BLEU = "bleu"
    LONGBENCH = "longbench"
    HALLUCINATION = "hallucination"
    OTHER = "other"
    """Shown, not judged."""


Pair = tuple[float, float]
"""A log-likelihood and the number of words or bytes it is over."""


class Score(NamedTuple):
    """One figure of one task."""

    task: str
    metric: str
    value: float
    kind: Kind
    stderr: float | None = None
    size: int | None = None
    """Samples behind it."""
    shots: int | None = None
    samples: dict[str, float | Pair] | None = None
    """The figure of each sample, by the sample's identity."""

    @property
    def key(self) -> tuple[str, str]:
        """What the baseline's and the candidate's figure are matched by."""
        return self.task, self.metric

    @property
    def scale(self) -> float:
        """What a full score is: 1, 10 (a judge's marks) or 100, by the size of the figure.

        A percentage below 10 is taken for a mark out of 10: its limit then is the stricter one.
        """
        return 1.0 if self.value <= 1.5 else 10.0 if self.value <= 10 else 100.0


@dataclass
class Evaluation:
    """Every figure of one run."""

    path: str
    scores: dict[tuple[str, str], Score] = field(default_factory=dict)
    calibration: dict[str, float] = field(default_factory=dict)
    bench: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def add(self, score: Score) -> None:
        """Take a figure in; a later one of the same task and metric replaces it."""
        self.scores[score.key] = score


LONGBENCH_TASKS = frozenset(
    {
        "narrativeqa", "qasper", "multifieldqa_en", "multifieldqa_zh", "hotpotqa", "2wikimqa",
        "musique", "dureader", "gov_report", "qmsum", "multi_news", "vcsum", "trec", "triviaqa",
        "samsum", "lsht", "passage_retrieval_en", "passage_retrieval_zh", "passage_count", "lcc",
        "repobench-p",
    }
)  # fmt: skip
"""Source: LongBench, arXiv 2308.14508, table 1, as its ``result.json`` names them."""

_BINARY = frozenset({"acc", "acc_norm", "exact_match", "em", "accuracy", "correct", "pass@1"})
_LOWER = re.compile(r"(?:^|_)(?:wer|cer|loss|mse|error|brier|bits_per_byte|latency|ter)(?:_|$)")


def base_metric(metric: str) -> str:
    """The metric's own name: ``exact_match,strict-match`` is ``exact_match``."""
    return metric.partition(",")[0].strip().lower()


def is_binary(metric: str) -> bool:
    """Whether each sample is right or wrong, so that its share is a binomial's."""
    return base_metric(metric) in _BINARY


def kind_of(task: str, metric: str, higher_is_better: bool | None = None) -> Kind:
    """How the figure is judged, by its names."""
    name, where = base_metric(metric), task.lower()
    if "hallucination" in name or ("hallucination" in where and "rate" in name):
        return Kind.HALLUCINATION
    if "perplexity" in name or name == "ppl" or name.startswith("ppl_"):
        return Kind.PERPLEXITY
    if name in {"bleu", "sacrebleu", "bleu_max", "bleu4"}:
        return Kind.BLEU
    if where.startswith("longbench") or where.partition("/")[0] in LONGBENCH_TASKS:
        return Kind.LONGBENCH
    if higher_is_better is False or _LOWER.search(name):
        return Kind.OTHER
    return Kind.SCORE
