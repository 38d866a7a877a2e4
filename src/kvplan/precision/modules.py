"""Which modules a checkpoint's lists name: ``lm_head``, ``model.layers.0*``, ``re:.*self_attn.*``.

The lists come from strangers. None of their expressions is handed to `re`, which can be made to
run for years: globs are compared piece by piece, and the part of the expression language that
published checkpoints use is run as a finite automaton, in time linear in the name. What lies
outside that part is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")

_WRAPPERS = frozenset({
    "model", "language_model", "text_model", "backbone", "transformer", "thinker", "llm", "decoder",
    "module",
})  # fmt: skip
"""Outer modules that only hold the language model, left off both sides of a comparison."""

_SPELLINGS = {
    "block_sparse_moe": "mlp", "feed_forward": "mlp", "ffn": "mlp", "attn": "self_attn",
    "shared_expert": "shared_experts", "w1": "gate_proj", "w2": "down_proj", "w3": "up_proj",
    "head": "lm_head",
}  # fmt: skip
"""Modules of one purpose that families name differently."""

MAX_PATTERN = 1000
"""Longest expression taken; published ones have under 100 characters."""
_MAX_STATES = 4000


class UnknownPattern(Exception):
    """An expression outside the part that is understood; the caller names it."""


def module_key(name: str) -> str:
    """A module's name in the one spelling that is compared: no wrappers, no expert numbers."""
    parts = name.split(".")
    start = 0
    while start < len(parts) - 1 and parts[start] in _WRAPPERS:
        start += 1
    kept: list[str] = []
    for part in parts[start:]:
        if kept and kept[-1] == "experts" and (part.isdigit() or part == "*"):
            continue
        kept.append(_SPELLINGS.get(part, part))
    return ".".join(kept)


class ModuleMap(Generic[T]):
    """Values by module: a plain name stands for the module and all within it.

    A name without wildcards matches as whole path parts, anywhere in the path: ``gate`` is a
    router and not a ``gate_proj``. With ``*`` it is a glob over the path, and ``re:`` starts an
    expression that must match from the path's start, as ``re.match`` has it.
    """

    def __init__(self, entries: Iterable[tuple[str, T]]) -> None:
        self._names: dict[str, T] = {}
        self._globs: dict[str, list[tuple[_Glob, T]]] = {}
        self._expressions: list[tuple[Callable[[str], bool], T]] = []
        self.names_layers = False
        for pattern, value in entries:
            if pattern.startswith("re:"):
                self._expressions.append((expression(pattern[3:]), value))
                self.names_layers |= any(c.isdigit() or c == "[" for c in pattern)
                continue
            key = module_key(pattern)
            self.names_layers |= "layers." in key and any(c.isdigit() for c in key)
            if "*" in key:
                self._globs.setdefault(_layer_of(key), []).append((_Glob.of(key), value))
            elif key:
                self._names.setdefault(key, value)

    def __bool__(self) -> bool:
        return bool(self._names or self._globs or self._expressions)

    def find(self, name: str) -> T | None:
        """The value for a module's full name; None when nothing names it or what holds it."""
        key = module_key(name)
        if self._names:
            parts = key.split(".")
            for size in range(len(parts), 0, -1):  # the most particular name first
                for start in range(len(parts) - size + 1):
                    run = ".".join(parts[start : start + size])
                    if run in self._names:
                        return self._names[run]
        for bucket in dict.fromkeys((_layer_of(key), "")):
            for glob, value in self._globs.get(bucket, ()):
                if glob.matches(key):
                    return value
        if self._expressions:
            plain = name.replace("experts.*", "experts.0")
            spellings = (plain, f"language_model.{plain}", f"model.{plain}")
            for matches, value in self._expressions:
                if any(map(matches, spellings)):
                    return value
        return None


def _layer_of(key: str) -> str:
    """``layers.7.`` of a path below layer 7, which most globs of a list begin with."""
    head, _, rest = key.partition(".")
    number, dot, _ = rest.partition(".")
    return f"layers.{number}." if head == "layers" and dot and number.isdigit() else ""


