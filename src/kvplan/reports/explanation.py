"""What a model keeps and why, as plain data: what ``kvplan explain --format json`` prints.

The figures are the logical ones, for the layers of one GPU when the heads are divided over tp.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kvplan import __version__
from kvplan.model.caches import HeadCache
from kvplan.model.rows import sequence_bytes, slope_bytes
from kvplan.planning.report import Record
from kvplan.reports import words
from kvplan.reports.pattern import contexts, find_pattern, layer_labels
from kvplan.reports.state_formula import state_formula
from kvplan.reports.weight_formula import weight_parts

if TYPE_CHECKING:
    from kvplan.deployment import Deployment
    from kvplan.model.model import Model

SCHEMA = "kvplan.explain/1"

GROWS, CAPPED, CONSTANT = "grows", "capped", "constant"


class ExplainedGroup(Record):
    """Layers that keep the same cache."""

    kind: str
    layers: int
    growth: str
    """``grows`` with every token, ``capped`` by a window, or ``constant``."""
    bytes_per_token: int
    """What one more token adds while the cache grows."""
    window: int | None
    """Tokens beyond which it stops growing; null when it never does."""
    constant_bytes: int
    """Kept whatever the length."""
    most_bytes: int | None
    """The most it ever keeps for one sequence; null when it grows for ever."""
    formula: str
    """The formula of its bytes."""
    numbers: str
    """The same with the numbers put in."""
    result: str
    """What that comes to."""
    source: str


class ExplainedContext(Record):
    """One sequence of that many tokens."""

    tokens: int
    logical_bytes: int
    mean_bytes_per_token: int
    """Bytes of the sequence over its tokens, rounded up."""
    next_token_bytes: int
    """What one more token adds."""


class NaiveFigure(Record):
    """What a calculator says that leaves something out, for the longest context shown."""

    mistake: str
    """What it takes for what."""
    numbers: str
    """Its arithmetic."""
    bytes: int
    """What that comes to for one sequence, on one GPU without tp."""
    ratio: float
    """Over the true logical figure."""


class ExplainedPart(Record):
    """Parameters of one part of the model, and their bytes on one GPU that holds them all."""

    part: str
    parameters: int
    weight_bytes: int | None


class ExplainedCheckpoint(Record):
    """What is published of the weights."""

    parameters: int | None
    size_bytes: int | None
    source: str | None


class Explanation(Record):
    """What a model keeps for a token and why."""

    schema: str
    kvplan_version: str
    model: str
    model_source: str
    """Where the model's facts were read."""
    hub_id: str | None
    architecture: str
    """The config's model_type."""
    num_hidden_layers: int
    num_attention_heads: int
    num_kv_heads: int | None
    """The most of any layer; null without attention by heads."""
    hidden_size: int | None
    vocab_size: int | None
    max_position_embeddings: int | None
    kv_cache_dtype: str
    kv_bits: float
    """Mean bits of an element at head size 128, scales included."""
    tp: int
    """Tensor-parallel size that the figures of the groups and contexts are for."""
    layer_pattern: str
    layer_labels: list[str]
    """What each layer keeps, in order."""
    groups: list[ExplainedGroup]
    seq_len: int
    """Tokens of the headline and the naive figures: those asked, or the longest context."""
    contexts: list[ExplainedContext]
    naive: list[NaiveFigure]
    parameters: int | None
    """Trained parameters; null when the config lacks a width."""
    active_parameters: int | None
    weight_format: str
    parts: list[ExplainedPart]
    checkpoint: ExplainedCheckpoint
    warnings: list[str]
    assumptions: list[str]


