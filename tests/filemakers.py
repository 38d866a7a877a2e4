"""Small files in the formats that kvplan reads, written from their specifications."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ITEM_BYTES = {"F32": 4, "BF16": 2, "F16": 2, "F8_E4M3": 1, "U8": 1, "I32": 4, "I64": 8}

TINY_LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 128,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}
"""96 * 64 * 3 + 64 * 64 * 2 + 32 * 64 * 2 + 2 * 64 weights a layer; 128 * 64 * 2 + 64 outside."""

TINY_LLAMA_PARAMETERS = 2 * (96 * 64 * 3 + 64 * 64 * 2 + 32 * 64 * 2 + 128) + 128 * 64 * 2 + 64


def tiny_llama_tensors(dtype: str = "BF16") -> dict[str, tuple[str, list[int]]]:
    """The tensors that a checkpoint of `TINY_LLAMA` holds."""
    tensors: dict[str, tuple[str, list[int]]] = {
        "model.embed_tokens.weight": (dtype, [128, 64]),
        "model.norm.weight": (dtype, [64]),
        "lm_head.weight": (dtype, [128, 64]),
    }
    for layer in range(2):
        at = f"model.layers.{layer}"
        for name, shape in (
            ("self_attn.q_proj", [64, 64]),
            ("self_attn.k_proj", [32, 64]),
            ("self_attn.v_proj", [32, 64]),
            ("self_attn.o_proj", [64, 64]),
            ("mlp.gate_proj", [96, 64]),
            ("mlp.up_proj", [96, 64]),
            ("mlp.down_proj", [64, 96]),
            ("input_layernorm", [64]),
            ("post_attention_layernorm", [64]),
        ):
            tensors[f"{at}.{name}.weight"] = (dtype, shape)
    return tensors


def safetensors_header(tensors: Mapping[str, tuple[str, Sequence[int]]]) -> tuple[bytes, int]:
    """The header of a file of these tensors (dtype, shape), and the bytes of its data."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, (dtype, shape) in tensors.items():
        size = ITEM_BYTES[dtype]
        for length in shape:
            size *= length
        entries[name] = {
            "dtype": dtype,
            "shape": list(shape),
            "data_offsets": [offset, offset + size],
        }
        offset += size
    return json.dumps(entries).encode(), offset


def write_safetensors(path: Path, tensors: Mapping[str, tuple[str, Sequence[int]]]) -> None:
    """The file, with a hole for its data: nobody reads that."""
    header, data = safetensors_header(tensors)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + data)


def write_checkpoint(
    folder: Path,
    config: Mapping[str, Any] = TINY_LLAMA,
    tensors: Mapping[str, tuple[str, Sequence[int]]] | None = None,
    shards: int = 2,
) -> Path:
    """A model folder: config, and one file of weights or an index and several."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    tensors = tiny_llama_tensors() if tensors is None else tensors
    if shards == 1:
        write_safetensors(folder / "model.safetensors", tensors)
        return folder
    names = list(tensors)
    weight_map = {}
    total = 0
    for number in range(shards):
        part = {name: tensors[name] for name in names[number::shards]}
        file = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        write_safetensors(folder / file, part)
        total += safetensors_header(part)[1]
        weight_map |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map})
    )
    return folder


def _text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value) if value < 2**32 else struct.pack("<IQ", 10, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    inner = _value(value[0]) if value else struct.pack("<I", 4)
    kind = inner[:4]
    items = b"".join(_value(item)[4:] for item in value)
    return struct.pack("<I", 9) + kind + struct.pack("<Q", len(value)) + items


GGML_BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 8: (32, 34), 12: (256, 144), 14: (256, 210)}
"""Type number → elements and bytes of a block: F32, F16, Q4_0, Q8_0, Q4_K, Q6_K."""


def gguf_bytes(
    metadata: Mapping[str, Any],
    tensors: Mapping[str, tuple[int, Sequence[int]]] | None = None,
    *,
    data: bool = True,
) -> bytes:
    """A GGUF file of version 3; tensors are (type number, shape with the row length first)."""
    tensors = tensors or {}
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, value in metadata.items():
        out += _text(key) + _value(value)
    offset = 0
    for name, (kind, shape) in tensors.items():
        block, size = GGML_BLOCKS[kind]
        elements = 1
        for length in shape:
            elements *= length
        out += _text(name) + struct.pack("<I", len(shape))
        out += struct.pack(f"<{len(shape)}Q", *shape) + struct.pack("<IQ", kind, offset)
        offset += -(-(elements // block * size) // 32) * 32
    if tensors and data:
        out += bytes(-len(out) % 32) + bytes(offset)
    return out


TINY_GGUF = {
    "general.architecture": "llama",
    "general.name": "Tiny",
    "general.file_type": 15,
    "llama.block_count": 2,
    "llama.context_length": 4096,
    "llama.embedding_length": 256,
    "llama.feed_forward_length": 512,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "tokenizer.ggml.tokens": ["a", "b", "c"],
    "tokenizer.ggml.scores": [0.0, -1.0, -2.0],
}


def tiny_gguf_tensors() -> dict[str, tuple[int, list[int]]]:
    """The tensors of `TINY_GGUF` as a Q4_K mix stores them."""
    tensors: dict[str, tuple[int, list[int]]] = {
        "token_embd.weight": (12, [256, 320]),
        "output_norm.weight": (0, [256]),
        "output.weight": (14, [256, 320]),
    }
    for layer in range(2):
        at = f"blk.{layer}"
        tensors |= {
            f"{at}.attn_norm.weight": (0, [256]),
            f"{at}.ffn_norm.weight": (0, [256]),
            f"{at}.attn_q.weight": (12, [256, 256]),
            f"{at}.attn_k.weight": (12, [256, 128]),
            f"{at}.attn_v.weight": (14, [256, 128]),
            f"{at}.attn_output.weight": (12, [256, 256]),
            f"{at}.ffn_gate.weight": (12, [256, 512]),
            f"{at}.ffn_up.weight": (12, [256, 512]),
            f"{at}.ffn_down.weight": (14 if layer else 12, [512, 256]),
        }
    return tensors
