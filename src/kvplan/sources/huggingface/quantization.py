"""How a checkpoint stores its weights: ``quantization_config`` → `WeightScheme`.

A method that is not understood makes the weights unknown, with the method named; it never falls
back to the parameters times 16 bits, which for a 4-bit checkpoint is wrong by 3 to 4 times.
"""

from __future__ import annotations

from typing import Any

from kvplan.errors import UnsupportedArchitecture
from kvplan.precision.format import DTYPES, WHOLE_ROW, Format
from kvplan.precision.scheme import Exclusion, WeightScheme, plain_scheme
from kvplan.precision.weights import EXPERTS, LINEAR_PARTS, WEIGHT_FORMATS
from kvplan.sources.huggingface.fields import Fields

KNOWN_METHODS = ("fp8", "awq", "gptq", "mxfp4", "bitsandbytes", "compressed-tensors", "modelopt")


def checkpoint_scheme(c: Fields, dtype: Format) -> WeightScheme:
    """The scheme that the config's ``quantization_config`` describes; plain 16-bit without one."""
    q = c.nested("quantization_config")
    if q is None:
        return plain_scheme(dtype)
    method = q.text("quant_method")
    excluded = exclusions(
        q.raw("modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules")
    )
    if method == "fp8":
        return WeightScheme("fp8", _fp8(q), LINEAR_PARTS, excluded)
    if method in {"awq", "gptq"}:
        return WeightScheme(method, _grouped_int(q, method), LINEAR_PARTS, excluded)
    if method == "mxfp4":
        return WeightScheme(method, WEIGHT_FORMATS["mxfp4"].form, frozenset({EXPERTS}), excluded)
    if method == "bitsandbytes":
        return _bitsandbytes(q, excluded)
    if method in {"compressed-tensors", "modelopt"}:
        return _config_groups(q, method, excluded)
    raise UnsupportedArchitecture(
        "quantization_config.quant_method", method, where=c.where, known=KNOWN_METHODS
    )


def _fp8(q: Fields) -> Format:
    """8 bits, with a float32 scale a 128 x 128 block or, without blocks, a tensor.

    Source: transformers ``integrations/finegrained_fp8.py``.
    """
    block = q.sequence("weight_block_size", length=2)
    if block is None:
        return Format("fp8", 8)
    rows = q.checked(block[0], "weight_block_size[0]")
    columns = q.checked(block[1], "weight_block_size[1]")
    return Format("fp8_block", 8, columns, 32, group_rows=rows)


def _grouped_int(q: Fields, method: str) -> Format:
    """``bits`` codes, and per group of inputs a 16-bit scale and a packed zero point.

    GPTQ stores the zero points even when they are symmetric, and a 32-bit group index per input.
    """
    bits = q.integer("bits", maximum=16)
    group = q.checked(q.raw("group_size"), "group_size", minimum=-1)
    column_bits = 32 if method == "gptq" else 0
    return Format(
        method, bits, WHOLE_ROW if group == -1 else group, 16 + bits, column_bits=column_bits
    )


def _bitsandbytes(q: Fields, excluded: tuple[Exclusion, ...]) -> WeightScheme:
    """nf4 or int8. Double quantisation stores 8-bit block scales and a second scale per 256 of them.

    Source: QLoRA, arXiv 2305.14314, section 3.
    """
    if q.boolean("load_in_8bit", default=False):
        return WeightScheme("int8", Format("int8", 8, WHOLE_ROW, 32), LINEAR_PARTS, excluded)
    if q.boolean("load_in_4bit", default=False):
        if q.boolean("bnb_4bit_use_double_quant", default=False):
            # 8 + 32 / 256 bits a block of 64: counted as 8.125 bits over 64 * 256 elements.
            form = Format("nf4_double", 4, 64 * 256, 256 * 8 + 32)
        else:
            form = Format("nf4", 4, 64, 32)
        return WeightScheme(form.name, form, LINEAR_PARTS, excluded)
    raise UnsupportedArchitecture("quantization_config", q.data, where=q.where)


def _config_groups(q: Fields, method: str, excluded: tuple[Exclusion, ...]) -> WeightScheme:
    """One group of ``config_groups``; several at different widths are not understood yet."""
    groups = q.nested("config_groups")
    forms: set[Format] = set()
    for name in groups.data if groups else ():
        group = groups.nested(name) if groups else None
        weights = group.nested("weights") if group else None
        if weights is not None:
            forms.add(_group_format(weights))
    if len(forms) != 1:
        raise UnsupportedArchitecture(
            "quantization_config.config_groups", f"{len(forms)} formats", where=q.where
        )
    form = forms.pop()
    return WeightScheme(form.name, form, LINEAR_PARTS, excluded)


def _group_format(w: Fields) -> Format:
    """The format of one group from its ``num_bits``, ``type``, ``strategy`` and ``group_size``.

    Source: compressed-tensors ``QuantizationArgs``.
    """
    bits = w.integer("num_bits", maximum=16)
    kind = w.text("type") or "int"
    strategy = w.text("strategy")
    group = w.optional_integer("group_size", minimum=-1)
    if kind == "float" and bits == 4:
        return Format("nvfp4", 4, group or 16, 8)
    if kind == "float" and bits == 8:
        if strategy == "block":
            return Format("fp8_block", 8, 128, 32, group_rows=128)
        return Format("fp8", 8) if strategy == "tensor" else Format("fp8", 8, WHOLE_ROW, 16)
    zero = 0 if w.boolean("symmetric", default=True) else bits
    if strategy == "channel" or group in {None, -1}:
        return Format(f"int{bits}", bits, WHOLE_ROW, 16 + zero)
    return Format(f"int{bits}", bits, group or WHOLE_ROW, 16 + zero)


def exclusions(value: Any) -> tuple[Exclusion, ...]:
    """Modules that a checkpoint leaves at 16 bits.

    A ``re:`` pattern is read as its literal pieces with gaps between them. The expressions come
    from strangers, so none is ever run as one; what published checkpoints write (``re:.*self_attn.*``)
    means the same either way.
    """
    if not isinstance(value, list):
        return ()
    found = []
    for item in value:
        if not isinstance(item, str) or not item:
            continue
        anchored = item.startswith("re:")
        text = item.removeprefix("re:").replace("\\.", ".").rstrip("$").lstrip("^")
        pieces = tuple(piece for piece in text.replace(".*", "*").split("*") if piece)
        if pieces:
            found.append(Exclusion(pieces, anchored=anchored and ".*" not in item))
    return tuple(found)


def stated_dtype(c: Fields) -> Format | None:
    """The dtype that the config states (``torch_dtype`` or ``dtype``), None when it does not."""
    name = c.text("torch_dtype", "dtype")
    if name is None:
        return None
    form = DTYPES.get(name.removeprefix("torch."))
    if form is None:
        raise UnsupportedArchitecture("torch_dtype", name, where=c.where, known=DTYPES)
    return form
