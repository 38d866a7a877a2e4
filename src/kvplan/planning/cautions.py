"""What the figures of a budget alone do not say: warnings, each with a code for tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from kvplan.model.caches import Latent
from kvplan.planning.budget import Budget
from kvplan.policy import Policy
from kvplan.units import format_gib

if TYPE_CHECKING:
    from kvplan.planning.budget import When

CODES = {
    "model": "The model's facts come with a warning of their own.",
    "engine": "The engine's settings or a calibration come with a warning of their own.",
    "native_context": "seq_len is beyond the model's native context.",
    "kv_heads_replicated": "tp is more than the key-value heads, so each is held several times.",
    "latent_not_split": "Latent attention is not divided by tp.",
    "slow_link": "The GPU's link is slower than tensor parallelism wants.",
    "kv_format_not_native": "The GPU stores the KV format but does not compute in it.",
    "weight_format_not_native": "The same of the weight format.",
    "kv_share": "The KV cache takes more of the GPU than the policy's share.",
    "memory_not_certain": "The GPU's usable memory is not certain.",
    "kv_cache_memory": "The stated KV pool is more than the GPU has.",
    "weights_unknown": "The weights are not counted.",
}
"""Every code, in the order in which warnings are told."""


class Caution(NamedTuple):
    """One warning: when it holds (for a sweep, where), and its words for a single answer."""

    code: str
    when: When
    words: Callable[[], str]


def warnings_of(b: Budget, policy: Policy) -> list[str]:
    """The warnings of one answer."""
    return [caution.words() for caution in cautions(b, policy) if caution.when]


def cautions(b: Budget, policy: Policy) -> Iterator[Caution]:
    """What may have to be said, in order; conditions on the load take arrays as they come."""
    d, model, gpu = b.deployment, b.deployment.model, b.deployment.gpu
    native = model.max_position_embeddings
    if native is not None:
        yield Caution(
            "native_context",
            d.seq_len > native,
            lambda: f"{d.seq_len:,} tokens is beyond the model's native context of {native:,}",
        )
    kv_heads = model.num_kv_heads
    if kv_heads is not None:
        yield Caution(
            "kv_heads_replicated",
            d.tp > kv_heads,
            lambda: (
                f"tp {d.tp} is more than the {kv_heads} key-value heads: each is held by "
                f"{d.tp // kv_heads} GPUs, and the KV cache of a GPU is that of tp {kv_heads}"
            ),
        )
    yield Caution(
        "latent_not_split",
        d.tp > 1 and any(isinstance(group.cache, Latent) for group in model.groups),
        lambda: "latent attention is not divided by tp: every GPU holds the whole KV cache",
    )
    yield from _link(b, policy)
    yield Caution(
        "kv_format_not_native",
        d.kv.k.bits == 8 and d.kv.name.startswith("fp8") and not _has(gpu.kv_formats, "fp8"),
        lambda: f"fp8 is not native to {gpu.display_name}: the cache is stored in it, not computed",
    )
    yield Caution(
        "kv_format_not_native",
        d.kv.name.startswith("nvfp4") and not _has(gpu.kv_formats, "nvfp4"),
        lambda: f"nvfp4 is not native to {gpu.display_name}",
    )
    yield Caution(
        "weight_format_not_native",
        d.scheme.name.startswith("fp8") and not _has(gpu.weight_formats, "fp8"),
        lambda: f"fp8 weights are not native to {gpu.display_name}: memory is saved, not time",
    )
    total = d.total_bytes
    if total is not None:
        yield Caution(
            "kv_share",
            (b.needed_bytes > policy.max_kv_share * d.usable_bytes) & b.fits,
            lambda: (
                f"the KV cache takes {b.needed_bytes / d.usable_bytes:.0%} of the GPU, "
                f"above the policy's {policy.max_kv_share:.0%}"
            ),
        )
    yield Caution(
        "memory_not_certain",
        not gpu.memory_is_certain and d.device_bytes is None,
        lambda: f"the memory of {gpu.display_name} is not certain: {gpu.memory_basis}",
    )
    given = d.args.kv_cache_memory_bytes
    if given is not None:
        yield Caution(
            "kv_cache_memory",
            total is not None and given > total,
            lambda: f"--kv-cache-memory {format_gib(given)} is more than the GPU has",
        )
    yield Caution(
        "weights_unknown",
        model.weights_unknown is not None,
        lambda: f"the weights are not counted: {model.weights_unknown}",
    )


def _link(b: Budget, policy: Policy) -> Iterator[Caution]:
    d, gpu = b.deployment, b.deployment.gpu
    wanted = f"{policy.min_tp_link_gb_per_s:,.0f}"
    rate = gpu.link.gb_per_s
    if rate is not None and d.tp <= gpu.link.max_gpus:
        yield Caution(
            "slow_link",
            d.tp > 1 and rate < policy.min_tp_link_gb_per_s,
            lambda: f"tp {d.tp} over a link of {rate:,.0f} GB/s: it wants {wanted}",
        )
    else:
        yield Caution(
            "slow_link",
            d.tp > 1,
            lambda: (
                f"tp {d.tp} goes over PCIe or the network on {gpu.display_name}: "
                f"it wants a link of {wanted} GB/s"
            ),
        )


def _has(formats: tuple[str, ...], prefix: str) -> bool:
    return any(name.startswith(prefix) for name in formats)
