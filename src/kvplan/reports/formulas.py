"""The arithmetic behind a report, with its numbers put in.

Every line is a claim that a reader can check with a pocket calculator: working out ``numbers``
gives ``result``. Each expression is therefore built together with its value, and where that value
is not the report's own figure (an engine or a kind of cache that lays things out differently) the
line says the figure alone instead of an arithmetic that does not lead to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from kvplan.engines import load_engine
from kvplan.model.model import Layer, Model
from kvplan.model.tensors import EMBEDDING, HEAD
from kvplan.planning.budget import Budget, evaluate
from kvplan.precision.format import Format
from kvplan.precision.scheme import WeightScheme
from kvplan.precision.weights import EVERY_MATRIX
from kvplan.reports import words
from kvplan.units import MAX_TOKENS, MIB, cdiv, format_gib

if TYPE_CHECKING:
    from kvplan.deployment import Deployment
    from kvplan.model.caches import Cache
    from kvplan.model.rows import Row
    from kvplan.planning.report import FitReport
    from kvplan.precision.kv import KvFormat


class Formula(NamedTuple):
    """One figure and how it comes about."""

    name: str
    formula: str
    """In words and symbols."""
    numbers: str
    """The same with the numbers put in: ``x``, ``/``, ``+``, ``-``, ceil, floor, min and max."""
    result: str
    """What that comes to."""
    source: str = ""

    @property
    def equation(self) -> str:
        """Numbers and result; the result alone where nothing is worked out."""
        return self.result if self.result.startswith(self.numbers) else f"{self.numbers} = {self.result}"


class Expression(NamedTuple):
    """Arithmetic as it is written, with what it comes to."""

    text: str
    value: int


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


# What a layer keeps


def state_formula(cache: Cache, kv: KvFormat, tp: int, layers: int) -> Formula:
    """Bytes that the layers of one kind keep on one rank: for each token, or once."""
    row = cache.row(kv, tp, layers)
    symbols, built = _state(cache, kv, tp)
    name = f"{words.count_of(layers, 'layer')} of {words.kind_name(cache.kind)}"
    many = f"{layers:,} layers x " if layers > 1 else "1 layer x "
    once = row.constant_bytes and not row.unit_bytes
    total = row.constant_bytes if once else row.unit_bytes
    text, value = f"{many}{built.text}", layers * built.value
    if value != total:
        symbols, text = "bytes of one state", f"{total // layers:,} B"
        text = f"{many}{text}" if total % layers == 0 else f"{total:,} B"
    per = "" if once else "/token" if row.unit_tokens == 1 else f" per {row.unit_tokens} tokens"
    kept = ", whatever the length" if once else _kept(row)
    return Formula(name, f"layers x {symbols}{kept}", text, f"{total:,} B{per}", _source(cache))


def _kept(row: Row) -> str:
    return "" if row.cap_tokens is None else f", for at most {row.cap_tokens:,} tokens"


def _state(cache: Cache, kv: KvFormat, tp: int) -> tuple[str, Expression]:
    """One state of a cache in symbols and in numbers, by the fields that its kind has."""
    if hasattr(cache, "num_kv_heads"):
        heads = cdiv(cache.num_kv_heads, tp)
        row, symbols = _head_row(kv, cache.head_size, cache.head_size_v)
        text, value = f"ceil({cache.num_kv_heads:,} / {tp}) heads x {row.text}", heads * row.value
        symbols = f"ceil(num_kv_heads / tp) x {symbols}"
        if hasattr(cache, "encoder_tokens"):
            text = f"{cache.encoder_tokens:,} encoder tokens x {text}"
            return f"encoder tokens x {symbols}", Expression(text, value * cache.encoder_tokens)
        return symbols, Expression(text, value)
    if hasattr(cache, "kv_lora_rank"):
        rank, rope = cache.kv_lora_rank, cache.qk_rope_head_dim
        plain = _plain_bytes(kv.k)
        if plain and kv.k.rope is None:
            text = f"({rank:,} + {rope:,}) x {plain} B"
            expression = Expression(text, (rank + rope) * plain)
            return "(kv_lora_rank + qk_rope_head_dim) x bytes, not divided by tp", expression
        latent, rotary = format_row(kv.k, rank), format_row(kv.k.rope or kv.k, rope)
        text = f"({latent.text} + {rotary.text})"
        symbols = "row(kv_lora_rank) + row(qk_rope_head_dim), not divided by tp"
        return symbols, Expression(text, latent.value + rotary.value)
    if hasattr(cache, "index_head_dim"):
        size = cache.index_head_dim
        text = f"({size:,} B + ceil({size:,} / 128) x 4 B)"
        symbols = "(index_head_dim codes of 1 B + a scale of 4 B for each 128)"
        return symbols, Expression(text, size + cdiv(size, 128) * 4)
    if hasattr(cache, "state_elements"):
        conv, state = cache.conv_elements(tp), cache.recurrent_elements(tp)
        text = f"({conv:,} x {cache.conv_bytes} B + {state:,} x {cache.element_bytes} B)"
        value = conv * cache.conv_bytes + state * cache.element_bytes
        symbols = "(convolution elements x bytes + state elements x bytes), both on one rank"
        return symbols, Expression(text, value)
    size = cache.state_bytes(kv, tp)
    return "bytes of one state", Expression(f"{size:,} B", size)


def _head_row(kv: KvFormat, head_size: int, head_size_v: int) -> tuple[Expression, str]:
    """Key and value of one head: a short form where both are plain numbers of one width."""
    k, v = _plain_bytes(kv.k), _plain_bytes(kv.v)
    if k and k == v:
        text = f"({head_size:,} + {head_size_v:,}) x {k} B"
        return Expression(text, (head_size + head_size_v) * k), "(head_size + head_size_v) x bytes"
    key, value = format_row(kv.k, head_size), format_row(kv.v, head_size_v)
    text = f"({key.text} + {value.text})"
    symbols = "(row of head_size + row of head_size_v), scales included"
    return Expression(text, key.value + value.value), symbols


def _plain_bytes(form: Format) -> int:
    """Bytes of an element of a format without scales; 0 for any other."""
    if form.metadata_bits or form.outlier_permille or form.column_bits or form.bits % 8:
        return 0
    return form.bits // 8


def format_row(form: Format, elements: int) -> Expression:
    """Bytes of one row of elements with its scales."""
    size = form.row_bytes(elements)
    if _plain_bytes(form):
        return Expression(f"{elements:,} x {form.bits // 8} B", size)
    bits, parts = elements * form.bits, [f"{elements:,} x {form.bits}"]
    if form.metadata_bits:
        groups, shown = 1, "1"
        if form.group_size > 0:
            groups, shown = cdiv(elements, form.group_size), f"ceil({elements:,} / {form.group_size})"
        bits += groups * form.metadata_bits
        parts.append(f"{shown} x {form.metadata_bits}")
    if form.outlier_permille:
        bits += cdiv(elements * form.outlier_permille * 32, 1000)
        parts.append(f"ceil({elements:,} x {form.outlier_permille} x 32 / 1,000)")
    if cdiv(bits, 8) != size:
        return Expression(f"{size:,} B", size)
    return Expression(f"ceil(({' + '.join(parts)}) bits / 8)", size)


def _source(cache: Cache) -> str:
    """The source that the cache's own documentation names, for its window or its state."""
    for method in (type(cache).row, type(cache).state_bytes):
        text = " ".join((method.__doc__ or "").split())
        _, found, source = text.partition("Source: ")
        if found:
            return source.replace("`", "").rstrip(".")
    return ""