class _Glob(NamedTuple):
    """Pieces with gaps between them; the whole covers a path or a module that holds it."""

    pieces: tuple[str, ...]

    @classmethod
    def of(cls, pattern: str) -> _Glob:
        return cls(tuple(pattern.split("*")))

    def matches(self, key: str) -> bool:
        """Leftmost places decide, as in any match of ``*`` alone, so no step is taken back."""
        first, *middle, last = self.pieces
        if not key.startswith(first):
            return False
        position = len(first)
        for piece in middle:
            found = key.find(piece, position)
            if found < 0:
                return False
            position = found + len(piece)
        if not last:
            return True
        found = key.find(last, position)
        while found >= 0:
            end = found + len(last)
            if end == len(key) or key[end] == "." or last.endswith("."):
                return True
            found = key.find(last, found + 1)
        return False


def expression(pattern: str) -> Callable[[str], bool]:
    """A test whether ``pattern`` matches from the start of a name.

    Understood: literals, ``.``, ``\\d`` ``\\w`` ``\\s``, classes, groups, ``|``, ``* + ? {m,n}``,
    ``^`` at the start and ``$`` at the end of it. Anything else raises `UnknownPattern`.
    Source: R. Cox, "Regular Expression Matching Can Be Simple And Fast"; K. Thompson, 1968.
    """
    if len(pattern) > MAX_PATTERN:
        raise UnknownPattern(f"{pattern[:40]}...")
    automaton = _Parser(pattern).automaton()
    start = automaton.closure({0})
    steps: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def matches(name: str) -> bool:
        states = start
        for character in name:
            if automaton.accepting & states:
                return True
            if not states:
                return False
            key = (states, character)
            if key not in steps:
                if len(steps) > _MAX_STATES:
                    steps.clear()
                steps[key] = automaton.step(states, character)
            states = steps[key]
        return bool((automaton.accepting | automaton.accepting_at_end) & states)

    return matches


Accepts = Callable[[str], bool]


class _Automaton:
    """States with the character each takes, and the states reached from it without one."""

    def __init__(self) -> None:
        self.takes: list[Accepts | None] = []
        self.free: list[list[int]] = []
        self.accepting: frozenset[int] = frozenset()
        self.accepting_at_end: frozenset[int] = frozenset()

    def add(self, takes: Accepts | None = None) -> int:
        if len(self.takes) >= _MAX_STATES:
            raise UnknownPattern("too many repetitions")
        self.takes.append(takes)
        self.free.append([])
        return len(self.takes) - 1

    def closure(self, states: set[int]) -> frozenset[int]:
        todo, reached = list(states), set(states)
        while todo:
            for state in self.free[todo.pop()]:
                if state not in reached:
                    reached.add(state)
                    todo.append(state)
        return frozenset(reached)

    def step(self, states: frozenset[int], character: str) -> frozenset[int]:
        """A state that takes a character is followed by the state numbered after it."""
        return self.closure(
            {state + 1 for state in states if (takes := self.takes[state]) and takes(character)}
        )


_CLASSES: dict[str, Accepts] = {
    "d": str.isdigit,
    "w": lambda character: character.isalnum() or character == "_",
    "s": str.isspace,
}


