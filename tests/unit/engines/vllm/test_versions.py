"""What earlier versions of vLLM did otherwise, each figure with its arithmetic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders import cache_model, deployment, gpu, tiny_model

from kvplan.deployment import Deployment
from kvplan.engines import load_engine
from kvplan.engines.vllm import versions
from kvplan.errors import InputError, KvplanError, UnsupportedCombination
from kvplan.model.caches import CrossAttention, FullAttention, Latent, Recurrent, SlidingWindow
from kvplan.model.model import Model
from kvplan.planning.budget import evaluate
from kvplan.planning.report import Verdict
from kvplan.precision.kv import KV_FORMATS
from kvplan.question import build_deployment

VLLM = load_engine("vllm")
FULL = FullAttention(8, 128, 128)
WINDOW = SlidingWindow(8, 128, 128, 1024)
STATE = Recurrent("gated_delta_net", 2048, 4, 16 * 128 * 128, 16)
PAGE = 16 * 8 * 256 * 2
"""A block of 16 tokens of either in one layer: 65,536 B."""
HYBRID = cache_model([(FULL,)] * 2 + [(WINDOW,)] * 6, vocab_size=32_000, hidden_size=1024)
MLA = cache_model([(Latent(512, 64),)] * 4, heads=128, vocab_size=32_000, hidden_size=1024)


def at(version: str, model: Model = HYBRID, **changes: Any) -> Deployment:
    return VLLM.resolve(
        deployment(model, engine="vllm", engine_version=version, seq_len=8192, **changes)
    )


@pytest.mark.parametrize(
    ("version", "share"),
    [("0.6", 0.90), ("0.19.1", 0.90), ("v0.20.2", 0.92), ("0.33", 0.92), (None, 0.92)],
)
def test_default_utilisation(version: str | None, share: float) -> None:
    assert at(version or "0.33").args.gpu_memory_utilization == share


@pytest.mark.parametrize("text", ["0.5", "0.34", "1.0"])
def test_versions_beyond_the_table_are_refused(text: str) -> None:
    with pytest.raises(UnsupportedCombination, match=r"kvplan knows 0\.6 to 0\.33"):
        versions.parse(text)


@pytest.mark.parametrize("text", ["", "newest", "0", "0.1.2.3", "0.x", "0.99999", "²"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="not a version such as"):
        versions.parse(text)


def test_printed_tokens_count_groups_to_0_19() -> None:
    """2 full and 6 window layers: groups of 2, so 4 groups, and a block is 2 pages.

    1,000 blocks: 0.19 prints 1000 // 4 * 16. 0.33 prints int(1000 / blocks of a request * 8192).
    """
    pool = 1000 * 2 * PAGE
    old, new = at("0.19"), at("0.33")
    layout = VLLM.kv_layout(old, 0)
    assert (layout.block_bytes, len(layout.groups)) == (2 * PAGE, 4)
    assert VLLM.pool_figures(old, layout, pool).tokens == 1000 // 4 * 16
    layout = VLLM.kv_layout(new, 0)
    needed = layout.sequence_blocks(8192) or 0
    assert VLLM.pool_figures(new, layout, pool).tokens == int(1000 / needed * 8192)


def test_window_holds_one_batch_to_0_25_and_two_from_0_26() -> None:
    """ceil(min(1024 - 1 + k * 2048, 8192) / 16) + 1 blocks in each of 3 window groups."""
    for version, batches in (("0.25", 1), ("0.26", 2), ("0.33", 2)):
        d = at(version).with_args(max_num_batched_tokens=2048)
        blocks = -(-(1023 + batches * 2048) // 16) + 1
        assert VLLM.kv_layout(d, 0).sequence_blocks(8192) == 512 + 3 * blocks


def test_windows_are_kept_in_full_before_0_9_and_by_v0() -> None:
    """All 8 layers in one group: a block is 8 pages, a sequence of 8,192 tokens 512 blocks."""
    for d in (at("0.7"), at("0.8"), at("0.10").with_args(extra=(("use_v1", "0"),))):
        layout = VLLM.kv_layout(d, 0)
        assert (layout.block_bytes, layout.sequence_blocks(8192)) == (8 * PAGE, 512)
    assert VLLM.kv_layout(at("0.9"), 0).block_bytes == 2 * PAGE


def test_layers_that_nearly_match_are_evened_out_from_0_15() -> None:
    """12 full and 13 window layers. 0.11: groups of 12, so 3. 0.15: groups of 13, so 2."""
    near = cache_model([(FULL,)] * 12 + [(WINDOW,)] * 13, vocab_size=32_000, hidden_size=1024)
    wider = cache_model([(FULL,)] * 10 + [(WINDOW,)] * 13, vocab_size=32_000, hidden_size=1024)

    def groups(model: Model, version: str) -> int:
        return len(VLLM.kv_layout(at(version, model), 0).groups)

    assert [groups(near, v) for v in ("0.11", "0.15", "0.33")] == [3, 2, 2]
    # 13 is 1.3 times 10: evened out when the bound went from 1.25 to 1.5
    assert [groups(wider, v) for v in ("0.11", "0.15", "0.19", "0.33")] == [3, 3, 2, 2]


def test_page_sizes_do_not_mix_before_0_15() -> None:
    mixed = cache_model(
        [(FULL,)] * 2 + [(SlidingWindow(8, 64, 64, 1024),)] * 2, vocab_size=32_000, hidden_size=1024
    )
    d = at("0.11", mixed)
    with pytest.raises(UnsupportedCombination, match="cannot mix the page sizes"):
        VLLM.kv_layout(d, 0)
    VLLM.kv_layout(at("0.15", mixed), 0)


def test_latent_attention_of_old() -> None:
    """0.6: 128 heads of 256 + 256 elements at 2 B, over 8 ranks. 0.7: 576 padded to 640."""
    per_token = {}
    for version in ("0.6", "0.7", "0.8", "0.33"):
        layout = VLLM.kv_layout(at(version, MLA, tp=8), 0)
        assert layout.block_bytes is not None
        assert layout.block_size is not None
        per_token[version] = layout.block_bytes // layout.block_size // 4
    assert per_token == {"0.6": 128 // 8 * 512 * 2, "0.7": 640 * 2, "0.8": 576 * 2, "0.33": 576 * 2}


def test_block_size_of_latent_attention_follows_the_kernel_of_the_time() -> None:
    assert [at(v, MLA).args.block_size for v in ("0.8", "0.11", "0.33")] == [16, 64, 16]
    blackwell = gpu(arch="sm_100")
    found = [at(v, MLA, gpu=blackwell).args.block_size for v in ("0.11", "0.15", "0.33")]
    assert found == [128, 64, 32]


def test_v0_takes_the_whole_context_as_one_step() -> None:
    d = at("0.7", tiny_model())
    assert (d.args.max_num_seqs, d.args.max_num_batched_tokens) == (256, 8192)
    assert VLLM.kv_layout(d, 0).held_blocks == 0
    longer = VLLM.resolve(
        deployment(
            tiny_model(max_position_embeddings=131_072),
            engine="vllm", engine_version="0.7", seq_len=40_000,
        )
    )  # fmt: skip
    assert longer.args.max_num_batched_tokens == 2048, "above 32,768 it chunks by itself"


@pytest.mark.parametrize(
    ("version", "arch", "v1"),
    [
        ("0.7", "sm_90", False), ("0.8", "sm_90", True), ("0.8", "sm_75", False),
        ("0.10", "sm_70", False), ("0.11", "sm_75", True), ("0.9", "gfx942", True),
    ],
)  # fmt: skip
def test_which_engine_a_gpu_gets(version: str, arch: str, v1: bool) -> None:
    assert versions.uses_v1(versions.parse(version), gpu(arch=arch)) is v1


def test_fp8_cache_falls_back_to_v0_without_flash_attention_3() -> None:
    assert versions.uses_v1((0, 9), gpu(arch="sm_90"), kv_is_stated=True)
    assert not versions.uses_v1((0, 9), gpu(arch="sm_89"), kv_is_stated=True)


@pytest.mark.parametrize(("version", "engine"), [("0.7", "V0"), ("0.11", "V1"), ("0.33", "V1")])
def test_use_v1_is_refused_where_there_was_no_choice(version: str, engine: str) -> None:
    d = deployment(tiny_model(), engine="vllm", engine_version=version)
    with pytest.raises(UnsupportedCombination, match=f"has only the {engine} engine"):
        VLLM.resolve(d.with_args(extra=(("use_v1", "1"),)))


@pytest.mark.parametrize(
    ("name", "version", "since"),
    [
        ("nvfp4", "0.19", "0.20"), ("int8_per_token_head", "0.19", "0.20"),
        ("int4_per_token_head", "0.24", "0.25"), ("turboquant_k8v4", "0.11", "0.20"),
    ],
)  # fmt: skip
def test_formats_came_with_a_version(name: str, version: str, since: str) -> None:
    asked = {"kv": KV_FORMATS[name], "kv_is_stated": True}
    with pytest.raises(UnsupportedCombination, match=f"it came with {since}"):
        at(version, tiny_model(), **asked)
    at(since, tiny_model(), **asked)
    offered = VLLM.kv_formats(at(version, tiny_model()))
    assert name not in {form.name for form in offered}


def test_kinds_whose_old_rules_are_not_known_are_refused() -> None:
    encoder = cache_model([(FULL, CrossAttention(8, 128, 128, 1500))] * 2, vocab_size=32_000,
                          hidden_size=1024)  # fmt: skip
    with pytest.raises(UnsupportedCombination, match="is not known to kvplan"):
        at("0.32", encoder)
    recurrent = cache_model([(STATE,)] * 3 + [(FULL,)], vocab_size=32_000, hidden_size=1024)
    with pytest.raises(UnsupportedCombination, match="is not known to kvplan") as caught:
        at("0.19", recurrent)
    assert "vllm@0.26" in (caught.value.hint or "")


def test_dcp_is_refused_where_it_is_not_known() -> None:
    with pytest.raises(KvplanError, match="dcp"):
        at("0.9", tp=2, dcp=2)


def test_graphs_lie_beside_the_claim_before_0_20() -> None:
    """Not taken from the pool, but they need room in total - claim."""
    small = tiny_model(num_hidden_layers=32)
    graphs = {
        version: next(t for t in VLLM.overheads(at(version, small), 0) if t.key == "cuda_graph")
        for version in ("0.19", "0.20")
    }
    assert not graphs["0.19"].in_claim
    assert graphs["0.20"].in_claim
    budget = evaluate(VLLM, at("0.19", small), 0.0)
    inside = sum(t.likely for t in budget.terms if t.in_claim)
    assert budget.claim_bytes is not None
    assert budget.weight_bytes is not None
    assert budget.pool_bytes == budget.claim_bytes - budget.weight_bytes - inside
    # 80 GiB at 0.995: 0.4 GiB beside the claim, which the context alone fills
    full = at("0.19", small).with_args(gpu_memory_utilization=0.994)
    budget = evaluate(VLLM, full, 0.0)
    assert (budget.verdict, budget.limiting_term) == (Verdict.OOM, "cuda_graph")
    eager = full.with_args(enforce_eager=True)
    assert evaluate(VLLM, eager, 0.0).verdict is not Verdict.OOM


def test_recurrent_states_need_a_block_for_each_sequence_when_graphs_are_captured() -> None:
    model = cache_model([(STATE,)] * 3 + [(FULL,)], vocab_size=32_000, hidden_size=1024)
    d = at("0.33", model).with_args(max_num_seqs=256)
    layout = VLLM.kv_layout(d, 0)
    assert layout.least_blocks == 256
    few = d.with_args(kv_cache_memory_bytes=255 * (layout.block_bytes or 0))
    budget = evaluate(VLLM, few, 0.0)
    assert (budget.verdict, budget.limiting_term) == (Verdict.OOM, "max_num_seqs")
    assert VLLM.kv_layout(d.with_args(enforce_eager=True), 0).least_blocks == 0


@pytest.mark.parametrize(
    ("model_type", "version", "gone"),
    [
        ("mllama", "0.10", False),
        ("mllama", "0.11", True),
        ("baichuan", "0.27", False),
        ("baichuan", "0.28", True),
        ("t5", "0.33", True),
        ("llama", "0.33", False),
    ],
)
def test_models_that_a_release_does_not_have(model_type: str, version: str, gone: bool) -> None:
    """Removed in 0.10.2 and 0.28: vLLM ``registry.py``, ``_PREVIOUSLY_SUPPORTED_MODELS``."""
    model = replace(HYBRID, model_type=model_type)
    said = versions.left_out_of(model, versions.parse(version))
    assert (said is not None and "will not start" in said) == gone


def test_proposed_tokens_are_sampled_too() -> None:
    """Three rows of 128,256 logits at 14 B for each of 1,024 sequences, and 8,192 hidden rows."""
    d = build_deployment("llama-3.1-8b", gpu="h100-sxm", seq="4k", speculative_tokens=2)
    activation = VLLM.overheads(VLLM.resolve(d), 0)[0]
    assert activation.likely == 14 * 1024 * 3 * 128_256 + 8192 * 2 * 4096


def test_capped_logits_are_held_once_more_at_the_careful_end() -> None:
    """Gemma 2: 16 + 4 B a logit, 1,024 sequences of 256,000, and 8,192 hidden rows of 3,584."""
    d = build_deployment("gemma-2-9b", gpu="h100-sxm", seq="8k")
    activation = VLLM.overheads(VLLM.resolve(d), 0)[0]
    assert activation.high == 20 * 1024 * 256_000 + 8192 * 2 * 3584
