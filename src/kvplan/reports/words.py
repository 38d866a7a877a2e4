"""How the reports for people write things: one wording for the table and for Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvplan.reports.layout import printable
from kvplan.units import GIB, MAX_TOKENS, format_bytes, format_gib, format_tokens

if TYPE_CHECKING:
    from kvplan.planning.report import (
        DeploymentReport,
        FitReport,
        GroupReport,
        LimitsReport,
        TermReport,
    )

Fact = tuple[str, str]
"""A label and its figure in words."""

NONE_FITS = "none fits"
MOST_SEQUENCES = 1 << 20
"""A limit of this size was not reached: memory does not bound it."""

_TERMS = {
    "activation": "activation peak",
    "cuda_graph": "CUDA graphs",
    "runtime": "runtime",
    "lora": "LoRA slots",
    "draft": "draft weights",
}
_KINDS = {
    "full": "full attention",
    "sliding_window": "sliding window",
    "chunked_local": "chunked local",
    "latent": "latent (MLA)",
    "indexer": "sparse indexer",
    "recurrent": "recurrent state",
    "cross_attention": "cross attention",
    "compressed": "compressed vectors",
    "compressor_state": "open group of the compressor",
    "shared": "shared with another layer",
}


def term_name(key: str) -> str:
    """A memory term in words."""
    return _TERMS.get(key, key.replace("_", " "))


def kind_name(kind: str) -> str:
    """A kind of cache in words."""
    return _KINDS.get(kind, kind.replace("_", " "))


def percent(part: float) -> str:
    """A share with one decimal."""
    return f"{part * 100:,.1f} %"


def size_range(term: TermReport) -> str:
    """The range of a measured term; the exact word where there is none."""
    if term.low_bytes == term.high_bytes:
        return ""
    low, high = f"{term.low_bytes / GIB:,.2f}", format_gib(term.high_bytes)
    return f"{low} to {high}" + ("" if term.in_claim else ", beside the claim")


def count_of(number: int, noun: str) -> str:
    """``1 sequence``, ``16 sequences``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def parameters(count: int) -> str:
    """Parameters to three digits."""
    for unit, size in (("trillion", 10**12), ("billion", 10**9), ("million", 10**6)):
        if count >= size * 0.9995:
            amount = count / size
            digits = 2 if amount < 9.995 else 1 if amount < 99.95 else 0
            return f"{amount:.{digits}f} {unit}"
    return f"{count:,}"


def sequences(count: int) -> str:
    """A batch that fits; beyond what is searched it is as good as unbounded."""
    return "no limit" if count >= MOST_SEQUENCES else f"{count:,}"


def tokens(count: int) -> str:
    """A length that fits, or that any does."""
    return "any length" if count >= MAX_TOKENS else f"{count:,} tokens"


def gpus(d: DeploymentReport) -> str:
    """``8 x h200-sxm (tp 8)``."""
    sizes = ", ".join(
        f"{name} {size}"
        for name, size in (("tp", d.tp), ("pp", d.pp), ("dp", d.dp), ("ep", d.ep))
        if size > 1
    )
    return f"{d.gpu_count} x {d.gpu}" + (f" ({sizes})" if sizes else "")


def engine(d: DeploymentReport) -> str:
    """Its name and version; what no engine means."""
    if d.engine == "none":
        return "no engine (the bare formula)"
    return f"{d.engine} {d.engine_version}" if d.engine_version else d.engine


def subject(report: FitReport) -> list[str]:
    """What was judged: the model, then where and how it runs."""
    d, m = report.deployment, report.model
    size = ""
    if m.parameters is not None:
        size = f"{parameters(m.parameters)} parameters, "
        if m.active_parameters is not None and m.active_parameters != m.parameters:
            size += f"{parameters(m.active_parameters)} of them active, "
    load = f"{count_of(d.batch, 'sequence')} of {d.seq_len:,} tokens"
    return [
        f"{d.model}: {size}{d.weight_format} weights, {d.kv_cache_dtype} KV cache",
        f"{gpus(d)}, {engine(d)}, {load}",
    ]


def bits(count: float) -> str:
    """Bits of an element, to a hundredth."""
    return f"{count:.2f}".rstrip("0").rstrip(".")


