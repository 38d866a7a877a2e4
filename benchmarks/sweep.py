"""How fast a sweep is: rates and ratios from one run on one core.

    python benchmarks/sweep.py [MILLIONS]

* configurations a second: rows evaluated in all columns, limits included, without writing;
* the ratio to a formula for this one plain model, written by hand with NumPy over the same blocks
  (lengths by batches, broadcast), which knows nothing of engines, stages or other caches. Each
  block costs kvplan about 0.3 ms besides its rows: the smaller ones are those of the writers;
* the ratio to the scalar path, one ``judge`` with its limits a row, as ``kvplan fit`` does;
* configurations that share nothing: every row its own GPU, tp, format and utilisation;
* rows of CSV a second, evaluated and written;
* the memory of a process that writes that many million rows (10 unless told).

Ratios hardly depend on the machine; rates do.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from kvplan.planning.fit import judge
from kvplan.planning.limits import max_batch, max_seq_len
from kvplan.planning.sweep import LoadSweep
from kvplan.policy import load_policy
from kvplan.question import build_deployment
from kvplan.sweeping.columns import choose
from kvplan.sweeping.grid import read_grid
from kvplan.sweeping.run import Job, parts

LENGTHS = np.arange(1, 2001) * 512
BATCHES = np.arange(1, 501)[None, :]
BLOCKS = (128, 32)
ROUNDS = 5
PEAK = """
import resource, sys
from kvplan.cli.main import run
code = run(sys.argv[1:])
print(code, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def by_hand(block: int, page: int, pool_blocks: int, pool: int, usable: int, careful: int) -> None:
    """The varying columns of a model whose cache is one row of blocks of 16 tokens."""
    available = (pool_blocks - 1) * page
    careful_available = (careful // page - 1) * page
    for start in range(0, LENGTHS.size, block):
        seq = LENGTHS[start : start + block, None]
        blocks = -(-seq // 16)
        reserved = blocks * page
        needed = reserved * BATCHES
        headroom = available - needed
        severity = np.zeros(needed.shape, dtype=np.int8)
        severity[headroom < 0.05 * usable] = 1
        severity[needed > careful_available] = 1
        severity[needed > available] = 2
        term = np.where(severity == 2, 1, severity)
        share, use = needed / usable, needed / pool
        concurrency = pool_blocks / blocks
        tokens = (concurrency * seq).astype(np.int64)
        waste = BATCHES * page * 15 // 32
        most = available // reserved
        longest = available // BATCHES // page * 16
        beyond = seq > 131_072
        warns = (needed > 0.6 * usable) & (severity < 2) | beyond
        if (share, use, term, tokens, waste, most, longest, warns) is None:
            raise AssertionError


def by_sweep(block: int, sweep: LoadSweep) -> int:
    """The same rows by kvplan."""
    rows = 0
    for start in range(0, LENGTHS.size, block):
        for piece in sweep.pieces(LENGTHS[start : start + block, None], BATCHES):
            rows += piece.rows.size * piece.columns.size
    return rows


def fastest(call: Callable[[], Any], rounds: int = ROUNDS) -> float:
    """Seconds of the fastest round."""
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    """Measure and print."""
    policy = load_policy()
    asked = build_deployment("llama-3.1-8b", gpu="h100-sxm", seq=1024)
    _, budget = judge(asked, policy)
    rows = LENGTHS.size * BATCHES.size
    page = budget.layout.block_bytes or 1
    facts = (page, budget.pool_bytes // page, budget.pool_bytes, asked.usable_bytes,
             budget.careful_pool_bytes)  # fmt: skip
    ours = 0.0
    for block in reversed(BLOCKS):
        size = block * BATCHES.size
        hand = fastest(lambda: by_hand(block, *facts))  # noqa: B023
        ours = fastest(lambda: by_sweep(block, LoadSweep(asked, policy)))  # noqa: B023
        print(f"in blocks of {size:,} rows, on one core")
        print(f"  configurations/s               {rows / ours:>14,.0f}")
        print(f"  formula by hand, rows/s        {rows / hand:>14,.0f}")
        print(f"  time of kvplan / by hand       {ours / hand:>14.2f}   (aim: at most 3)")

    def one_by_one() -> None:
        for seq, batch in product((1024, 8192, 65_536, 262_144), (1, 8, 64, 500)):
            question, found = judge(asked._replace(seq_len=seq, batch=batch), policy)
            max_batch(question, found)
            max_seq_len(question, found)

    scalar = fastest(one_by_one) / 16
    print(f"scalar path, rows/s              {1 / scalar:>14,.0f}")
    print(f"  kvplan sweep / scalar path     {scalar * rows / ours:>14,.0f} times as fast")

    columns = tuple(choose(None, ()))
    unlike = read_grid(
        ["llama-3.1-8b,gemma-3-27b"],
        {"gpu": ["h100-sxm,l40s,h200"], "tp": ["1,2,4"], "kv": ["auto,fp8"],
         "gpu_memory_utilization": ["0.8..0.95:0.005"], "seq": ["8k"]},
    )  # fmt: skip
    seconds = fastest(lambda: list(parts(Job(unlike, columns, "csv"), 1)), 2)
    print(f"unlike configurations/s          {unlike.rows / seconds:>14,.0f}")

    grid = read_grid(["llama-3.1-8b"], {"gpu": ["h100-sxm"], "seq": ["512..400k:512"],
                                        "batch": ["1..500"]})  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.csv")

        def write() -> None:
            with open(path, "wb") as file:
                for part in parts(Job(grid, columns, "csv"), 1):
                    file.write(part.data)

        seconds = fastest(write, 2)
        print(f"CSV rows/s, {len(columns)} columns         {grid.rows / seconds:>14,.0f}"
              "   (aim: 150,000)")  # fmt: skip
    millions = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    words = ["sweep", "llama-3.1-8b", "--gpu", "h100-sxm", "--seq", f"100..{millions}00000:100",
             "--batch", "1..1000", "--jobs", "1", "--output", os.devnull]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", PEAK, *words], capture_output=True, text=True, check=True
    )
    code, kib = done.stdout.split()
    print(f"peak memory, {millions} million rows     {int(kib) / 1024:>10,.0f} MiB   (aim: 400)")
    if code != "0":
        raise SystemExit(done.stderr)


if __name__ == "__main__":
    main()
