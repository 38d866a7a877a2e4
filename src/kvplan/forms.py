"""Strict forms for YAML that a person writes, and the first fault of one in words.

Imports pydantic, so only the ``schema`` modules import this, when a person's own file is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from kvplan.errors import MalformedFile, nearest_names
from kvplan.files import read_yaml_object

# One line of text: a profile's words are printed on terminals, so no control characters.
Text = Annotated[str, Field(min_length=1, max_length=2000, pattern=r"^[^\x00-\x1f\x7f]+$")]
Name = Annotated[
    str, Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._+-]*$")
]
NAME_IN_WORDS = "letters, digits, spaces and . _ + - only"
"""What the pattern of `Name` asks for."""

Words = tuple[str, str | None]
"""What is wrong, and what to do about it."""


STRICT = ConfigDict(extra="forbid", strict=True)
"""No unknown keys, no text where a number belongs, no true for 1."""


class Form(NamedTuple):
    """A kind of profile and what its faults are called."""

    model: type[BaseModel]
    noun: str
    """Such as ``a GPU profile``."""
    patterns: Mapping[str, str]
    """What the pattern of a key asks for, in words."""
    special: Callable[[ErrorDetails, str], Words | None]
    """Words for the faults that this kind explains itself; None for any other."""


def read_form(path: str, form: Form) -> dict[str, Any]:
    """The profile in a YAML file, valid in every key; a key without a value is left out."""
    document = read_yaml_object(path)
    try:
        profile = form.model.model_validate(document)
    except ValidationError as error:
        raise _malformed(path, error, form) from None
    return profile.model_dump(exclude_none=True)


def _malformed(path: str, error: ValidationError, form: Form) -> MalformedFile:
    """The first fault in words, with its key and, for an unknown key, the nearest known one."""
    faults = error.errors(include_url=False, include_context=True)
    # An unknown key is often the cause of the missing one beside it: name it first.
    fault = next((f for f in faults if f["type"] == "extra_forbidden"), faults[0])
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    problem, hint = _in_words(fault, form)
    return MalformedFile(path, problem + more, hint=hint)


def _in_words(fault: ErrorDetails, form: Form) -> Words:
    kind = fault["type"]
    where = [part for part in fault["loc"] if part != "[key]"]
    key = _dotted(where)
    words = form.special(fault, key)
    if words is not None:
        return words
    if kind == "extra_forbidden":
        near = nearest_names(str(where[-1]), _known_keys(form.model, where), count=1)
        return f"{key} is not a key of {form.noun}", f"Did you mean {near[0]}?" if near else None
    if kind == "missing":
        return f"{key} is missing", None
    if kind == "literal_error":
        known = str(fault["ctx"]["expected"]).replace(" or ", ", ").split(", ")
        near = nearest_names(str(fault["input"]), [name.strip("'") for name in known], count=1)
        wanted = f"{key} = {_shown(fault['input'])} is not one of {', '.join(known)}"
        return wanted, f"Did you mean {near[0]}?" if near else None
    if kind == "model_type":
        return f"{key} = {_shown(fault['input'])} should be a mapping of keys to values", None
    wanted = ""
    if kind == "string_pattern_mismatch":
        wanted = form.patterns.get(key, "one line of plain text")
    told = f"should be {wanted}" if wanted else _lower_first(fault["msg"]).removeprefix("input ")
    return f"{key} = {_shown(fault['input'])} {told}", None


def _dotted(where: list[int | str]) -> str:
    text = ""
    for part in where:
        # A key comes from the file: its control characters must not reach a terminal.
        name = part if isinstance(part, str) and part.isprintable() else repr(part)
        text += f"[{part}]" if isinstance(part, int) else f".{name}"
    return text.lstrip(".")


def _known_keys(model: type[BaseModel], where: list[int | str]) -> list[str]:
    """The keys of the section that the last part of ``where`` stands in."""
    for part in where[:-1]:
        field = model.model_fields.get(str(part))
        kinds = (field.annotation, *get_args(field.annotation)) if field else ()
        sections = [k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)]
        model = sections[0] if sections else model
    return list(model.model_fields)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]
