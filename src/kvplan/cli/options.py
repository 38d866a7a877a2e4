"""The question's flags and the report's flags as Typer options, made from one table each."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import typer

from kvplan.question import BY_NAME, FLAGS, Flag


def new_app(command: Callable[..., Any]) -> typer.Typer:
    """A Typer application of one command: plain help, no completion, errors told by `main`."""
    app = plain_app()
    app.command()(command)
    return app


def new_group(help: str) -> typer.Typer:
    """A Typer application of sub-commands, alike; alone it shows its help."""
    return plain_app(help=help, no_args_is_help=True)


def plain_app(**settings: Any) -> typer.Typer:
    """A Typer application as every command of kvplan is: plain help, no completion."""
    return typer.Typer(
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 100},
        **settings,
    )


def asks_question(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give ``command`` every flag of the question; they arrive together in its ``**flags``."""
    return _with_flags(command, FLAGS)


def asks(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The same with only the named flags."""
    return lambda command: _with_flags(command, [BY_NAME[name] for name in names])


def asks_many(command: Callable[..., Any]) -> Callable[..., Any]:
    """Every flag of the question, each as often as it is given."""
    return _with_flags(command, FLAGS, many=True)


def _with_flags(
    command: Callable[..., Any], flags: Iterable[Flag], *, many: bool = False
) -> Callable[..., Any]:
    own = [
        parameter
        for parameter in inspect.signature(command, eval_str=True).parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD
    ]
    parameters = own + [_parameter(flag, many=many) for flag in flags]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def _parameter(flag: Flag, *, many: bool) -> inspect.Parameter:
    names = [flag.option, *flag.also, *([flag.short] if flag.short else ())]
    kind: Any = bool if flag.parse is None else list[str] if flag.repeats or many else str
    default: Any = False if flag.parse is None else None
    option = typer.Option(
        *names,
        help=flag.help,
        metavar=None if flag.parse is None else flag.metavar,
        show_default=False,
    )
    optional = kind if flag.parse is None else kind | None
    return inspect.Parameter(
        flag.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[optional, option],
    )


ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A bundled name, a config.json, a model folder, a .gguf, a hub id or a YAML profile.",
        show_default=False,
    ),
]
ModelsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="MODEL...",
        help="Bundled names, config.json files, model folders, .gguf files, hub ids or profiles.",
        show_default=False,
    ),
]
FormatOption = Annotated[
    str,
    typer.Option(
        "--format",
        "-f",
        metavar="FORMAT",
        help="How to print the report.",
    ),
]
OutputOption = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write the report to a file, whole or not at all.",
        show_default=False,
    ),
]
PolicyOption = Annotated[
    str | None,
    typer.Option("--policy", metavar="FILE", help="Thresholds to judge by.", show_default=False),
]
PlansPolicyOption = Annotated[
    str | None,
    typer.Option(
        "--policy",
        metavar="FILE",
        help="Thresholds, for plans that name no policy.",
        show_default=False,
    ),
]
PlansRootOption = Annotated[
    str | None,
    typer.Option(
        "--root",
        metavar="FOLDER",
        help="Files are read only below it; default: the plan's repository.",
        show_default=False,
    ),
]
