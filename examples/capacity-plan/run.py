"""Which GPUs, and how many, for 200 users at 8k tokens on average and 32k at most?

    python examples/capacity-plan/run.py [FOLDER]

Prints the table and the conclusions of README.md. With a folder it also writes the rows behind
them (plan.csv) and, where XlsxWriter is installed, a workbook that recomputes (plan.xlsx).
"""

from __future__ import annotations

import csv
import io
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from kvplan.cli.main import run

USERS = 200
MODELS = {"llama-3.1-8b": "auto", "qwen3-32b": "fp8", "llama-3.3-70b": "fp8"}
"""Each with the format of its weights."""
GPUS = ("l40s", "h100-sxm", "h200")
COLUMNS = (
    "model,gpu,tp,weight_format,kv_cache_dtype,seq_len,mean_seq,weight_bytes,pool_bytes,"
    "headroom_bytes,mean_concurrency,max_num_seqs,verdict,limiting_term,warning_codes,error"
)


class Plan(NamedTuple):
    """One way to serve all users."""

    model: str
    gpu: str
    tp: int
    users: int
    """Sequences of the mean length that one replica holds."""
    replicas: int

    @property
    def gpus(self) -> int:
        """All of them."""
        return self.tp * self.replicas


def words(model: str, weights: str) -> list[str]:
    """The sweep of one model: one sequence of 32k must fit; how many fit goes by the mean."""
    return ["sweep", model, "--weights", weights, "--gpu", ",".join(GPUS), "--tp", "1,2,4,8",
            "--seq", "32k", "--mean-seq", "8k"]  # fmt: skip


def sweep(folder: Path) -> str:
    """All rows as CSV."""
    lines: list[str] = []
    for model, weights in MODELS.items():
        path = folder / "part.csv"
        if run([*words(model, weights), "--columns", COLUMNS, "--output", str(path)]):
            raise SystemExit(2)
        header, *rows = path.read_bytes().decode().splitlines(keepends=True)
        path.unlink()
        lines += rows if lines else [header, *rows]
    return "".join(lines)


def plans(rows: list[dict[str, str]]) -> dict[tuple[str, str], Plan]:
    """For each model and GPU the tp that needs the fewest GPUs; of equals the smallest."""
    best: dict[tuple[str, str], Plan] = {}
    for row in rows:
        if row["verdict"] not in {"fits", "tight"}:
            continue
        users = min(int(float(row["mean_concurrency"])), int(row["max_num_seqs"]))
        plan = Plan(row["model"], row["gpu"], int(row["tp"]), users, -(-USERS // users))
        key = (plan.model, plan.gpu)
        if key not in best or plan.gpus < best[key].gpus:
            best[key] = plan
    return best


def conclusions(best: dict[tuple[str, str], Plan]) -> str:
    """What the table comes to, in words."""
    said = []
    models = list(dict.fromkeys(model for model, _ in best))
    for model in models:
        found = [plan for (name, _), plan in best.items() if name == model]
        least = min(found, key=lambda plan: plan.gpus)
        most = max(found, key=lambda plan: plan.gpus)
        said.append(
            f"**{model}** is served by {least.gpus} x {least.gpu} (tp {least.tp}, "
            f"{least.replicas} replica{'s' * (least.replicas > 1)} of {least.users} users), "
            f"where {most.gpu} takes {most.gpus}."
        )
    return " ".join(said)


def main() -> None:
    """Work it out and print it."""
    with tempfile.TemporaryDirectory() as scratch:
        text = sweep(Path(scratch))
    best = plans(list(csv.DictReader(io.StringIO(text, newline=""))))
    print("| model | GPU | tp | users a replica | replicas | GPUs |")
    print("|---|---|---:|---:|---:|---:|")
    for plan in best.values():
        print(
            f"| {plan.model} | {plan.gpu} | {plan.tp} | {plan.users} | {plan.replicas} "
            f"| {plan.gpus} |"
        )
    print(f"\n{conclusions(best)}")
    if len(sys.argv) > 1:
        folder = Path(sys.argv[1])
        (folder / "plan.csv").write_bytes(text.encode())
        if find_spec("xlsxwriter") is not None:
            book = ["sweep", ",".join(MODELS), "--gpu", ",".join(GPUS), "--tp", "1,2,4,8",
                    "--seq", "8k", "--max-model-len", "32k", "--batch", str(USERS),
                    "--format", "xlsx", "--output", str(folder / "plan.xlsx")]  # fmt: skip
            if run(book):
                raise SystemExit(2)


if __name__ == "__main__":
    main()
