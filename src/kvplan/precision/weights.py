"""The weight formats: bits with their metadata, and which parts of a model they touch.

A quantised checkpoint is not "4 bits times the parameters": AWQ and GPTQ leave embeddings, head,
norms and biases at 16 bits, MXFP4 as gpt-oss ships it touches only the experts, and only GGUF
types quantise the embedding too.
"""

from __future__ import annotations

from typing import NamedTuple

from kvplan.errors import InputError, nearest_names
from kvplan.precision.format import BF16, FP16, FP32, GGML, WHOLE_ROW, Format

ATTENTION, MLP, EXPERTS, SHARED = "attention", "mlp", "experts", "shared_experts"
LINEAR_PARTS = frozenset({ATTENTION, MLP, EXPERTS, SHARED, "mixer"})
"""The matrices that weight quantisers touch."""
EVERY_MATRIX = LINEAR_PARTS | {"embedding", "head", "router"}


class WeightFormat(NamedTuple):
    """A format for the weights of a whole model."""

    name: str
    form: Format
    parts: frozenset[str] = LINEAR_PARTS
    """Parts stored in it; the others keep the model's 16-bit dtype."""
    quality_cost: float | None = None
    """Perplexity increase in per cent on a 7 to 8 B model; only good for ordering."""
    quality_note: str = ""
    source: str = ""
    min_capability: tuple[int, int] | None = None
    """Oldest NVIDIA compute capability with kernels for it."""


_AWQ = "AWQ, arXiv 2306.00978, table 4 (Llama-2-7B, int4 group 128)"
_GGUF = "llama.cpp tools/perplexity README (Llama-3-8B; q5_k and q4_k as their _M mixes)"

WEIGHT_FORMATS: dict[str, WeightFormat] = {
    form.name: form
    for form in (
        WeightFormat("fp32", FP32, EVERY_MATRIX, 0.0, "reference", "wider than the checkpoint"),
        WeightFormat("bf16", BF16, EVERY_MATRIX, 0.0, "reference", "the usual checkpoint"),
        WeightFormat("fp16", FP16, EVERY_MATRIX, 0.0, "reference", "the usual checkpoint"),
        WeightFormat(
            "fp8", Format("fp8", 8, WHOLE_ROW, 32), LINEAR_PARTS, 0.1,
            "under 1 % on common evaluations", "vLLM documentation, FP8 W8A8", (8, 0),
        ),
        WeightFormat(
            "fp8_block", Format("fp8_block", 8, 128, 32, group_rows=128), LINEAR_PARTS, 0.1,
            "as DeepSeek-V3 was trained", "DeepSeek-V3 technical report, section 3.3", (8, 9),
        ),
        WeightFormat(
            "int8", Format("int8", 8, WHOLE_ROW, 16), LINEAR_PARTS, 0.2,
            "under 1 % with calibration", "vLLM documentation, INT8 W8A8", (7, 5),
        ),
        WeightFormat(
            "awq", Format("awq", 4, 128, 16 + 4), LINEAR_PARTS, 2.4,
            "perplexity 5.47 to 5.60", _AWQ, (7, 5),
        ),
        WeightFormat(
            "gptq", Format("gptq", 4, 128, 16 + 4, column_bits=32), LINEAR_PARTS, 4.0,
            "perplexity 5.47 to 5.69", _AWQ, (7, 0),
        ),
        WeightFormat(
            "w4a16", Format("w4a16", 4, 128, 16), LINEAR_PARTS, 2.5, "as awq without zero points",
            "compressed-tensors pack-quantized, symmetric, group 128", (8, 0),
        ),
        WeightFormat(
            "nvfp4", Format("nvfp4", 4, 16, 8), LINEAR_PARTS, 1.5,
            "about 1 % below fp8 (the vendor's figures)", "NVIDIA ModelOpt documentation", (10, 0),
        ),
        WeightFormat(
            "mxfp4", Format("mxfp4", 4, 32, 8), frozenset({EXPERTS}), None,
            "as gpt-oss was trained; elsewhere not measured",
            "gpt-oss model card: only the experts are quantised", (8, 0),
        ),
        WeightFormat(
            "nf4", Format("nf4", 4, 64, 32), LINEAR_PARTS, None,
            "close to 16-bit after fine-tuning", "QLoRA, arXiv 2305.14314", (7, 0),
        ),
        WeightFormat("q8_0", GGML["q8_0"], EVERY_MATRIX, 0.04, "perplexity +0.0026", _GGUF),
        WeightFormat("q6_k", GGML["q6_k"], EVERY_MATRIX, 0.35, "perplexity +0.022", _GGUF),
        WeightFormat("q5_k", GGML["q5_k"], EVERY_MATRIX, 0.9, "perplexity +0.057", _GGUF),
        WeightFormat("q5_0", GGML["q5_0"], EVERY_MATRIX, 1.7, "perplexity +0.106", _GGUF),
        WeightFormat("q4_k", GGML["q4_k"], EVERY_MATRIX, 2.8, "perplexity +0.175", _GGUF),
        WeightFormat("q4_0", GGML["q4_0"], EVERY_MATRIX, 7.5, "perplexity +0.47", _GGUF),
    )
}  # fmt: skip
"""Every weight format that `--weights` takes, by name."""

_ALIASES = {
    "bfloat16": "bf16", "float16": "fp16", "f16": "fp16", "float32": "fp32", "fp8_e4m3": "fp8",
    "int4": "awq", "bnb": "nf4", "bitsandbytes": "nf4", "w8a8": "int8",
}  # fmt: skip


def weight_format(text: str) -> WeightFormat:
    """The weight format of that name."""
    name = text.strip().lower()
    form = WEIGHT_FORMATS.get(_ALIASES.get(name, name))
    if form is None:
        near = nearest_names(name, [*WEIGHT_FORMATS, *_ALIASES]) or sorted(WEIGHT_FORMATS)
        raise InputError(
            f"--weights {text!r} is not a weight format kvplan knows",
            hint=f"Try: {', '.join(near)}",
        )
    return form
