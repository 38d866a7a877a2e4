"""What vLLM did before 0.33: one table of rules, each with the release it was read in.

Read in the released packages 0.6.6, 0.7.3, 0.8.5, 0.9.2, 0.10.2, 0.11.0, 0.15.0, 0.17.0, 0.19.0,
0.20.0, 0.20.2, 0.22.0, 0.24.0 to 0.30.0 and 0.33.0. A version names a series and stands for its
last patch release. A boundary inside series that were not read is put at the next one that was.

What is not in the table is not known, and `check` says so: it never takes the newest rule instead.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from kvplan.errors import InputError, UnsupportedCombination
from kvplan.hardware.gpu import Gpu
from kvplan.model.caches import (
    Cache,
    ChunkedLocal,
    FullAttention,
    Indexer,
    Latent,
    Recurrent,
    SlidingWindow,
)
from kvplan.model.model import Model
from kvplan.precision.kv import KvFormat
from kvplan.units import round_up

Version = tuple[int, int]

NEWEST: Version = (0, 33)
OLDEST: Version = (0, 6)

GRAPHS_IN_BUDGET: Version = (0, 20)
"""From here ``gpu_memory_utilization`` is 0.92 and graphs are estimated and taken from the pool.

``config/cache.py`` has 0.90 in 0.19.0 and 0.92 in 0.20.0, and in the same step ``envs.py`` turns
``VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS`` on. vLLM's own start-up line says "default since
v0.21.0", which is the release the change was announced for, not the one that brought it.
"""
_V1_ONLY: Version = (0, 11)
_V1_FIRST: Version = (0, 8)
_CAPABILITY_OF_V1 = (8, 0)
_TOKENS_FROM_CONCURRENCY: Version = (0, 20)
_WINDOWS_HOLD_ALL_BATCHES: Version = (0, 26)
_STATES: Version = (0, 26)
_STATES_OF_LATENT_MODELS: Version = (0, 27)
_STATES_OF_MAMBA: Version = (0, 28)
_STATES_EXPORTED: Version = (0, 29)
CONTEXT_PARALLEL: Version = (0, 11)
_SPARSE_LATENT: Version = (0, 11)
_WINDOW_GROUPS: Version = (0, 9)
_PAGES_UNIFIED: Version = (0, 15)
_FORMATS_SINCE: dict[str, Version] = {
    "fp8_e4m3": (0, 6),
    "fp8_e5m2": (0, 6),
    "fp8_ds_mla": (0, 15),
    "nvfp4": (0, 20),
    "int8_per_token_head": (0, 20),
    "fp8_per_token_head": (0, 20),
    "int4_per_token_head": (0, 25),
    "nvfp4_4over6": (0, 28),
    "nvfp4_ds_mla": (0, 30),
}
"""The first release read whose ``CacheDType`` lists the format."""


class Rules(NamedTuple):
    """The rules of one version on one GPU."""

    version: Version
    v1: bool
    """The engine of 0.8 and later; V0 counts blocks without a planner."""
    groups_windows: bool
    """Windows and chunks have groups of their own; before, every layer kept every token."""
    unifies_pages: bool
    """Layers of different page sizes can be brought together."""
    evens_below: tuple[int, int] | None
    """Groups take the commonest kind's layers when it has less than this many times the rarest's;
    None: always the rarest's."""
    window_holds_all_batches: bool
    """A window keeps the tokens of every batch in flight, not of one."""
    tokens_from_concurrency: bool
    """The printed tokens are ``int(concurrency * max_model_len)``; before, ``blocks // groups *
    block_size``."""
    states_exported: bool
    """Prefill kernels export one recurrent state more."""

    @property
    def held_blocks(self) -> int:
        """Blocks that no sequence gets: V1 keeps one as the null block."""
        return 1 if self.v1 else 0


@lru_cache(maxsize=128)
def parse(text: str | None) -> Version:
    """``0.20`` or ``v0.20.2`` as a version within what is modelled; None is the newest."""
    if text is None:
        return NEWEST
    parts = text.strip().lower().removeprefix("v").split(".")
    if not (
        len(parts) in {2, 3} and all(p.isascii() and p.isdigit() and len(p) < 4 for p in parts)
    ):
        raise InputError(
            f"--engine vllm@{text}: not a version such as vllm@{NEWEST[0]}.{NEWEST[1]}"
        )
    version = (int(parts[0]), int(parts[1]))
    if not OLDEST <= version <= NEWEST:
        raise UnsupportedCombination(
            f"vLLM {text} is not modelled: kvplan knows {said(OLDEST)} to {said(NEWEST)}",
            hint="--engine none gives the bare formula.",
        )
    return version


