"""vLLM: a fraction of the GPU's total memory, less what a start-up profile run measures.

    claim  = ceil(total * gpu_memory_utilization)
    pool   = claim - weights - activation peak - CUDA graphs - runtime
    blocks = pool // bytes of a block, one of which is never given out

Rules are those of 0.33; what earlier versions did otherwise is in `versions`. Source: vLLM
``v1/worker/gpu_worker.py`` ``determine_available_memory``; the terms are in `overheads`, the
blocks in `kv_layout` and `paging`, formats and block sizes in `formats`, what is settled before in
`resolving` and `defaults`, start-up logs in `log`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kvplan.deployment import Deployment
from kvplan.engines.base import Claim, KvLayout, PoolFigures, Settled, Term
from kvplan.engines.vllm import defaults, formats, loading, overheads, versions
from kvplan.engines.vllm.block_size import settle
from kvplan.engines.vllm.flags import serve_command
from kvplan.engines.vllm.further import further
from kvplan.engines.vllm.kv_layout import vllm_layout
from kvplan.engines.vllm.paging import (
    asked_block_size,
    least_blocks,
    paging_of,
    with_block_size,
)
from kvplan.engines.vllm.resolving import (
    batch_limits,
    check_division,
    check_hardware,
    check_version,
    in_dtype,
    rules_of,
)
from kvplan.errors import InputError
from kvplan.model.model import stage_layers
from kvplan.precision.kv import KvFormat
from kvplan.units import MAX_TOKENS, cdiv, truncated

if TYPE_CHECKING:
    from kvplan.calibration import Observed
    from kvplan.engines.vllm.drafting import Draft


class Vllm:
    """The vLLM engine."""

    name = "vllm"

    def resolve(self, deployment: Deployment) -> Deployment:
        """Defaults of the API server on this GPU; each value the user did not give is said."""
        version = versions.parse(deployment.engine_version)
        check_hardware(deployment)
        check_division(deployment)
        deployment = formats.with_own_format(in_dtype(deployment))
        formats.check_format(deployment)
        formats.check_block_size(deployment)
        d = deployment._replace(engine_version=versions.said(version))
        d = check_version(d)
        args = d.args
        max_model_len = d.seq_len if args.max_model_len is None else args.max_model_len
        if max_model_len < d.seq_len:
            raise InputError(
                f"--seq {d.seq_len:,} is longer than --max-model-len {max_model_len:,}",
                hint="Raise --max-model-len, or ask for a shorter --seq.",
            )
        if args.gpu_memory_utilization is None:
            utilization = defaults.default_gpu_memory_utilization(version)
            d = d.saying(assumption=f"gpu_memory_utilization {utilization}: vLLM's default")
        else:
            utilization = args.gpu_memory_utilization
        d = batch_limits(d, version, max_model_len)
        return with_block_size(
            d.with_args(max_model_len=max_model_len, gpu_memory_utilization=utilization)
        )

    def claim(self, deployment: Deployment) -> Claim:
        """``ceil(total * utilisation)`` of the whole device, whatever others hold of it.

        Start-up is refused unless that much is free beside what is in use before vLLM measures.
        """
        total = deployment.usable_bytes + deployment.reserve_bytes
        utilization = deployment.args.gpu_memory_utilization or 1.0
        outside = overheads.outside_claim_bytes(
            tp=deployment.tp,
            pp=deployment.pp,
            version=versions.parse(deployment.engine_version),
        )
        return Claim(
            overheads.claim_bytes(total, utilization),
            Term("context", *outside, "CUDA context and NCCL buffers in logged start-ups"),
        )

    def weight_bytes(self, deployment: Deployment, stage: int) -> int:
        """The checkpoint's bytes, padded and repacked as its kernels want them."""
        version = versions.parse(deployment.engine_version)
        return loading.weight_bytes(deployment, stage, version)

    def overheads(self, deployment: Deployment, stage: int) -> Sequence[Term]:
        """Activation peak, CUDA graphs and runtime, with their ranges."""
        d, model, args = deployment, deployment.model, deployment.args
        r = rules_of(d)
        version = r.version
        tokens, sequences = args.max_num_batched_tokens or 0, args.max_num_seqs or 0
        vocab = model.vocab_size or 0
        last = stage == d.pp - 1
        activation = overheads.activation_peak_bytes(
            batched_tokens=tokens,
            max_num_seqs=sequences if last else 0,
            vocab_size=vocab,
            hidden_size=model.hidden_size or 0,
            intermediate_size=model.mlp_width,
            tp=d.tp,
            version=version,
            experts_per_token=model.experts_per_token,
            moe_intermediate_size=model.expert_width,
            expert_parallel=d.ep > 1,
            logits_per_seq=1 + args.speculative_tokens,
            logit_softcap=bool(
                model.facts.get("final_logit_softcapping", model.model_type in _SOFTCAPPED)
            ),
            # V0 with chunked prefill profiled a step that samples nothing, up to 0.7.
            samples=version >= (0, 8) or tokens >= (args.max_model_len or 0),
        )
        encoder = overheads.encoder_peak_bytes(multimodal=model.is_multimodal and stage == 0)
        peak = overheads.Estimate(*map(max, activation, encoder))
        runtime = overheads.communication_bytes(
            tp=d.tp,
            pp=d.pp,
            link_is_nvlink=(d.gpu.link.gb_per_s or 0) >= 200,
            vendor=d.gpu.vendor,
            version=version,
        )
        if last:
            runtime = runtime + overheads.sampler_state_bytes(
                max_num_seqs=sequences, vocab_size=vocab, version=version
            )
        start, end = stage_layers(model.num_hidden_layers, d.pp, stage)
        capability = d.gpu.compute_capability
        graphs = overheads.cuda_graph_bytes(
            enforce_eager=args.enforce_eager,
            num_layers=end - start,
            sizes=overheads.capture_sizes(
                max_num_seqs=sequences,
                batched_tokens=tokens,
                version=version,
                v1=r.v1,
                tokens_per_seq=1 + args.speculative_tokens,
                data_centre_blackwell=capability is not None and capability[0] == 10,
            ),
            is_moe=model.experts_per_token > 0,
            version=version,
        )
        more: list[Term] = []
        if further(d).max_loras:
            from kvplan.engines.vllm.lora import lora_term

            more.append(lora_term(d, stage, further(d)))
        draft = _draft(d)
        if draft is not None and last:
            more.append(draft.term)
        return (
            Term("activation", *peak, "profile run: larger of MLP and sampler, measured law"),
            Term(
                "cuda_graph",
                *graphs,
                "graphs captured, per layer and size, measured law",
                in_claim=overheads.graphs_in_budget(version),
            ),
            Term("runtime", *runtime, "kernels, NCCL and the sampler's tables, measured"),
            *more,
        )

    def kv_layout(self, deployment: Deployment, stage: int) -> KvLayout:
        """Blocks by group, as vLLM's planner lays them out."""
        d, args = deployment, deployment.args
        paging = settle(d.model, paging_of(d, args.block_size or formats.DEFAULT_BLOCK_SIZE))
        draft = _draft(d)
        layout = vllm_layout(
            d.model,
            paging,
            pp=d.pp,
            stage=stage,
            hybrid=not args.disable_hybrid_kv_cache_manager,
            r=rules_of(d),
            draft=draft.caches if draft else (),
            draft_from=draft.first_layer if draft else 0,
        )
        return layout._replace(
            fixed_blocks=further(d).num_gpu_blocks_override, least_blocks=least_blocks(d)
        )

    def pool_figures(
        self, deployment: Deployment, layout: KvLayout, pool_bytes: int
    ) -> PoolFigures:
        """The start-up line "GPU KV cache size: … tokens, Maximum concurrency …".

        ``concurrency = blocks / blocks of one request at max_model_len`` and ``tokens =
        int(concurrency * max_model_len)``; the null block is counted although nobody can use it.
        To 0.19 ``tokens = blocks // groups * block_size``, which for several groups is no capacity,
        and to 0.8 (V0: always) ``concurrency = tokens / max_model_len``.
        Source: vLLM ``v1/core/kv_cache_utils.py`` ``get_kv_cache_capacity``, and before
        ``_report_kv_cache_config``, ``get_kv_cache_config``.
        """
        d, r = deployment, rules_of(deployment)
        max_model_len = d.seq_len if d.args.max_model_len is None else d.args.max_model_len
        blocks, needed = layout.pool_blocks(pool_bytes), layout.sequence_blocks(max_model_len)
        if blocks is None or needed is None or not layout.sequence_blocks(1):
            return PoolFigures()
        concurrency = blocks / needed
        if r.tokens_from_concurrency:
            return PoolFigures(truncated(concurrency * max_model_len), concurrency)
        block_size = min(group.block_tokens for group in layout.groups)
        tokens = blocks // len(layout.groups) * block_size * d.dcp
        return PoolFigures(tokens, concurrency if r.groups_windows else tokens / max_model_len)

    def settled(self, deployment: Deployment) -> Settled | None:
        """Lengths of which a full step has its default of tokens, and batches within that step.

        V0 sizes a step by max_model_len.
        """
        d = formats.with_own_format(deployment)
        args, r = d.args, rules_of(d)
        if not r.v1:
            return None
        step = defaults.batch_defaults(
            device_bytes=d.total_bytes or 0,
            gpu_name=d.gpu.display_name,
            version=r.version,
            max_model_len=MAX_TOKENS,
            max_num_seqs=args.max_num_seqs,
        )
        sequences = min(step.max_num_seqs, args.max_num_batched_tokens or step.max_num_seqs)
        if args.max_model_len is not None:
            return Settled(1, args.max_model_len, sequences)
        shortest = cdiv(step.max_num_batched_tokens, step.max_num_seqs)
        return Settled(shortest, MAX_TOKENS, sequences)

    def kv_formats(self, deployment: Deployment) -> Sequence[KvFormat]:
        """What its attention backends take here."""
        version = versions.parse(deployment.engine_version)
        return [
            form
            for form in formats.accepted(deployment._replace(kv_is_stated=False))
            if versions.format_since(form) <= version
        ]

    def block_sizes(self, deployment: Deployment) -> Sequence[int]:
        """What its attention backends take here."""
        return formats.block_sizes(deployment)

    def flags(self, deployment: Deployment) -> list[str]:
        """The ``vllm serve`` line."""
        draft = _draft(deployment)
        return serve_command(
            deployment,
            further(deployment),
            asked_block_size(deployment),
            rules_of(deployment).version,
            "ngram" if draft is None else draft.method,
        )

    def changes(self, deployment: Deployment) -> Sequence[tuple[str, Deployment]]:
        """Settings that cost speed, not quality: fewer sequences and tokens a step, no graphs."""
        d, args = deployment, deployment.args
        sequences, tokens = args.max_num_seqs or 0, args.max_num_batched_tokens or 0
        found = []
        fewer = max(d.replica_batch, 16)
        if fewer < sequences:
            found.append((f"--max-num-seqs {fewer}", d.with_args(max_num_seqs=fewer)))
        smaller = max(2048, sequences)
        if smaller < tokens:
            found.append(
                (f"--max-num-batched-tokens {smaller}", d.with_args(max_num_batched_tokens=smaller))
            )
        if args.gpu_memory_utilization is not None and args.gpu_memory_utilization < 0.95:
            found.append(
                ("--gpu-memory-utilization 0.95", d.with_args(gpu_memory_utilization=0.95))
            )
        if not args.enforce_eager:
            found.append(("--enforce-eager", d.with_args(enforce_eager=True)))
        if fewer < sequences and not args.enforce_eager:
            found.append(
                (
                    f"--max-num-seqs {fewer} --enforce-eager",
                    d.with_args(max_num_seqs=fewer, enforce_eager=True),
                )
            )
        return found

    def read_log(self, lines: Iterable[str]) -> Observed:
        """What its start-up log says."""
        from kvplan.engines.vllm.log import read_log

        return read_log(lines)

    def other_settings(self, deployment: Deployment) -> Sequence[tuple[str, Deployment]]:
        """Sequences and tokens of a step by other defaults, and the engine of older GPUs."""
        d = deployment
        pairs = [(tokens, seqs) for tokens in (2048, 8192, 16_384) for seqs in (256, 1024)]
        found = [
            (
                f"max_num_seqs {seqs:,} and max_num_batched_tokens {tokens:,}",
                d.with_args(max_num_seqs=seqs, max_num_batched_tokens=tokens),
            )
            for tokens, seqs in pairs
        ]
        found += [
            (f"max_num_seqs {seqs:,}", d.with_args(max_num_seqs=seqs))
            for seqs in (8, 16, 32, 64, 128, 256, 512, 1024, 2048)
            if seqs <= (d.args.max_num_batched_tokens or seqs)
        ]
        if (0, 8) <= versions.parse(d.engine_version) < (0, 11):
            extra = dict(d.args.extra) | {"use_v1": str(int(not rules_of(d).v1))}
            words = "the V0 engine" if rules_of(d).v1 else "the V1 engine"
            found.append((words, d.with_args(extra=tuple(sorted(extra.items())))))
        return found


_SOFTCAPPED = {"gemma2", "gemma3n_text"}
"""Classes whose logits are capped unless the config says null: ``Gemma2Config``,
``Gemma3nTextConfig`` (``final_logit_softcapping`` 30.0)."""


def _draft(d: Deployment) -> Draft | None:
    """What proposes tokens and takes memory."""
    if not d.args.speculative_tokens or rules_of(d).version != versions.NEWEST:
        return None
    from kvplan.engines.vllm.drafting import draft_of

    return draft_of(d)


ENGINE = Vllm()
