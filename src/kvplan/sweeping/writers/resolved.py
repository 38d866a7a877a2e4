"""The configurations of a grid, resolved once each: what a workbook's formulas start from."""

from __future__ import annotations

from typing import Any, NamedTuple

from kvplan.engines import load_engine
from kvplan.errors import KvplanError
from kvplan.planning.fitting import Bounds, Fitting, Pools
from kvplan.policy import load_policy
from kvplan.sweeping.blocks import Evaluator
from kvplan.sweeping.grid import Grid
from kvplan.sweeping.run import Job

NOTHING = Bounds(0, 0, 0, 0)


class Line(NamedTuple):
    """One configuration, resolved, or why it cannot be."""

    label: dict[str, Any]
    pools: Pools | None
    bounds: Bounds
    error: str | None


def resolved_lines(job: Job, grid: Grid) -> list[Line]:
    """Each configuration of a grid with its first length and batch."""
    evaluator = Evaluator(job.policy, [])
    min_headroom = load_policy(job.policy).min_headroom
    batch = int(str(grid.batches[0]))
    found = []
    for number in range(grid.configurations):
        configuration = grid.configuration(number)
        flags = configuration.flags
        label = {"model": configuration.model, "gpu": flags["gpu"], "tp": flags.get("tp", 1),
                 "pp": flags.get("pp", 1), "engine": flags.get("engine", "vllm"),
                 "weight_format": flags.get("weights", ""),
                 "kv_cache_dtype": flags.get("kv", "")}  # fmt: skip
        try:
            length = int(str(grid.lengths[0])) if grid.lengths is not None else None
            asked = evaluator.deployment(configuration, length)
            fitting = Fitting(load_engine(asked.engine), asked, min_headroom)
            pools = fitting.pools(asked.seq_len, batch)
        except KvplanError as error:
            found.append(Line(label, None, NOTHING, error.message))
            continue
        d = pools.resolved
        label |= {"model": d.model.name, "gpu": d.gpu.name, "tp": d.tp, "pp": d.pp,
                  "engine": f"{d.engine} {d.engine_version or ''}".strip(),
                  "weight_format": d.scheme.name, "kv_cache_dtype": d.kv.name}  # fmt: skip
        found.append(Line(label, pools, fitting.bounds(asked.seq_len, batch), None))
    return found