def kv_facts(report: FitReport) -> list[Fact]:
    """The KV cache of one GPU, logical and reserved apart."""
    kv, d = report.kv_cache, report.deployment
    facts = [
        ("one token", f"{format_bytes(kv.bytes_per_token)} more at {d.seq_len:,} tokens"),
        ("one sequence", _sequence(report)),
        (
            "batch",
            f"{format_gib(kv.needed_bytes)} for {count_of(d.batch, 'sequence')}"
            + (f" over {d.dp} replicas" if d.dp > 1 else ""),
        ),
    ]
    if kv.pool_blocks is not None and kv.page_bytes is not None:
        facts.append(
            ("pool", f"{kv.pool_blocks:,} blocks of {format_bytes(kv.page_bytes)}" + _pool(kv))
        )
    if kv.max_concurrency is not None:
        facts.append(
            (
                "concurrency",
                f"{kv.max_concurrency:,.2f}x at max_model_len {d.max_model_len or d.seq_len:,}",
            )
        )
    if kv.mean_concurrency is not None:
        facts.append(("at mean length", f"{kv.mean_concurrency:,.2f} sequences at once"))
    return facts


def _pool(kv: object) -> str:
    held = getattr(kv, "pool_tokens", None)
    return "" if held is None else f": {held:,} tokens"


def _sequence(report: FitReport) -> str:
    kv, d = report.kv_cache, report.deployment
    logical, reserved = kv.logical_bytes_per_sequence, kv.reserved_bytes_per_sequence
    text = f"{format_gib(logical)} logical, {format_gib(reserved)} reserved"
    if logical and reserved > logical and reserved / logical >= 1.005:
        text += f" ({reserved / logical:,.2f}x)"
    if kv.page_bytes and d.block_size:
        blocks = reserved // kv.page_bytes
        text += f" in {blocks:,} blocks of {d.block_size} tokens"
    return text


def group(g: GroupReport) -> Fact:
    """Layers of one kind: what they keep."""
    parts = []
    if g.bytes_per_token:
        upto = f" up to {g.window:,} tokens" if g.window is not None else ""
        parts.append(f"{format_bytes(g.bytes_per_token)} a token{upto}")
    if g.constant_bytes:
        parts.append(f"{format_bytes(g.constant_bytes)} whatever the length")
    return (f"{count_of(g.layers, 'layer')}", f"{kind_name(g.kind)}: " + ", ".join(parts))


def limits(report: FitReport) -> list[Fact]:
    """Each knob's largest, smallest or mildest value that fits, all else as asked."""
    x: LimitsReport = report.limits
    d = report.deployment
    facts = [
        ("largest batch", sequences(x.max_batch) if x.max_batch else NONE_FITS),
        ("longest sequence", tokens(x.max_seq_len) if x.max_seq_len else NONE_FITS),
        ("smallest tp", NONE_FITS if x.min_tp is None else str(x.min_tp)),
        ("fewest GPUs", NONE_FITS if x.min_gpus is None else str(x.min_gpus)),
        ("mildest KV format", x.kv_cache_dtype or NONE_FITS),
    ]
    if report.memory.claim_bytes is not None:
        facts.append(("mildest weights", x.weight_format or NONE_FITS))
    if d.max_num_seqs is not None:
        utilization = x.min_gpu_memory_utilization
        facts += [
            ("max_num_seqs", _most(x.max_num_seqs)),
            ("max_num_batched_tokens", _most(x.max_num_batched_tokens)),
        ]
        if d.gpu_memory_utilization is not None and report.memory.claim_bytes is not None:
            facts.append(
                (
                    "gpu_memory_utilization",
                    NONE_FITS if utilization is None else f"{utilization:g} or more",
                )
            )
    if x.fits_eager is not None:
        facts.append(("without CUDA graphs", "fits" if x.fits_eager else NONE_FITS))
    return facts


def _most(largest: int | None) -> str:
    if largest is None:
        return NONE_FITS
    return "no limit" if largest >= MOST_SEQUENCES else f"up to {largest:,}"


def recommended(report: FitReport) -> list[Fact]:
    """Batch, window, block size and KV bits with their reasons."""
    r = report.recommended
    window = "none" if r.window is None else f"{r.window:,} tokens"
    kv_reason = r.kv_reason
    if any(option.change == f"--kv {r.kv_cache_dtype}" for option in report.options):
        kv_reason, _, _ = kv_reason.partition("; measured: ")  # its figures are in the options
    facts = [
        ("batch", f"{sequences(r.batch)}: {r.batch_reason}"),
        ("KV bits", f"{bits(r.kv_bits)} bits, {r.kv_cache_dtype}: {kv_reason}"),
        ("window", f"{window}: {r.window_reason.removeprefix('none: ')}"),
    ]
    if r.block_size is not None:
        facts.append(("block size", f"{r.block_size} tokens: {r.block_size_reason}"))
    return facts


def context(count: int) -> str:
    """A context the short way."""
    return format_tokens(count)


def command(words: list[str]) -> list[str]:
    """The words of a command, quoted for a shell; a flag keeps its value."""
    from shlex import quote

    pieces: list[str] = []
    for word in map(printable, words):
        if pieces and not word.startswith("-") and pieces[-1].startswith("-"):
            pieces[-1] += " " + quote(word)
        else:
            pieces.append(quote(word))
    return pieces
