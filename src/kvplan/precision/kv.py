"""The KV cache formats: bits, who takes them, and the quality they were measured to cost.

Names are the engines' own. Quality figures are other people's measurements on the models named;
they order the formats from mild to harsh and never predict a model's own loss.
"""

from __future__ import annotations

from typing import NamedTuple

from kvplan.errors import InputError, UnsupportedCombination, nearest_names
from kvplan.precision.format import BF16, FP8, FP16, FP32, GGML, WHOLE_ROW, Format


class KvFormat(NamedTuple):
    """How keys and values are stored."""

    name: str
    k: Format
    v: Format
    engines: tuple[str, ...]
    """Engines that take it; `none`, the bare formula, takes every format."""
    quality_cost: float | None
    """Measured loss in per cent of the quality of 16-bit KV (perplexity where there is one);
    None when nobody has published a figure. Only good for ordering."""
    quality_note: str
    source: str
    residual_tokens: int = 0
    """Most recent tokens kept at 16 bits beside the quantised ones (KIVI)."""

    @property
    def bits(self) -> float:
        """Mean bits of an element at head size 128, metadata included; those of a format for
        latent vectors at their 512 + 64 elements."""
        if self.k.rope is not None:
            return self.latent_bytes(512, 64) * 8 / (512 + 64)
        return (self.k.bits_per_element() + self.v.bits_per_element()) / 2

    def latent_bytes(self, kv_lora_rank: int, rope_dim: int) -> int:
        """Bytes of one latent (MLA) state: the compressed vector, then its rotary part.

        One vector serves as key and value, so only ``k`` counts and there is no factor 2.
        Source: DeepSeek-V2 paper, section 2.1.2; vLLM ``MLAAttentionSpec``.
        """
        return self.k.row_bytes(kv_lora_rank) + (self.k.rope or self.k).row_bytes(rope_dim)


def _same(
    name: str,
    form: Format,
    engines: tuple[str, ...],
    cost: float | None,
    note: str,
    source: str,
    **more: object,
) -> KvFormat:
    return KvFormat(name, form, form, engines, cost, note, source, **more)  # type: ignore[arg-type]


_ALL = ("vllm", "sglang", "tensorrt-llm", "llamacpp", "transformers")
_VLLM_DOC = "vLLM documentation, Quantized KV Cache"
_TURBO_DOC = "vLLM pull requests 38479 and 40108 (Gemma-4 and dense models, wikitext and GSM8K)"
_LCPP = "llama.cpp pull request 7412 (Llama-3-8B, wikitext)"

_TOKEN_HEAD = {bits: Format(f"int{bits}_row32", bits, WHOLE_ROW, 32) for bits in (8, 4)}
_FP8_ROW = Format("fp8_row32", 8, WHOLE_ROW, 32)
_SCALE_ZERO = {bits: Format(f"int{bits}_row16+16", bits, WHOLE_ROW, 32) for bits in (8, 4)}
_TURBO_V = {bits: Format(f"turbo_v{bits}", bits, WHOLE_ROW, 32) for bits in (4, 3)}
_TURBO_K = {bits: Format(f"turbo_k{bits}", bits, WHOLE_ROW, 16) for bits in (4, 3)}
_NVFP4 = Format("nvfp4", 4, 16, 8, packs=16)

