"""Typed reading of a GGUF file's metadata, with faults that name the key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvplan.errors import MalformedFile, UnsupportedArchitecture
from kvplan.sources.huggingface.fields import MAX_CONTEXT, MAX_LAYERS, MAX_WIDTH


class Metadata:
    """The keys of one architecture, without its name in front of them."""

    def __init__(self, values: Mapping[str, Any], path: str, lengths: Mapping[str, int]) -> None:
        architecture = values.get("general.architecture")
        if not isinstance(architecture, str) or not architecture:
            raise MalformedFile(path, "general.architecture is missing")
        self.architecture = architecture
        self.path = path
        self.values = values
        self.lengths = lengths

    def raw(self, name: str) -> Any:
        """The value as the file has it; None when it is not stated."""
        return self.values.get(f"{self.architecture}.{name}")

    def optional(self, name: str, minimum: int = 0, maximum: int = MAX_WIDTH) -> int | None:
        """A whole number within bounds, or None when it is not stated."""
        value = self.raw(name)
        return None if value is None else self._checked(value, name, minimum, maximum)

    def integer(self, name: str, minimum: int = 1, maximum: int = MAX_WIDTH) -> int:
        """A whole number within bounds; missing is an error that names the key."""
        value = self.optional(name, minimum, maximum)
        if value is None:
            raise MalformedFile(self.path, f"{self.architecture}.{name} is missing")
        return value

    def per_layer(self, name: str, default: int | None = None) -> list[int]:
        """One number a block: a list of them, or one for all; ``default`` when not stated."""
        value = self.raw(name)
        if value is None:
            if default is None:
                raise MalformedFile(self.path, f"{self.architecture}.{name} is missing")
            return [default] * self.blocks
        if not isinstance(value, list):
            return [self._checked(value, name, 0, MAX_WIDTH)] * self.blocks
        if len(value) < self.blocks:
            raise MalformedFile(
                self.path,
                f"{self.architecture}.{name} has {len(value)} entries for {self.blocks} blocks",
            )
        return [self._checked(entry, name, 0, MAX_WIDTH) for entry in value[: self.blocks]]

    def flags(self, name: str) -> list[bool] | None:
        """One true or false a block, or None when the key is not a list."""
        if not isinstance(self.raw(name), list):
            return None
        return [bool(entry) for entry in self.per_layer(name)]

    @property
    def blocks(self) -> int:
        """Every block of the file, draft layers included."""
        return self.integer("block_count", maximum=MAX_LAYERS)

    @property
    def context(self) -> int | None:
        """The context the model was trained for."""
        return self.optional("context_length", 1, MAX_CONTEXT)

    def unsupported(self, key: str, value: object) -> UnsupportedArchitecture:
        """The error for a key whose value is not understood."""
        return UnsupportedArchitecture(f"{self.architecture}.{key}", value, where=self.path)

    def _checked(self, value: object, name: str, minimum: int, maximum: int) -> int:
        # Old converters wrote true and false as the flags of a list, which count as 1 and 0.
        if isinstance(value, bool):
            value = int(value)
        if not isinstance(value, int) or not minimum <= value <= maximum:
            shown = repr(value) if len(repr(value)) <= 40 else f"{repr(value)[:37]}..."
            raise MalformedFile(
                self.path,
                f"{self.architecture}.{name} is {shown}; "
                f"expected a whole number from {minimum:,} to {maximum:,}",
            )
        return value
