"""Every command and every block of code that the documents show runs, and prints what they show."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
GOOD_CODES = {0, 1}  # 1 is an answer: it does not fit


def blocks(language: str) -> list[tuple[str, str]]:
    """Each block of a language with the name of its document."""
    found = []
    for path in DOCUMENTS:
        for kind, text in FENCE.findall(path.read_text(encoding="utf-8")):
            if kind == language:
                found.append((path.relative_to(ROOT).as_posix(), text))
    return found


def commands() -> list[tuple[str, str, list[str]]]:
    """Each ``$ kvplan …`` line with the output shown under it."""
    found = []
    for name, text in blocks("console"):
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            line, *shown = part.rstrip("\n").split("\n")
            while line.endswith("\\"):
                line = line[:-1] + shown.pop(0).strip()
            if line.startswith("kvplan "):
                found.append((name, line, shown))
    return found


@pytest.mark.parametrize(
    ("document", "line", "shown"), commands(), ids=lambda value: str(value)[:60]
)
def test_commands_print_what_is_shown(document: str, line: str, shown: list[str]) -> None:
    words = shlex.split(line, comments=True)[1:]
    done = subprocess.run(
        [sys.executable, "-m", "kvplan", *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode in GOOD_CODES, done.stderr
    printed = done.stdout.split("\n")
    for number, expected in enumerate(shown):
        if expected == "...":
            return
        assert printed[number] == expected, f"{document}: {line}"


@pytest.mark.parametrize(("document", "code"), blocks("python"), ids=lambda value: str(value)[:40])
def test_python_blocks_run(document: str, code: str) -> None:
    if document == "CONTRIBUTING.md":
        pytest.skip("fragments")
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=ROOT)


def test_the_example_prints_its_table() -> None:
    folder = ROOT / "examples" / "llama-2-70b-awq"
    done = subprocess.run(
        [sys.executable, str(folder / "run.py")], capture_output=True, text=True, check=True
    )
    assert done.stdout in (folder / "README.md").read_text(encoding="utf-8")
