"""A model as kvplan sees it: layers that keep caches and hold weights, and what is outside them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import NamedTuple

from kvplan.errors import InputError, MalformedFile
from kvplan.model.caches import Cache, HeadCache, Shared, head_sizes
from kvplan.model.rows import Row
from kvplan.model.tensors import EMBEDDING, EXPERTS, HEAD, MLP, SHARED_EXPERTS, Tensor
from kvplan.precision.format import BF16, Format
from kvplan.precision.kv import KvFormat
from kvplan.precision.scheme import WeightScheme
from kvplan.units import cdiv


class Layer(NamedTuple):
    """One decoder layer. Layers that are alike compare equal, which is what groups them."""

    caches: tuple[Cache, ...]
    tensors: tuple[Tensor, ...] = ()


class CacheGroup(NamedTuple):
    """Layers that keep the same cache."""

    cache: Cache
    layers: int


class Checkpoint(NamedTuple):
    """What is published of the weights, as facts beside the computed figures."""

    parameters: int | None = None
    size_bytes: int | None = None
    source: str | None = None


class Stored(NamedTuple):
    """Exact bytes of the weights that an engine loads, read from the files' own headers."""

    text_bytes: int
    """The language model, without draft layers, buffers and copies that are not loaded."""
    tower_bytes: int
    """Image and audio encoders beside it."""
    scheme: WeightScheme
    """How the files store them: these bytes hold for no other format."""


class Split(NamedTuple):
    """How one model is divided over GPUs."""

    tp: int = 1
    pp: int = 1
    expert_ranks: int = 1


