"""The result of a check as plain data: what ``--format json`` prints, key for key.

The docstring under each field is its description in ``kvplan schema check-report``.
"""

from __future__ import annotations

from enum import StrEnum

from kvplan.planning.report import DeploymentReport, Record, Verdict

SCHEMA = "kvplan.check/1"


class Status(StrEnum):
    """How a budget, a deployment or a file came out."""

    PASSED = "passed"
    WARNED = "warned"
    FAILED = "failed"
    ERROR = "error"
    """Not understood or not known: never a pass."""
    OFF = "off"


SEVERITY = (Status.OFF, Status.PASSED, Status.WARNED, Status.FAILED, Status.ERROR)
"""From harmless to grave: a whole is as grave as its gravest part."""


class Figures(Record):
    """What budgets are held against; bytes are per GPU."""

    fits: bool
    verdict: Verdict
    limiting_term: str
    gpu_count: int
    seq_len: int
    batch: int
    usable_bytes: int | None
    """GPU memory as the framework sees it, less what others hold."""
    weight_bytes: int | None
    kv_pool_bytes: int | None
    kv_needed_bytes: int
    """For the whole batch of one replica."""
    headroom_bytes: int | None
    """Usable part of the pool less what is needed; negative when it does not fit."""
    kv_share: float | None
    """KV needed over usable GPU memory."""
    pool_use: float | None
    """KV needed over the pool."""
    kv_bytes_per_token: int
    kv_bytes_per_sequence: int
    """What the engine sets aside for a sequence of seq_len tokens."""
    concurrency: float
    """Sequences of seq_len tokens that run at once, over all replicas: the pool's room, at most
    max_num_seqs."""
    mean_concurrency: float | None
    max_batch: int
    max_seq_len: int
    """0 when no length fits."""


class BudgetResult(Record):
    """One budget of one deployment."""

    budget: str
    rule: str
    level: str
    """error, warn or off."""
    status: Status
    need: int | float | bool | None
    have: int | float | bool | None
    margin: int | float | None
    """What is to spare; negative: what is missing."""
    unit: str
    """bytes, tokens, share, GPUs, sequences; empty for yes and no."""
    message: str
    line: int
    """Where the budget is stated; the deployment's line where it stands by default."""
    column: int


class Fault(Record):
    """Something that is not understood."""

    message: str
    hint: str | None
    line: int
    column: int


class DeploymentResult(Record):
    """One deployment; of a matrix, one combination."""

    name: str
    line: int
    column: int
    status: Status
    fault: Fault | None
    """Why it could not be judged; null when it was."""
    reason: str | None
    """The verdict in one sentence with its figures."""
    deployment: DeploymentReport | None
    figures: Figures | None
    budgets: list[BudgetResult]
    warnings: list[str]
    assumptions: list[str]


class FileResult(Record):
    """One plan file."""

    path: str
    status: Status
    faults: list[Fault]
    """What is wrong with the file itself."""
    deployments: list[DeploymentResult]


class Summary(Record):
    """How many budgets came out how."""

    files: int
    deployments: int
    passed: int
    warned: int
    failed: int
    errors: int
    """Budgets whose figure is not known, and everything that was not understood."""
    off: int


class CheckReport(Record):
    """Everything that one run of ``kvplan check`` says."""

    schema: str
    kvplan_version: str
    status: Status
    fail_on: str
    """error, or warn when budgets of level warn fail the check too."""
    summary: Summary
    files: list[FileResult]


def gravest(statuses: list[Status]) -> Status:
    """The status of a whole; passed when there is nothing to say."""
    return max([Status.PASSED, *statuses], key=SEVERITY.index)
