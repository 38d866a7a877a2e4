"""How the time of ``kvplan check`` grows with the plan: a hundred deployments against one.

    python benchmarks/check.py [ROUNDS]

Both run as processes of their own, interleaved, and the fastest of all rounds counts. The hundred
differ in model, GPU, context and batch, so that nothing but the profiles can be shared.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

AIM = 3.0
KVPLAN = [os.path.join(os.path.dirname(sys.executable), "kvplan")]
MODELS = ("llama-3.1-8b", "llama-3.1-70b", "qwen3-32b", "gemma-3-27b", "mixtral-8x7b")
GPUS = (("h100-sxm", 4), ("h200-sxm", 2), ("a100-80g-sxm", 4), ("b200-sxm", 1))


def plan(count: int) -> str:
    """A plan of that many different deployments."""
    lines = [
        "version: 1",
        "defaults:",
        "  budgets: {fits: {value: true, level: warn}, max_kv_fraction: {level: warn}}",
        "deployments:",
    ]
    for number in range(count):
        model = MODELS[number % len(MODELS)]
        gpu, tp = GPUS[number // len(MODELS) % len(GPUS)]
        lines += [
            f"  - name: deployment-{number}",
            f"    model: {model}",
            f"    gpu: {gpu}",
            f"    tp: {tp}",
            f"    seq: {4096 + 64 * number}",
            f"    batch: {1 + number % 7}",
            "    budgets: {min_concurrency: {value: 1, level: warn}}",
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Time both plans and print the ratio."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    with tempfile.TemporaryDirectory() as folder:
        paths = {}
        for count in (1, 100):
            paths[count] = os.path.join(folder, f"kvplan-{count}.yaml")
            Path(paths[count]).write_text(plan(count), encoding="utf-8")
        fastest = dict.fromkeys(paths, float("inf"))
        for _ in range(rounds):
            for count, path in paths.items():
                start = time.perf_counter()
                subprocess.run(
                    [*KVPLAN, "check", path, "--format", "json", "--no-github"],
                    stdout=subprocess.DEVNULL,
                    check=True,
                )
                fastest[count] = min(fastest[count], time.perf_counter() - start)
    ratio = fastest[100] / fastest[1]
    print(f"{'deployments':>11}{'ms':>9}{'ratio':>8}{'aim':>7}")
    print(f"{1:>11}{fastest[1] * 1000:>9.1f}{'':>8}{'':>7}")
    print(f"{100:>11}{fastest[100] * 1000:>9.1f}{ratio:>7.2f}x{AIM:>6.0f}x")


if __name__ == "__main__":
    main()
