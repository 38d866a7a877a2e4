"""The form of a GPU profile, and the strict reading of one that a person wrote.

This is the only module here that imports pydantic, and it is imported only when a profile is
read from a file: bundled profiles are checked against `Profile` by a test instead.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from kvplan.errors import MalformedFile, nearest_names
from kvplan.files import read_yaml_object

MAX_MEMORY_GIB = 16 * 1024
"""16 TiB: far beyond any one device, so a larger figure is a slip of the unit."""

MEASURE_COMMAND = "python -c 'import torch; print(torch.cuda.mem_get_info()[1] / 2**30)'"
"""Prints the total that `memory.usable_gib` asks for, on the machine that has the GPU."""

# One line of text: a profile's words are printed on terminals, so no control characters.
Text = Annotated[str, Field(min_length=1, max_length=2000, pattern=r"^[^\x00-\x1f\x7f]+$")]
Name = Annotated[
    str, Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._+-]*$")
]
Arch = Annotated[str, Field(max_length=40, pattern=r"^(sm_[1-9][0-9]{1,2}[abcf]?|[A-Za-z0-9-]+)$")]
Size = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Rate = Annotated[float, Field(gt=0, le=10_000_000, allow_inf_nan=False)]
Format = Literal[
    "fp32", "tf32", "fp16", "bf16", "int8", "int4", "fp8_e4m3", "fp8_e5m2", "fp8_e4m3fnuz",
    "fp8_e5m2fnuz", "mxfp8", "mxfp6", "mxfp4", "nvfp4", "q8_0", "q4_0",
]  # fmt: skip
Peak = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "fp6", "fp4", "int8", "int4"]
Fact = Literal["memory", "compute", "bandwidth", "link"]

_PATTERNS = {
    "name": "letters, digits, spaces and . _ + - only",
    "arch": "an architecture such as sm_90 or gfx942",
}
"""What the patterns above ask for, in words."""


class _Strict(BaseModel):
    """No unknown keys, no text where a number belongs, no true for 1."""

    model_config = ConfigDict(extra="forbid", strict=True)


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
    document = read_yaml_object(path)
    try:
        profile = Profile.model_validate(document)
    except ValidationError as error:
        raise _malformed(path, error) from None
    return profile.model_dump(exclude_none=True)


def _malformed(path: str, error: ValidationError) -> MalformedFile:
    """The first fault in words, with its key and, for an unknown key, the nearest known one."""
    faults = error.errors(include_url=False, include_context=True)
    # An unknown key is often the cause of the missing one beside it: name it first.
    fault = next((f for f in faults if f["type"] == "extra_forbidden"), faults[0])
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    problem, hint = _in_words(fault)
    return MalformedFile(path, problem + more, hint=hint)


def _in_words(fault: ErrorDetails) -> tuple[str, str | None]:
    kind = fault["type"]
    where = [part for part in fault["loc"] if part != "[key]"]
    key = _dotted(where)
    if kind == "extra_forbidden":
        near = nearest_names(str(where[-1]), _known_keys(where), count=1)
        return f"{key} is not a key of a GPU profile", f"Did you mean {near[0]}?" if near else None
    if kind == "usable_missing" or (kind == "missing" and key == "memory"):
        return (
            "memory.usable_gib is missing: the GiB that the framework sees as this GPU's total",
            f"Print it on that machine: {MEASURE_COMMAND}",
        )
    if kind == "missing":
        return f"{key} is missing", None
    if kind == "literal_error":
        known = str(fault["ctx"]["expected"]).replace(" or ", ", ").split(", ")
        near = nearest_names(str(fault["input"]), [name.strip("'") for name in known], count=1)
        wanted = f"{key} = {_shown(fault['input'])} is not one of {', '.join(known)}"
        return wanted, f"Did you mean {near[0]}?" if near else None
    if kind == "usable_above_driver":
        return f"{key}.{fault['msg']}", "Is usable_gib in GiB and driver_mib in MiB?"
    if kind == "model_type":
        return f"{key} = {_shown(fault['input'])} should be a mapping of keys to values", None
    wanted = (
        _PATTERNS.get(key, "one line of plain text") if kind == "string_pattern_mismatch" else ""
    )
    told = f"should be {wanted}" if wanted else _lower_first(fault["msg"]).removeprefix("input ")
    return f"{key} = {_shown(fault['input'])} {told}", None


def _dotted(where: list[int | str]) -> str:
    text = ""
    for part in where:
        # A key comes from the file: its control characters must not reach a terminal.
        name = part if isinstance(part, str) and part.isprintable() else repr(part)
        text += f"[{part}]" if isinstance(part, int) else f".{name}"
    return text.lstrip(".")


def _known_keys(where: list[int | str]) -> list[str]:
    models: dict[int | str, type[BaseModel]] = {"memory": Memory, "link": LinkForm}
    model = models.get(where[0], Profile) if len(where) > 1 else Profile
    return list(model.model_fields)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]
