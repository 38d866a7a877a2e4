"""What must hold for any model, length and pool."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from builders import cache_model, config_model, deployment, gpu
from fake_engine import FakeEngine
from hypothesis import assume, given
from hypothesis import strategies as st

from kvplan.deployment import EngineArgs, valid_tps
from kvplan.engines import load_engine
from kvplan.errors import InputError, UnsupportedCombination
from kvplan.model.caches import Cache, ChunkedLocal, FullAttention, Latent, SlidingWindow
from kvplan.model.model import Model, Split, stage_layers
from kvplan.model.rows import Row, largest_tokens, sequence_bytes
from kvplan.planning.budget import evaluate
from kvplan.planning.limits import Question, max_batch, max_seq_len
from kvplan.precision.kv import KV_FORMATS
from kvplan.precision.scheme import scheme_from
from kvplan.precision.weights import WEIGHT_FORMATS
from kvplan.units import at_most, cdiv, parse_size, parse_tokens

rows = st.builds(
    Row,
    unit_bytes=st.integers(0, 10**7),
    unit_tokens=st.integers(1, 4096),
    cap_tokens=st.none() | st.integers(1, 10**6),
    constant_bytes=st.integers(0, 10**9),
)
tables = st.lists(rows, max_size=5).map(tuple)
lengths = st.integers(1, 10**7)
heads = st.sampled_from([1, 2, 4, 8])
sizes = st.sampled_from([64, 96, 128, 256])
caches: st.SearchStrategy[Cache] = st.one_of(
    st.builds(FullAttention, heads, sizes, sizes),
    st.builds(SlidingWindow, heads, sizes, sizes, st.integers(1, 100_000)),
    st.builds(ChunkedLocal, heads, sizes, sizes, st.integers(1, 100_000)),
    st.builds(Latent, st.sampled_from([256, 512]), st.sampled_from([32, 64])),
)


@st.composite
def models(draw: st.DrawFn) -> Model:
    """A model of up to three kinds of layer in a repeating pattern."""
    kinds = draw(st.lists(caches, min_size=1, max_size=3))
    pattern = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=6))
    repeats = draw(st.integers(1, 6))
    return cache_model([(cache,) for cache in pattern * repeats], heads=8)


@given(tables, lengths, st.integers(0, 10**6))
def test_bytes_never_fall_as_tokens_grow(table: tuple[Row, ...], tokens: int, more: int) -> None:
    assert sequence_bytes(table, tokens) <= sequence_bytes(table, tokens + more)


@given(tables, st.lists(st.integers(0, 10**7), max_size=20))
def test_array_is_the_scalar_element_by_element(table: tuple[Row, ...], tokens: list[int]) -> None:
    array = sequence_bytes(table, np.array(tokens, dtype=np.int64))
    assert array.tolist() == [sequence_bytes(table, n) for n in tokens]


@given(tables, st.integers(-1, 10**13), st.integers(1, 10**8))
def test_longest_fits_and_one_more_does_not(
    table: tuple[Row, ...], budget: int, limit: int
) -> None:
    found = largest_tokens(table, budget, limit)
    assert 0 <= found <= limit
    if found:
        assert sequence_bytes(table, found) <= budget
    if found < limit:
        assert sequence_bytes(table, found + 1) > budget


@given(st.integers(2**40, 2**62), st.integers(2**10, 2**40))
def test_beyond_64_bits_is_refused_and_never_wraps(unit: int, tokens: int) -> None:
    for given_tokens in (tokens, np.array([1, tokens], dtype=np.int64)):
        if unit * tokens > 2**63 - 1:
            with pytest.raises(InputError):
                sequence_bytes((Row(unit),), given_tokens)
        else:
            largest = np.max(sequence_bytes((Row(unit),), given_tokens))
            assert int(largest) == unit * tokens


@given(st.integers(0, 2**40), st.integers(1, 2**20))
def test_rounding_up_is_the_least_multiple_that_covers(count: int, divisor: int) -> None:
    units = cdiv(count, divisor)
    assert (units - 1) * divisor < count <= units * divisor or count == units == 0
    assert at_most(count, divisor) == min(count, divisor)


@given(st.integers(1, 2**20))
def test_tokens_round_trip(count: int) -> None:
    assert parse_tokens(str(count)) == count
    assert parse_tokens(f"{count}k") == count * 1024
    assert parse_tokens(f"{count}M") == count * 1024 * 1024


@given(st.integers(0, 10**6), st.sampled_from(["", "B", "KiB", "MB", "MiB", "GB", "GiB"]))
def test_sizes_round_trip(count: int, unit: str) -> None:
    factor = {"": 1, "B": 1, "KiB": 2**10, "MB": 10**6, "MiB": 2**20, "GB": 10**9, "GiB": 2**30}
    assert parse_size(f"{count}{unit}", "--x") == count * factor[unit]


@given(st.text(max_size=30))
def test_any_text_is_a_number_or_an_input_error(text: str) -> None:
    for parse in (parse_tokens, lambda word: parse_size(word, "--x")):
        try:
            value = parse(text)
        except InputError:
            continue
        assert 0 <= value <= 2**63 - 1


@given(models(), st.sampled_from(["bf16", "fp8_e4m3", "q8_0", "kivi-2"]), lengths)
def test_kv_bytes_of_the_stages_add_up(model: Model, name: str, tokens: int) -> None:
    kv = KV_FORMATS[name]
    whole = sequence_bytes(model.logical_rows(kv), tokens)
    for pp in (1, 2, 3):
        if pp <= model.num_hidden_layers:
            parts = [
                sequence_bytes(model.logical_rows(kv, Split(pp=pp), stage), tokens)
                for stage in range(pp)
            ]
            assert sum(parts) == whole


@given(models(), lengths)
def test_kv_bytes_never_grow_with_tp_and_the_ranks_hold_it_all(model: Model, tokens: int) -> None:
    kv = KV_FORMATS["bf16"]
    whole = sequence_bytes(model.logical_rows(kv), tokens)
    before = whole
    for tp in (2, 4, 8):
        one = sequence_bytes(model.logical_rows(kv, Split(tp=tp)), tokens)
        assert one <= before
        assert tp * one >= whole
        before = one


@given(models(), lengths)
def test_kv_bytes_never_grow_with_fewer_bits(model: Model, tokens: int) -> None:
    by_bits = ["fp32", "bf16", "q8_0", "fp8_e4m3", "q5_1", "q5_0", "q4_0"]
    found = [sequence_bytes(model.logical_rows(KV_FORMATS[name]), tokens) for name in by_bits]
    assert found == sorted(found, reverse=True)


@given(st.integers(1, 200), st.integers(1, 64))
def test_stages_cover_every_layer_once(layers: int, pp: int) -> None:
    assume(pp <= layers)
    bounds = [stage_layers(layers, pp, stage) for stage in range(pp)]
    assert [layer for start, end in bounds for layer in range(start, end)] == list(range(layers))
    counts = [end - start for start, end in bounds]
    assert max(counts) - min(counts) <= 1


@st.composite
def configs(draw: st.DrawFn) -> dict[str, Any]:
    kept = draw(st.sampled_from([1, 2, 4, 8]))
    return {
        "model_type": "mixtral" if draw(st.booleans()) else "llama",
        "num_hidden_layers": draw(st.integers(1, 9)),
        "hidden_size": 8 * draw(st.integers(1, 40)),
        "num_attention_heads": 8,
        "num_key_value_heads": kept,
        "head_dim": draw(st.sampled_from([16, 32, 64])),
        "intermediate_size": draw(st.integers(1, 500)),
        "vocab_size": draw(st.integers(1, 1000)),
        "num_local_experts": draw(st.integers(1, 9)),
        "num_experts_per_tok": 1,
        "torch_dtype": "bfloat16",
        "tie_word_embeddings": draw(st.booleans()),
        "max_position_embeddings": 4096,
    }


@given(configs())
def test_weights_of_the_parts_are_those_of_the_whole(config: dict[str, Any]) -> None:
    model = config_model(config)
    assert sum(model.parameters_by_part().values()) == model.parameters
    assert model.weight_bytes(model.scheme) == 2 * (model.parameters or 0)


@given(configs(), st.integers(1, 4))
def test_ranks_hold_the_whole_weights(config: dict[str, Any], pp: int) -> None:
    model = config_model(config)
    whole = model.weight_bytes(model.scheme)
    if pp <= model.num_hidden_layers:
        stages = [model.weight_bytes(model.scheme, Split(pp=pp), stage) for stage in range(pp)]
        again = model.parameters_by_part()["embedding"] * 2 if model.is_tied and pp > 1 else 0
        assert sum(stages) == whole + again
    before = whole
    for tp in valid_tps(model, 8)[1:]:
        one = model.weight_bytes(model.scheme, Split(tp=tp))
        assert one * tp >= whole
        assert one <= before + 2 * 64 * 2 * config["hidden_size"]  # a vocabulary's padding
        before = one


@given(configs())
def test_weights_never_grow_with_fewer_bits(config: dict[str, Any]) -> None:
    model = config_model(config)
    by_bits = ["fp32", "bf16", "q8_0", "q5_0", "q4_0"]
    found = [model.weight_bytes(scheme_from(WEIGHT_FORMATS[name])) for name in by_bits]
    assert found == sorted(found, reverse=True)


@given(models(), st.integers(0, 10**12), st.integers(1, 10**6), st.integers(1, 50))
def test_limits_of_a_plain_pool_are_its_edges(
    model: Model, pool: int, tokens: int, batch: int
) -> None:
    engine = FakeEngine(pool)
    asked = deployment(model, seq_len=tokens, batch=batch, device_bytes=2**50)
    check_edges(Question(engine, asked, 0.0))


@given(models(), st.integers(2**28, 2**36), st.integers(1, 200_000), st.integers(1, 20))
def test_limits_under_vllm_are_its_edges(model: Model, pool: int, tokens: int, batch: int) -> None:
    asked = deployment(
        model,
        engine="vllm",
        gpu=gpu(),
        seq_len=tokens,
        batch=batch,
        args=EngineArgs(kv_cache_memory_bytes=pool),
    )
    engine = load_engine("vllm")
    try:
        engine.kv_layout(engine.resolve(asked), 0)
    except UnsupportedCombination:  # a latent page beside one it does not divide
        return
    check_edges(Question(engine, asked, 0.0))


def check_edges(question: Question) -> None:
    """The largest batch and the longest sequence fit, and one more of either does not."""
    d = question.asked
    budget = evaluate(question.engine, question.engine.resolve(d), 0.0)
    most = max_batch(question, budget)
    if most < 2**20:
        assert not question.fits(d._replace(batch=most + 1))
    if most:
        assert question.fits(d._replace(batch=most))
    assert budget.fits is (d.batch <= most)
    longest = max_seq_len(question, budget)
    if longest < 2**40:
        assert not question.fits(d._replace(seq_len=longest + 1))
    if longest:
        assert question.fits(d._replace(seq_len=longest))
    assert budget.fits is (d.seq_len <= longest)
