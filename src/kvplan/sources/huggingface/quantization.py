"""How a checkpoint stores its weights: ``quantization_config`` → `WeightScheme`.

A method that is not understood makes the weights unknown, with the method named; it never falls
back to the parameters times 16 bits, which for a 4-bit checkpoint is wrong by 3 to 4 times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kvplan.errors import MalformedFile, UnsupportedArchitecture
from kvplan.precision.format import DTYPES, WHOLE_ROW, Format
from kvplan.precision.modules import UnknownPattern
from kvplan.precision.scheme import ModuleRules, WeightScheme, plain_scheme
from kvplan.precision.weights import EXPERTS, LINEAR_PARTS, WEIGHT_FORMATS
from kvplan.sources.huggingface.fields import Fields

NVFP4 = WEIGHT_FORMATS["nvfp4"].form
MXFP4 = WEIGHT_FORMATS["mxfp4"].form
MXFP8 = Format("mxfp8", 8, 32, 8)
FP8_TENSOR = Format("fp8", 8)
FP8_ROW = Format("fp8", 8, WHOLE_ROW, 32)
FP8_BLOCK = WEIGHT_FORMATS["fp8_block"].form

_LINEAR_AND_HEAD = LINEAR_PARTS | {"head"}
"""What ``targets: ["Linear"]`` means: the head is a linear layer too, unless it is ignored."""

_MAX_ENTRIES = 1_000_000
"""Most entries of a list of modules believed; the longest published one has 22,422."""


class UnknownScheme(UnsupportedArchitecture):
    """A way of storing weights that kvplan does not know; the KV cache does not depend on it."""

    def __init__(self, key: str, value: object, *, where: str, known: Iterable[str] = ()) -> None:
        super().__init__(key, value, where=where, known=known)
        self.message = f"{where}: {key} = {value!r} is not a weight format kvplan knows"
        self.args = (self.message,)
        self.hint = "Give one that it knows with --weights FORMAT."


def checkpoint_scheme(c: Fields, dtype: Format) -> WeightScheme:
    """The scheme that the config's ``quantization_config`` describes; plain 16-bit without one."""
    q = c.nested("quantization_config")
    if q is None or not q.data:
        return plain_scheme(dtype)
    method = q.text("quant_method")
    if method is None and q.states("quant_algo"):
        method = "modelopt"
    read = _METHODS.get(str(method).replace("_", "-"))
    if read is None:
        raise UnknownScheme(
            "quantization_config.quant_method", method, where=c.where, known=_METHODS
        )
    try:
        return read(c, q)
    except UnknownPattern as error:
        raise UnknownScheme("quantization_config pattern", str(error), where=c.where) from None


def with_hf_quant_config(
    config: Mapping[str, Any], beside: Mapping[str, Any] | None, path: str
) -> Mapping[str, Any]:
    """The config with what ``hf_quant_config.json`` says, where it says nothing itself.

    ModelOpt's older exports state their quantisation only in that file.
    Source: vLLM ``get_quant_config`` (reads it when ``quantization_config`` is absent).
    """
    if beside is None:
        return config
    text = config.get("text_config")
    inner = text if isinstance(text, dict) else {}
    if config.get("quantization_config") or inner.get("quantization_config"):
        return config
    stated = beside.get("quantization")
    if not isinstance(stated, dict):
        raise MalformedFile(path, "quantization must be an object")
    return {**config, "quantization_config": {"quant_method": "modelopt", **stated}}


def declared_kv_format(c: Fields) -> tuple[str | None, str | None]:
    """The KV cache format that the checkpoint declares, and a warning when it is not known."""
    q = c.nested("quantization_config")
    if q is None:
        return None, None
    stated = q.raw("kv_cache_quant_algo", "kv_cache_scheme")
    if stated is None:
        return None, None
    name: str | None = None
    if isinstance(stated, str):
        name = _KV_NAMES.get(stated.upper())
    elif isinstance(stated, dict):
        name = _KV_SCHEMES.get((stated.get("num_bits"), stated.get("type")))
    if name is None:
        shown = repr(stated) if len(repr(stated)) <= 80 else f"{repr(stated)[:77]}..."
        return None, f"the checkpoint declares a KV cache format kvplan does not know: {shown}"
    return name, None


_KV_NAMES = {"FP8": "fp8_e4m3", "NVFP4": "nvfp4", "NONE": "bf16"}
_KV_SCHEMES: dict[tuple[object, object], str] = {
    (8, "float"): "fp8_e4m3", (4, "float"): "nvfp4",
}  # fmt: skip