# What a sequence takes


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
            reserved.text, _size(reserved.value), f"how {words.engine(report.deployment)} stores it",
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


# Weights


class Part(NamedTuple):
    """The weights of one part of the model on one rank."""

    part: str
    elements: int
    size_bytes: int
    bits: int | None
    """Bits of a code where all its matrices have one format."""


def weight_parts(
    model: Model, scheme: WeightScheme, tp: int = 1, pp: int = 1, ep: int = 1, stage: int = 0
) -> list[Part]:
    """Elements and bytes by part, counted by the model itself with the other parts left out."""
    from kvplan.model.model import Split

    split = Split(tp, pp, ep)
    counted = replace(model, stored=None)
    eight = Format("elements", 8)
    ones = WeightScheme("elements", eight, EVERY_MATRIX)
    found = []
    for part in model.parameters_by_part():
        sizes = []
        for form, dtype in ((scheme, model.dtype), (ones, eight)):
            # A head beside the embedding is what tells an untied model from a tied one.
            beside = {HEAD} if part == EMBEDDING else set()
            size = _only(counted, {part} | beside, dtype).weight_bytes(form, split, stage)
            if beside:
                size -= _only(counted, beside, dtype).weight_bytes(form, split, stage)
            sizes.append(size)
        if sizes[1]:
            found.append(Part(part, sizes[1], sizes[0], _code_bits(model, scheme, part)))
    return found


def _only(model: Model, parts: set[str], dtype: Format) -> Model:
    layers = tuple(
        Layer(layer.caches, tuple(t for t in layer.tensors if t.part in parts))
        for layer in model.layers
    )
    outside = tuple(tensor for tensor in model.outside if tensor.part in parts)
    return replace(model, layers=layers, outside=outside, dtype=dtype)


