"""The answer of `fit` as plain data: what ``--format json`` prints, key for key.

Bytes are per GPU unless the key says total; a figure that is not known is null, never a guess.
The docstring under each field is its description in the JSON Schema (``kvplan schema fit``).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self, dataclass_transform

SCHEMA = "kvplan.fit/1"


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Record:
    """A frozen document, made by keyword, that shows itself by the fields its class annotates.

    It does what a dataclass does without generating code for each class, which costs every
    command several milliseconds at start-up.
    """

    __pydantic_config__ = {"use_attribute_docstrings": True, "extra": "forbid"}  # noqa: RUF012

    def __init__(self, **values: object) -> None:
        fields = type(self).__annotations__
        unknown, missing = values.keys() - fields.keys(), fields.keys() - values.keys()
        missing -= {name for name in missing if hasattr(type(self), name)}
        if unknown or missing:
            raise TypeError(f"{type(self).__name__}: unknown {unknown}, missing {missing}")
        self.__dict__.update(values)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} cannot be changed")

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in fields_of(self).items())
        return f"{type(self).__name__}({shown})"

    def but(self, **changes: object) -> Self:
        """The same with other values."""
        return type(self)(**{**fields_of(self), **changes})


def fields_of(record: Record) -> dict[str, object]:
    """The fields of a record by name, in order."""
    return {name: getattr(record, name) for name in type(record).__annotations__}


class Verdict(StrEnum):
    """Whether it fits."""

    FITS = "fits"
    TIGHT = "tight"
    OOM = "oom"


SEVERITY = {Verdict.FITS: 0, Verdict.TIGHT: 1, Verdict.OOM: 2}
"""Which of two verdicts is worse."""


class DeploymentReport(Record):
    """The question as understood, every default filled in."""

    model: str
    model_source: str
    """Where the model's facts were read."""
    architecture: str
    """The config's model_type."""
    gpu: str
    gpu_count: int
    tp: int
    pp: int
    dp: int
    ep: int
    engine: str
    engine_version: str | None
    weight_format: str
    kv_cache_dtype: str
    seq_len: int
    """Tokens kept per sequence."""
    batch: int
    """Sequences held at once, over all replicas."""
    block_size: int | None
    """Tokens per KV block; null for an engine without blocks."""
    max_model_len: int | None
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    gpu_memory_utilization: float | None


class GroupReport(Record):
    """Layers that keep the same cache, as the mathematics needs it, on one GPU."""

    kind: str
    layers: int
    bytes_per_token: int
    """What one more token adds while the cache grows."""
    constant_bytes: int
    """Kept whatever the length."""
    window: int | None
    """Tokens beyond which the cache stops growing; null when it never does."""


class KvCacheReport(Record):
    """The KV cache of one GPU."""

    bytes_per_token: int
    """Slope of the logical bytes at seq_len, before any block rounding."""
    logical_bytes_per_sequence: int
    """What the mathematics needs for one sequence of seq_len tokens."""
    reserved_bytes_per_sequence: int
    """What the engine sets aside for it after paging, grouping and padding."""
    needed_bytes: int
    """For the whole batch of one replica, a shared prefix counted once."""
    blocks_per_sequence: int | None
    """Blocks of one sequence of max_model_len tokens."""
    page_bytes: int | None
    """One block over all the layers that share it."""
    pool_bytes: int | None
    """Memory left for the KV cache; null when the weights are unknown."""
    pool_blocks: int | None
    pool_tokens: int | None
    """Tokens of the pool as the engine prints them."""
    max_concurrency: float | None
    """Sequences of max_model_len tokens as the engine prints them."""
    mean_concurrency: float | None
    """Sequences of the mean length that the pool holds at once, over all replicas."""
    page_waste_bytes: int
    """Expected bytes of the batch's last blocks that hold no token."""
    groups: list[GroupReport]