def _fp8(c: Fields, q: Fields) -> WeightScheme:
    """8 bits, with a float32 scale a 128 x 128 block or, without blocks, a tensor.

    DeepSeek-V4 calls its scheme fp8 and keeps its experts at 4 bits with a scale every 32
    (``expert_dtype``); vendors' conversions of it keep them as NVFP4 (``moe_quant_algo``).
    Source: transformers ``integrations/finegrained_fp8.py``; vLLM ``models/deepseek_v4``.
    """
    block = q.sequence("weight_block_size", length=2)
    form = FP8_TENSOR
    if block is not None:
        rows = q.checked(block[0], "weight_block_size[0]")
        columns = q.checked(block[1], "weight_block_size[1]")
        form = Format("fp8_block", 8, columns, 32, group_rows=rows)
    experts = q.text("moe_quant_algo") or c.text("expert_dtype")
    known = {"fp4": MXFP4, "mxfp4": MXFP4, "nvfp4": NVFP4, "fp8": form}
    if experts is None:
        return WeightScheme("fp8", form, LINEAR_PARTS, rules_of(q))
    if experts.lower() not in known:
        raise UnknownScheme("expert_dtype", experts, where=c.where, known=known)
    # The ignored modules of a conversion keep the fp8 of the original, not 16 bits.
    rules = rules_of(q, excluded=False) if q.states("moe_quant_algo") else rules_of(q)
    return WeightScheme(
        f"fp8+{experts.lower()}_experts", form, LINEAR_PARTS, rules,
        part_forms=((EXPERTS, known[experts.lower()]),),
    )  # fmt: skip


def _fbgemm_fp8(_: Fields, q: Fields) -> WeightScheme:
    """8 bits with a float32 scale a row. Source: transformers ``integrations/fbgemm_fp8.py``."""
    return WeightScheme("fp8", FP8_ROW, LINEAR_PARTS, rules_of(q))


def _awq(_: Fields, q: Fields) -> WeightScheme:
    """``bits`` codes, and per group of inputs a 16-bit scale and a packed zero point.

    Source: AutoAWQ ``WQLinear_GEMM`` (qweight, qzeros, scales).
    """
    return WeightScheme("awq", _grouped_int("awq", q), LINEAR_PARTS, rules_of(q))


def _gptq(_: Fields, q: Fields) -> WeightScheme:
    """As AWQ, with zero points even when symmetric and a 32-bit group index per input.

    ``dynamic`` changes or skips modules by expression (``+:`` and ``-:``).
    Source: AutoGPTQ ``qlinear`` (qweight, qzeros, scales, g_idx); GPTQModel ``QuantizeConfig``.
    """
    chosen, skipped = [], []
    dynamic = q.nested("dynamic")
    for pattern in dynamic.data if dynamic else ():
        if pattern.startswith("-:"):
            skipped.append(f"re:{pattern[2:]}")
            continue
        changed = dynamic.nested(pattern) if dynamic else None
        merged = Fields({**q.data, **(changed.data if changed else {})}, q.where)
        chosen.append((f"re:{pattern.removeprefix('+:')}", _grouped_int("gptq", merged)))
    parts = _LINEAR_AND_HEAD if q.boolean("lm_head", default=False) else LINEAR_PARTS
    return WeightScheme("gptq", _grouped_int("gptq", q), parts, rules_of(q, chosen, skipped))


def _grouped_int(method: str, q: Fields) -> Format:
    bits = q.integer("bits", "w_bit", maximum=16)
    group = q.checked(q.raw("group_size", "q_group_size"), "group_size", minimum=-1)
    size = WHOLE_ROW if group in {-1, 0} else group
    return Format(method, bits, size, 16 + bits, column_bits=32 if method == "gptq" else 0)


def _mxfp4(_: Fields, q: Fields) -> WeightScheme:
    """gpt-oss: the experts' matrices only, 4 bits with an 8-bit scale every 32."""
    return WeightScheme("mxfp4", MXFP4, frozenset({EXPERTS}), rules_of(q))


def _bitsandbytes(_: Fields, q: Fields) -> WeightScheme:
    """nf4, fp4 or int8; double quantisation stores 8-bit block scales and a scale per 256 of them.

    Source: QLoRA, arXiv 2305.14314, section 3; LLM.int8, arXiv 2208.07339.
    """
    rules = rules_of(q)
    if q.boolean("load_in_8bit", default=False):
        return WeightScheme("int8", Format("int8", 8, WHOLE_ROW, 32), LINEAR_PARTS, rules)
    if not q.boolean("load_in_4bit", default=False):
        raise UnknownScheme("quantization_config.load_in_4bit", False, where=q.where)
    name = q.text("bnb_4bit_quant_type") or "fp4"
    if name not in {"nf4", "fp4"}:
        raise UnknownScheme(
            "quantization_config.bnb_4bit_quant_type", name, where=q.where, known=("nf4", "fp4")
        )
    form = Format(name, 4, 64, 32)
    if q.boolean("bnb_4bit_use_double_quant", default=False):
        # 8 + 32 / 256 bits a block of 64: counted as 8.125 bits over 64 * 256 elements.
        form = Format(name, 4, 64 * 256, 256 * 8 + 32)
    return WeightScheme(name, form, LINEAR_PARTS, rules)


