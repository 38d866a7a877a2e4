"""``kvplan sweep``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kvplan.cli.options import OutputOption, PolicyOption, asks_many, new_app
from kvplan.cli.output import check_format
from kvplan.errors import InputError

_FILE = {"metavar": "FILE", "show_default": False}


@asks_many
def sweep(
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="MODEL...", help="Models, as for kvplan fit.", show_default=False),
    ] = None,
    format: Annotated[
        str,
        typer.Option(
            "--format", "-f", metavar="FORMAT", help="csv, jsonl, parquet, markdown, table or xlsx."
        ),
    ] = "csv",
    output: OutputOption = None,
    grid: Annotated[
        str | None, typer.Option("--grid", help="Flags of the grid in a YAML file.", **_FILE)
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(
            "--from", help="Rows to answer: a CSV file with columns named as the flags.", **_FILE
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns", metavar="NAMES", help="Columns to write, in order.", show_default=False
        ),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(
            "--where",
            metavar="TEST",
            help="Only rows that pass, such as 'verdict == fits and headroom_bytes > 1GiB'.",
            show_default=False,
        ),
    ] = None,
    only_valid: Annotated[
        bool, typer.Option("--only-valid", help="Leave out combinations that cannot be.")
    ] = False,
    append: Annotated[
        bool, typer.Option("--append", help="Write behind the rows that the file has.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="With --append: only the rows that it lacks.")
    ] = False,
    excel: Annotated[
        bool, typer.Option("--excel", help="Mark the CSV as UTF-8, for Excel.")
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs", metavar="N", min=1, help="Processes to use.", show_default="all cores"
        ),
    ] = None,
    policy: PolicyOption = None,
    **flags: Any,
) -> None:
    """Many configurations at once, one row each, from lists and ranges of any flag.

    kvplan sweep llama-3.1-8b,qwen3-32b --gpu h100-sxm,l40s --seq 4k..128k:x2 --batch 1..64
    --kv auto,fp8
    """
    from kvplan.policy import load_policy
    from kvplan.sweeping.columns import choose
    from kvplan.sweeping.run import Job, processes_for
    from kvplan.sweeping.where import parse_where
    from kvplan.sweeping.writers import FORMATS
    from kvplan.sweeping.writers.people import USUAL
    from kvplan.sweeping.writing import Target, write

    check_format(format, FORMATS)
    if where is not None:
        parse_where(where)
    load_policy(policy)
    if rows is not None and grid is not None:
        raise InputError("--from and --grid are two ways to say which rows; give one")
    if rows is not None:
        source, stated = _rows(rows, models or [], flags)
    else:
        source, stated = _grid(grid, models or [], flags)
    if columns is None and format in {"table", "markdown"}:
        columns = ",".join(USUAL)
    job = Job(source, tuple(choose(columns, stated)), format, policy, where, only_valid)
    target = Target(output, append, resume, excel)
    write(job, target, processes_for(source.rows, jobs))


def _grid(path: str | None, models: list[str], flags: dict[str, Any]) -> tuple[Any, list[str]]:
    """The grid of a file and the command line, which has the last word on a flag."""
    from kvplan.sweeping.grid import read_grid
    from kvplan.sweeping.grid_file import read_grid_file

    if path is not None:
        named, given = read_grid_file(path)
        models = models or named
        said = {name: value for name, value in flags.items() if value not in (None, False, [])}
        flags = {**given, **said}
    grid = read_grid(models, flags)
    return grid, grid.stated()


def _rows(path: str, models: list[str], flags: dict[str, Any]) -> tuple[Any, list[str]]:
    """The rows of a file, with the command line's flags for all of them."""
    from kvplan.question import BY_NAME
    from kvplan.sweeping.axes import split_list
    from kvplan.sweeping.row_file import open_rows

    if len(models) > 1:
        raise InputError("--from: the rows name their models; one MODEL may stand for all of them")
    defaults = {}
    for name, value in flags.items():
        if value in (None, False, []):
            continue
        if isinstance(value, list) and not BY_NAME[name].repeats:
            if len(value) > 1 or len(split_list(value[0], BY_NAME[name].option)) > 1:
                raise InputError(f"--from: {BY_NAME[name].option} can have one value for all rows")
            value = value[0]  # noqa: PLW2901
        defaults[name] = value
    file = open_rows(path, models[0] if models else None, defaults)
    return file, file.stated


app = new_app(sweep)
