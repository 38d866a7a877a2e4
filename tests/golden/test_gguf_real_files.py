"""The vocabulary files that llama.cpp ships: headers written by others, of models that were served.

They come with the source package of llama-cpp-python (`make gguf-files` fetches it, a few seconds);
without them these tests skip. Expected bytes are written out from the published configurations:
layers x key-value heads x (width of a key + width of a value) x 2 bytes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kvplan.errors import SourceError
from kvplan.model.rows import sequence_bytes
from kvplan.precision.kv import KV_FORMATS
from kvplan.sources.gguf import read_gguf

FILES = Path(__file__).parents[2] / ".cache" / "gguf"
pytestmark = pytest.mark.skipif(not FILES.is_dir(), reason="fetch the files with make gguf-files")

BYTES_PER_TOKEN = {
    "aquila": 32 * 32 * (128 + 128) * 2,
    "baichuan": 32 * 32 * (128 + 128) * 2,
    "command-r": 40 * 64 * (128 + 128) * 2,  # 35B v01 has no grouped queries
    "deepseek-coder": 32 * 32 * (128 + 128) * 2,
    "deepseek-llm": 30 * 32 * (128 + 128) * 2,
    "falcon": 32 * 1 * (64 + 64) * 2,  # 7B: multi-query
    "gpt-2": 12 * 12 * (64 + 64) * 2,
    "gpt-neox": 44 * 64 * (96 + 96) * 2,  # 20B
    "llama-bpe": 32 * 8 * (128 + 128) * 2,
    "llama-spm": 32 * 32 * (128 + 128) * 2,
    "mpt": 32 * 32 * (128 + 128) * 2,
    "phi-3": 32 * 32 * (96 + 96) * 2,
    "qwen2": 32 * 32 * (128 + 128) * 2,
    "refact": 32 * 1 * (64 + 64) * 2,
    "starcoder": 30 * 2 * (128 + 128) * 2,
}


@pytest.mark.parametrize("name", BYTES_PER_TOKEN)
def test_cache_of_a_real_header(name: str) -> None:
    model = read_gguf(str(FILES / f"ggml-vocab-{name}.gguf"))
    tokens = 1_024
    expected = BYTES_PER_TOKEN[name] * tokens
    assert sequence_bytes(model.logical_rows(KV_FORMATS["fp16"]), tokens) == expected
    assert model.weights_unknown is not None, "they hold a vocabulary, no weights"


def test_windows_of_a_real_header() -> None:
    """Gemma-4 26B-A4B: 25 layers with a window of 1,024 and 8 heads of 256, 5 full ones with 2 of
    512 each way."""
    model = read_gguf(str(FILES / "ggml-vocab-gemma-4.gguf"))
    tokens = 262_144
    windows, full = 25 * 8 * (256 + 256) * 2, 5 * 2 * (512 + 512) * 2
    assert (
        sequence_bytes(model.logical_rows(KV_FORMATS["fp16"]), tokens)
        == windows * 1_024 + full * tokens
    )


@pytest.mark.parametrize("name", ["bert-bge", "nomic-bert-moe"])
def test_encoders_are_refused(name: str) -> None:
    with pytest.raises(SourceError, match=r"attention\.causal"):
        read_gguf(str(FILES / f"ggml-vocab-{name}.gguf"))
