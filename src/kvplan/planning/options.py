"""The single changes that would make a deployment fit, mildest first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kvplan.deployment import Deployment, valid_tps
from kvplan.model.window import with_window
from kvplan.planning.budget import Budget
from kvplan.planning.limits import (
    NODE_GPUS,
    Question,
    by_mildness,
    max_batch,
    weights_by_mildness,
)
from kvplan.planning.report import LimitsReport, OptionReport, Verdict
from kvplan.policy import Policy
from kvplan.precision.scheme import scheme_from
from kvplan.units import format_tokens

MOST_FORMATS = 3
"""Formats of one kind to list: the mildest that fits and the next ones."""


class Change(NamedTuple):
    """A changed deployment, with what it costs in words."""

    words: str
    asked: Deployment
    quality_note: str
    source: str


def options(
    question: Question, budget: Budget, limits: LimitsReport, policy: Policy
) -> list[OptionReport]:
    """Changes that fit, in order: settings, GPUs, formats, less load, a window.

    Settings and GPUs cost no quality; formats come by their measured cost; asking for less is
    always possible but is not what was asked; a window changes what the model can see. Where the
    deployment fits already, tightly, only changes that make it fit for sure are worth listing.
    """
    finder = Finder(question, must_be_sure=budget.fits)
    for change in _settings(question, budget.deployment):
        finder.add(change)
    finder.add_first(1, _gpus(question))
    finder.add_first(MOST_FORMATS, _kv_formats(question, budget.deployment, policy))
    finder.add_first(MOST_FORMATS, _weight_formats(question, budget.deployment))
    for change in _less_load(question, limits):
        finder.add(change)
    if not finder.found:
        finder.add_first(1, _windows(question, policy))
    return finder.found


class Finder:
    """Collects the changes that help."""

    def __init__(self, question: Question, *, must_be_sure: bool) -> None:
        self.question = question
        self.must_be_sure = must_be_sure
        self.found: list[OptionReport] = []

    def add(self, change: Change) -> bool:
        """List the change if it helps; whether it did."""
        budget = self.question.judge(change.asked)
        if budget is None or not budget.fits:
            return False
        if self.must_be_sure and budget.verdict is not Verdict.FITS:
            return False
        asked = self.question._replace(asked=change.asked)
        self.found.append(
            OptionReport(
                change=change.words,
                kv_bytes=budget.needed_bytes,
                max_batch=max_batch(asked, budget),
                verdict=budget.verdict,
                quality_note=change.quality_note,
                source=change.source,
                flags=self.question.engine.flags(budget.deployment),
            )
        )
        return True

    def add_first(self, count: int, changes: Iterator[Change]) -> None:
        """List the first ``count`` of the changes that help."""
        for change in changes:
            count -= self.add(change)
            if count == 0:
                return


def _settings(question: Question, resolved: Deployment) -> Iterator[Change]:
    for words, changed in question.engine.changes(resolved):
        yield Change(words, changed, "no loss of quality", "engine setting")


def _gpus(question: Question) -> Iterator[Change]:
    """More tensor parallelism within a server, then pipeline stages as well."""
    d = question.asked
    tps = valid_tps(d.model, NODE_GPUS)
    for tp in tps:
        if tp > d.tp:
            yield Change(f"--tp {tp}", d._replace(tp=tp), "no loss of quality", "more GPUs")
    for pp in (2, 4, 8):
        if pp > d.pp and pp <= d.model.num_hidden_layers:
            words = f"--tp {tps[-1]} --pp {pp}"
            yield Change(words, d._replace(tp=tps[-1], pp=pp), "no loss of quality", "more GPUs")


def _kv_formats(question: Question, resolved: Deployment, policy: Policy) -> Iterator[Change]:
    """Narrower KV formats of 4 to 8 bits and their scales, the mildest first."""
    d = question.asked
    for form in by_mildness(list(question.engine.kv_formats(resolved))):
        code_bits = min(form.k.bits, form.v.bits)
        if form.bits < d.kv.bits and policy.min_kv_bits <= code_bits <= policy.max_kv_bits:
            changed = d._replace(kv=form, kv_is_stated=True)
            yield Change(f"--kv {form.name}", changed, form.quality_note, form.source)


def _weight_formats(question: Question, resolved: Deployment) -> Iterator[Change]:
    if resolved.args.kv_cache_memory_bytes is not None:
        return
    for form in weights_by_mildness(resolved):
        changed = question.asked._replace(scheme=scheme_from(form), weights_are_stated=True)
        yield Change(f"--weights {form.name}", changed, form.quality_note, form.source)


def _less_load(question: Question, limits: LimitsReport) -> Iterator[Change]:
    d = question.asked
    source = "less load"
    if 0 < limits.max_batch < d.batch:
        changed = d._replace(batch=limits.max_batch)
        yield Change(f"--batch {limits.max_batch}", changed, "fewer sequences at once", source)
    if 0 < limits.max_seq_len < d.seq_len:
        unit = 1024 if limits.max_seq_len >= 1024 else 1
        tokens = limits.max_seq_len // unit * unit
        free = d.with_args(max_model_len=None)
        words = f"--seq {format_tokens(tokens).replace(',', '')}"
        yield Change(words, free._replace(seq_len=tokens), "shorter sequences", source)


def _windows(question: Question, policy: Policy) -> Iterator[Change]:
    """Windows from wide to narrow, where they would drop more than half of the tokens."""
    d = question.asked
    window = policy.max_window
    while window >= policy.min_window:
        if window < d.seq_len * (1 - policy.min_share_outside_window):
            yield Change(
                f"--window {format_tokens(window)}",
                d._replace(model=with_window(d.model, window)),
                "the model was not trained with it: it cannot recall what lies outside",
                "StreamingLLM, arXiv 2309.17453: a plain window collapses once it drops the start",
            )
        window //= 2