@dataclass(frozen=True, eq=False)
class Model:
    """Everything kvplan knows of a model. Compared by identity, so that answers can be kept."""

    name: str
    source: str
    """Where the facts were read: a bundled profile, a file."""
    model_type: str
    layers: tuple[Layer, ...]
    outside: tuple[Tensor, ...]
    """Weights outside the layers: embedding, final norm, head."""
    num_attention_heads: int
    scheme: WeightScheme
    """How the checkpoint stores its weights."""
    dtype: Format = BF16
    hidden_size: int | None = None
    vocab_size: int | None = None
    max_position_embeddings: int | None = None
    is_multimodal: bool = False
    """Images or audio go in as well: an engine profiles their encoder at start-up."""
    hub_id: str | None = None
    """Its name on the Hugging Face hub."""
    kv_cache_dtype: str | None = None
    """KV format that the checkpoint declares for itself."""
    weights_unknown: str | None = None
    """Why the weights cannot be counted (the key that is missing); None when they can."""
    left_out: tuple[str, ...] = ()
    """Parts (such as a vision tower) that could not be counted among the weights."""
    checkpoint: Checkpoint = Checkpoint()
    stored: Stored | None = None
    """Exact bytes where the weights' own headers were read."""
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    facts: dict[str, object] = field(default_factory=dict)
    """The configuration as read, for `explain` and what-if questions."""

    @property
    def num_hidden_layers(self) -> int:
        """Decoder layers."""
        return len(self.layers)

    @cached_property
    def groups(self) -> tuple[CacheGroup, ...]:
        """Layers grouped by the cache they keep, in order of first appearance."""
        return group_caches(self.layers)

    @property
    def num_kv_heads(self) -> int | None:
        """The most key-value heads that any layer keeps; None without attention by heads."""
        heads = [g.cache.num_kv_heads for g in self.groups if isinstance(g.cache, HeadCache)]
        return max(heads, default=None)

    @property
    def is_tied(self) -> bool:
        """The embedding serves as the output projection."""
        return not any(tensor.part == HEAD for tensor in self.outside)

    def all_tensors(self) -> Iterable[Tensor]:
        """Every weight, layer by layer, then those outside the layers."""
        self.require_weights()
        for layer in self.layers:
            yield from layer.tensors
        yield from self.outside

    def require_weights(self) -> None:
        """Raise the error that names the missing fact when the weights cannot be counted."""
        if self.weights_unknown is not None:
            is_missing = self.weights_unknown.endswith(" is missing")
            cure = "Give the missing key with --set KEY=VALUE, or" if is_missing else "Give"
            raise MalformedFile(
                self.source,
                f"the weights cannot be counted: {self.weights_unknown}",
                hint=f"{cure} the pool with --kv-cache-memory SIZE to judge the KV cache alone.",
            )

    @cached_property
    def parameters(self) -> int | None:
        """Trained parameters, tied weights counted once; None when not all can be counted."""
        if self.weights_unknown is not None or self.left_out:
            return None
        return sum(tensor.parameters for tensor in self.all_tensors() if tensor.trained)

    @cached_property
    def active_parameters(self) -> int | None:
        """Parameters that one token passes through: all but the experts it is not sent to."""
        if self.weights_unknown is not None or self.left_out:
            return None
        return sum(
            tensor.parameters
            if tensor.active is None
            else tensor.rows * tensor.columns * tensor.active
            for tensor in self.all_tensors()
            if tensor.trained
        )

    @cached_property
    def mlp_width(self) -> int:
        """The widest MLP that every token passes (dense, or shared experts); 0 without one."""
        return self._widest(MLP, SHARED_EXPERTS)

    @cached_property
    def expert_width(self) -> int:
        """The width of one expert; 0 without experts."""
        return self._widest(EXPERTS)

    @cached_property
    def experts_per_token(self) -> int:
        """Experts that a token is sent to; 0 without experts."""
        active = [
            tensor.copies if tensor.active is None else tensor.active
            for layer in set(self.layers)
            for tensor in layer.tensors
            if tensor.part == EXPERTS
        ]
        return max(active, default=0)

    def _widest(self, *parts: str) -> int:
        rows = [
            tensor.rows
            for layer in set(self.layers)
            for tensor in layer.tensors
            if tensor.part in parts and tensor.is_matrix and not tensor.by_column
        ]
        return max(rows, default=0)

    def parameters_by_part(self) -> dict[str, int]:
        """Trained parameters by part: embedding, attention, mlp, experts, router, norms, head."""
        parts: dict[str, int] = {}
        for tensor in self.all_tensors():
            if tensor.trained:
                parts[tensor.part] = parts.get(tensor.part, 0) + tensor.parameters
        return parts

    @lru_cache(maxsize=1024)  # noqa: B019  (a search asks the same few questions many times)
    def weight_bytes(self, scheme: WeightScheme, split: Split = Split(), stage: int = 0) -> int:
        """Bytes of weights on one rank of pipeline stage ``stage``.

        The first stage holds the embedding, the last the final norm and the head; a tied
        embedding is held by both when they are different stages. Where the files were read,
        their bytes are shared out in the proportions of this count, so that one GPU holds
        exactly what is stored, and encoders are split over the ranks of the first stage.
        Source: vLLM ``MultiModalConfig.mm_encoder_tp_mode`` (default ``weights``).
        """
        self.require_weights()
        counted = self._counted_bytes(scheme, split, stage)
        if self.stored is None:
            return counted
        if scheme == self.stored.scheme:
            whole = self._counted_bytes(scheme, Split(), 0)
            counted = cdiv(counted * self.stored.text_bytes, whole) if whole else counted
        towers = cdiv(self.stored.tower_bytes, split.tp) if stage == 0 else 0
        return counted + towers

    def _counted_bytes(self, scheme: WeightScheme, split: Split, stage: int) -> int:
        """Bytes on one rank by the shapes of the layers and the scheme's format for each."""
        first, last = stage == 0, stage == split.pp - 1
        total = 0
        start, end = stage_layers(self.num_hidden_layers, split.pp, stage)
        for (layer, index), count in self._distinct_layers(scheme, start, end).items():
            prefix = f"model.layers.{index}." if index >= 0 else "model.layers.*."
            total += count * sum(
                tensor.rank_bytes(
                    scheme.format_for(tensor, prefix, self.dtype), split.tp, split.expert_ranks
                )
                for tensor in layer.tensors
            )
        for tensor in self.outside:
            is_embedding = tensor.part == EMBEDDING
            held = first if is_embedding else last
            if (
                is_embedding
                and last
                and not first
                and self.is_tied
                and tensor.rows == self.vocab_size
            ):
                held = True
            if held:
                total += tensor.rank_bytes(scheme.format_for(tensor, "", self.dtype), split.tp)
        return total

    def _distinct_layers(
        self, scheme: WeightScheme, start: int, end: int
    ) -> dict[tuple[Layer, int], int]:
        """Layers to count, with how often; told apart by number only if the scheme does so."""
        counted: dict[tuple[Layer, int], int] = {}
        for index in range(start, end):
            key = (self.layers[index], index if scheme.names_layers else -1)
            counted[key] = counted.get(key, 0) + 1
        return counted

    def logical_rows(self, kv: KvFormat, split: Split = Split(), stage: int = 0) -> tuple[Row, ...]:
        """KV bytes of one sequence on one rank of a stage, as the mathematics needs them.

        A format with 16-bit residual tokens (KIVI) adds a second, capped row for the difference.
        """
        start, end = stage_layers(self.num_hidden_layers, split.pp, stage)
        rows = []
        for cache, layers in group_caches(self.layers[start:end]):
            row = cache.row(kv, split.tp, layers)
            rows.append(row)
            if kv.residual_tokens and row.unit_bytes:
                wide = cache.row(WIDE_KV, split.tp, layers).unit_bytes
                cap = kv.residual_tokens
                cap = cap if row.cap_tokens is None else min(cap, row.cap_tokens)
                rows.append(Row(wide - row.unit_bytes, cap_tokens=cap))
        return tuple(rows)

    def head_sizes(self) -> tuple[int, ...]:
        """Row lengths that a block format must divide."""
        return tuple({size for group in self.groups for size in head_sizes(group.cache)})


WIDE_KV = KvFormat("bf16", BF16, BF16, (), 0.0, "", "")


def group_caches(layers: Iterable[Layer]) -> tuple[CacheGroup, ...]:
    """Count the layers behind each distinct cache, in order of first appearance."""
    counted: dict[Cache, int] = {}
    kinds: dict[Cache, Cache] = {}
    for layer in layers:
        for cache in layer.caches:
            if isinstance(cache, Shared):
                continue
            kinds.setdefault(cache, cache)
            counted[cache] = counted.get(cache, 0) + 1
    return tuple(CacheGroup(cache, count) for cache, count in counted.items())


def stage_layers(num_layers: int, pp: int, stage: int) -> tuple[int, int]:
    """First and one past the last layer of a pipeline stage.

    Layers that do not divide go one each to the stages before the last, from the back, because
    the first and last stages already carry the embedding and the head.
    Source: vLLM ``distributed/utils.py`` ``get_pp_indices``.
    """
    if num_layers < pp:
        raise InputError(f"--pp {pp}: the model has only {num_layers} layers to divide")
    sizes = [num_layers // pp] * pp
    for place in range(2, num_layers % pp + 2):
        sizes[-place] += 1
    start = sum(sizes[:stage])
    return start, start + sizes[stage]
