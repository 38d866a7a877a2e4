"""The form of a calibration file, its strict reading, and its writing.

Imports pydantic, so it is itself imported only when a person gives such a file.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from kvplan.calibration import SCHEMA, Calibration, Measured
from kvplan.errors import MalformedFile
from kvplan.files import read_yaml_object
from kvplan.forms import NAME_IN_WORDS, STRICT, Form, Name, Text, read_form
from kvplan.units import TIB

LEAST_RATIO, LARGEST_RATIO = 0.02, 50.0
Size = Annotated[int, Field(ge=0, le=16 * TIB)]
Count = Annotated[int, Field(ge=1, le=2**40)]


class _Strict(BaseModel):
    model_config = STRICT


class MeasuredForm(_Strict):
    """Observed over predicted bytes of one term."""

    ratio: Annotated[float, Field(ge=LEAST_RATIO, le=LARGEST_RATIO, allow_inf_nan=False)]
    observed_bytes: Size
    predicted_bytes: Size


class MeasuredOn(_Strict):
    """The configuration that the log belongs to."""

    model: Text
    weight_format: Name
    tp: Annotated[int, Field(ge=1, le=100_000)] = 1
    pp: Annotated[int, Field(ge=1, le=100_000)] = 1
    max_num_seqs: Count | None = None
    max_num_batched_tokens: Count | None = None


class TermsForm(_Strict):
    """Corrections; a term left out keeps its law."""

    weights: MeasuredForm | None = None
    activation: MeasuredForm | None = None
    cuda_graph: MeasuredForm | None = None
    runtime_bytes: Size | None = None


class CalibrationForm(_Strict):
    """``kvplan calibrate`` writes it, ``--calibration`` reads it."""

    schema_: Annotated[Literal["kvplan.calibration/1"], Field(alias="schema")]
    gpu: Name
    engine: Name
    engine_version: Name
    measured_on: MeasuredOn
    device_bytes: Size | None = None
    terms: TermsForm


FORM = Form(CalibrationForm, "a calibration file", {"gpu": NAME_IN_WORDS}, lambda *_: None)


def read_calibration(path: str) -> Calibration:
    """The calibration in a YAML file, valid in every key."""
    stated = read_yaml_object(path).get("schema")
    if stated != SCHEMA:
        raise MalformedFile(
            path,
            f"schema is {str(stated)[:60]!r}, not {SCHEMA!r}",
            hint="kvplan calibrate LOG --output FILE writes a calibration file.",
        )
    document = read_form(path, FORM)
    on, terms = document["measured_on"], document["terms"]
    return Calibration(
        gpu=document["gpu"],
        engine=document["engine"],
        engine_version=document["engine_version"],
        model=on["model"],
        weight_format=on["weight_format"],
        tp=on["tp"],
        pp=on["pp"],
        max_num_seqs=on.get("max_num_seqs"),
        max_num_batched_tokens=on.get("max_num_batched_tokens"),
        device_bytes=document.get("device_bytes"),
        weights=_measured(terms.get("weights")),
        activation=_measured(terms.get("activation")),
        cuda_graph=_measured(terms.get("cuda_graph")),
        runtime_bytes=terms.get("runtime_bytes"),
    )


def _measured(stated: dict[str, Any] | None) -> Measured | None:
    return None if stated is None else Measured(**stated)


def to_document(c: Calibration) -> dict[str, Any]:
    """The calibration as the mapping that a file holds; what is not known is left out."""
    on = {
        "model": c.model,
        "weight_format": c.weight_format,
        "tp": c.tp,
        "pp": c.pp,
        "max_num_seqs": c.max_num_seqs,
        "max_num_batched_tokens": c.max_num_batched_tokens,
    }
    terms: dict[str, Any] = {
        name: value._asdict()
        for name, value in (
            ("weights", c.weights), ("activation", c.activation), ("cuda_graph", c.cuda_graph),
        )
        if value is not None
    }  # fmt: skip
    terms["runtime_bytes"] = c.runtime_bytes
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "gpu": c.gpu,
        "engine": c.engine,
        "engine_version": c.engine_version,
        "measured_on": _known(on),
        "device_bytes": c.device_bytes,
        "terms": _known(terms),
    }
    return _known(document)


def _known(mapping: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if value is not None}