def said(version: Version) -> str:
    """``0.33``."""
    return f"{version[0]}.{version[1]}"


def uses_v1(version: Version, gpu: Gpu, *, kv_is_stated: bool = False) -> bool:
    """Whether the engine is V1, where the user says nothing: ``arg_utils.py``, ``default_v1``.

    Never before 0.8 (a preview then), always from 0.11. Between them V1 needs compute capability
    8.0, and 16-bit KV unless FlashAttention 3 (Hopper) or ROCm reads fp8.
    """
    if version >= _V1_ONLY or version < _V1_FIRST:
        return version >= _V1_ONLY
    capability = gpu.compute_capability
    if capability is None:
        return True
    return capability >= _CAPABILITY_OF_V1 and (not kv_is_stated or capability[0] == 9)


def check_engine(version: Version, asked: bool | None) -> None:
    """Refuse a choice between V0 and V1 where there was none."""
    if asked is not None and not _V1_FIRST <= version < _V1_ONLY:
        engine = "only the V0 engine" if version < _V1_FIRST else "only the V1 engine"
        raise UnsupportedCombination(
            f"--engine-arg use_v1: vLLM {said(version)} has {engine}",
            hint="It chooses between them in 0.8 to 0.10.",
        )


def latent_block_size(version: Version, gpu: Gpu) -> tuple[int, str] | None:
    """Block size of dense latent attention by default; None from where 0.33's choice holds.

    Source: ``platforms/cuda.py`` ``check_and_update_config``: FlashMLA on Hopper from 0.9; on
    data-centre Blackwell CUTLASS, then FlashInfer. To 0.8 FlashMLA had to be asked for.
    """
    capability = gpu.compute_capability
    if version >= (0, 19):
        return None
    if version >= (0, 9) and capability is not None:
        if capability[0] == 9:
            return 64, "FLASHMLA"
        if capability[0] == 10:
            return (64, "FLASHINFER_MLA") if version >= (0, 15) else (128, "CUTLASS_MLA")
    return 16, "TRITON_MLA"


@lru_cache(maxsize=128)
def rules(version: Version, *, v1: bool) -> Rules:
    """The rules of a version. Sources: ``v1/core/kv_cache_utils.py`` and
    ``v1/kv_cache_interface.py`` of the releases named above."""
    evens = (3, 2) if version >= (0, 19) else (5, 4) if version >= (0, 15) else None
    return Rules(
        version=version,
        v1=v1,
        groups_windows=v1 and version >= _WINDOW_GROUPS,
        unifies_pages=v1 and version >= _PAGES_UNIFIED,
        evens_below=evens,
        window_holds_all_batches=version >= _WINDOWS_HOLD_ALL_BATCHES,
        tokens_from_concurrency=v1 and version >= _TOKENS_FROM_CONCURRENCY,
        states_exported=version >= _STATES_EXPORTED,
    )


def check(model: Model, kv: KvFormat, r: Rules) -> None:
    """Refuse what this version did in a way that is not known here."""
    if r.version == NEWEST:
        return
    since = format_since(kv)
    if since > r.version:
        raise UnsupportedCombination(
            f"vLLM {said(r.version)} has no --kv {kv.name}: it came with {said(since)}",
            hint=f"Use --engine vllm@{said(since)} or newer, or --kv fp8.",
        )
    for group in model.groups:
        cache = group.cache
        if isinstance(cache, Recurrent):
            need(r, _states_since(model, cache), f"recurrent states ({cache.flavour})", model)
        elif isinstance(cache, Indexer):
            need(r, _SPARSE_LATENT, "sparse latent attention", model)
        elif not isinstance(cache, (FullAttention, SlidingWindow, ChunkedLocal, Latent)):
            need(r, NEWEST, f"{cache.kind.replace('_', ' ')} caches", model)


