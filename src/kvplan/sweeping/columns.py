"""Every column that a sweep can have: its name, unit, kind and meaning, in order.

Names are those of the single-row CSV (`kvplan.reports.csv_report`) where the figure is the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kvplan.errors import InputError, nearest_names
from kvplan.planning.cautions import CODES
from kvplan.question import FLAGS

INTEGER, NUMBER, TEXT = "integer", "number", "text"


class Column(NamedTuple):
    """One column."""

    name: str
    unit: str
    kind: str
    meaning: str
    usual: bool = True
    """Among the columns when nobody chooses."""


_BYTES, _TOKENS, _BLOCKS, _COUNT, _SHARE = "bytes", "tokens", "blocks", "count", "share"

_RESOLVED = (
    Column("model", "", TEXT, "The model's name."),
    Column("model_source", "", TEXT, "Where its facts were read.", usual=False),
    Column("architecture", "", TEXT, "The config's model_type."),
    Column("gpu", "", TEXT, "The GPU's name."),
    Column("gpu_count", "GPUs", INTEGER, "All GPUs: tp x pp x dp."),
    Column("tp", "GPUs", INTEGER, "Tensor-parallel size."),
    Column("pp", "stages", INTEGER, "Pipeline stages."),
    Column("dp", "replicas", INTEGER, "Replicas of the model."),
    Column("ep", "GPUs", INTEGER, "GPUs that the experts are spread over."),
    Column("dcp", "ranks", INTEGER, "Ranks that share the tokens of a sequence.", usual=False),
    Column("engine", "", TEXT, "The engine."),
    Column("engine_version", "", TEXT, "Its version."),
    Column("weight_format", "", TEXT, "Number format of the weights."),
    Column("kv_cache_dtype", "", TEXT, "Number format of the KV cache."),
    Column("kv_cache_bits", "bits", NUMBER, "Bits of one cached element, scales included."),
    Column("seq_len", _TOKENS, INTEGER, "Tokens kept per sequence."),
    Column("batch", "sequences", INTEGER, "Sequences held at once, over all replicas."),
    Column("mean_seq", _TOKENS, INTEGER, "Mean tokens per sequence, as asked.", usual=False),
    Column("prefix_tokens", _TOKENS, INTEGER, "Tokens that all sequences share.", usual=False),
    Column("block_size", _TOKENS, INTEGER, "Tokens of one KV block."),
    Column("max_model_len", _TOKENS, INTEGER, "Longest sequence that the engine admits."),
    Column("max_num_seqs", "sequences", INTEGER, "Most sequences in a step."),
    Column("max_num_batched_tokens", _TOKENS, INTEGER, "Most tokens in a step."),
    Column("gpu_memory_utilization", _SHARE, NUMBER, "Part of the GPU that the engine claims."),
)

_FIGURES = (
    Column("bytes_per_token", _BYTES, INTEGER,
           "Logical KV bytes that one more token adds at seq_len, on one GPU."),
    Column("logical_bytes_per_sequence", _BYTES, INTEGER,
           "KV bytes that the mathematics needs for one sequence, on one GPU."),
    Column("reserved_bytes_per_sequence", _BYTES, INTEGER,
           "KV bytes that the engine sets aside for it after paging, grouping and padding."),
    Column("needed_bytes", _BYTES, INTEGER,
           "KV bytes of the whole batch of one replica, a shared prefix counted once."),
    Column("blocks_per_sequence", _BLOCKS, INTEGER, "Blocks of one sequence of max_model_len."),
    Column("page_bytes", _BYTES, INTEGER, "One block over all the layers that share it."),
    Column("pool_bytes", _BYTES, INTEGER, "Memory left for the KV cache."),
    Column("pool_blocks", _BLOCKS, INTEGER, "Whole blocks of the pool."),
    Column("pool_tokens", _TOKENS, INTEGER, "Tokens of the pool as the engine prints them."),
    Column("page_waste_bytes", _BYTES, INTEGER,
           "Expected bytes of the batch's last blocks that hold no token."),
    Column("max_concurrency", "sequences", NUMBER,
           "Sequences of max_model_len that the pool holds, as the engine prints it."),
    Column("mean_concurrency", "sequences", NUMBER,
           "Sequences of the mean length that the pools of all replicas hold."),
    Column("device_bytes", _BYTES, INTEGER, "Memory of one GPU as the framework sees it."),
    Column("usable_bytes", _BYTES, INTEGER, "The same less what others hold."),
    Column("reserve_bytes", _BYTES, INTEGER, "What others hold.", usual=False),
    Column("claim_bytes", _BYTES, INTEGER, "What the engine may use for everything."),
    Column("weight_bytes", _BYTES, INTEGER, "Weights on one GPU."),
    Column("activation_bytes", _BYTES, INTEGER, "Activation peak."),
    Column("cuda_graph_bytes", _BYTES, INTEGER, "CUDA graphs."),
    Column("runtime_bytes", _BYTES, INTEGER, "Kernels, communication, sampler tables."),
    Column("kv_pool_bytes", _BYTES, INTEGER, "The same as pool_bytes.", usual=False),
    Column("kv_needed_bytes", _BYTES, INTEGER, "The same as needed_bytes.", usual=False),
    Column("headroom_bytes", _BYTES, INTEGER,
           "Usable part of the pool less what is needed; negative when it does not fit."),
    Column("kv_share", _SHARE, NUMBER, "KV needed over usable GPU memory."),
    Column("pool_use", _SHARE, NUMBER, "KV needed over the pool."),
    Column("verdict", "", TEXT, "fits, tight or oom."),
    Column("limiting_term", "", TEXT, "The term that decides the verdict."),
    Column("max_batch", "sequences", INTEGER, "Most sequences of seq_len that fit."),
    Column("max_seq_len", _TOKENS, INTEGER, "Longest sequences of which the batch fits."),
    Column("warning_codes", "", TEXT, "Codes of the warnings, with spaces between."),
    Column("error", "", TEXT, "Code of the error that makes the combination impossible."),
    Column("error_message", "", TEXT, "The error in words.", usual=False),
)  # fmt: skip

_SAME_AS = {
    "seq": "seq_len", "gpus": "gpu_count", "weights": "weight_format", "kv": "kv_cache_dtype",
    "reserve": "reserve_bytes",
}  # fmt: skip
"""Flags whose resolved value is a column of another name."""


def _flag_columns() -> tuple[Column, ...]:
    have = {column.name for column in _RESOLVED} | set(_SAME_AS)
    found = []
    for flag in FLAGS:
        if flag.name not in have:
            unit = {"TOKENS": _TOKENS, "SIZE": _BYTES, "N": _COUNT, "SHARE": _SHARE}
            kind = TEXT if flag.parse is not None and flag.metavar not in unit else INTEGER
            words = f"As asked by {flag.option}. {flag.help}"
            found.append(Column(flag.name, unit.get(flag.metavar, ""), kind, words, usual=False))
    return tuple(found)


FLAG_COLUMNS = _flag_columns()
"""Flags that no figure repeats: a column when the flag is given."""

COLUMNS = (*_RESOLVED, *FLAG_COLUMNS, *_FIGURES)
BY_NAME = {column.name: column for column in COLUMNS}


def choose(names: str | None, stated: Iterable[str]) -> list[Column]:
    """The columns that ``--columns`` names; else the usual ones and those of the stated flags."""
    if names is None:
        given = set(stated)
        return [column for column in COLUMNS if column.usual or column.name in given]
    wanted = [name.strip() for name in names.split(",")]
    for name in wanted:
        if name not in BY_NAME:
            near = ", ".join(nearest_names(name, BY_NAME) or ["all are in docs/sweep.md"])
            raise InputError(f"--columns: {name!r} is not a column", hint=f"Nearest: {near}")
    twice = sorted({name for name in wanted if wanted.count(name) > 1})
    if twice:
        raise InputError(f"--columns names {', '.join(twice)} twice")
    return [BY_NAME[name] for name in wanted]


def described() -> str:
    """The columns and codes as the tables of docs/sweep.md."""
    lines = ["| column | unit | kind | meaning |", "|---|---|---|---|"]
    lines += [_row(column) for column in COLUMNS if column not in FLAG_COLUMNS]
    lines += ["", "A flag that no column above repeats has one of its own when it is given:", ""]
    lines += ["| column | unit | kind | meaning |", "|---|---|---|---|"]
    lines += [_row(column) for column in FLAG_COLUMNS]
    lines += ["", "Codes of `warning_codes`:", "", "| code | meaning |", "|---|---|"]
    lines += [f"| `{code}` | {meaning} |" for code, meaning in CODES.items()]
    return "\n".join(lines) + "\n"


def _row(column: Column) -> str:
    name = f"`{column.name}`" + ("" if column.usual or column in FLAG_COLUMNS else " (on request)")
    return f"| {name} | {column.unit} | {column.kind} | {column.meaning} |"
