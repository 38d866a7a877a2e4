"""The built wheel carries the catalogue and works from an empty folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel installed, and nothing else of the project."""
    dist = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(dist), "."]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = dist.glob("*.whl")
    target = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return target


def run(installed: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """kvplan from the wheel, in an empty folder."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "kvplan", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_fit_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    where = subprocess.run(
        [sys.executable, "-P", "-c", "import kvplan; print(kvplan.__file__)"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert where.stdout.startswith(str(installed))
    words = ("fit", "llama-7b", "--gpu", "a100-80g", "--seq", "4096", "--engine", "none")
    done = run(installed, tmp_path, *words, "--format", "json")
    assert done.returncode == 0, done.stderr
    # 4,096 tokens x 2 x 32 layers x 32 heads x 128 x 2 B
    assert json.loads(done.stdout)["kv_cache"]["logical_bytes_per_sequence"] == 2_147_483_648


@pytest.mark.slow
def test_lists_and_schema_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    for words in (("models", "list"), ("gpus", "list"), ("schema", "fit"), ("explain", "llama-7b")):
        done = run(installed, tmp_path, *words)
        assert done.returncode == 0, done.stderr
        assert done.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_wheel_is_typed_and_licensed(installed: Path) -> None:
    assert (installed / "kvplan" / "py.typed").exists()
    assert list(installed.glob("kvplan-*.dist-info/licenses/LICENSE"))
