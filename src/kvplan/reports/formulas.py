"""The arithmetic behind a report, with its numbers put in.

Every line is a claim that a reader can check with a pocket calculator: working out ``numbers``
gives ``result``. Each expression is therefore built together with its value, and where that value
is not the report's own figure (an engine or a kind of cache that lays things out differently) the
line says the figure alone instead of an arithmetic that does not lead to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kvplan.engines import load_engine
from kvplan.planning.budget import Budget, evaluate
from kvplan.reports import words
from kvplan.reports.formula import Expression, Formula
from kvplan.reports.state_formula import state_formula
from kvplan.reports.weight_formula import part_expression, weight_parts
from kvplan.units import MIB, cdiv, format_gib

if TYPE_CHECKING:
    from kvplan.deployment import Deployment
    from kvplan.model.rows import Row
    from kvplan.planning.report import FitReport


def formulas(report: FitReport, deployment: Deployment) -> list[Formula]:
    """The figures of ``report``, whose question was ``deployment``, in the order of the budget."""
    engine = load_engine(deployment.engine)
    budget = evaluate(engine, engine.resolve(deployment), min_headroom=0.0)
    d = budget.deployment
    return [
        *(state_formula(cache, d.kv, d.tp, layers) for cache, layers in d.model.groups),
        *_sequences(report, budget),
        *_weights(report, budget),
        *_terms(report, budget),
        *_pool(report, budget),
    ]


def rows_expression(rows: Sequence[Row], tokens: int) -> Expression:
    """Bytes of a table of rows at one length."""
    parts, value = [], 0
    for row in rows:
        value += row.bytes_for(tokens)
        if row.unit_bytes:
            parts.append(f"{row.unit_bytes:,} B x {_units(row, tokens)}")
        if row.constant_bytes:
            parts.append(f"{row.constant_bytes:,} B")
    return Expression(" + ".join(parts) or "0 B", value)


def _units(row: Row, tokens: int) -> str:
    kept = f"{tokens:,}"
    if row.cap_tokens is not None:
        kept = f"min({kept}, {row.cap_tokens:,})"
    return kept if row.unit_tokens == 1 else f"ceil({kept} / {row.unit_tokens:,})"


def _size(size: int) -> str:
    return f"{size:,} B ({format_gib(size)})"


def _sequences(report: FitReport, b: Budget) -> Iterable[Formula]:
    kv, d = report.kv_cache, b.deployment
    logical = rows_expression(d.model.logical_rows(d.kv, d.split, b.stage), d.seq_len)
    yield Formula(
        "one sequence, logical", "sum over groups: bytes x tokens kept",
        logical.text, _size(logical.value), "the mathematics, before any block",
    )  # fmt: skip
    page = b.layout.block_bytes
    reserved = rows_expression(b.layout.rows, d.seq_len)
    if page:
        blocks = _blocks(b.layout.rows, d.seq_len, page)
        count = kv.reserved_bytes_per_sequence // page
        if blocks is not None and blocks.value == count:
            yield Formula(
                "blocks of a sequence", "sum over groups: ceil(tokens kept / tokens of a block)",
                blocks.text, f"{blocks.value:,} blocks", "the engine's block tables",
            )  # fmt: skip
            reserved = Expression(f"{count:,} blocks x {page:,} B", count * page)
    if reserved.value == kv.reserved_bytes_per_sequence:
        yield Formula(
            "one sequence, reserved", "blocks x bytes of a block" if page else "rows of the engine",
            reserved.text, _size(reserved.value),
            f"how {words.engine(report.deployment)} stores it",
        )  # fmt: skip
    shared = b.layout.shared_bytes(min(d.prefix_tokens, d.seq_len)) if d.prefix_tokens else 0
    batch, one = d.replica_batch, kv.reserved_bytes_per_sequence
    text, value = f"{batch:,} x {one:,} B", batch * one
    if shared:
        text += f" - {batch - 1:,} x {shared:,} B"
        value -= (batch - 1) * shared
    if value == kv.needed_bytes:
        yield Formula(
            "KV cache needed", "batch x reserved" + (" - shared prefix" if shared else ""),
            text, _size(value), "per replica" if d.dp > 1 else "",
        )  # fmt: skip


def _blocks(rows: Sequence[Row], tokens: int, page: int) -> Expression | None:
    """Blocks of a sequence; None where a row's unit is not one block."""
    if any(row.unit_bytes not in {0, page} or row.constant_bytes % page for row in rows):
        return None
    counted: dict[str, int] = {}
    extra = value = 0
    for row in rows:
        value += row.bytes_for(tokens) // page
        extra += row.constant_bytes // page
        if row.unit_bytes:
            units = _units(row, tokens)
            counted[units] = counted.get(units, 0) + 1
    parts = [units if count == 1 else f"{count} x {units}" for units, count in counted.items()]
    return Expression(" + ".join([*parts, *([f"{extra:,}"] if extra else [])]) or "0", value)


