"""The budgets that a deployment is held to: one table of names, figures and units.

``min_x`` means at least, ``max_x`` at most; ``fits`` that the verdict is not oom. Each is held
against one field of `Figures`, which is the very number that ``kvplan fit`` prints.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kvplan.checking.report import Figures
from kvplan.errors import InputError
from kvplan.policy import Policy
from kvplan.units import format_bytes, format_gib, parse_count, parse_fraction, parse_size
from kvplan.units import parse_tokens as tokens_of

LEVELS = ("error", "warn", "off")

Limit = int | float | bool


class Budget(NamedTuple):
    """One kind of budget."""

    name: str
    rule: str
    """The id of its rule in SARIF; never reused."""
    help: str
    figure: str
    """The field of `Figures` that is held against it."""
    unit: str
    """bytes, tokens, share, GPUs, sequences, or empty for yes and no."""
    parse: Callable[[str, str], Limit]
    from_policy: Callable[[Policy], float] | None = None
    """The policy's threshold, which stands where the plan states none."""
    missing: str = ""
    """Why the figure may not be known, and what to do."""

    @property
    def is_minimum(self) -> bool:
        """Whether more is better."""
        return self.name.startswith("min_")


class Held(NamedTuple):
    """What a figure is held to, as stated for one deployment."""

    budget: Budget
    limit: Limit
    level: str
    unit: str


def _yes(text: str, name: str) -> bool:
    if text.lower() not in {"true", "yes", "on"}:
        raise InputError(
            f"{name} is {text!r}, but it can only be true",
            hint="To leave it unchecked: fits: {value: true, level: off}",
        )
    return True


def _number(text: str, name: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e12:
        raise InputError(f"{name} {text!r} is not a number above 0")
    return int(value) if value.is_integer() else value


def _share(text: str, name: str) -> float:
    if text.rstrip().endswith("%"):
        raise InputError(f"{name} {text!r} is a share: write 60% as 0.60")
    return parse_fraction(text, name)


def _room(text: str, name: str) -> Limit:
    """A share of the GPU (0.05) or a size (4GiB)."""
    try:
        value = float(text)
    except ValueError:
        return parse_size(text, name)
    if 0 <= value < 1:
        return value
    if value == 1 or not value.is_integer():
        raise InputError(
            f"{name} {text!r} is neither a share below 1 nor a size",
            hint="Write 0.05 for a share of the GPU, or a size such as 4GiB.",
        )
    return parse_size(text, name)


_WEIGHTS = "the weights are not counted when the pool is given and the config lacks a width"
_GPU = "the GPU's memory is not known: give gpu_memory"

BUDGETS: tuple[Budget, ...] = (
    Budget("fits", "KVP001", "The deployment fits at all. Held at level error unless stated.",
           "fits", "", _yes),
    Budget("max_kv_fraction", "KVP002",
           "KV cache needed over usable GPU memory; the policy's max_kv_share where no value is "
           "stated.", "kv_share", "share", _share, lambda p: p.max_kv_share, missing=_GPU),
    Budget("max_pool_use", "KVP003", "KV cache needed over the pool.", "pool_use", "share", _share,
           missing="there is no pool"),
    Budget("min_headroom", "KVP004",
           "What is left of the pool, as a share of usable GPU memory or as a size; the policy's "
           "min_headroom where no value is stated.", "headroom_bytes", "bytes", _room,
           lambda p: p.min_headroom, missing=_GPU),
    Budget("min_concurrency", "KVP005",
           "Sequences of seq tokens that run at once, over all replicas: as many as the pool holds "
           "and max_num_seqs admits.", "concurrency", "sequences", _number),
    Budget("min_mean_concurrency", "KVP006",
           "The same at the mean length, mean_seq.", "mean_concurrency", "sequences", _number,
           missing="it is counted at mean_seq, which is not stated"),
    Budget("min_max_batch", "KVP007", "The most sequences of seq tokens that still fit.",
           "max_batch", "sequences", parse_count),
    Budget("min_max_seq", "KVP008", "The longest sequences of which the batch still fits.",
           "max_seq_len", "tokens", tokens_of),
    Budget("max_gpus", "KVP009", "GPUs in all.", "gpu_count", "GPUs", parse_count),
    Budget("max_weight_bytes", "KVP010", "Weights on one GPU.", "weight_bytes", "bytes",
           parse_size, missing=_WEIGHTS),
    Budget("max_kv_bytes_per_token", "KVP011",
           "What one more token adds to the KV cache of one GPU, before block rounding.",
           "kv_bytes_per_token", "bytes", parse_size),
    Budget("max_kv_bytes_per_sequence", "KVP012",
           "What the engine sets aside on one GPU for a sequence of seq tokens.",
           "kv_bytes_per_sequence", "bytes", parse_size),
    Budget("max_kv_bytes", "KVP013", "KV cache of the whole batch on one GPU.", "kv_needed_bytes",
           "bytes", parse_size),
)  # fmt: skip

BY_NAME = {budget.name: budget for budget in BUDGETS}


class Outcome(NamedTuple):
    """A figure held against its budget."""

    met: bool | None
    """None when the figure is not known."""
    need: Limit
    have: Limit | None
    margin: int | float | None
    """What is to spare; negative: what is missing. None for yes and no."""
    unit: str


def hold(held: Held, figures: Figures) -> Outcome:
    """Whether the figure keeps the budget, and by how much."""
    have: Limit | None = getattr(figures, held.budget.figure)
    need, unit = held.limit, held.unit
    if unit == "share" and held.budget.name == "min_headroom":
        usable = figures.usable_bytes
        have = None if have is None or not usable else have / usable
    if have is None:
        return Outcome(None, need, None, None, unit)
    if isinstance(need, bool):
        return Outcome(have == need, need, have, None, unit)
    margin = have - need if held.budget.is_minimum else need - have
    return Outcome(margin >= 0, need, have, margin, unit)


def amount(value: Limit | None, unit: str, *, exact: bool = False) -> str:
    """A figure with its unit, for people; ``exact`` adds the bytes behind a rounded size."""
    if value is None:
        return "not known"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if unit == "bytes":
        size = int(value)
        sign = "-" if size < 0 else ""
        if abs(size) < 1 << 20:
            return format_bytes(size)
        rounded = sign + format_gib(abs(size))
        return f"{rounded} ({format_bytes(size)})" if exact else rounded
    if unit == "share":
        return f"{value * 100:,.2f} %"
    number = f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
    return f"{number} {unit.removesuffix('s') if value == 1 else unit}".rstrip()
