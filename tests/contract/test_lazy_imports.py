"""Heavy packages are loaded only by what needs them."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"numpy", "pydantic", "yaml", "rich"}
PROGRAM = """
import sys
sys.argv = ["kvplan", *{words!r}]
from kvplan.cli.main import entry
try:
    entry()
except SystemExit as stop:
    code = stop.code
sys.stderr.write("|%s|%s" % (code, ",".join(sorted({{m.split(".")[0] for m in sys.modules}}))))
"""


def loaded(*words: str) -> tuple[str, set[str]]:
    """The exit code of a command line, and the packages that running it has loaded."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(words=list(words))],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    code, modules = done.stderr.rsplit("|", 2)[1:]
    return code, set(modules.split(","))


FIT = ("fit", "llama-3.1-8b", "--gpu", "h100", "--seq", "8k", "--format", "json")


@pytest.mark.parametrize(
    "words",
    [("--version",), ("--help",), ("fit", "--help"), FIT, (*FIT, "--engine", "none")],
    ids=lambda words: " ".join(words[:2] + words[-1:]),
)
def test_command_loads_no_heavy_package(words: tuple[str, ...]) -> None:
    code, modules = loaded(*words)
    assert code == "0"
    assert modules.isdisjoint(HEAVY)
    assert "kvplan" in modules


def test_version_does_not_even_load_the_command_line_library() -> None:
    code, modules = loaded("--version")
    assert code == "0"
    assert "typer" not in modules


def test_importing_the_package_loads_next_to_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import kvplan, sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    ours = {name for name in done.stdout.split() if name.startswith("kvplan")}
    assert ours == {"kvplan"}


def test_this_test_would_notice() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import yaml, sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "yaml" in done.stdout.split()