KV_FORMATS: dict[str, KvFormat] = {
    form.name: form
    for form in (
        _same("bf16", BF16, _ALL, 0.0, "reference", "the model's own precision"),
        _same("fp16", FP16, _ALL, 0.0, "reference", "the model's own precision"),
        _same("fp32", FP32, ("llamacpp", "transformers"), 0.0, "reference", "wider than the model"),
        _same(
            "fp8_e4m3", FP8, ("vllm", "sglang", "tensorrt-llm"), 0.1,
            "GSM8K 0.9181 against 0.9168, GPQA 0.7697 against 0.7707 (within noise); "
            "AIME25 0.7333 against 0.7733",
            "SGLang documentation, Quantized KV Cache (Qwen3-235B, DeepSeek-R1)",
        ),
        _same(
            "fp8_e5m2", FP8, ("vllm", "sglang"), None,
            "documented as worse than fp8_e4m3, no figure published", _VLLM_DOC,
        ),
        _same(
            "fp8_per_token_head", _FP8_ROW, ("vllm",), None, "no figure published",
            "vLLM config/cache.py CacheDType",
        ),
        _same(
            "int8_per_token_head", _TOKEN_HEAD[8], ("vllm",), None, "no figure published",
            "vLLM config/cache.py CacheDType",
        ),
        _same(
            "int4_per_token_head", _TOKEN_HEAD[4], ("vllm",), None, "no figure published",
            "vLLM config/cache.py CacheDType",
        ),
        _same(
            "nvfp4", _NVFP4, ("vllm", "tensorrt-llm"), 1.0,
            "under 1 % below bf16 on LiveCodeBench, MMLU-Pro and Ruler-64k (the vendor's figures)",
            "NVIDIA developer blog on NVFP4 KV cache, December 2025",
        ),
        _same(
            "nvfp4_4over6", _NVFP4, ("vllm",), None, "no figure published",
            "vLLM config/cache.py CacheDType",
        ),
        KvFormat(
            "turboquant_k8v4", FP8, _TURBO_V[4], ("vllm",), 1.17,
            "perplexity +1.17 %; GSM8K 0.860 against 0.900", _TURBO_DOC,
        ),
        KvFormat(
            "turboquant_4bit_nc", _TURBO_K[4], _TURBO_V[4], ("vllm",), 2.71,
            "perplexity +2.71 %; GSM8K 0.840 against 0.900", _TURBO_DOC,
        ),
        KvFormat(
            "turboquant_k3v4_nc", _TURBO_K[3], _TURBO_V[4], ("vllm",), 10.63,
            "perplexity +10.63 %; GSM8K 0.780 against 0.900", _TURBO_DOC,
        ),
        KvFormat(
            "turboquant_3bit_nc", _TURBO_K[3], _TURBO_V[3], ("vllm",), 20.59,
            "perplexity +20.59 %; GSM8K 0.720 against 0.900", _TURBO_DOC,
        ),
        _same(
            "fp8_ds_mla", Format("fp8_ds_mla", 8, 128, 32, rope=BF16), ("vllm",), 0.1,
            "DeepSeek-V3.2's own default", "vLLM flashmla_sparse.py: 656 B a token and layer",
        ),
        _same(
            "nvfp4_ds_mla", Format("nvfp4_ds_mla", 4, 16, 8, rope=FP8), ("vllm",), None,
            "no figure published", "vLLM config/cache.py: 352 B a token and layer",
        ),
        _same(
            "fp4_e2m1", Format("fp4_e2m1", 4, 16, 8, packs=16), ("sglang",), 20.0,
            "AIME25 0.60 against 0.77, GPQA 0.32 against 0.51 on the worst model; GSM8K unchanged",
            "SGLang documentation, Quantized KV Cache",
        ),
        _same(
            "mxfp4", Format("mxfp4", 4, 32, 8, packs=32), (), 20.0,
            "about 5 points below nvfp4 on long-context tasks",
            "NVIDIA developer blog on NVFP4 KV cache, December 2025",
        ),
        _same(
            "int8", _SCALE_ZERO[8], ("lmdeploy",), 0.2,
            "MMLU 63.91 to 64.0, GSM8K 70.13 to 69.75 (InternLM2-7B)",
            "LMDeploy documentation, INT4/INT8 KV Cache",
        ),
        _same(
            "int4", _SCALE_ZERO[4], ("lmdeploy",), 2.5,
            "MMLU 63.91 to 62.36, GSM8K 70.13 to 66.87 (InternLM2-7B)",
            "LMDeploy documentation, INT4/INT8 KV Cache",
        ),
        _same(
            "kivi-4", Format("kivi-4", 4, 32, 32), (), 0.2,
            "LongBench 38.79 against 38.72; Qwen2.5-3B perplexity 6.476 to 6.515",
            "KIVI, arXiv 2402.02750", residual_tokens=128,
        ),
        _same(
            "kivi-2", Format("kivi-2", 2, 32, 32), (), 1.1,
            "LongBench 38.72 to 38.30, but RULER-32k 56.40 to 39.78", "KIVI, arXiv 2402.02750",
            residual_tokens=128,
        ),
        _same(
            "nuq4-1%", Format("nuq4-1%", 4, outlier_permille=10), (), 0.35,
            "LLaMA-7B perplexity 5.68 to 5.70", "KVQuant, arXiv 2401.18079, table 1",
        ),
        _same(
            "nuq3-1%", Format("nuq3-1%", 3, outlier_permille=10), (), 1.3,
            "LLaMA-7B perplexity 5.68 to 5.75; RULER-32k 56.40 to 53.65",
            "KVQuant, arXiv 2401.18079, table 1",
        ),
        _same(
            "nuq2-1%", Format("nuq2-1%", 2, outlier_permille=10), (), 6.9,
            "LLaMA-7B perplexity 5.68 to 6.07; RULER-32k 56.40 to 36.54",
            "KVQuant, arXiv 2401.18079, table 1",
        ),
        _same(
            "q8_0", GGML["q8_0"], ("llamacpp",), 0.06, "perplexity +0.0046, KL divergence 0.00098",
            _LCPP,
        ),
        _same("q5_1", GGML["q5_1"], ("llamacpp",), 0.11, "perplexity +0.0070 with f16 keys", _LCPP),
        _same("q5_0", GGML["q5_0"], ("llamacpp",), None, "no figure published", _LCPP),
        _same("q4_1", GGML["q4_1"], ("llamacpp",), None, "no figure published", _LCPP),
        _same(
            "q4_0", GGML["q4_0"], ("llamacpp",), 2.2,
            "Qwen3-8B perplexity 7.226 to 7.383; MMLU 39.99 to 39.65; small models break",
            "llama.cpp pull request 21551 (with Hadamard rotation)",
        ),
        _same(
            "iq4_nl", GGML["iq4_nl"], ("llamacpp",), 2.2, "MMLU 39.99 to 39.63 (Gemma-3-4B)",
            "llama.cpp pull request 21551 (with Hadamard rotation)",
        ),
    )
}  # fmt: skip
"""Every KV format kvplan knows, by name."""

