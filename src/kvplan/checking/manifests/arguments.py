"""An engine's arguments → kvplan's flags, by that engine's table.

Every argument is one of three: it means a flag, it changes no memory, or it is refused because it
changes memory in a way that kvplan does not model. One that is in no table is refused as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from kvplan.errors import InputError, nearest_names

MODEL = "model"
ENGINE_ARG = "engine_arg"


class Argument(NamedTuple):
    """What one argument of an engine means."""

    takes: str = "value"
    """``value``, ``switch``, ``many`` words, or ``either``: a switch that may be told a value."""
    flag: str | None = None
    """The flag of kvplan; None: it changes no memory."""
    convert: Callable[[str], str] | None = None
    """From the engine's way of writing a value to kvplan's; raises ValueError."""
    refused: str | None = None
    """Why kvplan cannot judge a deployment with it."""
    off: str | None = None
    """The flag that ``--no-…`` means, for an argument that is on by default."""


class Table(NamedTuple):
    """The arguments of one engine."""

    engine: str
    """As ``--engine`` takes it."""
    program: str
    known: Mapping[str, Argument]
    """By long name."""
    short: Mapping[str, str]
    """Short and other spellings to the long name."""
    positional: bool
    """The model is the word that belongs to no argument."""


class Arguments(NamedTuple):
    """A command line, understood."""

    model: str | None
    flags: dict[str, str | bool | tuple[str, ...]]
    words: dict[str, str]
    """The argument behind each flag, for messages."""


def read_arguments(words: list[str], table: Table, ignore: tuple[str, ...] = ()) -> Arguments:
    """The flags that an engine's arguments mean; of one given twice the last counts."""
    unused = [name for name in ignore if not any(_same(word, name, table) for word in words)]
    if unused:
        raise InputError(f"ignore_args {', '.join(unused)}: the command has no such argument")
    ignored = {_long(name, table) for name in ignore}
    flags: dict[str, str | bool | tuple[str, ...]] = {}
    said: dict[str, str] = {}
    settings: dict[str, str] = {}
    models: list[str] = []
    loose: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or word == "-":
            loose.append(word)
            continue
        name, equals, value = word.partition("=")
        long = _long(name, table)
        argument, negated = _find(long, table)
        if long in ignored:
            _values(argument or _guess(rest, equals), equals, value, rest)
            continue
        if argument is None:
            raise _unknown(name, table)
        values = _values(argument, equals, value, rest, negated=negated)
        if values is None:
            raise InputError(f"{table.program} {name} has no value")
        if argument.refused is not None and not negated:
            raise InputError(
                f"{table.program} {name} {argument.refused}, which kvplan does not read here",
                hint=f"If it does not matter here: ignore_args: [{long}]",
            )
        flag = argument.off if negated else argument.flag
        if flag is None:
            if argument.flag is not None or argument.off is not None:
                flags.pop(argument.flag or argument.off or "", None)
            continue
        converted = _converted(argument, values, f"{table.program} {name}")
        if flag == MODEL:
            models.append(converted)
        elif flag == ENGINE_ARG:
            settings[long.lstrip("-").replace("-", "_")] = converted
        else:
            flags[flag] = converted if argument.takes in {"value", "many"} else True
            said[flag] = name
    if loose and not table.positional:
        raise InputError(f"{table.program}: {loose[0]!r} belongs to no argument")
    models += loose
    if len(models) > 1:
        raise InputError(
            f"{table.program} is given {len(models)} models: {', '.join(models[:3])}",
            hint="A word that belongs to no argument is taken for the model.",
        )
    if settings:
        flags[ENGINE_ARG] = tuple(f"{name}={value}" for name, value in settings.items())
        said[ENGINE_ARG] = next(iter(settings))
    return Arguments(models[0] if models else None, flags, said)


def _values(
    argument: Argument, equals: str, value: str, rest: list[str], *, negated: bool = False
) -> list[str] | None:
    """The words that belong to an argument, taken from the front of ``rest``."""
    if equals:
        return [value]
    if negated or argument.takes == "switch":
        return []
    if argument.takes == "either":
        return [rest.pop(0)] if rest and not rest[0].startswith("-") else []
    if argument.takes == "many":
        found = []
        while rest and not rest[0].startswith("-"):
            found.append(rest.pop(0))
        return found or None
    if not rest or (rest[0].startswith("-") and not rest[0].lstrip("-").isdigit()):
        return None
    return [rest.pop(0)]


def _converted(argument: Argument, values: list[str], name: str) -> str:
    text = ",".join(values)
    if argument.convert is None:
        return text
    try:
        return argument.convert(text)
    except ValueError as error:
        raise InputError(f"{name} {text!r}: {error}") from None


def _long(name: str, table: Table) -> str:
    if name in table.short:
        return table.short[name]
    return "--" + name[2:].replace("_", "-") if name.startswith("--") else name


def _find(long: str, table: Table) -> tuple[Argument | None, bool]:
    """The argument of that name, and whether it is switched off."""
    if long in table.known:
        return table.known[long], False
    if long.startswith("--no-"):
        argument = table.known.get("--" + long[5:])
        if argument is not None and argument.takes in {"switch", "either"}:
            return argument, True
    return None, False


def _guess(rest: list[str], equals: str) -> Argument:
    """How many words an argument takes that is in no table: those up to the next argument."""
    return Argument("switch" if equals or not rest or rest[0].startswith("-") else "many")


def _same(word: str, name: str, table: Table) -> bool:
    return _long(word.partition("=")[0], table) == _long(name, table)


def _unknown(name: str, table: Table) -> InputError:
    near = nearest_names(name, table.known, count=2)
    hint = f"Nearest: {', '.join(near)}. " if near else ""
    return InputError(
        f"{table.program} {name} is not an argument that kvplan knows, so it may change memory",
        hint=f"{hint}If it does not: ignore_args: [{name}]",
    )
