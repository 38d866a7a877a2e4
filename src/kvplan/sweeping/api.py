"""``kvplan.sweep``: the rows of a grid, for Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kvplan.sweeping.columns import choose
from kvplan.sweeping.grid import read_grid
from kvplan.sweeping.run import Job, parts


def sweep(
    models: str | Sequence[str],
    *,
    columns: str | None = None,
    where: str | None = None,
    only_valid: bool = False,
    **flags: Any,
) -> Iterator[dict[str, Any]]:
    """One dictionary a configuration, as ``kvplan sweep`` writes its rows.

    Every flag takes a value, a list, or text as on the command line: ``seq="4k..128k:x2"``.
    """
    grid = read_grid([models] if isinstance(models, str) else models, flags)
    chosen = tuple(choose(columns, grid.stated()))
    job = Job(grid, chosen, "table", None, where, only_valid)
    names = job.names
    for part in parts(job, 1):
        for block in part.blocks:
            values = [block.flat(name) for name in names]
            for row in zip(*values, strict=True):
                yield dict(zip(names, row, strict=True))
