"""The program as a person runs it: a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

COMMAND = [sys.executable, "-m", "kvplan"]


class Run(NamedTuple):
    """What a run left behind."""

    code: int
    out: str
    err: str


Kvplan = Callable[..., Run]


def environment(**more: str) -> dict[str, str]:
    """A plain terminal of 100 columns, without the network and without the tester's settings."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("KVPLAN_", "HF_", "COLUMNS"))}
    return {
        **kept,
        "HF_HUB_OFFLINE": "1",
        "COLUMNS": "100",
        "PYTHONIOENCODING": "utf-8",
        "NO_COLOR": "1",
        **more,
    }


@pytest.fixture
def kvplan(tmp_path: Path) -> Kvplan:
    """Run kvplan in an empty folder."""

    def run(*words: str, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> Run:
        done = subprocess.run(
            [*COMMAND, *words],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=60,
            env=environment(**(env or {})),
            cwd=cwd or tmp_path,
            check=False,
        )
        return Run(
            done.returncode,
            done.stdout.decode("utf-8", "surrogateescape"),
            done.stderr.decode("utf-8", "surrogateescape"),
        )

    return run
