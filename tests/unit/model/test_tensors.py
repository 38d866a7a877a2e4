"""Weights by part: shapes, what splits over ranks and in which pieces."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kvplan.model.tensors import (
    Tensor,
    attention,
    embedding,
    gated_mlp,
    head,
    latent_attention,
    norm,
    plain_mlp,
    router,
)
from kvplan.precision.format import BF16
from kvplan.precision.weights import WEIGHT_FORMATS


def by_name(tensors: Sequence[Tensor]) -> dict[str, Tensor]:
    assert len({tensor.name for tensor in tensors}) == len(tensors)
    return {tensor.name: tensor for tensor in tensors}


def parameters(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.parameters for tensor in tensors)


LLAMA_8B = by_name(attention(4096, 32, 8, 128))


def test_grouped_query_attention() -> None:
    # q and o 4,096 * 4,096 each; k and v 1,024 * 4,096 each
    assert parameters(attention(4096, 32, 8, 128)) == 41_943_040
    # biases of q 4,096, k and v 1,024 each, o 4,096
    assert parameters(attention(4096, 32, 8, 128, qkv_bias=True, o_bias=True)) == 41_953_280
    # a norm of 128 on queries and on keys
    assert parameters(attention(4096, 32, 8, 128, head_norms=True)) == 41_943_296
    # the query projection twice: 16,777,216 more
    assert parameters(attention(4096, 32, 8, 128, gated=True)) == 58_720_256
    # values of 64: v 8 * 64 * 4,096, o 4,096 * 32 * 64
    assert parameters(attention(4096, 32, 8, 128, head_size_v=64)) == 31_457_280
    assert parameters(attention(4096, 32, 8, 128, has_value=False)) == 37_748_736


@pytest.mark.parametrize(
    ("name", "tp", "size"),
    [
        ("q_proj", 1, 33_554_432),  # 4,096 * 4,096 * 2 B
        ("q_proj", 8, 4_194_304),
        ("o_proj", 8, 4_194_304),  # by column
        ("k_proj", 1, 8_388_608),  # 1,024 * 4,096 * 2 B
        ("k_proj", 8, 1_048_576),  # one head of 128 rows
        ("k_proj", 16, 1_048_576),  # still one: replicated
        ("v_proj", 32, 1_048_576),
        ("k_proj", 3, 3_145_728),  # ceil(8/3) = 3 heads of 128 rows
    ],
)
def test_projection_on_one_rank(name: str, tp: int, size: int) -> None:
    assert LLAMA_8B[f"self_attn.{name}"].rank_bytes(BF16, tp) == size


def test_output_bias_and_norms_are_whole_on_every_rank() -> None:
    tensors = by_name(attention(4096, 32, 8, 128, qkv_bias=True, o_bias=True, head_norms=True))
    assert tensors["self_attn.o_proj.bias"].rank_bytes(BF16, 8) == 8192
    assert tensors["self_attn.q_norm"].rank_bytes(BF16, 8) == 256
    assert tensors["self_attn.q_proj.bias"].rank_bytes(BF16, 8) == 1024  # 4,096 / 8 * 2 B
    assert tensors["self_attn.k_proj.bias"].rank_bytes(BF16, 16) == 256  # one head of 128


def test_latent_attention_of_deepseek_v3() -> None:
    tensors = by_name(latent_attention(7168, 128, 1536, 512, 128, 64, 128))
    assert {name.removeprefix("self_attn."): t.parameters for name, t in tensors.items()} == {
        "q_a_proj": 11_010_048,  # 1,536 * 7,168
        "q_a_layernorm": 1536,
        "q_b_proj": 37_748_736,  # 128 * (128 + 64) * 1,536
        "kv_a_proj_with_mqa": 4_128_768,  # (512 + 64) * 7,168
        "kv_a_layernorm": 512,
        "kv_b_proj": 16_777_216,  # 128 * (128 + 128) * 512
        "o_proj": 117_440_512,  # 7,168 * 128 * 128
    }
    # down-projections are whole on every rank, up-projections split by head
    assert tensors["self_attn.q_a_proj"].rank_bytes(BF16, 8) == 22_020_096
    assert tensors["self_attn.kv_a_proj_with_mqa"].rank_bytes(BF16, 8) == 8_257_536
    assert tensors["self_attn.q_b_proj"].rank_bytes(BF16, 8) == 9_437_184  # 37,748,736 / 8 * 2
    assert tensors["self_attn.o_proj"].rank_bytes(BF16, 8) == 29_360_128


def test_latent_attention_without_a_query_rank() -> None:
    tensors = by_name(latent_attention(2048, 16, None, 512, 128, 64, 128))
    assert tensors["self_attn.q_proj"].parameters == 6_291_456  # 16 * 192 * 2,048
    assert "self_attn.q_a_proj" not in tensors


def test_gated_mlp() -> None:
    assert parameters(gated_mlp(4096, 14_336)) == 176_160_768  # 3 * 4,096 * 14,336
    biased = gated_mlp(4096, 14_336, bias=True)
    assert parameters(biased) == 176_193_536  # + 2 * 14,336 + 4,096
    tensors = by_name(biased)
    assert tensors["mlp.gate_proj"].rank_bytes(BF16, 8) == 14_680_064  # 1,792 * 4,096 * 2
    assert tensors["mlp.down_proj"].rank_bytes(BF16, 8) == 14_680_064
    assert tensors["mlp.down_proj.bias"].rank_bytes(BF16, 8) == 8192


def test_width_that_does_not_divide_is_rounded_up() -> None:
    up = by_name(gated_mlp(4096, 11_008))["mlp.up_proj"]
    assert up.rank_bytes(BF16, 3) == 30_064_640  # ceil(11,008 / 3) = 3,670 rows * 4,096 * 2


def test_plain_mlp() -> None:
    assert parameters(plain_mlp(768, 3072, bias=False)) == 4_718_592  # 2 * 768 * 3,072
    assert parameters(plain_mlp(768, 3072, bias=True)) == 4_722_432  # + 3,072 + 768


def test_experts_divide_by_width_or_are_dealt_out_whole() -> None:
    up = by_name(gated_mlp(2048, 768, part="experts", copies=128, active=8))["mlp.up_proj"]
    assert up.parameters == 201_326_592  # 128 * 768 * 2,048
    assert up.rank_bytes(BF16) == 402_653_184
    assert up.rank_bytes(BF16, tp=8) == 50_331_648  # 96 rows of each of 128
    assert up.rank_bytes(BF16, tp=8, expert_ranks=8) == 50_331_648  # 16 whole experts
    assert up.rank_bytes(BF16, tp=1, expert_ranks=3) == 135_266_304  # ceil(128/3) = 43 whole
    assert up.rank_bytes(BF16, tp=1, expert_ranks=256) == 3_145_728  # one at least


def test_shared_experts_divide_by_width_whatever_the_expert_ranks() -> None:
    shared = by_name(gated_mlp(2048, 768, part="shared_experts"))["mlp.up_proj"]
    assert shared.rank_bytes(BF16, tp=8, expert_ranks=8) == 393_216  # 96 * 2,048 * 2


def test_router_is_whole_on_every_rank() -> None:
    gate, bias = router(2048, 128, bias=True)
    assert gate.rank_bytes(BF16, tp=8, expert_ranks=8) == 524_288  # 128 * 2,048 * 2
    assert bias.rank_bytes(BF16, tp=8) == 256


@pytest.mark.parametrize("make", [embedding, head])
def test_vocabulary_is_padded_to_64_before_it_is_split(make: type[Tensor]) -> None:
    table = make(50_257, 768)
    assert table.parameters == 38_597_376  # 50,257 * 768, unpadded
    assert table.rank_bytes(BF16) == 77_194_752
    assert table.rank_bytes(BF16, tp=2) == 38_633_472  # 50,304 / 2 = 25,152 rows
    assert table.rank_bytes(BF16, tp=3) == 25_755_648  # 16,768 rows


def test_norm_is_whole_on_every_rank() -> None:
    assert [t.rank_bytes(BF16, 8) for t in norm("n", 4096)] == [8192]
    assert [t.rank_bytes(BF16, 8) for t in norm("n", 4096, bias=True)] == [8192, 8192]


def test_scales_are_counted_on_the_ranks_own_piece() -> None:
    awq = WEIGHT_FORMATS["awq"].form
    q, o = LLAMA_8B["self_attn.q_proj"], LLAMA_8B["self_attn.o_proj"]
    # 4.15625 bits * 4,096 * 512, whether by row or by column
    assert q.rank_bytes(awq, 8) == 1_089_536
    assert o.rank_bytes(awq, 8) == 1_089_536


def test_vectors_are_no_matrices() -> None:
    assert not Tensor("norms", "n", 4096).is_matrix
    assert Tensor("mlp", "m", 4096, 2).is_matrix
