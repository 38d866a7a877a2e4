"""Bytes that a layer keeps, as a formula with its numbers put in: one case for each kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvplan.model.caches import (
    Compressed,
    CompressorState,
    CrossAttention,
    HeadCache,
    Indexer,
    Latent,
    Recurrent,
)
from kvplan.reports import words
from kvplan.reports.formula import Expression, Formula
from kvplan.units import cdiv

if TYPE_CHECKING:
    from kvplan.model.caches import Cache
    from kvplan.model.rows import Row
    from kvplan.precision.format import Format
    from kvplan.precision.kv import KvFormat


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
    """One state in symbols and in numbers; a kind without a case here is given by its size."""
    if isinstance(cache, HeadCache):
        return _by_head(cache, kv, tp)
    if isinstance(cache, Latent):
        symbols = "(kv_lora_rank + qk_rope_head_dim) x bytes, not divided by tp"
        return symbols, _vector(kv, cache.kv_lora_rank, cache.qk_rope_head_dim)
    if isinstance(cache, Compressed):
        symbols = "(head_size, its rotary part included) x bytes, not divided by tp"
        rope = cache.qk_rope_head_dim
        return symbols, _vector(kv, cache.head_size - rope, rope)
    if isinstance(cache, CompressorState):
        symbols = "elements of a token x 4 B, not divided by tp"
        return symbols, Expression(f"{cache.elements:,} x 4 B", cache.elements * 4)
    if isinstance(cache, Indexer):
        size = cache.index_head_dim
        if not cache.is_fp8:
            return "index_head_dim x 2 B, not divided by tp", Expression(
                f"{size:,} x 2 B", size * 2
            )
        text = f"({size:,} B + ceil({size:,} / 128) x 4 B)"
        symbols = "(index_head_dim codes of 1 B + a scale of 4 B for each 128), not divided by tp"
        return symbols, Expression(text, size + cdiv(size, 128) * 4)
    if isinstance(cache, Recurrent):
        conv, state = cache.conv_elements(tp), cache.recurrent_elements(tp)
        text = f"({conv:,} x {cache.conv_bytes} B + {state:,} x {cache.element_bytes} B)"
        symbols = "(elements of the convolution x bytes + elements of the state x bytes)"
        value = conv * cache.conv_bytes + state * cache.element_bytes
        return f"{symbols} of one of tp ranks", Expression(text, value)
    size = cache.state_bytes(kv, tp)
    return "bytes of one state", Expression(f"{size:,} B", size)


def _by_head(cache: HeadCache, kv: KvFormat, tp: int) -> tuple[str, Expression]:
    heads = cdiv(cache.num_kv_heads, tp)
    row, symbols = _head_row(kv, cache.head_size, cache.head_size_v)
    text, value = f"ceil({cache.num_kv_heads:,} / {tp}) heads x {row.text}", heads * row.value
    symbols = f"ceil(num_kv_heads / tp) x {symbols}"
    if isinstance(cache, CrossAttention):
        text = f"{cache.encoder_tokens:,} encoder tokens x {text}"
        return f"encoder tokens x {symbols}", Expression(text, value * cache.encoder_tokens)
    return symbols, Expression(text, value)


def _vector(kv: KvFormat, latent: int, rope: int) -> Expression:
    """A compressed vector and its rotary part, which may have a format of its own."""
    plain = _plain_bytes(kv.k)
    if plain and kv.k.rope is None:
        return Expression(f"({latent:,} + {rope:,}) x {plain} B", (latent + rope) * plain)
    first, second = format_row(kv.k, latent), format_row(kv.k.rope or kv.k, rope)
    return Expression(f"({first.text} + {second.text})", first.value + second.value)


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
            groups, shown = (
                cdiv(elements, form.group_size),
                f"ceil({elements:,} / {form.group_size})",
            )
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
