"""Whatever a file holds, a reader answers or says what is wrong with it, and soon."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from filemakers import (
    TINY_GGUF,
    TINY_LLAMA,
    gguf_bytes,
    safetensors_header,
    tiny_gguf_tensors,
    tiny_llama_tensors,
)
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kvplan.errors import KvplanError, SourceError
from kvplan.model.model import Model, Split
from kvplan.model.rows import sequence_bytes
from kvplan.precision.kv import KV_FORMATS
from kvplan.precision.modules import UnknownPattern, expression
from kvplan.sources import load_model
from kvplan.sources.gguf import read_gguf
from kvplan.sources.huggingface.config import read_config
from kvplan.sources.huggingface.families import known_types
from kvplan.sources.safetensors import parse_header, parse_index

# A second for one input: hundreds of times what any needs, so that a hang shows and load does not.
hostile = settings(
    max_examples=200,
    deadline=1000,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-2, 300)
    | st.sampled_from([2**31, 2**63, 2**64, 10**30])
    | st.floats()
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=10), inner, max_size=4)
    ),
    max_leaves=8,
)

KEYS = [
    *TINY_LLAMA, "head_dim", "sliding_window", "layer_types", "text_config", "rope_scaling",
    "num_experts", "num_local_experts", "n_routed_experts", "moe_intermediate_size",
    "num_experts_per_tok", "kv_lora_rank", "q_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim",
    "v_head_dim", "first_k_dense_replace", "use_sliding_window", "max_window_layers",
    "attention_chunk_size", "quantization_config", "layers_block_type", "hybrid_override_pattern",
    "compress_ratios", "linear_attn_config", "full_attention_interval", "mlp_only_layers",
    "num_kv_shared_layers", "mamba_num_heads", "ssm_state_size", "attn_layer_period",
    "multi_query", "new_decoder_architecture", "expert_dtype", "block_configs", "index_topk_freq",
]  # fmt: skip

QUANTIZATION = st.fixed_dictionaries(
    {
        "quant_method": st.sampled_from(
            ["fp8", "awq", "gptq", "mxfp4", "bitsandbytes", "compressed-tensors", "modelopt", "x"]
        )
    },
    optional={
        "bits": JSON, "group_size": JSON, "weight_block_size": JSON, "ignore": JSON,
        "quant_algo": st.sampled_from(["FP8", "NVFP4", "MIXED_PRECISION", "?"]) | JSON,
        "config_groups": st.dictionaries(
            st.text(max_size=3),
            st.fixed_dictionaries(
                {},
                optional={
                    "weights": st.fixed_dictionaries(
                        {}, optional={"num_bits": JSON, "type": JSON, "group_size": JSON}
                    ),
                    "targets": JSON,
                },
            ),
            max_size=3,
        ),
        "quantized_layers": JSON, "exclude_modules": st.lists(st.text(max_size=30), max_size=4),
        "kv_cache_scheme": JSON, "dynamic": JSON, "load_in_4bit": JSON, "load_in_8bit": JSON,
    },
)  # fmt: skip


@contextmanager
def says_why(start: str = "") -> Iterator[None]:
    """A reader may refuse what it is given, in words; any other exception is a fault of ours."""
    try:
        yield
    except KvplanError as refusal:
        if start not in refusal.message or not refusal.message:
            raise AssertionError(refusal.message) from refusal


def exercise(model: Model) -> None:
    """Ask a model the questions that a plan asks."""
    for split in (Split(), Split(tp=2)):
        rows = model.logical_rows(KV_FORMATS["fp8_e4m3"], split)
        assert sequence_bytes(rows, 1) >= 0
        if model.weights_unknown is None:
            assert model.weight_bytes(model.scheme, split) >= 0
    assert model.parameters is None or model.parameters >= 0
    assert model.head_sizes() is not None


@hostile
@given(
    model_type=st.sampled_from(known_types()) | st.text(max_size=12),
    changes=st.dictionaries(st.sampled_from(KEYS), JSON, max_size=4),
    quantization=st.none() | QUANTIZATION,
)
def test_configs(model_type: str, changes: dict[str, Any], quantization: Any) -> None:
    config = {**TINY_LLAMA, "model_type": model_type, **changes}
    if quantization is not None:
        config["quantization_config"] = quantization
    with says_why():
        exercise(read_config(config, name="x", source="x"))


@hostile
@given(data=st.binary(max_size=400) | st.text(max_size=200).map(str.encode))
def test_config_files(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(data)
    with pytest.raises(SourceError):
        load_model(str(path))


HEADER = safetensors_header(tiny_llama_tensors())[0]


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """A good file with some bytes changed, a number put in, or its end cut off."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(0, len(data) - 1)))
        kind = draw(st.sampled_from(["byte", "u32", "u64", "cut", "insert", "remove"]))
        if kind == "byte":
            data[place : place + 1] = bytes([draw(st.integers(0, 255))])
        elif kind in {"u32", "u64"}:
            size = 4 if kind == "u32" else 8
            top = 2 ** (8 * size)
            number = draw(st.integers(0, top - 1) | st.sampled_from([0, top - 1, top // 2]))
            data[place : place + size] = number.to_bytes(size, "little")
        elif kind == "cut":
            del data[place:]
        elif kind == "insert":
            data[place:place] = draw(st.binary(max_size=12))
        else:
            del data[place : place + draw(st.integers(1, 12))]
    return bytes(data)


@hostile
@given(data=damaged(HEADER) | st.binary(max_size=100))
def test_safetensors_headers(data: bytes) -> None:
    with says_why("x: "):
        tensors = parse_header(data, "x", None)
        assert all(tensor.size_bytes >= 0 for tensor in tensors.values())


@hostile
@given(entries=st.dictionaries(st.text(max_size=5), JSON, max_size=3))
def test_safetensors_entries(entries: dict[str, Any]) -> None:
    with says_why("x: "):
        parse_header(json.dumps(entries).encode(), "x", None)


@hostile
@given(document=st.dictionaries(st.sampled_from(["weight_map", "metadata", "x"]), JSON))
def test_safetensors_indexes(document: dict[str, Any]) -> None:
    with says_why("x: "):
        assert all("/" not in shard for shard in parse_index(document, "x").shards)


GGUF = gguf_bytes(TINY_GGUF, tiny_gguf_tensors())
GGUF_HEADER = GGUF[: GGUF.index(b"blk.1.ffn_down.weight") + 64]


@hostile
@given(head=damaged(GGUF_HEADER))
@example(head=GGUF_HEADER)
def test_gguf_files(tmp_path: Path, head: bytes) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(head + GGUF[len(GGUF_HEADER) :])
    with says_why("x.gguf: "):
        exercise(read_gguf(str(path)))


@hostile
@given(
    architecture=st.sampled_from(
        ["llama", "gemma3", "gemma4", "gpt-oss", "deepseek2", "mamba", "jamba", "nemotron_h",
         "lfm2", "qwen3next", "kimi-linear", "falcon-h1", "rwkv6", "gemma3n", "llama4", "?"]
    ),
    changes=st.dictionaries(
        st.sampled_from(
            ["block_count", "embedding_length", "attention.head_count", "attention.head_count_kv",
             "attention.key_length", "attention.value_length", "attention.key_length_mla",
             "attention.value_length_mla", "attention.kv_lora_rank", "attention.sliding_window",
             "attention.sliding_window_pattern", "attention.shared_kv_layers", "ssm.conv_kernel",
             "ssm.inner_size", "ssm.state_size", "ssm.group_count", "ssm.time_step_rank",
             "kda.head_dim", "wkv.head_size", "shortconv.l_cache", "full_attention_interval",
             "nextn_predict_layers", "feed_forward_length", "token_shift_count", "vocab_size"]
        ),
        st.integers(0, 600) | st.integers(0, 2**63) | st.text(max_size=3) | st.booleans()
        | st.lists(st.integers(0, 9), min_size=1, max_size=4)
        | st.lists(st.booleans(), min_size=1, max_size=4),
        max_size=8,
    ),
)  # fmt: skip
def test_gguf_metadata(tmp_path: Path, architecture: str, changes: dict[str, Any]) -> None:
    base = {"block_count": 2, "embedding_length": 256, "attention.head_count": 4}
    metadata = {"general.architecture": architecture}
    metadata |= {f"{architecture}.{key}": value for key, value in {**base, **changes}.items()}
    path = tmp_path / "x.gguf"
    path.write_bytes(gguf_bytes(metadata))
    with says_why():
        exercise(read_gguf(str(path)))


PROFILE = """\
name: tiny
hub_id: acme/tiny
config:
  model_type: llama
  num_hidden_layers: 2
  hidden_size: 64
  num_attention_heads: 4
  intermediate_size: 96
  vocab_size: 128
checkpoint: {parameters: 5, size_bytes: 10}
sources: [somewhere]
"""


@hostile
@given(data=damaged(PROFILE.encode()))
@example(data=b"a: &x [*x]")
@example(data=b"a: 2001-99-99")
@example(data=b"a: !!python/object:os.system x")
def test_profiles(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(data)
    with says_why():
        exercise(load_model(str(path)))


@hostile
@given(
    pattern=st.text(alphabet="ab.*+?()[]{}|\\^$-,:1", max_size=24),
    name=st.text("ab.1", max_size=30),
)
def test_expressions(pattern: str, name: str) -> None:
    try:
        matches = expression(pattern)
    except UnknownPattern:
        return
    assert matches(name) in {True, False}


def test_the_seeds_are_good() -> None:
    """Damage is only interesting on files that are read when whole."""
    assert struct.unpack("<I", GGUF[4:8]) == (3,)
    assert parse_header(HEADER, "x").keys() == tiny_llama_tensors().keys()
