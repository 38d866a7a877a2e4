"""The form of a model profile, and the strict reading of one that a person wrote.

Imported only when a profile is read from a file: bundled profiles are checked against `Profile`
by a test instead.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field
from pydantic_core import ErrorDetails

from kvplan.errors import MalformedFile
from kvplan.forms import NAME_IN_WORDS, STRICT, Form, Name, Text, Words, read_form
from kvplan.sources.gguf.profile import MAX_TENSORS

HubId = Annotated[
    str, Field(max_length=200, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$")
]
Count = Annotated[int, Field(gt=0, le=10**15)]


class _Strict(BaseModel):
    model_config = STRICT


class CheckpointForm(_Strict):
    """What is published of the weights; shown beside the computed figures, never in their place."""

    parameters: Count | None = None
    """Elements of the published tensors, tied copies and buffers included."""
    size_bytes: Count | None = None
    """Bytes of the published tensors, where the exact figure is known."""
    dtype: Text | None = None
    """The number format they are stored in."""
    source: Text | None = None


class GgufForm(_Strict):
    """What the header of a GGUF file says of memory, checked by the reader of such headers."""

    metadata: Annotated[dict[str, Any], Field(min_length=1)]
    """The architecture's keys, with its name in front of them as in the file."""
    vocabulary: Annotated[int, Field(ge=0, le=10**8)] | None = None
    """Tokens that the file lists."""
    tensors: Annotated[
        dict[str, Annotated[list[Any], Field(min_length=1)]], Field(max_length=MAX_TENSORS)
    ] = {}
    """Name → GGML type and dimensions, the row length first as GGML has them."""


class Profile(_Strict):
    """One model. A person's own file needs ``name``, and ``config`` or ``gguf``."""

    name: Name
    display_name: Text | None = None
    family: Name | None = None
    """What an incomplete name may be, such as ``llama-3.1``."""
    hub_id: HubId | None = None
    aliases: list[Name] = []
    config: Annotated[dict[str, Any], Field(min_length=1)] | None = None
    """The facts of the published ``config.json``, checked by the reader of its ``model_type``."""
    gguf: GgufForm | None = None
    """The facts of a GGUF file, in place of ``config``."""
    checkpoint: CheckpointForm | None = None
    sources: list[Text] = []
    notes: Text | None = None


def read_profile(path: str) -> dict[str, Any]:
    """The profile in a YAML file, valid in every key; what was left out stays out."""
    profile = read_form(path, FORM)
    if "config" in profile and "gguf" in profile:
        raise MalformedFile(path, "config and gguf are both stated", hint="Keep one of them.")
    if "config" not in profile and "gguf" not in profile:
        raise MalformedFile(
            path,
            "config is missing",
            hint="A profile has the keys of a config.json under config:, or a GGUF file's under "
            "gguf:, as kvplan models import writes them.",
        )
    return profile


def _special(fault: ErrorDetails, key: str) -> Words | None:
    if fault["type"] == "extra_forbidden" and key in _CONFIG_KEYS:
        return (
            f"{key} stands outside config",
            "In a profile the keys of config.json go under config:",
        )
    return None


_CONFIG_KEYS = ("model_type", "architectures", "num_hidden_layers", "hidden_size", "text_config")
"""Keys that show a config.json written where a profile is expected."""

FORM = Form(
    Profile,
    "a model profile",
    {"name": NAME_IN_WORDS, "hub_id": "the name on the hub, such as meta-llama/Llama-3.1-8B"},
    _special,
)