def _compressed_tensors(_: Fields, q: Fields) -> WeightScheme:
    """One format a group; ``targets`` are the class ``Linear`` or modules by name.

    Source: compressed-tensors ``QuantizationConfig``, ``QuantizationScheme``.
    """
    sparsity = q.nested("sparsity_config")
    if sparsity is not None and sparsity.text("format") not in {None, "dense"}:
        raise UnknownScheme(
            "quantization_config.sparsity_config.format", sparsity.text("format"), where=q.where
        )
    return _grouped(q, "compressed-tensors", _LINEAR_AND_HEAD)


def _modelopt(_: Fields, q: Fields) -> WeightScheme:
    """ModelOpt: one ``quant_algo``, or MIXED_PRECISION with a list of modules and their own.

    Source: TensorRT-Model-Optimizer ``export/quant_utils.py``; vLLM ``modelopt.py``.
    """
    algo = q.text("quant_algo")
    if algo is None and q.states("config_groups"):
        return _grouped(q, "modelopt", LINEAR_PARTS)
    if algo != "MIXED_PRECISION":
        form = _algorithm(algo, q)
        return WeightScheme(form.name, form, LINEAR_PARTS, rules_of(q))
    layers = q.nested("quantized_layers")
    if layers is None:
        if q.states("config_groups"):
            return _grouped(q, "modelopt", LINEAR_PARTS)
        raise UnknownScheme(
            "quantization_config.quant_algo", "MIXED_PRECISION without quantized_layers",
            where=q.where,
        )  # fmt: skip
    chosen: dict[str, Format] = {}
    counts: dict[Format, int] = {}
    for name in layers.data:
        layer = layers.nested(name)
        if layer is not None:
            form = chosen[name] = _algorithm(layer.text("quant_algo"), layer)
            counts[form] = counts.get(form, 0) + 1
    if not counts:
        return WeightScheme("bf16", DTYPES["bf16"], frozenset(), rules_of(q))
    most = max(counts, key=lambda form: counts[form])
    rules = rules_of(q, list(chosen.items()))
    return WeightScheme(_joined(counts), most, frozenset(), rules)


def _algorithm(name: str | None, q: Fields) -> Format:
    """The format of one of ModelOpt's algorithms."""
    group = q.optional_integer("group_size", minimum=1)
    if name in {"NVFP4", "NVFP4_AWQ", "W4A16_NVFP4", "W4A8_NVFP4_FP8"}:
        return NVFP4._replace(group_size=group or 16)
    if name in {"INT4_AWQ", "W4A16_AWQ", "W4A8_AWQ"}:
        return Format("int4", 4, group or 128, 16)
    forms = {
        "FP8": FP8_TENSOR, "FP8_PER_CHANNEL_PER_TOKEN": FP8_ROW, "FP8_PB_WO": FP8_BLOCK,
        "MXFP8": MXFP8, "MXFP4": MXFP4, "W4A8_MXFP4_FP8": MXFP4,
        "INT8_SQ": Format("int8", 8, WHOLE_ROW, 32), "W8A16": Format("int8", 8, WHOLE_ROW, 16),
    }  # fmt: skip
    if name not in forms:
        raise UnknownScheme(
            "quantization_config.quant_algo", name, where=q.where, known=(*forms, "NVFP4")
        )
    return forms[name]


def _grouped(q: Fields, method: str, class_parts: frozenset[str]) -> WeightScheme:
    """The scheme of ``config_groups``."""
    groups = q.nested("config_groups")
    general: dict[Format, None] = {}
    chosen: list[tuple[str, Format]] = []
    counts: dict[Format, int] = {}
    for name in groups.data if groups else ():
        group = groups.nested(name) if groups else None
        weights = group.nested("weights") if group else None
        if group is None or weights is None:
            continue  # activations alone are quantised: the weights stay
        form = _group_format(weights, group.text("format") or q.text("format"))
        for target in group.sequence("targets") or ["Linear"]:
            if not isinstance(target, str):
                raise MalformedFile(q.where, f"config_groups.{name}.targets must be names")
            if target == "Linear":
                general[form] = None
            elif target[:1].isupper() and "." not in target:
                raise UnknownScheme(
                    f"quantization_config.config_groups.{name}.targets", target, where=q.where,
                    known=("Linear",),
                )  # fmt: skip
            else:
                chosen.append((target, form))
            counts[form] = counts.get(form, 0) + 1
    if len(general) > 1 or not counts:
        raise UnknownScheme(
            "quantization_config.config_groups", f"{len(general)} formats for Linear", where=q.where
        )
    form = next(iter(general), None) or max(counts, key=lambda form: counts[form])
    parts = class_parts if general else frozenset()
    return WeightScheme(_joined(counts) or method, form, parts, rules_of(q, chosen))