_REMOVED: dict[str, Version] = {
    "mllama": (0, 11), "mllama_text_model": (0, 11),
    "minimax": (0, 23), "minimax_text_01": (0, 23), "minimax_m1": (0, 23), "bamba": (0, 23),
    "baichuan": (0, 28), "arctic": (0, 28),
}  # fmt: skip
"""Architectures by the first release modelled here that no longer has them."""
_NEVER_SERVED = frozenset({"t5", "mt5", "umt5"})
"""Encoder-decoder models that are not speech recognisers: no model class in any V1 release."""


def left_out_of(model: Model, version: Version) -> str | None:
    """What to say of a model whose class this release does not have; None where it does.

    The figures are then what its planner would give the model's caches. Source:
    ``model_executor/models/registry.py`` (``_PREVIOUSLY_SUPPORTED_MODELS``).
    """
    removed = _REMOVED.get(model.model_type)
    if removed is not None and version >= removed:
        return (
            f"vLLM {said(version)} has no {model.model_type} models any more: the figures are what "
            "its rules give, but it will not start"
        )
    if model.model_type in _NEVER_SERVED:
        return f"vLLM {said(version)} has no {model.model_type} models: it will not start"
    return None


def check_pages(page_bytes: set[int], model: Model, r: Rules) -> None:
    """Before pages were unified, a model that mixes page sizes in groups could not start."""
    if len(page_bytes) > 1 and not r.unifies_pages:
        raise UnsupportedCombination(
            f"vLLM {said(r.version)} cannot mix the page sizes of {model.name}'s layers",
            hint=f"kvplan knows this model from vllm@{said(_PAGES_UNIFIED)}.",
        )


def need(r: Rules, since: Version, what: str, model: Model) -> None:
    """Refuse what is not known of this version."""
    if r.version < since or not r.v1:
        engine = "" if r.v1 else " (V0 engine)"
        raise UnsupportedCombination(
            f"how vLLM {said(r.version)}{engine} stores the {what} of {model.name} is not known "
            "to kvplan",
            hint=f"It knows vllm@{said(since)} and newer. --engine none gives the bare formula.",
        )


def format_since(kv: KvFormat) -> Version:
    """The first version that takes a format."""
    if kv.name.startswith("turboquant"):
        return (0, 20)
    if kv.name in {"bf16", "fp16"}:
        return OLDEST
    return _FORMATS_SINCE.get(kv.name, NEWEST)


def _states_since(model: Model, cache: Recurrent) -> Version:
    """From which release the states of a flavour follow the rules that are modelled.

    Hybrid models cached no prefixes by default to 0.25, and Mamba kept a state at every block
    ("all" mode) to 0.27; latent attention beside states got its alignment with 0.27.
    """
    if cache.flavour not in {"gated_delta_net", "kda"}:
        return _STATES_OF_MAMBA
    if any(isinstance(group.cache, Latent) for group in model.groups):
        return _STATES_OF_LATENT_MODELS
    return _STATES


@lru_cache(maxsize=64)
def as_stored(model: Model, r: Rules) -> Model:
    """The model with its caches as this version stored them; the model itself where it is so.

    * Latent attention to 0.6: expanded to ordinary heads, padded to 256 elements a head
      (``config.py: get_head_size``). In 0.7: one vector of 576, padded to a multiple of 256 bytes
      (``worker/cache_engine.py: _align_cache``).
    * Windows where the version did not group them (V0, and V1 to 0.8): every layer keeps every
      token (``unify_hybrid_kv_cache_specs``). V1 to 0.8 left a model of windows alone as it was.
    """
    has_full = any(not isinstance(group.cache, SlidingWindow) for group in model.groups)
    widens = not r.groups_windows and (has_full or not r.v1)
    old_latent = r.version < _V1_FIRST

    def stored(cache: Cache) -> Cache:
        if widens and isinstance(cache, (SlidingWindow, ChunkedLocal)):
            return FullAttention(cache.num_kv_heads, cache.head_size, cache.head_size_v)
        if not (old_latent and isinstance(cache, Latent)):
            return cache
        if r.version < (0, 7):
            return FullAttention(model.num_attention_heads, 256, 256)
        padded = round_up(cache.kv_lora_rank + cache.qk_rope_head_dim, 128)
        return cache._replace(kv_lora_rank=padded - cache.qk_rope_head_dim)

    layers = tuple(
        layer._replace(caches=tuple(map(stored, layer.caches))) for layer in model.layers
    )
    if layers == model.layers:
        return model
    from dataclasses import replace

    return replace(model, layers=layers)
