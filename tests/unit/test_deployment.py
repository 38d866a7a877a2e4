"""The question as data: divisions that can be, memory that is there."""

from __future__ import annotations

import pytest
from builders import GIB, cache_model, config_model, deployment, gpu, tiny_model

from kvplan.deployment import check_split, valid_tps
from kvplan.errors import InputError, UnsupportedCombination
from kvplan.model.caches import FullAttention, Latent

LLAMA_8B = cache_model([(FullAttention(8, 128, 128),)] * 32, heads=32)


@pytest.mark.parametrize("tp", [1, 2, 4, 8, 16, 32])
def test_tp_that_divides_or_replicates_the_heads(tp: int) -> None:
    check_split(deployment(LLAMA_8B, tp=tp))


@pytest.mark.parametrize("tp", [3, 5, 7, 12, 64])
def test_tp_that_does_not_divide_the_query_heads(tp: int) -> None:
    with pytest.raises(UnsupportedCombination, match=f"--tp {tp} does not divide the 32") as caught:
        check_split(deployment(LLAMA_8B, tp=tp))
    assert caught.value.hint == "These do: 1, 2, 4, 8, 16, 32."


def test_tp_that_neither_divides_nor_replicates_the_kv_heads() -> None:
    model = cache_model([(FullAttention(4, 64, 64),)], heads=24)
    for tp in (1, 2, 4, 8, 12, 24):
        check_split(deployment(model, tp=tp))
    for tp in (3, 6):
        with pytest.raises(UnsupportedCombination, match="4 key-value heads"):
            check_split(deployment(model, tp=tp))
    assert valid_tps(model, 64) == [1, 2, 4, 8, 12, 24]
    assert valid_tps(model, 8) == [1, 2, 4, 8]


def test_latent_attention_divides_by_query_heads_alone() -> None:
    assert valid_tps(cache_model([(Latent(512, 64),)], heads=128), 64) == [1, 2, 4, 8, 16, 32, 64]


def test_more_stages_than_layers() -> None:
    check_split(deployment(LLAMA_8B, pp=32))
    with pytest.raises(InputError, match="--pp 33: caches has only 32 layers"):
        check_split(deployment(LLAMA_8B, pp=33))


def test_expert_ranks_divide_the_gpus() -> None:
    mixture = config_model(
        {
            "model_type": "mixtral", "num_hidden_layers": 2, "hidden_size": 64,
            "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 64,
            "vocab_size": 128, "num_local_experts": 8, "num_experts_per_tok": 2,
        }
    )  # fmt: skip
    check_split(deployment(mixture, tp=2, dp=2, ep=4))
    with pytest.raises(InputError, match="--ep 3 does not divide the 4 GPUs"):
        check_split(deployment(mixture, tp=2, dp=2, ep=3))


def test_gpus_and_replicas() -> None:
    d = deployment(tp=4, pp=2, dp=3, batch=10)
    assert d.gpus == 24
    assert d.replica_batch == 4  # 10 sequences over 3 replicas: 4, 3 and 3
    assert d.split == (4, 2, 1)


def test_memory_of_a_gpu() -> None:
    d = deployment(gpu=gpu(80.0))
    assert (d.total_bytes, d.usable_bytes) == (80 * GIB, 80 * GIB)
    assert d._replace(device_bytes=24 * GIB).total_bytes == 24 * GIB
    assert d._replace(reserve_bytes=2 * GIB).usable_bytes == 78 * GIB


@pytest.mark.parametrize("reserve", [80 * GIB, 81 * GIB])
def test_reserve_that_leaves_nothing(reserve: int) -> None:
    with pytest.raises(InputError, match="--reserve leaves nothing"):
        _ = deployment(reserve_bytes=reserve).usable_bytes


def test_gpu_of_unknown_memory_asks_for_it() -> None:
    unknown = gpu(memory={}, uncertain=["memory"])
    d = deployment(gpu=unknown)
    assert d.total_bytes is None
    with pytest.raises(InputError) as caught:
        _ = d.usable_bytes
    assert "--gpu-memory" in (caught.value.hint or "")
    assert d._replace(device_bytes=8 * GIB).usable_bytes == 8 * GIB


def test_what_is_said_is_said_once() -> None:
    d = deployment().saying(assumption="a", warning="w").saying(assumption="a", warning="w")
    assert (d.assumptions, d.warnings) == (("a",), ("w",))
    assert d.saying(assumption="b").assumptions == ("a", "b")


def test_engine_arguments_change_in_a_copy() -> None:
    d = deployment()
    changed = d.with_args(max_num_seqs=7)
    assert changed.args.max_num_seqs == 7
    assert d.args.max_num_seqs is None
    assert changed.model is d.model


def test_valid_sizes_are_those_that_check_split_takes() -> None:
    model = tiny_model(num_attention_heads=12, num_key_value_heads=6, head_dim=8)
    accepted = []
    for tp in range(1, 13):
        try:
            check_split(deployment(model, tp=tp))
        except UnsupportedCombination:
            continue
        accepted.append(tp)
    assert valid_tps(model, 64) == accepted == [1, 2, 3, 6, 12]
