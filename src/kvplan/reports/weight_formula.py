"""Bytes of weights by part of the model, as a formula with its numbers put in."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from kvplan.model.model import Layer, Model, Split
from kvplan.model.tensors import EMBEDDING, HEAD
from kvplan.precision.format import Format
from kvplan.precision.scheme import WeightScheme
from kvplan.precision.weights import EVERY_MATRIX
from kvplan.units import cdiv


class Part(NamedTuple):
    """The weights of one part of the model on one rank."""

    part: str
    elements: int
    size_bytes: int
    bits: int | None
    """Bits of a code where all its matrices have one format."""


def weight_parts(
    model: Model, scheme: WeightScheme, tp: int = 1, pp: int = 1, ep: int = 1, stage: int = 0
) -> list[Part]:
    """Elements and bytes by part, counted by the model itself with the other parts left out."""
    split = Split(tp, pp, ep)
    counted = replace(model, stored=None)
    eight = Format("elements", 8)
    ones = WeightScheme("elements", eight, EVERY_MATRIX)
    found = []
    for part in model.parameters_by_part():
        sizes = []
        for form, dtype in ((scheme, model.dtype), (ones, eight)):
            # A head beside the embedding is what tells an untied model from a tied one.
            beside = {HEAD} if part == EMBEDDING else set()
            size = _only(counted, {part} | beside, dtype).weight_bytes(form, split, stage)
            if beside:
                size -= _only(counted, beside, dtype).weight_bytes(form, split, stage)
            sizes.append(size)
        if sizes[1]:
            found.append(Part(part, sizes[1], sizes[0], _code_bits(model, scheme, part)))
    return found


def _only(model: Model, parts: set[str], dtype: Format) -> Model:
    layers = tuple(
        Layer(layer.caches, tuple(t for t in layer.tensors if t.part in parts))
        for layer in model.layers
    )
    outside = tuple(tensor for tensor in model.outside if tensor.part in parts)
    return replace(model, layers=layers, outside=outside, dtype=dtype)


def _code_bits(model: Model, scheme: WeightScheme, part: str) -> int | None:
    tensors = {t for layer in set(model.layers) for t in layer.tensors} | set(model.outside)
    mine = [t for t in tensors if t.part == part]
    forms = {
        scheme.format_for(t, "" if t in model.outside else "model.layers.*.", model.dtype).bits
        for t in [t for t in mine if t.is_matrix] or mine
    }
    return forms.pop() if len(forms) == 1 else None


def part_expression(part: Part) -> str:
    """Its bytes as elements at so many bits, and what scales and vectors add."""
    if part.bits is not None:
        codes = cdiv(part.elements * part.bits, 8)
        rest = part.size_bytes - codes
        each = f"{part.bits // 8} B" if part.bits % 8 == 0 else f"{part.bits} bits / 8"
        text = f"{part.elements:,} elements x {each}"
        if part.bits % 8:
            text = f"ceil({text})"
        if rest == 0:
            return text
        if 0 < rest < codes:
            return f"{text} + {rest:,} B of scales and vectors"
    return f"{part.size_bytes:,} B"