class _Parser:
    """Reads an expression into an automaton; each part lies between a first and a last state."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 1 if pattern.startswith("^") else 0
        self.end = len(pattern)
        self.ends_name = pattern.endswith("$") and not pattern.endswith("\\$")
        if self.ends_name:
            self.end -= 1
        self.depth = 0
        self.built = _Automaton()

    def automaton(self) -> _Automaton:
        start = self.built.add()
        first, last = self._choice()
        if self.at < self.end:
            raise UnknownPattern(self.pattern)
        self.built.free[start].append(first)
        if self.ends_name:
            self.built.accepting_at_end = frozenset({last})
        else:
            self.built.accepting = frozenset({last})
        return self.built

    def _choice(self) -> tuple[int, int]:
        self.depth += 1
        if self.depth > 20:
            raise UnknownPattern(self.pattern)
        first, last = self.built.add(), self.built.add()
        while True:
            begin, end = self._sequence()
            self.built.free[first].append(begin)
            self.built.free[end].append(last)
            if self._peek() != "|":
                self.depth -= 1
                return first, last
            self.at += 1

    def _sequence(self) -> tuple[int, int]:
        first = last = self.built.add()
        while self._peek() not in {"", "|", ")"}:
            begin, end = self._repeated()
            self.built.free[last].append(begin)
            last = end
        return first, last

    def _repeated(self) -> tuple[int, int]:
        place = self.at
        begin, end = self._atom()
        least, most = self._quantifier()
        if (least, most) == (1, 1):
            return begin, end
        after = self.at
        free = self.built.free
        first = last = self.built.add()
        skips: list[int] = []
        for count in range(max(least, most or least, 1)):
            if count:  # the atom again, read anew from its place
                self.at = place
                begin, end = self._atom()
            if count >= least:
                skips.append(last)
            free[last].append(begin)
            last = end
        if most is None:
            if least == 0:
                free[end].append(begin)
            else:
                free[last].append(begin)
        final = self.built.add()
        for state in (*skips, last):
            free[state].append(final)
        self.at = after
        return first, final

    def _quantifier(self) -> tuple[int, int | None]:
        character = self._peek()
        bounds: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        if character in bounds:
            self.at += 1
            least, most = bounds[character]
        elif character == "{":
            close = self.pattern.find("}", self.at)
            low, comma, high = self.pattern[self.at + 1 : close].partition(",")
            if close < 0 or not low.isdecimal() or not (high.isdecimal() or high == ""):
                raise UnknownPattern(self.pattern)
            if len(low) > 3 or len(high) > 3:
                raise UnknownPattern(self.pattern)
            least = int(low)
            most = int(high) if high else None if comma else least
            if most is not None and (most < least or most == 0):
                raise UnknownPattern(self.pattern)
            self.at = close + 1
        else:
            return 1, 1
        if self._peek() == "?":  # lazy: the same names match
            self.at += 1
        if self._peek() in {"*", "+", "{", "?"}:
            raise UnknownPattern(self.pattern)
        return least, most

    def _atom(self) -> tuple[int, int]:
        character = self._peek()
        self.at += 1
        if character == "(":
            if self._peek() == "?":
                if self.pattern[self.at : self.at + 2] != "?:":
                    raise UnknownPattern(self.pattern)
                self.at += 2
            inside = self._choice()
            if self._peek() != ")":
                raise UnknownPattern(self.pattern)
            self.at += 1
            return inside
        if character == ".":
            return self._taking(lambda _: True)
        if character == "[":
            return self._taking(self._class())
        if character == "\\":
            return self._taking(self._escape())
        if character in set("*+?{}])^$"):
            raise UnknownPattern(self.pattern)
        return self._taking(character.__eq__)

    def _escape(self) -> Accepts:
        character = self._peek()
        self.at += 1
        if character in _CLASSES:
            return _CLASSES[character]
        if not character or character.isalnum():
            raise UnknownPattern(self.pattern)
        return character.__eq__

    def _class(self) -> Accepts:
        negated = self._peek() == "^"
        self.at += negated
        parts: list[Accepts] = []
        while self._peek() != "]" or not parts:
            character = self._peek()
            self.at += 1
            if not character:
                raise UnknownPattern(self.pattern)
            if character == "\\":
                parts.append(self._escape())
            elif self._peek() == "-" and self.pattern[self.at + 1 : self.at + 2] not in {"", "]"}:
                high = self.pattern[self.at + 1]
                self.at += 2
                if high == "\\" or high < character:
                    raise UnknownPattern(self.pattern)
                parts.append(lambda c, low=character, high=high: low <= c <= high)  # type: ignore[misc]
            else:
                parts.append(character.__eq__)
        self.at += 1
        return lambda c: any(part(c) for part in parts) != negated

    def _taking(self, takes: Accepts) -> tuple[int, int]:
        return self.built.add(takes), self.built.add()

    def _peek(self) -> str:
        return self.pattern[self.at] if self.at < self.end else ""
