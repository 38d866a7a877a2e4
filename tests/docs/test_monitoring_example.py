"""The monitoring example is what the program writes, and shows the alert that it says it shows."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_tools import check, tool

from kvplan.monitoring.alerts import ALERTS

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "monitoring"
DEPLOYMENT = re.search(r'^deployment="(.*)"$', (FOLDER / "make.sh").read_text(), re.MULTILINE)


def written(what: str) -> str:
    assert DEPLOYMENT is not None
    words = [sys.executable, "-m", "kvplan", "monitor", what, *DEPLOYMENT[1].split()]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def test_the_files_are_what_the_program_writes() -> None:
    assert (FOLDER / "rules.yml").read_text() == written("rules")
    assert json.loads((FOLDER / "dashboard.json").read_text()) == json.loads(written("dashboard"))


def test_promtool_accepts_them(tmp_path: Path) -> None:
    check((FOLDER / "rules.yml").read_text(), tmp_path)
    config = [tool("promtool"), "check", "config", "--syntax-only", str(FOLDER / "prometheus.yml")]
    assert subprocess.run(config, capture_output=True, check=False).returncode == 0


@pytest.mark.slow
def test_the_script_shows_what_its_readme_shows() -> None:
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed: apt-get install prometheus")
    done = subprocess.run(
        [sys.executable, str(FOLDER / "run.py")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout in (FOLDER / "README.md").read_text()


def test_every_alert_has_its_section() -> None:
    headings = re.findall(r"^## (\w+)$", (ROOT / "docs" / "runbook.md").read_text(), re.MULTILINE)
    assert headings == list(ALERTS)
