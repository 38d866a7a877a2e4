"""The layers of a model drawn in one line: what repeats, and how often."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kvplan.model.caches import Cache
    from kvplan.model.model import Model

MOST_RUNS = 12
"""A description of more runs than this says less than the drawing."""

_LETTERS = {
    "full": "F", "sliding_window": "S", "chunked_local": "C", "latent": "L", "indexer": "I",
    "recurrent": "R", "cross_attention": "X", "compressed": "P",
}  # fmt: skip
_SHORT = {"sliding_window": "sliding", "chunked_local": "chunked", "cross_attention": "cross"}
_SPANS = ("sliding_window", "attention_chunk_size", "encoder_tokens")


class Pattern(NamedTuple):
    """Layers before a repetition, the layers that repeat, how often, and those after it."""

    before: tuple[str, ...]
    period: tuple[str, ...]
    times: int
    after: tuple[str, ...]

    def words(self) -> str:
        """``5 x sliding(1,024) + 1 x full, 10 times, then 2 x sliding(1,024)``."""
        parts = []
        if self.before:
            parts.append(_runs(self.before))
        if self.period:
            again = f", {self.times} times" if self.times > 1 else ""
            parts.append(_runs(self.period) + again)
        if self.after:
            parts.append(_runs(self.after))
        return ", then ".join(parts)

    def groups(self) -> list[tuple[str, ...]]:
        """The layers in the pieces that the words name, for drawing."""
        pieces = [self.before, *[self.period] * self.times, self.after]
        return [piece for piece in pieces if piece]


def layer_labels(model: Model) -> list[str]:
    """What each layer keeps, in a word: layers that keep the same have the same label."""
    names: dict[Hashable, str] = {}
    taken: dict[str, int] = {}
    labels = []
    for layer in model.layers:
        if layer.caches not in names:
            label = " + ".join(cache_label(cache) for cache in layer.caches) or "nothing"
            taken[label] = taken.get(label, 0) + 1
            names[layer.caches] = label if taken[label] == 1 else f"{label} #{taken[label]}"
        labels.append(names[layer.caches])
    return labels


def cache_label(cache: Cache) -> str:
    """``full``, ``sliding(1,024)``, ``recurrent(mamba2)``."""
    name = _SHORT.get(cache.kind, cache.kind.replace("_", " "))
    flavour = getattr(cache, "flavour", None)
    if flavour:
        return f"{name}({flavour})"
    span = next((getattr(cache, field) for field in _SPANS if hasattr(cache, field)), None)
    return name if span is None else f"{name}({span:,})"


def letters(labels: Sequence[str], kinds: Sequence[str]) -> dict[str, str]:
    """A letter for each label; layers of one kind but another shape are told apart by case."""
    chosen: dict[str, str] = {}
    for label, kind in zip(labels, kinds, strict=True):
        if label in chosen:
            continue
        wanted = _LETTERS.get(kind, "." if kind == "nothing" else "=" if kind == "shared" else "?")
        used = set(chosen.values())
        free = (wanted, wanted.lower(), *(c for c in "ABDEGHJKMNOQTUVWYZ0123456789"))
        chosen[label] = next((c for c in free if c not in used), "?")
    return chosen


def drawing(model: Model) -> str:
    """A letter a layer, in the pattern's pieces; empty where all layers keep the same."""
    labels = layer_labels(model)
    kinds = [layer.caches[0].kind if layer.caches else "nothing" for layer in model.layers]
    chosen = letters(labels, kinds)
    if len(chosen) == 1:
        return ""
    return " ".join(
        "".join(chosen[label] for label in piece) for piece in find_pattern(labels).groups()
    )


def find_pattern(labels: Sequence[str]) -> Pattern:
    """The shortest description: a few layers at first, then a period, then what is left over."""
    whole = tuple(labels)
    best = Pattern((), whole, 1, ())
    fewest = len(_run_lengths(whole))
    for start in range(min(8, len(whole))):
        rest = whole[start:]
        period = _period(rest)
        if period is None:
            continue
        times, left = divmod(len(rest), period)
        found = Pattern(whole[:start], rest[:period], times, rest[len(rest) - left :])
        runs = sum(len(_run_lengths(piece)) for piece in (found.before, found.period, found.after))
        if runs < fewest:
            best, fewest = found, runs
    return best


def _period(labels: tuple[str, ...]) -> int | None:
    """The smallest step after which every label comes again, at least twice; None without one."""
    for step in range(1, len(labels) // 2 + 1):
        if all(labels[i] == labels[i - step] for i in range(step, len(labels))):
            return step
    return None


def _run_lengths(labels: Sequence[str]) -> list[tuple[str, int]]:
    runs: list[tuple[str, int]] = []
    for label in labels:
        if runs and runs[-1][0] == label:
            runs[-1] = (label, runs[-1][1] + 1)
        else:
            runs.append((label, 1))
    return runs


def _runs(labels: Sequence[str]) -> str:
    runs = _run_lengths(labels)
    if len(runs) > MOST_RUNS:
        counted: dict[str, int] = {}
        for label in labels:
            counted[label] = counted.get(label, 0) + 1
        return "in no simple order: " + " + ".join(f"{n} x {label}" for label, n in counted.items())
    return " + ".join(f"{count} x {label}" for label, count in runs)


def contexts(native: int | None, asked: int | None) -> list[int]:
    """Lengths to show: powers of four from 2k up to the native or the asked one, and that one."""
    longest = max(native or 0, asked or 0) or 131_072
    chosen = {longest, *([asked] if asked else [])}
    tokens = 2048
    while tokens < longest:
        chosen.add(tokens)
        tokens *= 4
    return sorted(chosen)
