"""Reading facts from a Hugging Face config: aliases, omitted fields, and faults with their key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvplan.errors import MalformedFile

MAX_WIDTH = 10**7
"""Largest hidden size, vocabulary or head count believed; the largest published is 2.6 * 10**5."""
MAX_LAYERS = 10**4
"""Most layers believed; the deepest published models have a few hundred."""
MAX_CONTEXT = 2**40


class MissingField(MalformedFile):
    """A fact that the question needs and the config does not state."""

    def __init__(self, path: str, key: str) -> None:
        super().__init__(path, f"{key} is missing")
        self.key = key


class Fields:
    """A config's facts by any of their names, with the class defaults of its ``model_type``.

    Published files leave out what equals the default of their configuration class, so a missing
    key is looked up there before it counts as missing; each default is cited where it is listed.
    """

    def __init__(
        self, data: Mapping[str, Any], where: str, defaults: Mapping[str, Any] | None = None
    ) -> None:
        self.data = data
        self.where = where
        self.defaults = dict(defaults or {})

    def raw(self, *names: str) -> Any:
        """The first of the names that the config states, else the class default, else None."""
        for name in names:
            if self.data.get(name) is not None:
                return self.data[name]
        for name in names:
            if name in self.data:
                return None  # an explicit null is a statement too: do not put a default over it
        for name in names:
            if name in self.defaults:
                return self.defaults[name]
        return None

    def states(self, name: str) -> bool:
        """Whether the config itself gives the key a value."""
        return self.data.get(name) is not None

    def optional_integer(
        self, *names: str, minimum: int = 1, maximum: int = MAX_WIDTH
    ) -> int | None:
        """A whole number within bounds, or None when no name is stated."""
        value = self.raw(*names)
        if value is None:
            return None
        return self.checked(value, self._stated(names), minimum, maximum)

    def integer(self, *names: str, minimum: int = 1, maximum: int = MAX_WIDTH) -> int:
        """A whole number within bounds; missing is an error that names the key."""
        value = self.optional_integer(*names, minimum=minimum, maximum=maximum)
        if value is None:
            raise MissingField(self.where, names[0])
        return value

    def boolean(self, *names: str, default: bool | None = None) -> bool:
        """A true or false; ``default`` when no name is stated."""
        value = self.raw(*names)
        if value is None:
            if default is None:
                raise MissingField(self.where, names[0])
            return default
        if not isinstance(value, bool):
            raise MalformedFile(
                self.where, f"{self._stated(names)} must be true or false, not {_show(value)}"
            )
        return value

    def text(self, *names: str) -> str | None:
        """A string, or None when no name is stated."""
        value = self.raw(*names)
        if value is None:
            return None
        if not isinstance(value, str):
            raise MalformedFile(
                self.where, f"{self._stated(names)} must be text, not {_show(value)}"
            )
        return value

    def sequence(self, *names: str, length: int | None = None) -> list[Any] | None:
        """A list, of ``length`` entries where that is given, or None when no name is stated."""
        value = self.raw(*names)
        if value is None:
            return None
        key = self._stated(names)
        if not isinstance(value, list):
            raise MalformedFile(self.where, f"{key} must be a list, not {_show(value)}")
        if len(value) > 100 * MAX_LAYERS:
            raise MalformedFile(self.where, f"{key} has {len(value):,} entries")
        if length is not None and len(value) != length:
            raise MalformedFile(
                self.where, f"{key} has {len(value)} entries for {length} layers; they must agree"
            )
        return value

    def indices(self, name: str) -> set[int] | None:
        """A list of layer numbers, or None when it is not stated."""
        listed = self.sequence(name)
        if listed is None:
            return None
        return {self.checked(item, name, 0, MAX_LAYERS) for item in listed}

    def nested(self, *names: str) -> Fields | None:
        """A section of the config, or None when no name is stated."""
        value = self.raw(*names)
        if value is None:
            return None
        key = self._stated(names)
        if not isinstance(value, dict):
            raise MalformedFile(self.where, f"{key} must be an object, not {_show(value)}")
        return Fields(value, f"{self.where}: {key}")

    def layers(self) -> int:
        """The number of decoder layers."""
        return self.integer(
            "num_hidden_layers", "n_layer", "num_layers", "n_layers", "num_transformer_layers",
            maximum=MAX_LAYERS,
        )  # fmt: skip

    def hidden(self) -> int:
        """The width of the residual stream."""
        return self.integer("hidden_size", "n_embd", "d_model", "model_dim", "n_embed")

    def heads(self) -> int:
        """Query heads."""
        return self.integer(
            "num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads",
            "attention_heads",
        )  # fmt: skip

    def vocab(self) -> int:
        """Entries of the vocabulary."""
        return self.integer("vocab_size", "padded_vocab_size", maximum=10**8)

    def context(self) -> int | None:
        """The longest sequence the model was made for, before any optional extension."""
        return self.optional_integer(
            "max_position_embeddings", "n_positions", "max_seq_len", "seq_length",
            "max_context_length", "n_ctx", "model_max_length", "max_target_positions",
            maximum=MAX_CONTEXT,
        )  # fmt: skip

    def head_size(self) -> int:
        """Elements of a head: stated, or hidden size over heads, which must then divide.

        A stated value wins and often differs (Qwen3, Gemma, gpt-oss, Mistral-Nemo): dividing
        instead is a classic error of calculators.
        """
        stated = self.optional_integer(
            "head_dim", "attention_head_dim", "kv_channels", maximum=65_536
        )
        if stated is not None:
            return stated
        hidden, heads = self.hidden(), self.heads()
        if hidden % heads:
            raise MalformedFile(
                self.where,
                f"hidden_size {hidden} is not a multiple of {heads} heads, "
                "and head_dim is not stated",
            )
        return hidden // heads

    def checked(self, value: object, key: str, minimum: int = 1, maximum: int = MAX_WIDTH) -> int:
        """``value`` as a whole number within bounds, else an error that names the key."""
        if isinstance(value, float) and value.is_integer() and abs(value) <= 2**53:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise MalformedFile(self.where, f"{key} must be a whole number, not {_show(value)}")
        if value < minimum:
            raise MalformedFile(
                self.where, f"{key} is {_show(value)}; it must be {minimum} or more"
            )
        if value > maximum:
            raise MalformedFile(
                self.where, f"{key} is {_show(value)}; more than {maximum:,} cannot be meant"
            )
        return value

    def _stated(self, names: tuple[str, ...]) -> str:
        return next((name for name in names if self.data.get(name) is not None), names[0])


def _show(value: object) -> str:
    """A value short enough for one line of an error."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**30:
        return "a number of more than 30 digits"
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
