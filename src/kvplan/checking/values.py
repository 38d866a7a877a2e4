"""One value of the plan at a time: read by its own parser, or refused at its place."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kvplan.checking.budgets import BY_NAME as BUDGET_BY_NAME
from kvplan.checking.budgets import LEVELS
from kvplan.checking.document import Items, Keys, Place, Scalar, Tree, kind_name, shorten, words_of
from kvplan.checking.plan import Choice, Manifest, Problem, StatedBudget
from kvplan.errors import InputError, nearest_names
from kvplan.question import BY_NAME

_TRUE, _FALSE = {"true", "yes", "on"}, {"false", "no", "off"}


class Refused(Exception):
    """Carries a problem up to where it is collected."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def wrong(where: str, tree: Tree, wanted: str) -> Problem:
    """It is of another kind than it should be."""
    return Problem(tree.place, f"{where} is {kind_name(tree)}; it should be {wanted}")


def unknown_keys(tree: Keys, keys: Iterable[str], where: str, noun: str) -> list[Problem]:
    """A problem for each key that is none of ``keys``, with the nearest of them."""
    known = list(keys)
    problems = []
    for key, entry in tree.entries.items():
        if key not in known:
            near = nearest_names(key.replace("-", "_"), known, count=1)
            problems.append(
                Problem(
                    entry.place,
                    f"{where}{shorten(key)} is not a key of {noun}",
                    f"Did you mean {near[0]}?" if near else f"Keys: {', '.join(known)}",
                )
            )
    return problems


def budget_of(name: str, where: str, place: Place, tree: Tree) -> StatedBudget:
    """A budget: its value alone, or ``{value: …, level: …}``."""
    budget = BUDGET_BY_NAME[name]
    level, text, at = "error", None, place
    if isinstance(tree, Keys):
        for problem in unknown_keys(tree, ("value", "level"), f"{where}.", "a budget"):
            raise Refused(problem)
        stated = text_of(tree, "value", f"{where}.")
        text = None if stated is None else stated[0]
        at = place if stated is None else stated[1]
        level = _level(tree, where)
    elif isinstance(tree, Scalar) and tree.kind != "null":
        text, at = tree.text, tree.place
    else:
        raise Refused(wrong(where, tree, "a value, or {value: …, level: error|warn|off}"))
    if text is None and budget.from_policy is None and level != "off":
        raise Refused(Problem(place, f"{where} has no value"))
    if text is not None:
        _parsed(budget.parse, text, where, at)
    return StatedBudget(budget, text, level, place)


def _level(tree: Keys, where: str) -> str:
    stated = text_of(tree, "level", f"{where}.")
    if stated is None:
        return "error"
    level = "off" if stated[0].lower() in _FALSE else stated[0]
    if level not in LEVELS:
        near = nearest_names(level, LEVELS, count=1)
        raise Refused(
            Problem(
                stated[1],
                f"{where}.level = {shorten(level)!r} is not one of {', '.join(LEVELS)}",
                f"Did you mean {near[0]}?" if near else None,
            )
        )
    return level


def manifest_of(tree: Keys, where: str) -> Manifest | None:
    """Where the engine's command line stands; None when the plan states the flags itself."""
    path = text_of(tree, "from", where)
    container = text_of(tree, "container", where)
    command = tree.entries.get("command")
    ignore = tree.entries.get("ignore_args")
    if path is not None and command is not None:
        raise Refused(Problem(command.place, f"{where}command and from are both stated"))
    if path is None and command is None:
        for key in ("container", "ignore_args"):
            if key in tree.entries:
                place = tree.entries[key].place
                raise Refused(Problem(place, f"{where}{key} is of use only with from"))
        return None
    words: tuple[str, ...] | str | None = None
    place = tree.entries["from" if path is not None else "command"].value.place
    if command is not None:
        listed = words_of(command.value)
        if not listed or not any(word.strip() for word in listed):
            raise Refused(wrong(f"{where}command", command.value, "a command line"))
        words = listed[0] if isinstance(command.value, Scalar) else tuple(listed)
    ignored: list[str] = []
    if ignore is not None:
        ignored = words_of(ignore.value) or []
        if not ignored:
            raise Refused(
                wrong(f"{where}ignore_args", ignore.value, "a list such as [--enable-lora]")
            )
    return Manifest(
        path[0] if path else None,
        words,
        container[0] if container else None,
        tuple(ignored),
        place,
    )


def text_of(tree: Keys, key: str, where: str = "") -> tuple[str, Place] | None:
    """The one value of a key with its place; None when the key is not there."""
    value = tree.get(key)
    if value is None:
        return None
    if not isinstance(value, Scalar):
        raise Refused(wrong(f"{where}{key}", value, "one value"))
    if value.kind == "null" or not value.text.strip():
        raise Refused(Problem(value.place, f"{where}{key} has no value"))
    return value.text, value.place


def _parsed(parse: Callable[[str, str], object], text: str, where: str, place: Place) -> None:
    """Let the value's own parser say what is wrong with it."""
    try:
        parse(text, where)
    except InputError as error:
        raise Refused(Problem(place, error.message, error.hint)) from None


def choices_of(name: str, where: str, tree: Tree) -> tuple[Choice, ...]:
    """The values stated for a flag; of a list each is one, save where the flag itself repeats."""
    flag = BY_NAME.get(name)
    if flag is not None and flag.repeats:
        return (_repeated(where, tree),)
    trees = tree.items if isinstance(tree, Items) else (tree,)
    if not trees:
        raise Refused(Problem(tree.place, f"{where} is an empty list"))
    choices = []
    for item in trees:
        if not isinstance(item, Scalar):
            raise Refused(wrong(where, item, "one value, or a list of values for a matrix"))
        if item.kind == "null" or not item.text.strip():
            raise Refused(Problem(item.place, f"{where} has no value"))
        if flag is not None and flag.parse is None:
            choices.append(Choice(_switch(where, item), item.place))
            continue
        if flag is not None and flag.parse is not None:
            _parsed(flag.parse, item.text, where, item.place)
        choices.append(Choice(item.text, item.place))
    if len({choice.value for choice in choices}) < len(choices):
        raise Refused(Problem(tree.place, f"{where} lists a value twice"))
    return tuple(choices)


def _switch(where: str, item: Scalar) -> bool:
    text = item.text.lower()
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise Refused(wrong(where, item, "true or false"))


def _repeated(where: str, tree: Tree) -> Choice:
    """``[NAME=VALUE, …]``, one ``NAME=VALUE``, or a mapping of names to values."""
    if isinstance(tree, Keys):
        words = []
        for key, (_, value) in tree.entries.items():
            if not isinstance(value, Scalar) or value.kind == "null":
                raise Refused(wrong(f"{where}.{shorten(key)}", value, "one value"))
            words.append(f"{key}={value.text}")
    else:
        words = words_of(tree) or []
    if not words:
        raise Refused(wrong(where, tree, "NAME: VALUE pairs"))
    for word in words:
        name, equals, setting = word.partition("=")
        if not (name.strip() and equals and setting.strip()):
            raise Refused(Problem(tree.place, f"{where}: {shorten(word)!r} is not NAME=VALUE"))
    return Choice(tuple(words), tree.place)
