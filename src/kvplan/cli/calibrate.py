"""``kvplan calibrate``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from kvplan.cli.options import FormatOption, asks_question, new_app
from kvplan.cli.output import check_format, emit
from kvplan.errors import InputError, SourceError, UnsupportedCombination
from kvplan.units import MIB

if TYPE_CHECKING:
    from kvplan.model.model import Model

MAX_LOG_BYTES = 64 * MIB
"""All logs of one start together."""
_LONGEST_LINE = 1 * MIB
"""Read at a time; what is longer counts as several lines."""


@asks_question
def calibrate(
    logs: Annotated[
        list[str],
        typer.Argument(
            metavar="LOG...",
            help="The start-up log of one engine, in one file or several; - is stdin.",
            show_default=False,
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="MODEL",
            show_default=False,
            help="The model, where the log does not name one that is bundled.",
        ),
    ] = None,
    format: FormatOption = "table",
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            show_default=False,
            help="Write the calibration, for --calibration of the other commands.",
        ),
    ] = None,
    **flags: Any,
) -> None:
    """Compare an engine's start-up log with the plan, and keep the difference for later plans.

    What the log states (version, length, tp, utilisation) is taken from it; flags override it.

    \b
    vllm serve ... 2>&1 | tee start.log
    kvplan calibrate start.log --gpu h100-sxm --output h100.yaml
    kvplan fit llama-3.1-70b --gpu h100-sxm --tp 4 --calibration h100.yaml
    """
    from kvplan.engines import load_engine
    from kvplan.planning.calibrate import compare
    from kvplan.question import DEFAULT_ENGINE, build_deployment
    from kvplan.reports.calibration_report import FORMATS, render

    check_format(format, FORMATS)
    if flags.pop("calibration", None) is not None:
        raise InputError("--calibration: a log is compared with the plan that has none")
    if not flags.get("gpu"):
        raise InputError(
            "a start-up log does not name the GPU", hint="Add --gpu, such as --gpu h100-sxm."
        )
    name = (flags.get("engine") or DEFAULT_ENGINE).partition("@")[0].strip().lower()
    engine: Any = load_engine(name)
    if not hasattr(engine, "read_log"):
        raise UnsupportedCombination(f"kvplan cannot read the logs of --engine {name}")
    observed = engine.read_log(_lines(logs))
    loaded = _model(model, observed.model, flags)
    answered = {
        key: value
        for key, value in observed.flags.items()
        if not flags.get(key) and not (key == "weights" and loaded.scheme.form.bits < 16)
    }
    if flags.get("seq") or flags.get("max_model_len"):
        answered.pop("seq", None)
        answered.pop("max_model_len", None)
    asked = {**flags, **answered}
    stated = {key for key, value in asked.items() if value}
    report, calibration = compare(
        engine, engine, build_deployment(loaded, **asked), observed._replace(flags=answered), stated
    )
    emit(render(report, format), None)
    if output is not None:
        import yaml

        from kvplan.calibration.schema import to_document

        emit(yaml.safe_dump(to_document(calibration), sort_keys=False, width=100), output)


def _model(asked: str | None, logged: str | None, flags: dict[str, Any]) -> Model:
    """The model that was named, else the bundled one that the log names."""
    from kvplan.catalogue import catalogue
    from kvplan.question import settings_of
    from kvplan.sources import load_model

    if asked is None:
        if logged is None:
            raise InputError(
                "the log does not name a model that can be looked up",
                hint="Add --model, such as --model llama-3.1-8b.",
            )
        if catalogue("models").find(logged) is None:
            raise InputError(
                "the model that the log names is not bundled",
                hint="Add --model: a bundled name, or the path of its config.json.",
            )
    overrides = settings_of(flags.get("set") or (), "--set")
    return load_model(
        asked or logged or "",
        assume=flags.get("assume"),
        overrides=overrides,
        revision=flags.pop("revision", None),
    )


def _lines(paths: list[str]) -> Iterator[str]:
    """The lines of all logs in turn, together within the limit."""
    left = MAX_LOG_BYTES
    for path in paths:
        try:
            if path == "-":
                for line in _read(sys.stdin.buffer, left, "stdin"):
                    left -= len(line)
                    yield line.decode("utf-8", errors="replace")
                continue
            with open(path, "rb") as file:
                for line in _read(file, left, path):
                    left -= len(line)
                    yield line.decode("utf-8", errors="replace")
        except OSError as error:
            raise SourceError(f"{path}: cannot be read: {error.strerror}") from error
        except ValueError as error:  # an embedded NUL in the path
            raise SourceError(f"{path!r}: is not a usable path: {error}") from None


def _read(file: IO[bytes], limit: int, name: str) -> Iterator[bytes]:
    while line := file.readline(_LONGEST_LINE):
        limit -= len(line)
        if limit < 0:
            raise SourceError(
                f"{name}: more than {MAX_LOG_BYTES // MIB} MiB of log",
                hint="Give the part from the start of the engine to its first request: "
                "head -n 2000 LOG | kvplan calibrate - …",
            )
        yield line


app = new_app(calibrate)
