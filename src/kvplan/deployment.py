"""The question as plain data: this model, on these GPUs, under this engine, with this load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kvplan.errors import InputError, UnsupportedCombination
from kvplan.hardware.gpu import Gpu
from kvplan.model.model import Model, Split
from kvplan.precision.kv import KvFormat
from kvplan.precision.scheme import WeightScheme
from kvplan.units import cdiv

if TYPE_CHECKING:
    from kvplan.calibration import Calibration

AUTO_LENGTH = -1
"""``max_model_len``: the longest that fits, up to the model's native context."""


class EngineArgs(NamedTuple):
    """The engine's own arguments; None where the engine's default stands."""

    block_size: int | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    gpu_memory_utilization: float | None = None
    kv_cache_memory_bytes: int | None = None
    enforce_eager: bool = False
    prefix_caching: bool = True
    async_scheduling: bool = True
    disable_hybrid_kv_cache_manager: bool = False
    encoder_tokens: int | None = None
    speculative_tokens: int = 0
    extra: tuple[tuple[str, str], ...] = ()
    """Further arguments by name; the engine says which ones it knows."""


class Deployment(NamedTuple):
    """One configuration to judge. An engine's `resolve` fills in what is None."""

    model: Model
    gpu: Gpu
    engine: str
    scheme: WeightScheme
    kv: KvFormat
    seq_len: int
    batch: int = 1
    engine_version: str | None = None
    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    dcp: int = 1
    """Ranks of a tensor-parallel group that share the tokens of a sequence."""
    mean_seq: int | None = None
    prefix_tokens: int = 0
    """Tokens at the front that all sequences share."""
    device_bytes: int | None = None
    """Memory of one GPU as given by the user; None for the GPU's own."""
    reserve_bytes: int = 0
    """Memory that others hold on each GPU."""
    seq_is_stated: bool = True
    """The length was asked for, rather than being the model's native context."""
    kv_is_stated: bool = False
    """The KV format was asked for, rather than following the model."""
    weights_are_stated: bool = False
    """The weight format was asked for, rather than being the checkpoint's."""
    args: EngineArgs = EngineArgs()
    draft: Model | None = None
    """A model that proposes tokens for this one (speculative decoding)."""
    calibration: Calibration | None = None
    """Corrections measured on this GPU under this engine."""
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def gpus(self) -> int:
        """All GPUs together."""
        return self.tp * self.pp * self.dp

    @property
    def split(self) -> Split:
        """How one replica of the model is divided."""
        return Split(self.tp, self.pp, self.ep)

    @property
    def replica_batch(self) -> int:
        """Sequences that one data-parallel replica holds at once."""
        return cdiv(self.batch, self.dp)

    @property
    def total_bytes(self) -> int | None:
        """Memory of one GPU as the framework sees it; None when it is not known."""
        return self.device_bytes if self.device_bytes is not None else self.gpu.memory_bytes

    @property
    def usable_bytes(self) -> int:
        """Memory of one GPU less what others hold. Raises where the GPU's memory is unknown."""
        total = self.total_bytes
        if total is None:
            raise InputError(
                f"the memory of {self.gpu.display_name} as a framework sees it is not known",
                hint="Give it with --gpu-memory SIZE, for example --gpu-memory 47.5GiB.",
            )
        if self.reserve_bytes >= total:
            raise InputError("--reserve leaves nothing of the GPU's memory")
        return total - self.reserve_bytes

    def with_args(self, **changes: Any) -> Deployment:
        """The same deployment with other engine arguments."""
        return self._replace(args=self.args._replace(**changes))

    def saying(self, *, assumption: str | None = None, warning: str | None = None) -> Deployment:
        """The same deployment with one more assumption or warning to print."""
        changed = self
        if assumption is not None and assumption not in self.assumptions:
            changed = changed._replace(assumptions=(*changed.assumptions, assumption))
        if warning is not None and warning not in self.warnings:
            changed = changed._replace(warnings=(*changed.warnings, warning))
        return changed


def check_split(deployment: Deployment) -> None:
    """Refuse a division of the model that no engine can make.

    Query heads must divide evenly over tp; key-value heads must divide, or be divided by it (each
    rank then holds a copy of one). Source: vLLM ``ModelConfig.verify_with_parallel_config``,
    ``QKVParallelLinear``.
    """
    model, tp = deployment.model, deployment.tp
    heads, kv_heads = model.num_attention_heads, model.num_kv_heads
    if heads % tp:
        raise UnsupportedCombination(
            f"--tp {tp} does not divide the {heads} attention heads of {model.name}",
            hint=f"These do: {', '.join(str(n) for n in _divisors(heads))}.",
        )
    if kv_heads is not None and kv_heads % tp and tp % kv_heads:
        raise UnsupportedCombination(
            f"--tp {tp} neither divides nor is a multiple of the {kv_heads} key-value heads of "
            f"{model.name}",
            hint=f"These work: {', '.join(str(n) for n in valid_tps(model, 64))}.",
        )
    if deployment.pp > model.num_hidden_layers:
        raise InputError(
            f"--pp {deployment.pp}: {model.name} has only {model.num_hidden_layers} layers"
        )
    if tp % deployment.dcp:
        raise InputError(f"--dcp {deployment.dcp} does not divide --tp {tp}")
    if deployment.ep > 1 and (deployment.tp * deployment.dp) % deployment.ep:
        raise InputError(
            f"--ep {deployment.ep} does not divide the "
            f"{deployment.tp * deployment.dp} GPUs of tp x dp"
        )


def check_lengths(deployment: Deployment) -> None:
    """A shared prefix and the mean length are no more than what a sequence holds."""
    d = deployment
    for option, tokens, what in (
        ("--prefix-tokens", d.prefix_tokens, "shared prefix"),
        ("--mean-seq", d.mean_seq or 0, "mean length"),
    ):
        if tokens > d.seq_len:
            raise InputError(
                f"{option} {tokens:,}: the {what} is more than the {d.seq_len:,} tokens of a "
                "sequence",
                hint="Ask for less of it, or for a longer --seq.",
            )


def valid_tps(model: Model, limit: int) -> list[int]:
    """Tensor-parallel sizes up to ``limit`` that the model's heads allow."""
    kv_heads = model.num_kv_heads
    return [
        tp
        for tp in _divisors(model.num_attention_heads)
        if tp <= limit and (kv_heads is None or kv_heads % tp == 0 or tp % kv_heads == 0)
    ]


def _divisors(number: int) -> list[int]:
    """Its divisors up to 64; 0, the heads of a model without attention, is divided by all."""
    return [n for n in range(1, min(number or 64, 64) + 1) if number % n == 0]
