"""Every error that a person at the other end can cause or meet, and its exit code.

    KvplanError                        message, hint, exit_code
     ├─ InputError (2)                 a flag, size or combination that cannot be
     ├─ SourceError (2)                something read from outside
     │   ├─ ModelNotFound              nearest names, how to list them
     │   ├─ GpuNotFound                the same for GPUs
     │   ├─ MalformedFile              path, key or byte offset, what was expected
     │   └─ UnsupportedArchitecture    the key and value not understood; never falls back
     ├─ UnsupportedCombination (2)     this engine, version or GPU cannot do that
     ├─ MissingExtra (2)               names the extra to install
     └─ BundledDataError (3)           our fault

"Does not fit" is not here: it is an answer, a value of `planning.fit.Verdict`.
A plain ``ValueError`` is never shown as a user's mistake; it is a fault of kvplan's own.
"""

from __future__ import annotations

from collections.abc import Iterable

EXIT_FITS = 0
EXIT_DOES_NOT_FIT = 1
EXIT_USAGE = 2
EXIT_INTERNAL = 3
EXIT_INTERRUPTED = 130


class KvplanError(Exception):
    """What was asked and why it cannot be answered, with the next thing to type."""

    exit_code = EXIT_USAGE

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class InputError(KvplanError):
    """A flag, size or combination of them that cannot be."""


class SourceError(KvplanError):
    """A file, name or document that cannot be read as what it should be."""


class ModelNotFound(SourceError):
    """No model of that name is bundled and no such file exists."""


class GpuNotFound(SourceError):
    """No GPU of that name is bundled and no such file exists, or the name is ambiguous."""


class MalformedFile(SourceError):
    """A file that is not what it should be, with its path and the key or offset at fault."""

    def __init__(
        self,
        path: str,
        problem: str,
        *,
        hint: str | None = None,
        line: int | None = None,
        column: int | None = None,
    ) -> None:
        super().__init__(f"{path}: {problem}", hint=hint)
        self.path = path
        self.problem = problem
        self.line = line
        """Where the fault stands, from 1; None when it is the whole file's."""
        self.column = column


class UnsupportedArchitecture(SourceError):
    """A model whose layers kvplan does not know: a wrong number would be worse than none."""

    def __init__(self, key: str, value: object, *, where: str, known: Iterable[str] = ()) -> None:
        names = list(known)
        nearest = nearest_names(str(value), names)
        hint = (
            "kvplan never guesses an architecture. If every layer really is plain attention, "
            "say so with --assume full-attention."
        )
        if nearest:
            hint = f"Nearest known: {', '.join(nearest)}. {hint}"
        super().__init__(
            f"{where}: {key} = {value!r} is not {_kind_of(key)} kvplan knows", hint=hint
        )
        self.key = key
        self.value = value


def _kind_of(key: str) -> str:
    """What the value of a key should have been."""
    return "an architecture" if key == "model_type" else "a value"


class UnsupportedCombination(KvplanError):
    """Each part is known, but this engine, version or GPU cannot do them together."""


class MissingExtra(KvplanError):
    """An optional dependency is needed for what was asked."""

    def __init__(self, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the optional dependency {extra!r}",
            hint=f"Install it with: pip install 'kvplan[{extra}]'",
        )


class BundledDataError(KvplanError):
    """Data shipped with kvplan is missing or broken: our fault, not the user's."""

    exit_code = EXIT_INTERNAL


def nearest_names(wanted: str, names: Iterable[str], count: int = 5) -> list[str]:
    """The names most like ``wanted``, best first; empty when none is near."""
    from difflib import get_close_matches

    by_key = {name.lower(): name for name in names}
    close = get_close_matches(wanted.lower(), list(by_key), n=count, cutoff=0.5)
    return [by_key[key] for key in close]