def explain(d: Deployment, seq_len: int | None) -> Explanation:
    """The explanation of a deployment's model, KV format and tensor-parallel size.

    ``seq_len`` is a length to show beside the usual ones.
    """
    model = d.model
    labels = layer_labels(model)
    lengths = contexts(model.max_position_embeddings, seq_len)
    rows = model.logical_rows(d.kv, d.split)
    checkpoint = model.checkpoint
    length = seq_len or lengths[-1]
    return Explanation(
        schema=SCHEMA,
        kvplan_version=__version__,
        model=model.name,
        model_source=model.source,
        hub_id=model.hub_id,
        architecture=model.model_type,
        num_hidden_layers=model.num_hidden_layers,
        num_attention_heads=model.num_attention_heads,
        num_kv_heads=model.num_kv_heads,
        hidden_size=model.hidden_size,
        vocab_size=model.vocab_size,
        max_position_embeddings=model.max_position_embeddings,
        kv_cache_dtype=d.kv.name,
        kv_bits=d.kv.bits,
        tp=d.tp,
        layer_pattern=find_pattern(labels).words(),
        layer_labels=labels,
        groups=_groups(d),
        seq_len=length,
        contexts=[
            ExplainedContext(
                tokens=tokens,
                logical_bytes=sequence_bytes(rows, tokens),
                mean_bytes_per_token=-(-sequence_bytes(rows, tokens) // tokens),
                next_token_bytes=slope_bytes(rows, tokens),
            )
            for tokens in lengths
        ],
        naive=list(_naive(d, length)),
        parameters=model.parameters,
        active_parameters=model.active_parameters,
        weight_format=d.scheme.name,
        parts=_parts(d),
        checkpoint=ExplainedCheckpoint(
            parameters=checkpoint.parameters,
            size_bytes=checkpoint.size_bytes,
            source=checkpoint.source,
        ),
        warnings=[*model.warnings, *d.warnings, *_unknown(model)],
        assumptions=[*model.assumptions, *d.assumptions],
    )


def _unknown(model: Model) -> list[str]:
    if model.weights_unknown is None:
        return []
    return [f"the weights are not counted: {model.weights_unknown}"]


def _groups(d: Deployment) -> list[ExplainedGroup]:
    groups = []
    for cache, layers in d.model.groups:
        row = cache.row(d.kv, d.tp, layers)
        formula = state_formula(cache, d.kv, d.tp, layers)
        growth = CONSTANT if not row.unit_bytes else GROWS if row.cap_tokens is None else CAPPED
        groups.append(
            ExplainedGroup(
                kind=cache.kind,
                layers=layers,
                growth=growth,
                bytes_per_token=-(-row.unit_bytes // row.unit_tokens),
                window=row.cap_tokens,
                constant_bytes=row.constant_bytes,
                most_bytes=None if growth == GROWS else row.bytes_for(row.cap_tokens or 1),
                formula=formula.formula,
                numbers=formula.numbers,
                result=formula.result,
                source=formula.source,
            )
        )
    return groups


def _parts(d: Deployment) -> list[ExplainedPart]:
    if d.model.weights_unknown is not None:
        return []
    sizes = {part.part: part.size_bytes for part in weight_parts(d.model, d.scheme)}
    return [
        ExplainedPart(part=part, parameters=count, weight_bytes=sizes.get(part))
        for part, count in d.model.parameters_by_part().items()
    ]


def _naive(d: Deployment, tokens: int) -> Iterable[NaiveFigure]:
    """Usual short cuts at a length, where they are wrong: whole model, one GPU.

    Elements are counted at the format's own code bits, as a calculator would.
    """
    model = d.model
    true = sequence_bytes(model.logical_rows(d.kv), tokens)
    if not true:
        return
    layers = model.num_hidden_layers
    bits = d.kv.k.bits
    size = f"{bits} bits / 8 x {tokens:,} tokens"

    def figure(mistake: str, elements: int, numbers: str) -> NaiveFigure:
        return comes_to(mistake, f"{numbers} x {size}", elements * bits * tokens // 8)

    def comes_to(mistake: str, numbers: str, total: int) -> NaiveFigure:
        return NaiveFigure(mistake=mistake, numbers=numbers, bytes=total, ratio=total / true)

    found = []
    if model.hidden_size is not None:
        found.append(
            figure(
                "hidden_size taken for the keys and values of a layer",
                2 * layers * model.hidden_size,
                f"2 x {layers} layers x {model.hidden_size:,}",
            )
        )
    heads, sizes = model.num_attention_heads, _head_sizes(model)
    if sizes is not None:
        latent = "latent attention taken for ordinary heads"
        found.append(
            figure(
                latent if model.num_kv_heads is None else "query heads taken for key-value heads",
                layers * heads * sum(sizes),
                f"{layers} layers x {heads} heads x ({sizes[0]:,} + {sizes[1]:,})",
            )
        )
    growing = [(cache.row(d.kv, 1, n), cache.kind) for cache, n in model.groups]
    if any(row.cap_tokens is not None for row, _ in growing):
        unit = sum(row.unit_bytes for row, _ in growing)
        total = unit * tokens + sum(row.constant_bytes for row, _ in growing)
        numbers = f"{unit:,} B x {tokens:,} tokens"
        found.append(comes_to("windows left out: every layer keeps every token", numbers, total))
    attention = sum(n for cache, n in model.groups if isinstance(cache, HeadCache))
    if sizes is not None and model.num_kv_heads is not None and 0 < attention < layers:
        found.append(
            figure(
                "every layer taken for attention",
                layers * model.num_kv_heads * sum(sizes),
                f"{layers} layers x {model.num_kv_heads} heads x ({sizes[0]:,} + {sizes[1]:,})",
            )
        )
    yield from (naive for naive in found if not 0.995 <= naive.ratio <= 1.005)


def _head_sizes(model: Model) -> tuple[int, int] | None:
    """Key and value size of an ordinary head; for a latent model, those it would have without."""
    for cache, _ in model.groups:
        if isinstance(cache, HeadCache):
            return cache.head_size, cache.head_size_v
    facts = [model.facts.get(f) for f in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")]
    if all(isinstance(value, int) for value in facts):
        nope, rope, v = (int(str(value)) for value in facts)
        return nope + rope, v
    return None


def growth_words(group: ExplainedGroup) -> str:
    """How the cache of a group follows from the tokens."""
    if group.growth == GROWS:
        return "grows with every token"
    if group.growth == CAPPED:
        return f"capped at {group.window:,} tokens"
    return "constant, whatever the length"


def group_name(group: ExplainedGroup) -> str:
    """Its layers and kind in words."""
    return f"{words.count_of(group.layers, 'layer')} of {words.kind_name(group.kind)}"
