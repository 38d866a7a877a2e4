"""The entry point: which command, what exit code, and errors as a person wants to read them.

Commands are loaded only when they run, and ``--version`` and ``--help`` load none of them, nor
numpy, pydantic, yaml or rich.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from kvplan import __version__
from kvplan.errors import (
    EXIT_INTERNAL,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    InputError,
    KvplanError,
    nearest_names,
)

if TYPE_CHECKING:
    from typer.core import TyperGroup

COMMANDS = {
    "fit": "Does a model fit on these GPUs? If not, what would make it fit?",
    "sweep": "Many configurations at once, a row each: CSV, JSON Lines, Parquet, a workbook.",
    "calibrate": "Compare an engine's start-up log with the plan, and keep the difference.",
    "check": "Hold the deployments of kvplan.yaml to their budgets.",
    "diff": "Show what a change does to bytes, concurrency, context, GPUs and verdicts.",
    "explain": "Show what a model keeps per token and why, layer group by layer group.",
    "monitor": "Watch a running server: Prometheus rules, a Grafana dashboard, a check.",
    "gate": "Keep a changed KV cache, or roll it back to 16 bits, by evaluation results.",
    "models": "List the bundled models, show one, or import one of your own.",
    "gpus": "List the bundled GPUs, or show one.",
    "schema": "Print the JSON Schema of a document that kvplan writes.",
}
"""Every command with its line of help; `kvplan.cli.<name>` has it as ``app``."""

EPILOG = """\
Exit codes: 0 it fits; 1 it does not fit; 2 something asked cannot be understood;
3 a fault of kvplan's own; 130 interrupted."""


def entry() -> NoReturn:
    """Run the command line of this process."""
    words = sys.argv[1:]
    if words in (["--version"], ["-V"]):
        sys.stdout.write(f"kvplan {__version__}\n")
        sys.exit(0)
    try:
        code = run(words)
    except KeyboardInterrupt:  # while the command line itself was still being loaded
        code = _interrupted()
    sys.exit(code)


def run(words: list[str]) -> int:
    """Run one command line and give its exit code; every error is told on stderr."""
    from typer import TyperException

    try:
        code = _root().main(args=words, prog_name="kvplan", standalone_mode=False)
        sys.stdout.flush()
    except KvplanError as error:
        return _tell(error.message, error.hint, error.exit_code)
    except TyperException as error:
        error.show()  # type: ignore[attr-defined]
        return getattr(error, "exit_code", EXIT_USAGE)
    except KeyboardInterrupt:
        return _interrupted()
    except BrokenPipeError:
        from kvplan.cli.output import forget_stdout

        forget_stdout()
        return 0
    except Exception as error:  # the one place where a fault of our own is caught
        if os.environ.get("KVPLAN_DEBUG"):
            raise
        return _tell(
            f"this is a fault of kvplan's own: {type(error).__name__}: {error}",
            "Please report it with the command you typed. KVPLAN_DEBUG=1 shows where it happened.",
            EXIT_INTERNAL,
        )
    return _interrupted() if code == EXIT_INTERRUPTED else int(code or 0)


def _interrupted() -> int:
    """Say so, in place of a traceback."""
    sys.stderr.write("kvplan: interrupted\n")
    return EXIT_INTERRUPTED


def _tell(message: str, hint: str | None, code: int) -> int:
    """Print an error to stderr, made safe for a terminal, and give back its exit code."""
    lines = [f"kvplan: error: {message}"] + ([hint] if hint else [])
    sys.stderr.write("\n".join(_printable(line) for line in lines) + "\n")
    return code


def _printable(text: str) -> str:
    """``text`` without control characters: names in errors come from strangers' files."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _root() -> TyperGroup:
    from typer.core import TyperGroup

    class Root(TyperGroup):
        """A group that knows its commands by name and loads one when it runs."""

        def list_commands(self, ctx: object) -> list[str]:  # noqa: ARG002
            return list(COMMANDS)

        def get_command(  # type: ignore[override]
            self,
            ctx: object,  # noqa: ARG002
            cmd_name: str,
        ) -> object:
            if cmd_name not in COMMANDS:
                return None
            from importlib import import_module

            from typer.main import get_command

            command = get_command(import_module(f"kvplan.cli.{cmd_name}").app)
            command.name = cmd_name
            return command

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            if args[0] not in COMMANDS and not args[0].startswith("-"):
                near = nearest_names(args[0], COMMANDS) or list(COMMANDS)
                raise InputError(
                    f"{args[0]!r} is not a command of kvplan",
                    hint=f"Try: kvplan {near[0]} --help. Commands: {', '.join(COMMANDS)}.",
                )
            return super().resolve_command(ctx, args)

        def format_commands(self, ctx: object, formatter: Any) -> None:  # noqa: ARG002
            with formatter.section("Commands"):
                formatter.write_dl(list(COMMANDS.items()))

    return Root(
        name="kvplan",
        help="Will this model, at this context and batch, fit on these GPUs, "
        "and if not, what is the cheapest change that makes it fit?\n\n"
        "Try: kvplan fit llama-3.1-8b --gpu a100-80g --seq 32k",
        epilog=EPILOG,
        no_args_is_help=True,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 100},
        params=[_version_option()],
    )


def _version_option() -> object:
    """``--version`` among other words; alone it never gets this far."""
    from typer.core import TyperOption

    def show(ctx: object, param: object, value: bool) -> None:  # noqa: ARG001
        if value:
            sys.stdout.write(f"kvplan {__version__}\n")
            from typer import Exit

            raise Exit

    return TyperOption(
        param_decls=["--version", "-V"],
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=show,
        help="Show the version.",
    )
