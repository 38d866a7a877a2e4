"""GGUF files: geometry and exact bytes of good ones, a named fault for every bad one."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from filemakers import TINY_GGUF, gguf_bytes, tiny_gguf_tensors

from kvplan.errors import (
    InputError,
    MalformedFile,
    ModelNotFound,
    SourceError,
    UnsupportedArchitecture,
)
from kvplan.model.caches import FullAttention, Latent, Shared, SlidingWindow
from kvplan.model.model import Split
from kvplan.sources.gguf import read_gguf
from kvplan.sources.gguf.header import read_header

Q4_K, Q6_K = 144 / 256, 210 / 256
TINY_BYTES = int(
    256 * 320 * (Q4_K + Q6_K)
    + 256 * 4
    + 2 * (2 * 256 * 4 + 256 * 256 * 2 * Q4_K + 256 * 128 * (Q4_K + Q6_K) + 2 * 256 * 512 * Q4_K)
    + 512 * 256 * (Q4_K + Q6_K)
)


def write(folder: Path, data: bytes, name: str = "tiny-q4_k_m.gguf") -> str:
    path = folder / name
    path.write_bytes(data)
    return str(path)


def tiny(folder: Path, **changes: Any) -> str:
    metadata = {**TINY_GGUF, **{key.replace("__", "."): value for key, value in changes.items()}}
    kept = {key: value for key, value in metadata.items() if value is not None}
    return write(folder, gguf_bytes(kept, tiny_gguf_tensors()))


def test_a_file_gives_geometry_bytes_and_parameters(tmp_path: Path) -> None:
    model = read_gguf(tiny(tmp_path))
    assert model.name == "tiny-q4_k_m"
    assert model.model_type == "llama"
    assert [(g.cache, g.layers) for g in model.groups] == [(FullAttention(2, 64, 64), 2)]
    assert model.max_position_embeddings == 4096
    assert (model.vocab_size, model.hidden_size) == (320, 256)
    assert model.scheme.name == "q4_k_m"
    assert model.weight_bytes(model.scheme) == TINY_BYTES == model.checkpoint.size_bytes
    layer = 2 * 256 + 256 * 256 * 2 + 256 * 128 * 2 + 3 * 256 * 512
    assert model.parameters == model.checkpoint.parameters == 2 * 256 * 320 + 256 + 2 * layer


def test_tensor_parallelism_splits_what_it_can(tmp_path: Path) -> None:
    model = read_gguf(tiny(tmp_path))
    # Half of all but the norms; half a row of 256 still has its whole block's scales.
    norms, scales = 5 * 256 * 4, 2 * 256 * 16
    assert model.weight_bytes(model.scheme, Split(tp=2)) == (
        (TINY_BYTES - norms) // 2 + norms + scales // 2
    )
    stages = [model.weight_bytes(model.scheme, Split(pp=2), stage) for stage in (0, 1)]
    assert sum(stages) == TINY_BYTES


def test_experts_are_counted_and_active_ones_told(tmp_path: Path) -> None:
    tensors = {
        "token_embd.weight": (12, [256, 64]),
        "output_norm.weight": (0, [256]),
        "blk.0.ffn_gate_inp.weight": (0, [256, 8]),
        "blk.0.ffn_up_exps.weight": (12, [256, 512, 8]),
        "blk.0.ffn_down_exps.weight": (12, [512, 256, 8]),
        "blk.0.ffn_up_shexp.weight": (12, [256, 512]),
    }
    metadata = {**TINY_GGUF, "llama.block_count": 1, "llama.expert_used_count": 2}
    model = read_gguf(write(tmp_path, gguf_bytes(metadata, tensors)))
    total, active = model.parameters, model.active_parameters
    assert total is not None
    assert active is not None
    assert total - active == 6 * 2 * 256 * 512
    assert model.experts_per_token == 2
    assert model.expert_width == 512


def test_draft_layers_are_left_out(tmp_path: Path) -> None:
    path = tiny(tmp_path, general__architecture="glm4moe", **{
        key.replace("llama", "glm4moe").replace(".", "__"): value
        for key, value in TINY_GGUF.items() if key.startswith("llama.")
    }, glm4moe__nextn_predict_layers=1)  # fmt: skip
    model = read_gguf(path)
    assert model.num_hidden_layers == 1
    assert model.groups[0].layers == 1
    assert "draft" in model.warnings[0]
    assert model.weight_bytes(model.scheme) < TINY_BYTES


def split(folder: Path, numbers: tuple[int, ...] = (0, 1, 2), count: int = 3) -> str:
    tensors = tiny_gguf_tensors()
    names = list(tensors)
    for number in numbers:
        metadata: dict[str, Any] = {"split.no": number, "split.count": count}
        if number == 0:
            metadata |= TINY_GGUF
        part = {name: tensors[name] for name in names[number::3]}
        write(folder, gguf_bytes(metadata, part), f"tiny-{number + 1:05}-of-{count:05}.gguf")
    return str(folder / f"tiny-00002-of-{count:05}.gguf")


def test_any_part_of_a_split_file_stands_for_all(tmp_path: Path) -> None:
    model = read_gguf(split(tmp_path))
    assert model.name == "tiny"
    assert "3 parts" in model.source
    assert model.weight_bytes(model.scheme) == TINY_BYTES


def test_missing_parts_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"1 of 3 parts are missing: tiny-00001-of-00003.gguf"):
        read_gguf(split(tmp_path, (1, 2)))


def test_parts_must_be_what_their_names_say(tmp_path: Path) -> None:
    path = split(tmp_path)
    os.replace(tmp_path / "tiny-00003-of-00003.gguf", path)
    split(tmp_path, (2,))
    with pytest.raises(MalformedFile, match="its name says 1 of 3"):
        read_gguf(path)


def test_a_renamed_part_does_not_pass_for_the_whole(tmp_path: Path) -> None:
    path = split(tmp_path)
    os.replace(tmp_path / "tiny-00001-of-00003.gguf", tmp_path / "whole.gguf")
    with pytest.raises(MalformedFile, match="is one of 3 parts"):
        read_gguf(str(tmp_path / "whole.gguf"))
    assert path


def test_a_vocabulary_alone_has_no_weights(tmp_path: Path) -> None:
    model = read_gguf(write(tmp_path, gguf_bytes(TINY_GGUF)))
    assert model.vocab_size == 3
    assert model.weights_unknown is not None
    assert "vocabulary only" in model.weights_unknown


def test_an_unknown_architecture_is_named_and_can_be_assumed(tmp_path: Path) -> None:
    metadata = {key.replace("llama", "lama"): value for key, value in TINY_GGUF.items()}
    metadata["general.architecture"] = "lama"
    path = write(tmp_path, gguf_bytes(metadata, tiny_gguf_tensors()))
    with pytest.raises(UnsupportedArchitecture, match=r"general\.architecture = 'lama'"):
        read_gguf(path)
    model = read_gguf(path, assume="full-attention")
    assert model.groups[0].cache == FullAttention(2, 64, 64)
    assert "full-attention" in model.assumptions[0]
    with pytest.raises(InputError, match="not an assumption"):
        read_gguf(path, assume="x")


def geometry(folder: Path, architecture: str, **keys: Any) -> list[tuple[Any, ...]]:
    """The caches of each layer of a file with only the keys that matter."""
    metadata: dict[str, Any] = {"general.architecture": architecture}
    base = {"block_count": 4, "embedding_length": 256, "attention.head_count": 4}
    for key, value in {**base, **keys}.items():
        metadata[f"{architecture}.{key.replace('__', '.')}"] = value
    model = read_gguf(write(folder, gguf_bytes(metadata)))
    return [layer.caches for layer in model.layers]


def test_windows_by_pattern(tmp_path: Path) -> None:
    full, local = (FullAttention(4, 64, 64),), (SlidingWindow(4, 64, 64, 128),)
    window: Mapping[str, Any] = {"attention__sliding_window": 128}
    assert geometry(tmp_path, "gpt-oss", **window) == [local, full, local, full]
    pattern = {"attention__sliding_window_pattern": [False, True, True, False]}
    assert geometry(tmp_path, "gpt-oss", **window, **pattern) == [full, local, local, full]
    stated = {"attention__sliding_window_pattern": 3}
    assert geometry(tmp_path, "gemma3", **window, **stated) == [local, local, full, local]
    assert geometry(tmp_path, "gemma3") == [full] * 4
    # llama.cpp leaves these windows unused.
    assert geometry(tmp_path, "phi3", **window) == [full] * 4
    assert geometry(tmp_path, "llama", **window) == [full] * 4
    with pytest.raises(UnsupportedArchitecture, match="sliding_window_pattern"):
        geometry(tmp_path, "gemma4", **window)


def test_shared_layers_keep_nothing(tmp_path: Path) -> None:
    caches = geometry(
        tmp_path, "gemma4", attention__sliding_window=128, attention__shared_kv_layers=2,
        attention__sliding_window_pattern=[True, False, True, False],
        attention__key_length=128, attention__value_length=128,
        attention__key_length_swa=64, attention__value_length_swa=64,
    )  # fmt: skip
    assert caches == [
        (SlidingWindow(4, 64, 64, 128),), (FullAttention(4, 128, 128),), (Shared(),), (Shared(),),
    ]  # fmt: skip


def test_latent_only_when_the_file_was_made_for_it(tmp_path: Path) -> None:
    sizes = {"attention__key_length": 576, "attention__value_length": 512,
             "attention__kv_lora_rank": 512, "attention__head_count_kv": 1}  # fmt: skip
    heads = {"attention__key_length_mla": 192, "attention__value_length_mla": 128}
    assert geometry(tmp_path, "deepseek2", **sizes, **heads) == [(Latent(512, 64),)] * 4
    old = {**sizes, "attention__key_length": 192, "attention__value_length": 128,
           "attention__head_count_kv": 4}  # fmt: skip
    assert geometry(tmp_path, "deepseek2", **old) == [(FullAttention(4, 192, 128),)] * 4


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"llama__block_count": None}, "llama.block_count is missing"),
        ({"llama__block_count": 10**6}, "block_count is 1000000"),
        ({"llama__block_count": 2.0}, "block_count is 2.0"),
        ({"llama__attention__head_count": "4"}, "head_count is '4'"),
        ({"llama__attention__head_count_kv": [2]}, "has 1 entries for 2 blocks"),
        ({"llama__attention__head_count": 0}, "head_count = 0"),
        ({"llama__embedding_length": None}, "embedding_length is missing"),
        ({"llama__context_length": 0}, "context_length is 0"),
        ({"llama__nextn_predict_layers": 2}, "nextn_predict_layers = 2"),
        ({"llama__attention__causal": False}, "attention.causal = False"),
        ({"general__architecture": None}, "general.architecture is missing"),
        ({"general__architecture": 7}, "general.architecture is missing"),
        ({"general__alignment": 33}, "general.alignment is 33"),
        ({"general__alignment": 0}, "general.alignment is 0"),
    ],
)
def test_bad_metadata_is_refused_with_its_key(
    tmp_path: Path, keys: dict[str, Any], said: str
) -> None:
    with pytest.raises(SourceError) as caught:
        read_gguf(tiny(tmp_path, **keys))
    assert said in caught.value.message


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def header(*, version: int = 3, tensors: int = 0, keys: int = 0, body: bytes = b"") -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys) + body


def tensor(name: str, dims: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    shape = struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
    return text(name) + shape + struct.pack("<IQ", kind, offset)


PAD = bytes(4096)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "ends within the magic number"),
        (b"GGML" + PAD, "not 'GGUF'"),
        (b"GGUF\x03", "ends within the version"),
        (header(version=1), "GGUF version 1"),
        (header(version=4), "GGUF version 4"),
        (header(version=3 << 24), "big-endian"),
        (header(tensors=2**63), "tensors are more than the file can hold"),
        (header(tensors=200, body=PAD), "tensors are more than the file can hold"),
        (header(keys=2**64 - 1), "keys are more than the file can hold"),
        (header(keys=1, body=struct.pack("<Q", 2**62) + PAD), "ends within a key"),
        (header(keys=1, body=struct.pack("<Q", 2000) + bytes(100)), "ends within a key"),
        (header(keys=1, body=text("a") + struct.pack("<I", 13) + PAD), "unknown type 13"),
        (header(keys=1, body=text("a") + struct.pack("<I", 99) + PAD), "unknown type 99"),
        (
            header(keys=1, body=text("a") + struct.pack("<IQ", 8, 2**40) + PAD),
            "ends within the value of 'a'",
        ),
        (
            header(keys=1, body=text("a") + struct.pack("<IIQ", 9, 4, 2**40) + PAD),
            "elements of 'a' are more than the file can hold",
        ),
        (
            header(
                keys=1, body=text("a") + struct.pack("<IIQ", 9, 8, 340) + PAD[:2500] + b"\xff" * 500
            ),
            "ends within",
        ),
        (
            header(keys=1, body=text("a") + struct.pack("<IIQ", 9, 9, 1) + PAD),
            "list of the unknown",
        ),
        (
            header(keys=2, body=2 * (text("a") + struct.pack("<II", 4, 1)) + PAD),
            "key 'a' occurs twice",
        ),
        (
            header(keys=2, body=2 * (text("a") + struct.pack("<IIQ", 9, 8, 0)) + PAD),
            "key 'a' occurs twice",
        ),
        (header(keys=1, body=struct.pack("<Q", 1) + b"\xff" + PAD), "is not UTF-8"),
        (header(tensors=1, body=tensor("t", (8,), kind=4) + PAD), "unknown type 4"),
        (header(tensors=1, body=tensor("t", (8,), kind=31) + PAD), "unknown type 31"),
        (header(tensors=1, body=tensor("t", (100,), kind=12) + PAD), "blocks of 256"),
        (header(tensors=1, body=tensor("t", (2**40, 2**40)) + PAD), "larger than any memory"),
        (header(tensors=1, body=tensor("t", ()) + PAD), "has 0 dimensions"),
        (header(tensors=1, body=tensor("t", (1,) * 5) + PAD), "has 5 dimensions"),
        (header(tensors=1, body=tensor("t", (8,), offset=4) + PAD), "not aligned"),
        (header(tensors=1, body=tensor("t", (8,), offset=2**62) + PAD), "before tensor 't'"),
        (header(tensors=1, body=tensor("t", (10**6,)) + PAD), "before tensor 't'"),
        (header(tensors=2, body=2 * tensor("t", (8,)) + PAD), "occurs twice"),
        (
            header(tensors=2, body=tensor("t", (16,)) + tensor("u", (8,), offset=32) + PAD),
            "'u' overlaps",
        ),
        (header(tensors=1, body=tensor("", (8,)) + PAD), "no usable name"),
    ],
)
def test_hostile_headers_are_refused(tmp_path: Path, data: bytes, said: str) -> None:
    with pytest.raises(MalformedFile) as caught:
        read_header(write(tmp_path, data))
    assert said in caught.value.message


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    whole = gguf_bytes(TINY_GGUF, tiny_gguf_tensors())
    start = whole.index(b"blk.1.ffn_down.weight")
    for length in [*range(0, start + 60, 7), len(whole) - 1]:
        with pytest.raises(MalformedFile):
            read_gguf(write(tmp_path, whole[:length]))


def test_a_large_vocabulary_is_walked_over(tmp_path: Path) -> None:
    """300,000 tokens cross several windows of the file and are not kept."""
    tokens = [f"token number {number}" for number in range(300_000)]
    metadata = {**TINY_GGUF, "tokenizer.ggml.tokens": tokens, "last": 7}
    header = read_header(write(tmp_path, gguf_bytes(metadata)))
    assert header.lengths["tokenizer.ggml.tokens"] == 300_000
    assert "tokenizer.ggml.tokens" not in header.metadata
    assert header.metadata["last"] == 7


def test_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot be read"):
        read_gguf(str(tmp_path / "none.gguf"))
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(MalformedFile, match="not a regular file"):
        read_gguf(str(tmp_path / "pipe.gguf"))
    with pytest.raises(SourceError):
        read_gguf("a\0b.gguf")