def _weights(report: FitReport, b: Budget) -> Iterable[Formula]:
    d, total = b.deployment, report.memory.weight_bytes
    if total is None:
        return
    parts = weight_parts(d.model, d.scheme, d.tp, d.pp, d.ep, b.stage)
    for part in parts:
        yield Formula(
            f"weights: {part.part.replace('_', ' ')}", "elements on this GPU x bits / 8",
            part_expression(part), f"{part.size_bytes:,} B", "",
        )  # fmt: skip
    counted = sum(part.size_bytes for part in parts)
    if counted == total:
        text = " + ".join(f"{part.size_bytes:,} B" for part in parts) or "0 B"
        yield Formula("weights", "sum of the parts", text, _size(total), "shapes of the config")
        return
    by = f"the files' own bytes, where shapes and formats come to {counted:,} B"
    yield Formula("weights", "what the files hold, on this GPU", f"{total:,} B", _size(total), by)


def _terms(report: FitReport, b: Budget) -> Iterable[Formula]:
    laws = dict(_laws(b.deployment))
    for term in report.memory.terms:
        found = next(
            ((symbols, law) for symbols, law in laws.items() if law.value == term.likely_bytes),
            None,
        )
        symbols, text = "measured", f"{term.likely_bytes:,} B"
        if found is not None and term.key == "activation":
            symbols, text = found[0], found[1].text
        ranged = words.size_range(term)
        said = f"{term.source}; seen from {ranged}" if ranged else term.source
        name = words.term_name(term.key)
        yield Formula(name, symbols, text, _size(term.likely_bytes), said)


def _laws(d: Deployment) -> Iterable[tuple[str, Expression]]:
    """Candidates for the activation peak: the moment of a step that is largest decides."""
    model, tp = d.model, d.tp
    tokens, sequences = d.args.max_num_batched_tokens or 0, d.args.max_num_seqs or 0
    hidden, vocab = model.hidden_size or 0, model.vocab_size or 0
    width, experts = model.mlp_width, model.experts_per_token
    yield (
        "MLP: tokens of a step x 2 B x (3 x MLP width / tp + 4 x hidden_size)",
        Expression(
            f"{tokens:,} tokens x 2 B x (3 x ceil({width:,} / {tp}) + 4 x {hidden:,})",
            tokens * 2 * (3 * cdiv(width, tp) + 4 * hidden),
        ),
    )
    ranks = 1 if d.ep > 1 else tp
    inner = cdiv(model.expert_width, ranks)
    yield (
        "experts: tokens of a step x 2 B x (experts a token x (max(2 x width, hidden_size) + "
        "width) + 4 x hidden_size)",
        Expression(
            f"{tokens:,} tokens x 2 B x ({experts} x (max(2 x {inner:,}, {hidden:,}) + "
            f"{inner:,}) + 4 x {hidden:,})",
            tokens * 2 * (experts * (max(2 * inner, hidden) + inner) + 4 * hidden),
        ),
    )
    drafts = d.args.speculative_tokens
    rows = "sequences x (1 + draft tokens)" if drafts else "sequences"
    counted = f"{sequences:,} x {1 + drafts}" if drafts else f"{sequences:,}"
    yield (
        f"sampler: 14 B x {rows} x vocabulary + tokens of a step x 2 B x hidden_size",
        Expression(
            f"14 B x {counted} x {vocab:,} + {tokens:,} x 2 B x {hidden:,}",
            14 * sequences * (1 + drafts) * vocab + tokens * 2 * hidden,
        ),
    )
    yield "encoder: envelope of measured peaks", Expression(f"2,048 x {MIB:,} B", 2048 * MIB)


