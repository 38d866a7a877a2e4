"""The block size that vLLM settles on, and what else decides its blocks, from a deployment."""

from __future__ import annotations

from kvplan.deployment import Deployment
from kvplan.engines.vllm import formats, versions
from kvplan.engines.vllm.block_size import settle
from kvplan.engines.vllm.further import further
from kvplan.engines.vllm.resolving import rules_of
from kvplan.engines.vllm.specs import PACKED_ALIGNMENT, Paging
from kvplan.model.model import WIDE_KV

_IN_FLIGHT_KINDS = {"sliding_window", "chunked_local", "compressed", "compressor_state"}
"""Kinds that keep the tokens in flight beside their own."""


def paging_of(d: Deployment, block_size: int) -> Paging:
    """What decides the blocks, from the engine's arguments."""
    args, more = d.args, further(d)
    # Batches scheduled but not finished: one more than the stages when scheduling runs ahead
    # (vLLM VllmConfig.max_concurrent_batches).
    r = rules_of(d)
    batches = d.pp + args.async_scheduling if r.window_holds_all_batches else 1
    step_tokens = args.max_num_batched_tokens or 0
    capability = d.gpu.compute_capability
    kinds = {group.cache.kind for group in d.model.groups}
    drafted = {group.cache.kind for group in d.draft.groups} if d.draft else set()
    # Left at zero where no layer asks, so that layouts that are the same compare equal.
    in_flight = batches * step_tokens if (kinds | drafted) & _IN_FLIGHT_KINDS else 0
    return Paging(
        block_size=block_size,
        kv=d.kv,
        wide_kv=WIDE_KV,
        tp=d.tp,
        dcp=d.dcp,
        in_flight_tokens=in_flight,
        encoder_tokens=step_tokens if "cross_attention" in kinds else 0,
        # Without any attention there is no prefix cache to keep states for.
        aligned_states=args.prefix_caching and kinds != {"recurrent"},
        state_element_bytes=more.mamba_ssm_cache_bytes,
        exports_checkpoints=r.states_exported and capability is not None and capability >= (9, 0),
        mamba_exports=r.states_exported,
        speculative_tokens=args.speculative_tokens,
        skipped_layers=more.skipped_layers,
        skips_windows=more.skips_windows,
        page_alignment=PACKED_ALIGNMENT if "compressed" in kinds else 1,
    )


def least_blocks(d: Deployment) -> int:
    """Recurrent states take one block for each of ``max_num_seqs`` when graphs are captured.

    "max_num_seqs (256) exceeds available Mamba cache blocks (184)": refused from 0.20.
    Source: vLLM ``config/compilation.py`` ``resolve_cudagraph_mode_and_sizes``.
    """
    if d.args.enforce_eager or rules_of(d).version < versions.GRAPHS_IN_BUDGET:
        return 0
    recurrent = any(group.cache.kind == "recurrent" for group in d.model.groups)
    return d.args.max_num_seqs or 0 if recurrent else 0


def with_block_size(d: Deployment) -> Deployment:
    """The block size that the attention backend, recurrent states and mixed formats lead to."""
    asked = d.args.block_size
    said = "as asked"
    if asked is None:
        asked, why = formats.default_block_size(d)
        said = f"vLLM's default here ({why})"
    settled = settle(d.model, paging_of(d, asked)).block_size
    if settled != asked:
        said = f"raised from {asked} to hold a recurrent state or a 16-bit layer's page"
    if settled != d.args.block_size:
        d = d.saying(assumption=f"block_size {settled}: {said}")
    return d.with_args(block_size=settled)


def asked_block_size(d: Deployment) -> int | None:
    """What to ask for to get the settled block size; None where vLLM raises its default to it."""
    size = d.args.block_size
    default = formats.default_block_size(d)[0]
    for asked in (default, *formats.block_sizes(d)):
        if size != asked and settle(d.model, paging_of(d, asked)).block_size == size:
            return None if asked == default else asked
    return size
