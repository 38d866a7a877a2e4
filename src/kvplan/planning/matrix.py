"""The batch that fits at each context under each KV format."""

from __future__ import annotations

from kvplan.planning.budget import Budget
from kvplan.planning.limits import Question, by_mildness, max_batch
from kvplan.planning.report import MatrixReport, MatrixRow
from kvplan.precision.kv import KvFormat

MOST_FORMATS = 4
MOST_CONTEXTS = 6
SHORTEST = 2048


def context_matrix(question: Question, budget: Budget) -> MatrixReport:
    """Contexts around the asked one, by the asked KV format and a few milder-to-harsher ones."""
    d = budget.deployment
    contexts = _contexts(d.seq_len, d.model.max_position_embeddings)
    rows = []
    for form in _formats(question, budget):
        batches = []
        for tokens in contexts:
            args = question.asked.args._replace(max_model_len=None)
            asked = question.asked._replace(
                kv=form,
                kv_is_stated=form is not d.kv or question.asked.kv_is_stated,
                seq_len=tokens,
                batch=d.dp,
                prefix_tokens=0,
                args=args,
            )
            cell = question._replace(asked=asked)
            judged = cell.judge(asked)
            batches.append(0 if judged is None else max_batch(cell, judged))
        rows.append(MatrixRow(kv_cache_dtype=form.name, kv_bits=form.bits, max_batch=batches))
    return MatrixReport(contexts=contexts, rows=rows)


def _contexts(seq_len: int, native: int | None) -> list[int]:
    """Powers of two up to the longer of asked and native length, the asked one among them."""
    longest = max(seq_len, native or 0)
    powers = []
    tokens = SHORTEST
    while tokens < longest:
        powers.append(tokens)
        tokens *= 2
    powers.append(longest)
    contexts = sorted({*powers[-MOST_CONTEXTS:], seq_len})
    while len(contexts) > MOST_CONTEXTS:
        contexts.remove(next(tokens for tokens in contexts if tokens != seq_len))
    return contexts


def _formats(question: Question, budget: Budget) -> list[KvFormat]:
    """The asked format, then those with fewer bits, one of each width."""
    asked = budget.deployment.kv
    chosen = [asked]
    for form in by_mildness(list(question.engine.kv_formats(budget.deployment))):
        if form.bits < min(have.bits for have in chosen) and len(chosen) < MOST_FORMATS:
            chosen.append(form)
    return chosen
