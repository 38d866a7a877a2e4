"""The capacity-plan example says what its script finds."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "examples" / "capacity-plan"


def test_table_rows_and_conclusions(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(FOLDER / "run.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout in (FOLDER / "README.md").read_text(encoding="utf-8")
    assert (tmp_path / "plan.csv").read_bytes() == (FOLDER / "plan.csv").read_bytes()
    if find_spec("xlsxwriter") is not None:
        assert zipfile.is_zipfile(tmp_path / "plan.xlsx")