def _group_format(w: Fields, layout: str | None) -> Format:
    """The format of one group from its ``num_bits``, ``type``, ``strategy`` and ``group_size``.

    Scales are of the model's 16 bits, but fp8 for NVFP4 and a power of two (8 bits) for MXFP4.
    Source: compressed-tensors ``QuantizationArgs`` and the compressors of each ``format``.
    """
    if layout is not None and layout not in _LAYOUTS:
        raise UnknownScheme("quantization_config.format", layout, where=w.where, known=_LAYOUTS)
    bits = w.integer("num_bits", maximum=16)
    kind = w.text("type") or "int"
    strategy = w.text("strategy")
    group = w.optional_integer("group_size", minimum=-1)
    if kind == "float":
        is_mx = "mx" in (layout or "") or w.text("scale_dtype") in {"torch.uint8", "uint8"}
        if bits == 4:
            return MXFP4._replace(group_size=group or 32) if is_mx else NVFP4._replace(
                group_size=group or 16
            )  # fmt: skip
        if bits == 8 and is_mx:
            return MXFP8._replace(group_size=group or 32)
        if bits == 8 and strategy == "block":
            block = w.sequence("block_structure", length=2) or [128, 128]
            rows, columns = (w.checked(size, "block_structure") for size in block)
            return Format("fp8_block", 8, columns, 32, group_rows=rows)
        if bits == 8 and strategy == "group" and group:
            return Format("fp8", 8, group, 16)
        if bits == 8:
            return Format("fp8", 8, WHOLE_ROW, 16) if strategy == "channel" else FP8_TENSOR
    if kind != "int" or bits not in {2, 3, 4, 8}:
        raise UnknownScheme("quantization_config weights", f"{bits}-bit {kind}", where=w.where)
    if strategy == "tensor":
        return Format(f"int{bits}", bits)
    zero = 0 if w.boolean("symmetric", default=True) else bits
    index = 32 if w.raw("actorder") == "group" else 0
    size = group if group and group > 0 and strategy != "channel" else WHOLE_ROW
    return Format(f"int{bits}", bits, size, 16 + zero, column_bits=index)


_LAYOUTS = (
    "pack-quantized", "float-quantized", "int-quantized", "naive-quantized", "dense",
    "nvfp4-pack-quantized", "mxfp4-pack-quantized", "mxfp8-quantized", "mixed-precision",
)  # fmt: skip
"""Ways of laying tensors out whose bytes follow from the scheme; 2:4 sparse ones do not."""


def rules_of(
    q: Fields,
    chosen: list[tuple[str, Format]] | None = None,
    skipped: list[str] | None = None,
    *,
    excluded: bool = True,
) -> ModuleRules | None:
    """The modules that the checkpoint leaves at 16 bits or names a format for."""
    names: list[str] = list(skipped or ())
    if excluded:
        stated = q.sequence(
            "modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules",
            "llm_int8_skip_modules",
        )  # fmt: skip
        for item in stated or ():
            if not isinstance(item, str):
                raise MalformedFile(q.where, "the list of modules left alone must hold names only")
            names.append(item)
    if len(names) + len(chosen or ()) > _MAX_ENTRIES:
        raise MalformedFile(q.where, f"lists {len(names):,} modules")
    if not names and not chosen:
        return None
    return ModuleRules(names, chosen or ())


def _joined(forms: Mapping[Format, int]) -> str:
    """The names of a mixed scheme's formats, the commonest first."""
    ordered = sorted(forms, key=lambda form: -forms[form])
    return "+".join(dict.fromkeys(form.name for form in ordered))


_METHODS = {
    "fp8": _fp8,
    "fbgemm-fp8": _fbgemm_fp8,
    "awq": _awq,
    "gptq": _gptq,
    "mxfp4": _mxfp4,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed_tensors,
    "modelopt": _modelopt,
    "modelopt-fp4": _modelopt,
}


def stated_dtype(c: Fields) -> Format | None:
    """The dtype that the config states (``torch_dtype`` or ``dtype``), None when it does not."""
    name = c.text("torch_dtype", "dtype")
    if name is None:
        return None
    form = DTYPES.get(name.removeprefix("torch."))
    if form is None:
        raise UnknownScheme("torch_dtype", name, where=c.where, known=DTYPES)
    return form