def _pool(report: FitReport, b: Budget) -> Iterable[Formula]:
    m, kv, d = report.memory, report.kv_cache, b.deployment
    share, total = d.args.gpu_memory_utilization, m.device_bytes
    if share is not None and total is not None and m.claim_bytes is not None:
        claim = math.ceil(total * share)
        if claim == m.claim_bytes:
            yield Formula(
                "claim", "ceil(GPU memory x gpu_memory_utilization)",
                f"ceil({total:,} B x {share:g})", _size(claim),
                "memory as the framework sees it",
            )  # fmt: skip
    if m.claim_bytes is not None and m.weight_bytes is not None:
        terms = [term.likely_bytes for term in m.terms if term.in_claim]
        left = m.claim_bytes - m.weight_bytes - sum(terms)
        text = " - ".join(f"{size:,} B" for size in (m.claim_bytes, m.weight_bytes, *terms))
        if max(0, left) == m.kv_pool_bytes:
            yield Formula(
                "KV pool", "claim - weights - activation - graphs - runtime, at least 0",
                f"max(0, {text})", _size(max(0, left)), "",
            )  # fmt: skip
    pool = m.kv_pool_bytes
    if kv.page_bytes and pool is not None and pool // kv.page_bytes == kv.pool_blocks:
        yield Formula(
            "blocks of the pool", "floor(pool / bytes of a block)",
            f"floor({pool:,} B / {kv.page_bytes:,} B)", f"{kv.pool_blocks:,} blocks", "",
        )  # fmt: skip
    yield from _concurrency(report)
    available = b.available_bytes
    if m.headroom_bytes == available - kv.needed_bytes:
        yield Formula(
            "headroom", "usable part of the pool - KV cache needed",
            f"{available:,} B - {kv.needed_bytes:,} B", _signed(m.headroom_bytes),
            f"{b.layout.held_blocks} block is held back" if b.layout.held_blocks == 1 else "",
        )  # fmt: skip
    one = kv.reserved_bytes_per_sequence
    if one and not d.prefix_tokens and d.dp * (available // one) == report.limits.max_batch:
        many = f"{d.dp} replicas x " if d.dp > 1 else ""
        yield Formula(
            "largest batch", "floor(usable part of the pool / reserved bytes of a sequence)",
            f"{many}floor({available:,} B / {one:,} B)",
            words.count_of(report.limits.max_batch, "sequence"), "",
        )  # fmt: skip


def _concurrency(report: FitReport) -> Iterable[Formula]:
    kv, d = report.kv_cache, report.deployment
    if kv.max_concurrency is None or not kv.blocks_per_sequence or kv.pool_blocks is None:
        return
    if kv.pool_blocks / kv.blocks_per_sequence != kv.max_concurrency:
        return
    text = f"{kv.pool_blocks:,} blocks / {kv.blocks_per_sequence:,} blocks"
    yield Formula(
        "concurrency", "blocks of the pool / blocks of a sequence of max_model_len",
        text, f"{kv.max_concurrency:,.2f}x", "as the engine prints it",
    )  # fmt: skip
    if d.max_model_len and int(kv.max_concurrency * d.max_model_len) == kv.pool_tokens:
        yield Formula(
            "tokens of the pool", "floor(concurrency x max_model_len)",
            f"floor({text} x {d.max_model_len:,})", f"{kv.pool_tokens:,} tokens",
            "as the engine prints it",
        )  # fmt: skip


def _signed(size: int) -> str:
    return f"-{-size:,} B (-{format_gib(-size)})" if size < 0 else _size(size)