class TermReport(Record):
    """One memory term of the engine with its range."""

    key: str
    low_bytes: int
    likely_bytes: int
    high_bytes: int
    source: str
    in_claim: bool = True
    """Taken from what the engine claims; false: it needs room beside the claim, as CUDA graphs do
    before vLLM 0.20."""


class MemoryReport(Record):
    """The budget of the GPU that decides."""

    device_bytes: int | None
    """Total as the framework sees it; null when it is not known."""
    usable_bytes: int | None
    """The total less what others hold."""
    claim_bytes: int | None
    """What the engine may use for everything; null when the pool was given."""
    weight_bytes: int | None
    activation_bytes: int
    cuda_graph_bytes: int
    runtime_bytes: int
    kv_pool_bytes: int | None
    kv_needed_bytes: int
    headroom_bytes: int | None
    """Usable part of the pool less what is needed; negative when it does not fit."""
    kv_share: float | None
    """KV needed over usable GPU memory."""
    pool_use: float | None
    """KV needed over the pool."""
    terms: list[TermReport]


class ModelReport(Record):
    """The model's size, whole."""

    parameters: int | None
    """Trained parameters, tied ones once; null when the config lacks a width."""
    active_parameters: int | None
    checkpoint_bytes: int | None
    """Published size of the checkpoint's tensors; null when not known."""
    max_position_embeddings: int | None


class SpeedReport(Record):
    """Expected speed; null until it is estimated."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    tokens_per_s: float | None = None


class LimitsReport(Record):
    """For each knob on its own, all else as asked: the largest or mildest value that fits."""

    max_batch: int
    max_seq_len: int
    """0 when no length fits."""
    min_tp: int | None
    """Smallest tensor-parallel size that fits, with this pp and dp; null when none does."""
    min_gpus: int | None
    """Fewest GPUs that fit, split by tp within a node and by pp beyond it."""
    kv_cache_dtype: str | None
    """Mildest KV format that fits."""
    weight_format: str | None
    """Mildest weight format that fits; null when the weights are not counted."""
    max_num_seqs: int | None
    """Largest that fits; null for an engine without it."""
    max_num_batched_tokens: int | None
    """Largest that fits; null for an engine without it."""
    min_gpu_memory_utilization: float | None
    """Smallest that fits, to a hundredth, rounded up."""
    fits_eager: bool | None
    """Whether it fits without CUDA graphs; null for an engine without them."""


class RecommendedReport(Record):
    """What to run, each with the reason."""

    batch: int
    batch_reason: str
    window: int | None
    window_reason: str
    block_size: int | None
    block_size_reason: str
    kv_bits: float
    kv_cache_dtype: str
    kv_reason: str


class OptionReport(Record):
    """One change that makes it fit."""

    change: str
    kv_bytes: int
    """KV bytes of the batch under it, per GPU."""
    max_batch: int
    verdict: Verdict
    quality_note: str
    source: str
    flags: list[str]
    """The command that realises it; empty for an engine without one."""


class MatrixRow(Record):
    """The batch that fits at each context under one KV format."""

    kv_cache_dtype: str
    kv_bits: float
    max_batch: list[int]


class MatrixReport(Record):
    """Contexts by KV format."""

    contexts: list[int]
    rows: list[MatrixRow]


class FitReport(Record):
    """Everything kvplan says about one deployment."""

    schema: str
    kvplan_version: str
    deployment: DeploymentReport
    verdict: Verdict
    limiting_term: str
    """The term that decides: kv_cache, weights, activation, headroom…"""
    reason: str
    """The verdict in one sentence with its figures."""
    kv_cache: KvCacheReport
    memory: MemoryReport
    model: ModelReport
    speed: SpeedReport
    limits: LimitsReport
    recommended: RecommendedReport
    options: list[OptionReport]
    matrix: MatrixReport
    flags: list[str]
    """The command that realises the plan; empty for an engine without one."""
    warnings: list[str]
    assumptions: list[str]
