"""How long kvplan takes to start, as ratios to a bare ``python -c pass`` in the same run.

    python benchmarks/startup.py [ROUNDS]

Commands are interleaved and the fastest of all rounds counts, so that a busy machine disturbs
every command alike. Milliseconds depend on the machine; ratios hardly do.
"""

from __future__ import annotations

import compileall
import os
import subprocess
import sys
import time

import kvplan

KVPLAN = [os.path.join(os.path.dirname(sys.executable), "kvplan")]
FIT = [*KVPLAN, "fit", "llama-7b", "--gpu", "a100-80g", "--seq", "32k"]
COMMANDS = {
    "python -c pass": ([sys.executable, "-c", "pass"], None),
    "kvplan --version": ([*KVPLAN, "--version"], 3.0),
    "kvplan --help": ([*KVPLAN, "--help"], 8.0),
    "kvplan fit --format json": ([*FIT, "--format", "json"], 10.0),
    "kvplan fit": (FIT, 13.0),
}
"""Command and the ratio aimed at."""


def main() -> None:
    """Time every command and print a table."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 25
    # An installed package is compiled; a checkout may not be.
    compileall.compile_dir(os.path.dirname(kvplan.__file__), quiet=1)
    fastest = dict.fromkeys(COMMANDS, float("inf"))
    for _ in range(rounds):
        for name, (words, _) in COMMANDS.items():
            start = time.perf_counter()
            subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
            fastest[name] = min(fastest[name], time.perf_counter() - start)
    bare = fastest["python -c pass"]
    print(f"{'command':<26}{'ms':>8}{'ratio':>8}{'aim':>8}")
    for name, seconds in fastest.items():
        aim = COMMANDS[name][1]
        shown = f"{aim:.0f}x" if aim else ""
        print(f"{name:<26}{seconds * 1000:>8.1f}{seconds / bare:>7.1f}x{shown:>8}")


if __name__ == "__main__":
    main()
