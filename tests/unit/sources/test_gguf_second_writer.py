"""The reader of GGUF headers against files that the Python package ``gguf`` wrote.

The other tests read what the tests' own writer wrote, which could share a misunderstanding with
the reader. Every expected figure is written out here from the shapes and GGML's block sizes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from kvplan.model.caches import FullAttention, SlidingWindow
from kvplan.model.rows import sequence_bytes
from kvplan.precision.kv import KV_FORMATS
from kvplan.sources.gguf import read_gguf
from kvplan.sources.gguf.header import read_header

LAYERS, HIDDEN, FFN, VOCABULARY, HEADS, KV_HEADS, HEAD = 2, 128, 256, 96, 4, 2, 32
ATTENTION = HIDDEN * HIDDEN * 2 + HIDDEN * (KV_HEADS * HEAD) * 2
MATRICES = ATTENTION + 3 * HIDDEN * FFN
NORMS = LAYERS * 2 * HIDDEN + HIDDEN
EMBEDDING = VOCABULARY * HIDDEN

F16, F32 = gguf.GGMLQuantizationType.F16, gguf.GGMLQuantizationType.F32
Q8_0, Q4_0 = gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.Q4_0
BLOCK_BYTES = {Q8_0: 34, Q4_0: 18}
"""Of 32 elements."""


def metadata(writer: gguf.GGUFWriter, arch: str = "llama") -> None:
    writer.add_name("Second")
    writer.add_context_length(2048)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(500_000.0)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([f"token {n}" for n in range(VOCABULARY)])
    writer.add_token_scores([-float(n) for n in range(VOCABULARY)])
    writer.add_token_types([1] * VOCABULARY)
    writer.add_add_bos_token(True)
    writer.add_uint8(f"{arch}.test.u8", 200)
    writer.add_int8(f"{arch}.test.i8", -3)
    writer.add_int64(f"{arch}.test.i64", -(2**40))
    writer.add_uint64(f"{arch}.test.u64", 2**40)
    writer.add_float64(f"{arch}.test.f64", 0.5)


def matrix(writer: gguf.GGUFWriter, name: str, rows: int, columns: int, kind: Any) -> None:
    """Zeros of the stored type; the package takes a quantised matrix by its bytes."""
    if kind in BLOCK_BYTES:
        data = np.zeros((rows, columns // 32 * BLOCK_BYTES[kind]), np.uint8)
        writer.add_tensor(name, data, raw_dtype=kind)
    else:
        writer.add_tensor(name, np.zeros((rows, columns), np.float16))


def tensors(writer: gguf.GGUFWriter, kind: Any = F16, down: Any = None) -> None:
    matrix(writer, "token_embd.weight", VOCABULARY, HIDDEN, F16)
    writer.add_tensor("output_norm.weight", np.zeros(HIDDEN, np.float32))
    for layer in range(LAYERS):
        at = f"blk.{layer}"
        for norm in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"{at}.{norm}.weight", np.zeros(HIDDEN, np.float32))
        for name, rows, columns in (
            ("attn_q", HIDDEN, HIDDEN),
            ("attn_k", KV_HEADS * HEAD, HIDDEN),
            ("attn_v", KV_HEADS * HEAD, HIDDEN),
            ("attn_output", HIDDEN, HIDDEN),
            ("ffn_gate", FFN, HIDDEN),
            ("ffn_up", FFN, HIDDEN),
        ):
            matrix(writer, f"{at}.{name}.weight", rows, columns, kind)
        matrix(writer, f"{at}.ffn_down.weight", HIDDEN, FFN, kind if down is None else down)


def finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_llama_in_f16(tmp_path: Path) -> None:
    path = tmp_path / "second-f16.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    metadata(writer)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    tensors(writer)
    finish(writer)
    model = read_gguf(str(path))
    assert [(g.cache, g.layers) for g in model.groups] == [
        (FullAttention(KV_HEADS, HEAD, HEAD), LAYERS)
    ]
    kv = model.logical_rows(KV_FORMATS["fp16"])
    assert sequence_bytes(kv, 100) == 2 * LAYERS * KV_HEADS * HEAD * 100 * 2
    assert model.parameters == EMBEDDING + NORMS + LAYERS * MATRICES
    assert model.weight_bytes(model.scheme) == (
        2 * (EMBEDDING + LAYERS * MATRICES) + 4 * NORMS
    ) == model.checkpoint.size_bytes  # fmt: skip
    assert (model.name, model.scheme.name) == ("second-f16", "f16")
    assert (model.max_position_embeddings, model.vocab_size) == (2048, VOCABULARY)


def test_every_kind_of_value_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "values.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    metadata(writer)
    writer.add_array("llama.test.numbers", [1, 2, 300])
    writer.add_array("llama.test.texts", ["a", "", "ü"])
    writer.add_array("llama.test.flags", [True, False])
    finish(writer)
    header = read_header(str(path))
    found = {k[11:]: v for k, v in header.metadata.items() if k.startswith("llama.test.")}
    assert found == {
        "u8": 200, "i8": -3, "i64": -(2**40), "u64": 2**40, "f64": 0.5,
        "numbers": [1, 2, 300], "texts": ["a", "", "ü"], "flags": [True, False],
    }  # fmt: skip
    assert header.metadata["tokenizer.ggml.add_bos_token"] is True
    assert header.lengths["tokenizer.ggml.tokens"] == VOCABULARY
    assert header.tensors == {}


@pytest.mark.parametrize(("kind", "file_type"), [(Q8_0, "MOSTLY_Q8_0"), (Q4_0, "MOSTLY_Q4_0")])
def test_blocks_count_with_their_scales(tmp_path: Path, kind: Any, file_type: str) -> None:
    """A mix: the down projections are stored in Q8_0, the embedding in F16."""
    path = tmp_path / "second.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    metadata(writer)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_file_type(gguf.LlamaFileType[file_type])
    tensors(writer, kind, down=Q8_0)
    finish(writer)
    model = read_gguf(str(path))
    down = HIDDEN * FFN
    assert model.parameters == EMBEDDING + NORMS + LAYERS * MATRICES
    assert model.weight_bytes(model.scheme) == (
        2 * EMBEDDING
        + 4 * NORMS
        + LAYERS * ((MATRICES - down) // 32 * BLOCK_BYTES[kind] + down // 32 * 34)
    )
    assert read_header(str(path)).tensors["blk.1.ffn_down.weight"] == (
        model.scheme.exact.formats["model.layers.1.ffn_down.weight"], (FFN, HIDDEN), down // 32 * 34
    )  # fmt: skip


def test_numbers_and_flags_a_layer(tmp_path: Path) -> None:
    """Key-value heads and window layers as lists, one entry a layer."""
    path = tmp_path / "lists.gguf"
    writer = gguf.GGUFWriter(path, "gemma3")
    metadata(writer, "gemma3")
    writer.add_head_count_kv([KV_HEADS, 1])
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_sliding_window(512)
    writer.add_sliding_window_pattern([True, False])
    finish(writer)
    assert [g.cache for g in read_gguf(str(path)).groups] == [
        SlidingWindow(KV_HEADS, HEAD, HEAD, 512), FullAttention(1, HEAD, HEAD),
    ]  # fmt: skip


def test_a_split_file(tmp_path: Path) -> None:
    """2 + 9 x 2 tensors, 8 a part: 3 parts."""
    writer = gguf.GGUFWriter(tmp_path / "second.gguf", "llama", split_max_tensors=8)
    metadata(writer)
    writer.add_head_count_kv(KV_HEADS)
    tensors(writer, Q8_0)
    finish(writer)
    parts = sorted(path.name for path in tmp_path.iterdir())
    assert parts == [f"second-0000{n}-of-00003.gguf" for n in (1, 2, 3)]
    for part in parts:
        model = read_gguf(str(tmp_path / part))
        assert model.name == "second"
        assert model.source.endswith("(3 parts)")
        assert model.weight_bytes(model.scheme) == (
            2 * EMBEDDING + 4 * NORMS + LAYERS * MATRICES // 32 * 34
        )
        assert model.parameters == EMBEDDING + NORMS + LAYERS * MATRICES
