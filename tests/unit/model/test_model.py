"""A whole model: groups, parameters, weights by rank and stage, logical KV rows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import (
    TINY_LAYER,
    TINY_LLAMA,
    TINY_OUTSIDE,
    TINY_PARAMETERS,
    cache_model,
    config_model,
    tiny_model,
)

from kvplan.errors import InputError, MalformedFile
from kvplan.model.caches import FullAttention, Latent, Shared, SlidingWindow
from kvplan.model.model import CacheGroup, Layer, Split, group_caches, stage_layers
from kvplan.model.rows import Row, sequence_bytes
from kvplan.model.window import with_window
from kvplan.precision.format import BF16
from kvplan.precision.kv import KV_FORMATS
from kvplan.precision.scheme import ModuleRules, WeightScheme, scheme_from
from kvplan.precision.weights import WEIGHT_FORMATS

FULL = FullAttention(16, 128, 128)
WINDOW = SlidingWindow(16, 128, 128, 1024)
KV = KV_FORMATS["bf16"]


@pytest.mark.parametrize(
    ("layers", "pp", "sizes"),
    [
        (32, 1, [32]),
        (32, 4, [8, 8, 8, 8]),
        (62, 4, [15, 16, 16, 15]),  # the two left over go before the last stage
        (61, 2, [31, 30]),
        (61, 4, [15, 15, 16, 15]),
        (61, 8, [7, 7, 8, 8, 8, 8, 8, 7]),
        (80, 3, [27, 27, 26]),
        (5, 5, [1, 1, 1, 1, 1]),
    ],
)
def test_layers_of_each_stage(layers: int, pp: int, sizes: list[int]) -> None:
    bounds = [stage_layers(layers, pp, stage) for stage in range(pp)]
    assert [end - start for start, end in bounds] == sizes
    assert [start for start, _ in bounds] == [sum(sizes[:n]) for n in range(pp)]  # without a gap


def test_more_stages_than_layers() -> None:
    with pytest.raises(InputError, match="--pp 5: the model has only 4 layers"):
        stage_layers(4, 5, 0)


def test_groups_count_layers_by_cache_in_order() -> None:
    layers = [Layer((WINDOW,))] * 5 + [Layer((FULL,))] + [Layer((WINDOW,)), Layer((Shared(),))]
    assert group_caches(layers) == (CacheGroup(WINDOW, 6), CacheGroup(FULL, 1))
    both = Layer((FULL, Latent(512, 64)))  # a layer may keep two
    assert group_caches([both, both]) == (CacheGroup(FULL, 2), CacheGroup(Latent(512, 64), 2))


def test_most_kv_heads() -> None:
    assert cache_model([(FULL,), (FullAttention(4, 64, 64),)]).num_kv_heads == 16
    assert cache_model([(Latent(512, 64),)]).num_kv_heads is None


def test_parameters() -> None:
    model = tiny_model()
    assert model.parameters == model.active_parameters == TINY_PARAMETERS == 164_416
    assert model.parameters_by_part() == {
        "attention": 49_152,  # 4 * (4,096 + 2,048 + 2,048 + 4,096)
        "mlp": 98_304,  # 4 * 3 * 128 * 64
        "norms": 576,  # 4 * 2 * 64 + 64
        "embedding": 8192,  # 128 * 64
        "head": 8192,
    }
    assert not model.is_tied
    assert (model.mlp_width, model.expert_width, model.experts_per_token) == (128, 0, 0)


def test_tied_weights_count_once() -> None:
    model = tiny_model(tie_word_embeddings=True)
    assert model.is_tied
    assert model.parameters == 156_224  # 164,416 - 8,192


def test_llama_7b() -> None:
    model = config_model(
        {
            "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096,
            "num_attention_heads": 32, "intermediate_size": 11_008, "vocab_size": 32_000,
            "torch_dtype": "float16", "tie_word_embeddings": False,
        }
    )  # fmt: skip
    # 32 * (4 * 4,096**2 + 3 * 4,096 * 11,008 + 2 * 4,096) + 2 * 32,000 * 4,096 + 4,096
    assert model.parameters == 6_738_415_616
    assert model.weight_bytes(model.scheme) == 13_476_831_232  # 2 B each


MIXTURE = {
    **TINY_LLAMA,
    "model_type": "mixtral",
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "sliding_window": None,
}


def test_a_token_passes_only_its_own_experts() -> None:
    model = config_model(MIXTURE)
    # a layer: attention 12,288, norms 128, router 8 * 64 = 512, and 8 experts of 24,576
    assert model.parameters == 4 * (12_928 + 196_608) + TINY_OUTSIDE == 854_592
    assert model.active_parameters == 4 * (12_928 + 49_152) + TINY_OUTSIDE == 264_768
    assert (model.mlp_width, model.expert_width, model.experts_per_token) == (0, 128, 2)


@pytest.mark.parametrize(
    ("split", "parameters"),
    [
        (Split(), 164_416),
        # layer: q 2,048, k and v 1,024 each, o 2,048, MLP 12,288, norms 128 = 18,560;
        # outside: embedding and head 4,096 each, norm 64
        (Split(tp=2), 4 * 18_560 + 8256),
        # more ranks than the 2 kv heads: k and v one head of 16 * 64 each; q, o 1,024, MLP 6,144;
        # the vocabulary of 128 is 2 * 64, so 32 rows a rank
        (Split(tp=4), 4 * (1024 * 4 + 6144 + 128) + 2 * 2048 + 64),
    ],
)
def test_weights_of_one_rank(split: Split, parameters: int) -> None:
    model = tiny_model()
    assert model.weight_bytes(model.scheme, split) == 2 * parameters


def test_weights_of_pipeline_stages() -> None:
    model = tiny_model()
    first, last = (model.weight_bytes(model.scheme, Split(pp=2), stage) for stage in (0, 1))
    assert first == 2 * (2 * TINY_LAYER + 8192)  # two layers and the embedding
    assert last == 2 * (2 * TINY_LAYER + 64 + 8192)  # two layers, the final norm and the head
    assert first + last == 2 * TINY_PARAMETERS


def test_middle_stage_holds_only_layers() -> None:
    model = tiny_model()
    assert model.weight_bytes(model.scheme, Split(pp=4), 1) == 2 * TINY_LAYER
    assert model.weight_bytes(model.scheme, Split(pp=4), 2) == 2 * TINY_LAYER


def test_tied_embedding_is_on_the_first_and_the_last_stage() -> None:
    model = tiny_model(tie_word_embeddings=True)
    assert model.weight_bytes(model.scheme) == 2 * 156_224  # one stage holds it once
    sizes = [model.weight_bytes(model.scheme, Split(pp=4), stage) for stage in range(4)]
    assert sizes == [
        2 * (TINY_LAYER + 8192),
        2 * TINY_LAYER,
        2 * TINY_LAYER,
        2 * (TINY_LAYER + 64 + 8192),
    ]


def test_experts_over_ranks() -> None:
    model = config_model(MIXTURE)
    common = 4 * 12_928 + TINY_OUTSIDE  # tp 1: whole
    # ceil(8 / 4) = 2 experts of 24,576 a layer
    assert model.weight_bytes(model.scheme, Split(expert_ranks=4)) == 2 * (common + 4 * 49_152)


def test_quantiser_touches_its_parts_only() -> None:
    model = tiny_model()
    scheme = scheme_from(WEIGHT_FORMATS["nvfp4"])  # 4.5 bits on the linear layers
    linear = 4 * (12_288 + 24_576)
    assert model.weight_bytes(scheme) == linear * 9 // 16 + 2 * (TINY_PARAMETERS - linear)
    q8 = scheme_from(WEIGHT_FORMATS["q8_0"])  # 34 B per 32 on every matrix
    assert model.weight_bytes(q8) == (TINY_PARAMETERS - 576) * 34 // 32 + 2 * 576


def test_layers_left_alone_by_number() -> None:
    model = tiny_model()
    half = replace_rules("model.layers.0", "model.layers.3.mlp")
    # at 16 bits: layer 0 whole, the MLP of layer 3, embedding, head and norms; the rest at 8 bits
    at_8_bits = 2 * (12_288 + 24_576) + 12_288
    assert model.weight_bytes(half) == at_8_bits + 2 * (TINY_PARAMETERS - at_8_bits)
    # stage 1 has layers 2 and 3, the norm and the head
    stage = 12_288 * 2 + 24_576
    everything = 2 * TINY_LAYER + 64 + 8192
    assert model.weight_bytes(half, Split(pp=2), 1) == stage + 2 * (everything - stage)


def replace_rules(*left_alone: str) -> WeightScheme:
    form = WEIGHT_FORMATS["mxfp4"].form._replace(bits=8, group_size=0, metadata_bits=0)
    parts = WEIGHT_FORMATS["fp8"].parts
    return WeightScheme("eight", form, parts, ModuleRules(left_alone))


def test_logical_rows_by_group() -> None:
    # 10 full and 52 sliding layers of 16 heads * 256 elements * 2 B = 8,192 B
    model = cache_model([(FULL,)] * 10 + [(WINDOW,)] * 52)
    rows = model.logical_rows(KV)
    assert set(rows) == {Row(81_920), Row(425_984, cap_tokens=1024)}
    assert sequence_bytes(rows, 131_072) == (10 * 131_072 + 52 * 1024) * 8192


def test_logical_rows_of_a_rank_and_a_stage() -> None:
    model = cache_model([(FULL,)] * 3 + [(WINDOW,)] * 3)
    assert model.logical_rows(KV, Split(tp=4, pp=2), 0) == (Row(6144),)  # 3 layers * 8,192 / 4
    assert model.logical_rows(KV, Split(tp=4, pp=2), 1) == (Row(6144, cap_tokens=1024),)


def test_residual_tokens_stay_at_16_bits() -> None:
    model = cache_model([(FullAttention(1, 128, 128),)])
    rows = model.logical_rows(KV_FORMATS["kivi-2"])
    # 96 B a token at 3 bits; the last 128 tokens at 512 B
    assert sequence_bytes(rows, 100) == 51_200
    assert sequence_bytes(rows, 1128) == 96 * 1000 + 512 * 128


def test_residual_tokens_within_a_shorter_window() -> None:
    model = cache_model([(SlidingWindow(1, 128, 128, 64),)])
    assert sequence_bytes(model.logical_rows(KV_FORMATS["kivi-2"]), 1000) == 512 * 64


def test_unknown_weights_are_an_error_that_names_the_key() -> None:
    model = replace(tiny_model(), weights_unknown="intermediate_size is missing")
    assert model.parameters is None
    assert model.active_parameters is None
    with pytest.raises(MalformedFile, match="intermediate_size is missing"):
        model.weight_bytes(model.scheme)


def test_models_are_compared_by_identity() -> None:
    model = tiny_model()
    assert model == model
    assert model != tiny_model()
    assert model.dtype is BF16


def test_window_over_full_layers() -> None:
    model = cache_model([(FULL,), (WINDOW,), (Latent(512, 64),)])
    narrow = with_window(model, 512)
    assert [layer.caches for layer in narrow.layers] == [
        (SlidingWindow(16, 128, 128, 512),),
        (SlidingWindow(16, 128, 128, 512),),
        (Latent(512, 64),),
    ]
    wide = with_window(model, 4096)
    assert wide.layers[1].caches == (WINDOW,)  # a narrower one stays
    assert any("4,096 tokens" in warning for warning in wide.warnings)
