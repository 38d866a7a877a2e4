"""``--format`` and ``--output`` in pairs: each file belongs to the format named before it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from typer import Context, TyperException
from typer.core import TyperCommand

from kvplan.cli.output import check_format
from kvplan.errors import InputError

_ORDER = "kvplan.check.order"


class CheckCommand(TyperCommand):
    """A command that remembers in which order its options stood."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Note the order of the options, which their values do not keep."""
        ctx.meta[_ORDER] = []
        with suppress(TyperException):  # told by the parsing below, in its own words
            _, _, order = self.make_parser(ctx).parse_args(args=list(args))
            ctx.meta[_ORDER] = [param.name for param in order]
        rest: list[str] = super().parse_args(ctx, args)
        return rest


def outputs_of(
    ctx: Context, formats: Sequence[str], files: Sequence[str], known: tuple[str, ...]
) -> list[tuple[str, str | None]]:
    """Each format with its file, None for stdout.

    A file belongs to the format before it; one before any format, to the first.
    """
    names, paths = iter(formats), iter(files)
    pairs: list[list[str | None]] = []
    early: str | None = None
    for option in ctx.meta.get(_ORDER, []):
        if option == "format":
            pairs.append([check_format(next(names), known), early])
            early = None
        elif option == "output":
            path = next(paths)
            if (not pairs and early is not None) or (pairs and pairs[-1][1] is not None):
                raise InputError(
                    f"--output {path!r} has no --format of its own",
                    hint="Name a format before each file: --format junit --output kvplan.xml",
                )
            if pairs:
                pairs[-1][1] = path
            else:
                early = path
    if not pairs:
        pairs = [[known[0], early]]
    wanted = [(str(name), path) for name, path in pairs]
    to_stdout = [name for name, path in wanted if path is None]
    if len(to_stdout) > 1:
        raise InputError(
            f"--format {' and '.join(to_stdout)} would both go to stdout",
            hint=f"Give one a file: --format {to_stdout[-1]} --output FILE",
        )
    written = [path for _, path in wanted if path is not None]
    if len(set(written)) < len(written):
        raise InputError("two formats have the same --output")
    return wanted
