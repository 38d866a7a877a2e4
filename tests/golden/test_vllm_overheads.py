"""vLLM's memory terms against start-up logs: every expected figure is one that vLLM printed.

``tests/data/vllm_overheads.jsonl``, one log a line: sizes of the model from its published config,
what the log or its author states, and in ``assumed`` the limits that the log leaves out and that
are the engine's defaults for that GPU and version. Printed figures have two decimals, hence SLACK.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from kvplan.engines.vllm.defaults import (
    BatchDefaults,
    batch_defaults,
    default_gpu_memory_utilization,
)
from kvplan.engines.vllm.overheads import (
    Estimate,
    activation_peak_bytes,
    capture_sizes,
    claim_bytes,
    communication_bytes,
    cuda_graph_bytes,
    encoder_peak_bytes,
    graphs_in_budget,
    outside_claim_bytes,
    sampler_state_bytes,
)
from kvplan.units import GIB

Row = dict[str, Any]
SLACK = 0.011  # GiB
DATA = Path(__file__).parents[1] / "data" / "vllm_overheads.jsonl"
ROWS: list[Row] = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]

OUTSIDE_ACTIVATION = {
    "vllm-056": "expert parallelism gathers the tokens of all data-parallel ranks",
    "vllm-136": "omni model: picture and sound encoders together",
}
OUTSIDE_COMMUNICATION = {
    "vllm-011": "development build whose accounting was replaced before release",
    "vllm-012": "development build whose accounting was replaced before release",
    "vllm-056": "expert-parallel all-to-all buffers",
}
OUTSIDE_GRAPHS = {
    "vllm-056": "data and expert parallel mixture of experts: 8.57 GiB, 33.06 estimated",
}
NOT_CAREFUL_ENOUGH = {
    "vllm-011": "1.79 GiB non-torch in a development build",
    "vllm-056": "33 GiB of graph estimate, all-to-all buffers",
    "vllm-136": "omni encoders",
}


def version_of(row: Row) -> tuple[int, int]:
    major, minor = row["version"]
    return major, minor


def peak(row: Row) -> Estimate:
    text = activation_peak_bytes(
        batched_tokens=row["batched_tokens"],
        max_num_seqs=row["max_num_seqs"],
        vocab_size=row["vocab_size"],
        hidden_size=row["hidden_size"],
        intermediate_size=row["intermediate_size"],
        tp=row["tp"],
        version=version_of(row),
        experts_per_token=row["experts_per_token"],
        moe_intermediate_size=row["moe_intermediate_size"],
        logit_softcap=row["softcap"],
        samples=row["samples"],
    )
    encoder = encoder_peak_bytes(multimodal=row["multimodal"])
    return Estimate(*(max(pair) for pair in zip(text, encoder, strict=True)))


def runtime(row: Row) -> Estimate:
    return communication_bytes(
        tp=row["tp"],
        pp=row["pp"],
        link_is_nvlink=row["nvlink"],
        vendor=row["vendor"],
        version=version_of(row),
    ) + sampler_state_bytes(
        max_num_seqs=row["max_num_seqs"], vocab_size=row["vocab_size"], version=version_of(row)
    )


def graphs(row: Row) -> Estimate:
    sizes = capture_sizes(
        max_num_seqs=row["max_num_seqs"],
        batched_tokens=row["batched_tokens"],
        version=version_of(row),
        v1=row["v1"],
    )
    return cuda_graph_bytes(
        enforce_eager=row["enforce_eager"],
        num_layers=row["num_layers"],
        sizes=sizes,
        is_moe=row["experts_per_token"] > 0,
        version=version_of(row),
    )


def printed_peak(row: Row) -> tuple[float, Estimate]:
    """The printed peak activation and what it stands for: from 0.20 it holds the graph estimate."""
    printed: float = row["activation_gib"]
    if not graphs_in_budget(version_of(row)):
        return printed, peak(row)
    if row["graph_estimate_gib"] is not None:
        return printed - row["graph_estimate_gib"], peak(row)
    return printed, peak(row) + graphs(row)


def inside(gib: float, estimate: Estimate) -> bool:
    return estimate.low / GIB - SLACK <= gib <= estimate.high / GIB + SLACK


def kv_error(row: Row, end: int) -> float:
    """Predicted less logged KV pool as a share of the claim; ``end`` 1 is likely, 2 is careful."""
    claim = claim_bytes(round(row["total_gib"] * GIB), row["utilization"])
    terms = peak(row)[end] + runtime(row)[end]
    if graphs_in_budget(version_of(row)):
        terms += graphs(row)[end]
    pool = claim - row["weights_gib"] * GIB - terms
    return float((pool - row["kv_gib"] * GIB) / claim)


def having(*names: str) -> list[Row]:
    return [row for row in ROWS if all(row[name] is not None for name in names)]


def test_ids_are_unique_and_every_row_names_its_source() -> None:
    assert len({row["id"] for row in ROWS}) == len(ROWS) == 54
    assert all(row["source_url"] for row in ROWS)


def test_printed_activation_lies_in_the_range_but_for_the_named_rows() -> None:
    rows = having("activation_gib")
    outside = {row["id"] for row in rows if not inside(*printed_peak(row))}
    assert outside == set(OUTSIDE_ACTIVATION)
    assert len(rows) == 48


def test_likely_activation_of_text_models_before_0_17_is_within_two_percent_in_the_median() -> None:
    rows = [
        row
        for row in having("activation_gib")
        if version_of(row) < (0, 17) and not row["multimodal"]
    ]
    ratios = [row["activation_gib"] * GIB / peak(row).likely for row in rows]
    assert len(ratios) == 28
    assert statistics.median(abs(ratio - 1) for ratio in ratios) < 0.02
    assert max(ratios) < 1.25  # vllm-015: chunked V0 profile, 0.19 GiB for 0.16
    assert min(ratios) > 0.75  # vllm-123: a T4 that printed 0.90 GiB for 1.19


def test_printed_non_torch_memory_lies_in_the_range_but_for_the_named_rows() -> None:
    rows = having("non_torch_gib")
    outside = {row["id"] for row in rows if not inside(row["non_torch_gib"], runtime(row))}
    assert outside == set(OUTSIDE_COMMUNICATION)
    assert len(rows) == 41


def test_captured_graphs_lie_in_the_range_but_for_the_named_rows() -> None:
    """A negative figure is memory that capture freed: no graph memory to plan for."""
    rows = having("graphs_gib")
    outside = {row["id"] for row in rows if not inside(max(row["graphs_gib"], 0.0), graphs(row))}
    assert outside == set(OUTSIDE_GRAPHS)
    assert len(rows) == 29


def test_estimated_graphs_lie_in_the_range_but_for_the_named_rows() -> None:
    rows = [row for row in having("graph_estimate_gib") if row["graph_estimate_gib"] > 0]
    outside = {row["id"] for row in rows if not inside(row["graph_estimate_gib"], graphs(row))}
    assert outside == set(OUTSIDE_GRAPHS)


def test_predicted_kv_pool_against_the_logged_one() -> None:
    rows = having("total_gib", "utilization", "weights_gib", "kv_gib")
    errors = sorted(abs(kv_error(row, 1)) for row in rows)
    assert len(errors) == 36
    assert statistics.median(errors) < 0.005
    assert errors[int(0.9 * len(errors))] < 0.04


def test_careful_end_never_promises_more_kv_than_was_logged_but_for_the_named_rows() -> None:
    rows = having("total_gib", "utilization", "weights_gib", "kv_gib")
    over = {row["id"] for row in rows if kv_error(row, 2) > 0.001}
    assert over == set(NOT_CAREFUL_ENOUGH)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_every_estimate_is_ordered_and_whole(row: Row) -> None:
    for estimate in (peak(row), runtime(row), graphs(row)):
        assert 0 <= estimate.low <= estimate.likely <= estimate.high
        assert all(type(end) is int for end in estimate)


def test_activation_by_hand() -> None:
    """Two tokens, hidden 4, width 8, no experts: 2 * 2 * (24 + 16) = 160, at most 176."""
    estimate = activation_peak_bytes(
        batched_tokens=2,
        max_num_seqs=1,
        vocab_size=1,
        hidden_size=4,
        intermediate_size=8,
        tp=1,
        version=(0, 33),
    )
    assert estimate == Estimate(144, 160, 176)


def test_sampler_by_hand_and_more_logits_a_sequence() -> None:
    """256 sequences of 151,936 logits at 14 B, and 2,048 rows of 896 in bf16."""
    sizes: dict[str, Any] = {
        "batched_tokens": 2048,
        "vocab_size": 151_936,
        "hidden_size": 896,
        "intermediate_size": 4864,
        "tp": 1,
        "version": (0, 33),
    }
    once = activation_peak_bytes(max_num_seqs=256, **sizes)
    assert once.likely == 14 * 256 * 151_936 + 2 * 2048 * 896
    drafted = activation_peak_bytes(max_num_seqs=64, logits_per_seq=4, **sizes)
    assert drafted == once


def test_tensor_parallelism_divides_the_mlp_and_not_the_logits() -> None:
    def at(tp: int, sequences: int) -> int:
        return activation_peak_bytes(
            batched_tokens=32_768,
            max_num_seqs=sequences,
            vocab_size=128_256,
            hidden_size=4096,
            intermediate_size=14_336,
            tp=tp,
            version=(0, 11),
        ).likely

    assert at(2, 1) < at(1, 1)
    assert at(2, 1024) == at(1, 1024)


def test_sampler_state_is_a_rule_in_0_33() -> None:
    table = sampler_state_bytes(max_num_seqs=1024, vocab_size=248_320, version=(0, 33))
    assert set(table) == {1024 * (4 * 248_320 + 4 * 7760)}
    assert sampler_state_bytes(
        max_num_seqs=1024, vocab_size=248_320, version=(0, 20)
    ) == Estimate(0, 0, 0)  # fmt: skip


@pytest.mark.parametrize(
    ("version", "sequences", "v1", "count"),
    [
        ((0, 10), 256, True, 67),  # logged: PIECEWISE 67 + FULL 67
        ((0, 27), 256, True, 51),  # logged: PIECEWISE 51
        ((0, 8), 256, False, 35),  # logged: capture sizes 256 down to 1
        ((0, 8), 320, False, 43),  # logged by vllm-060
        ((0, 26), 64, True, 19),  # logged by vllm-056: PIECEWISE 19 (largest 128)
        ((0, 33), 1, True, 2),
    ],
)
def test_number_of_capture_sizes(
    version: tuple[int, int], sequences: int, v1: bool, count: int
) -> None:
    assert count == capture_sizes(
        max_num_seqs=sequences, batched_tokens=8192, version=version, v1=v1
    )


def test_eager_mode_has_no_graphs() -> None:
    none = cuda_graph_bytes(
        enforce_eager=True, num_layers=32, sizes=51, is_moe=False, version=(0, 33)
    )
    assert none == Estimate(0, 0, 0)


def test_several_gpus_start_with_less_free_memory_since_0_11() -> None:
    alone = outside_claim_bytes(tp=1, pp=1, version=(0, 33))
    assert outside_claim_bytes(tp=2, pp=1, version=(0, 10)) == alone
    assert outside_claim_bytes(tp=2, pp=1, version=(0, 11)).likely > alone.likely


@pytest.mark.parametrize(("version", "share"), [((0, 19), 0.90), ((0, 20), 0.92), ((0, 33), 0.92)])
def test_default_utilisation(version: tuple[int, int], share: float) -> None:
    assert default_gpu_memory_utilization(version) == share


@pytest.mark.parametrize(
    ("gib", "name", "version", "expected"),
    [
        (79, "NVIDIA H100 80GB HBM3", (0, 33), (8192, 1024)),
        (79, "NVIDIA A100-SXM4-80GB", (0, 33), (2048, 256)),
        (178, "NVIDIA B200", (0, 33), (16384, 1024)),
        (178, "NVIDIA B200", (0, 27), (8192, 1024)),
        (121, "NVIDIA GB10", (0, 33), (2048, 256)),
        (23, "NVIDIA GeForce RTX 4090", (0, 33), (2048, 256)),
        (23, "NVIDIA GeForce RTX 4090", (0, 8), (2048, 1024)),
        (191, "AMD Instinct MI300X", (0, 11), (8192, 1024)),
    ],
)
def test_batch_defaults_by_gpu(
    gib: int, name: str, version: tuple[int, int], expected: tuple[int, int]
) -> None:
    chosen = batch_defaults(
        device_bytes=gib * GIB, gpu_name=name, version=version, max_model_len=32_768
    )
    assert chosen == BatchDefaults(*expected)


def test_batch_defaults_shrink_with_a_short_model_and_grow_without_chunking() -> None:
    card: dict[str, Any] = {"device_bytes": 23 * GIB, "gpu_name": "RTX 4090", "version": (0, 33)}
    assert batch_defaults(max_model_len=4, **card) == (1024, 256)
    assert batch_defaults(max_model_len=1, **card) == (256, 256)
    assert batch_defaults(max_model_len=512, max_num_seqs=2, **card) == (1024, 2)
    whole = batch_defaults(max_model_len=4096, chunked_prefill=False, **card)
    assert whole == (4096, 256)


def test_v0_profiles_the_whole_context() -> None:
    card: dict[str, Any] = {
        "device_bytes": 23 * GIB,
        "gpu_name": "RTX 3090",
        "version": (0, 6),
        "v1": False,
    }
    assert batch_defaults(max_model_len=29_000, chunked_prefill=False, **card) == (29_000, 256)
    assert batch_defaults(max_model_len=35_000, **card) == (2048, 256)
