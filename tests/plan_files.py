"""Plans for tests."""

from __future__ import annotations

from pathlib import Path

from kvplan.checking.report import CheckReport, DeploymentResult
from kvplan.checking.run import check

CHAT = """\
version: 1
defaults: {engine: vllm, budgets: {fits: true, max_kv_fraction: {value: 0.6, level: warn}}}
deployments:
  - name: chat
    model: llama-3.1-8b
    gpu: h100-sxm
    seq: 32k
    batch: 8
    budgets: {min_concurrency: 4}
"""


def checked(folder: Path, text: str, **settings: str) -> CheckReport:
    """The report of a plan in ``folder``."""
    path = folder / "kvplan.yaml"
    path.write_text(text, encoding="utf-8")
    return check([str(path)], **settings)


def only(report: CheckReport) -> DeploymentResult:
    """The one deployment of the one file."""
    ((deployment,),) = [file.deployments for file in report.files]
    return deployment


def deployment(*lines: str, gpu: str = "h100-sxm", model: str = "llama-3.1-8b") -> str:
    """A plan of one deployment with further lines, which begin at line 6."""
    head = ["version: 1", "deployments:", "  - name: chat"]
    head += [f"    model: {model}", f"    gpu: {gpu}"]
    return "\n".join([*head, *(f"    {line}" for line in lines)]) + "\n"