_ALIASES = {
    "fp8": "fp8_e4m3", "f16": "fp16", "float16": "fp16", "half": "fp16", "bfloat16": "bf16",
    "f32": "fp32", "float32": "fp32", "kivi2": "kivi-2", "kivi4": "kivi-4", "nuq4": "nuq4-1%",
    "nuq3": "nuq3-1%", "nuq2": "nuq2-1%",
}  # fmt: skip

AUTO = "auto"
"""Follow the model: its own dtype, or what the checkpoint declares."""


def kv_format(text: str) -> KvFormat:
    """The format for ``fp8``, ``q8_0`` … or for keys and values apart: ``k=q8_0,v=q4_0``."""
    if "=" not in text:
        return _named(text)
    sides: dict[str, KvFormat] = {}
    for part in text.split(","):
        side, _, name = part.partition("=")
        side = side.strip().lower()
        if side not in {"k", "v"} or side in sides:
            raise InputError(
                f"--kv {text!r}: write one format, or one each for keys and values",
                hint="For example: --kv k=q8_0,v=q4_0",
            )
        sides[side] = _named(name.strip())
    k, v = sides.get("k", KV_FORMATS["fp16"]), sides.get("v", KV_FORMATS["fp16"])
    if k is v:
        return k
    return KvFormat(
        f"k={k.name},v={v.name}",
        k.k,
        v.v,
        tuple(engine for engine in k.engines if engine in v.engines),
        None
        if k.quality_cost is None or v.quality_cost is None
        else k.quality_cost + v.quality_cost,
        f"keys: {k.quality_note}; values: {v.quality_note}",
        k.source if k.source == v.source else f"{k.source}; {v.source}",
        max(k.residual_tokens, v.residual_tokens),
    )


def _named(text: str) -> KvFormat:
    name = text.strip().lower()
    form = KV_FORMATS.get(_ALIASES.get(name, name))
    if form is None:
        names = [*KV_FORMATS, *_ALIASES]
        near = nearest_names(name, names) or sorted(KV_FORMATS)
        raise InputError(
            f"--kv {text!r} is not a KV cache format kvplan knows", hint=f"Try: {', '.join(near)}"
        )
    return form


def check_packs(form: KvFormat, head_sizes: tuple[int, ...]) -> None:
    """Refuse a block format whose blocks do not divide a head: the engines refuse it too.

    Source: llama.cpp ``llama_init_from_model`` ("block size … does not divide n_embd_head_k").
    """
    for side in (form.k, form.v):
        for size in head_sizes:
            if size % side.packs:
                raise UnsupportedCombination(
                    f"--kv {form.name}: {side.name} packs {side.packs} elements, "
                    f"which does not divide this model's head size of {size}"
                )
