"""The form of a GPU profile, and the strict reading of one that a person wrote.

This module imports pydantic, and is itself imported only when a profile is read from a file:
bundled profiles are checked against `Profile` by a test instead.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from kvplan.forms import NAME_IN_WORDS, STRICT, Form, Name, Text, Words, read_form

MAX_MEMORY_GIB = 16 * 1024
"""16 TiB: far beyond any one device, so a larger figure is a slip of the unit."""

MEASURE_COMMAND = "python -c 'import torch; print(torch.cuda.mem_get_info()[1] / 2**30)'"
"""Prints the total that `memory.usable_gib` asks for, on the machine that has the GPU."""

Arch = Annotated[str, Field(max_length=40, pattern=r"^(sm_[1-9][0-9]{1,2}[abcf]?|[A-Za-z0-9-]+)$")]
Size = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Rate = Annotated[float, Field(gt=0, le=10_000_000, allow_inf_nan=False)]
Format = Literal[
    "fp32", "tf32", "fp16", "bf16", "int8", "int4", "fp8_e4m3", "fp8_e5m2", "fp8_e4m3fnuz",
    "fp8_e5m2fnuz", "mxfp8", "mxfp6", "mxfp4", "nvfp4", "q8_0", "q4_0",
]  # fmt: skip
Peak = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "fp6", "fp4", "int8", "int4"]
Fact = Literal["memory", "compute", "bandwidth", "link"]


class _Strict(BaseModel):
    model_config = STRICT


class Memory(_Strict):
    """How much there is, by the three figures in use; only `usable_gib` enters a plan."""

    marketing_gb: Annotated[Size, Field(le=MAX_MEMORY_GIB)] | None = None
    """The figure in the product's name."""
    driver_mib: Annotated[Size, Field(le=MAX_MEMORY_GIB * 1024)] | None = None
    """MiB that the driver's tool shows (nvidia-smi, rocm-smi)."""
    usable_gib: Annotated[Size, Field(ge=0.01, le=MAX_MEMORY_GIB)] | None = None
    """GiB that the framework sees as the device's total."""
    basis: Text | None = None
    """Where `usable_gib` comes from."""
    confidence: Literal["high", "low"] = "high"

    @model_validator(mode="after")
    def _usable_within_driver(self) -> Memory:
        # 6 MiB: what rounding a logged total to two decimals of a GiB can add.
        if self.usable_gib and self.driver_mib and self.usable_gib * 1024 > self.driver_mib + 6:
            raise PydanticCustomError(
                "usable_above_driver",
                "usable_gib is {usable} GiB, more than the {driver} MiB of driver_mib",
                {"usable": self.usable_gib, "driver": self.driver_mib},
            )
        return self


class LinkForm(_Strict):
    """How the GPU reaches its neighbours."""

    type: Text
    gb_per_s: Rate | None = None
    """Decimal GB/s per GPU, both directions together."""
    max_gpus: Annotated[int, Field(ge=1, le=100_000)] = 1
    pcie: Text | None = None


class Profile(_Strict):
    """One GPU. A person's own file needs ``name`` and ``memory: {usable_gib: …}``."""

    name: Name
    display_name: Text | None = None
    vendor: Literal["nvidia", "amd", "intel", "apple", "google", "other"] = "other"
    arch: Arch = "unknown"
    family: Name | None = None
    aliases: list[Name] = []
    implied_aliases: list[Name] = []
    memory: Memory
    bandwidth_gb_per_s: Rate | None = None
    tflops: dict[Peak, Rate] = {}
    weight_formats: list[Format] = []
    kv_formats: list[Format] = []
    link: LinkForm | None = None
    uncertain: list[Fact] = []
    sources: list[Text] = []
    notes: Text | None = None

    @model_validator(mode="after")
    def _states_its_memory(self) -> Profile:
        """Only a profile that admits not to know its memory may leave it out."""
        if self.memory.usable_gib is None and "memory" not in self.uncertain:
            raise PydanticCustomError("usable_missing", "memory.usable_gib is missing")
        return self


def read_profile(path: str) -> dict[str, Any]:
    """The profile in a YAML file, valid in every key; what was left out stays out."""
    return read_form(path, FORM)


def _special(fault: ErrorDetails, key: str) -> Words | None:
    kind = fault["type"]
    if kind == "usable_missing" or (kind == "missing" and key == "memory"):
        return (
            "memory.usable_gib is missing: the GiB that the framework sees as this GPU's total",
            f"Print it on that machine: {MEASURE_COMMAND}",
        )
    if kind == "usable_above_driver":
        return f"{key}.{fault['msg']}", "Is usable_gib in GiB and driver_mib in MiB?"
    return None


FORM = Form(
    Profile,
    "a GPU profile",
    {"name": NAME_IN_WORDS, "arch": "an architecture such as sm_90 or gfx942"},
    _special,
)