def _code_bits(model: Model, scheme: WeightScheme, part: str) -> int | None:
    tensors = {t for layer in set(model.layers) for t in layer.tensors} | set(model.outside)
    mine = [t for t in tensors if t.part == part]
    forms = {
        scheme.format_for(t, "" if t in model.outside else "model.layers.*.", model.dtype).bits
        for t in [t for t in mine if t.is_matrix] or mine
    }
    return forms.pop() if len(forms) == 1 else None


def part_expression(part: Part) -> str:
    """Its bytes as elements at so many bits, and what scales and vectors add."""
    if part.bits is not None:
        codes = cdiv(part.elements * part.bits, 8)
        rest = part.size_bytes - codes
        each = f"{part.bits // 8} B" if part.bits % 8 == 0 else f"{part.bits} bits / 8"
        text = f"{part.elements:,} elements x {each}"
        if part.bits % 8:
            text = f"ceil({text})"
        if rest == 0:
            return text
        if 0 < rest < codes:
            return f"{text} + {rest:,} B of scales and vectors"
    return f"{part.size_bytes:,} B"


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
        text = " + ".join(f"{part.size_bytes:,} B" for part in parts)
        yield Formula("weights", "sum of the parts", text, _size(total), "shapes of the config")
        return
    by = f"the files' own bytes, where shapes and formats come to {counted:,} B"
    yield Formula("weights", "what the files hold, on this GPU", f"{total:,} B", _size(total), by)


# The engine's terms and the pool


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
    yield (
        "sampler: 14 B x sequences x vocabulary + tokens of a step x 2 B x hidden_size",
        Expression(
            f"14 B x {sequences:,} x {vocab:,} + {tokens:,} x 2 B x {hidden:,}",
            14 * sequences * vocab + tokens * 2 * hidden,
        ),
    )
    yield "encoder: envelope of measured peaks", Expression(f"2,048 x {MIB:,} B", 2048 * MIB)


def _pool(report: FitReport, b: Budget) -> Iterable[Formula]:
    m, kv, d = report.memory, report.kv_cache, b.deployment
    share, total = d.args.gpu_memory_utilization, m.device_bytes
    if m.claim_bytes is not None and share is not None and total is not None:
        if math.ceil(total * share) == m.claim_bytes:
            yield Formula(
                "claim", "ceil(GPU memory x gpu_memory_utilization)",
                f"ceil({total:,} B x {share:g})", _size(m.claim_bytes),
                "memory as the framework sees it",
            )  # fmt: skip
    if m.claim_bytes is not None and m.weight_bytes is not None:
        terms = [term.likely_bytes for term in m.terms]
        left = m.claim_bytes - m.weight_bytes - sum(terms)
        text = " - ".join(f"{size:,} B" for size in (m.claim_bytes, m.weight_bytes, *terms))
        if max(0, left) == m.kv_pool_bytes:
            yield Formula(
                "KV pool", "claim - weights - activation - graphs - runtime, at least 0",
                f"max(0, {text})", _size(max(0, left)), "",
            )  # fmt: skip
    if kv.pool_blocks is not None and kv.page_bytes and m.kv_pool_bytes is not None:
        if m.kv_pool_bytes // kv.page_bytes == kv.pool_blocks:
            yield Formula(
                "blocks of the pool", "floor(pool / bytes of a block)",
                f"floor({m.kv_pool_bytes:,} B / {kv.page_bytes:,} B)",
                f"{kv.pool_blocks:,} blocks", "",
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
    text = f"{kv.pool_blocks:,} blocks / {kv.blocks_per_sequence:,} blocks"
    if kv.pool_blocks / kv.blocks_per_sequence == kv.max_concurrency:
        yield Formula(
            "concurrency", "blocks of the pool / blocks of a sequence of max_model_len",
            text, f"{kv.max_concurrency:,.2f}x", "as the engine prints it",
        )  # fmt: skip
        longest = d.max_model_len
        if longest and longest < MAX_TOKENS and kv.pool_tokens is not None:
            if int(kv.max_concurrency * longest) == kv.pool_tokens:
                yield Formula(
                    "tokens of the pool", "floor(concurrency x max_model_len)",
                    f"floor({text} x {longest:,})", f"{kv.pool_tokens:,} tokens",
                    "as the engine prints it",
                )  # fmt: skip


def _signed(size: int) -> str:
    return f"-{-size:,} B (-{format_gib(-size)})" if size < 0 else _size(size)
