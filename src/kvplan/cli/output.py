"""Where a report goes: stdout or a file. Warnings and hints go to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from kvplan.errors import InputError, nearest_names


def emit(text: str, path: str | None) -> None:
    """Write a report to ``path``, or to stdout."""
    if path is not None:
        from kvplan.files import write_whole

        write_whole(path, text)
        return
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough: the verdict still is the exit code
        forget_stdout()
    except OSError as error:
        forget_stdout()
        raise InputError(f"the report cannot be written to stdout: {error.strerror}") from None
    except UnicodeEncodeError:
        encoding = sys.stdout.encoding or "ascii"
        sys.stdout.buffer.write(text.encode(encoding, errors="replace"))
        sys.stdout.flush()


def forget_stdout() -> None:
    """Leave nothing for the interpreter to flush and complain about when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def check_format(name: str, known: tuple[str, ...]) -> str:
    """The output format of that name."""
    if name not in known:
        near = nearest_names(name, known) or known
        raise InputError(
            f"--format {name!r} is not one of {', '.join(known)}", hint=f"Try: --format {near[0]}"
        )
    return name


def tell_warnings(warnings: Iterable[str]) -> None:
    """Say on stderr what a document for machines carries in itself."""
    for text in warnings:
        safe = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
        sys.stderr.write(f"kvplan: warning: {safe}\n")
