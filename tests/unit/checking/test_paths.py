"""A plan names files below its root only."""

from __future__ import annotations

from pathlib import Path

import pytest
from plan_files import checked, deployment, only

from kvplan.checking.paths import Folder, shown
from kvplan.errors import InputError


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a plan in a folder, and a secret outside."""
    (tmp_path / "secret.json").write_text('{"model_type": "secret"}')
    repo = tmp_path / "repo"
    (repo / ".git").mkdir(parents=True)
    (repo / "deploy").mkdir()
    (repo / "models").mkdir()
    return repo


def test_paths_go_up_to_the_repository_and_no_further(repository: Path) -> None:
    folder = Folder(str(repository / "deploy" / "kvplan.yaml"))
    assert folder.resolve("../models/x.json", "model") == str(repository / "models" / "x.json")
    assert folder.resolve(str(repository / "a.json"), "model") == str(repository / "a.json")
    for path in ("../../secret.json", "/etc/passwd", str(repository.parent / "repository2")):
        with pytest.raises(InputError, match="leads out of"):
            folder.resolve(path, "model")
    with pytest.raises(InputError, match="NUL"):
        folder.resolve("a\0b", "model")


def test_links_do_not_lead_out(repository: Path) -> None:
    (repository / "deploy" / "link.json").symlink_to(repository.parent / "secret.json")
    (repository / "deploy" / "out").symlink_to(repository.parent)
    folder = Folder(str(repository / "deploy" / "kvplan.yaml"))
    for path in ("link.json", "out/secret.json"):
        with pytest.raises(InputError, match="leads out of"):
            folder.resolve(path, "model")


def test_without_a_repository_the_root_is_the_plans_folder(tmp_path: Path) -> None:
    # pytest's folders are in no repository
    folder = Folder(str(tmp_path / "a" / "kvplan.yaml"))
    with pytest.raises(InputError, match="leads out of"):
        folder.resolve("../x.json", "model")
    wider = Folder(str(tmp_path / "a" / "kvplan.yaml"), str(tmp_path))
    assert wider.resolve("../x.json", "model") == str(tmp_path / "x.json")


@pytest.mark.parametrize("key", ["model", "gpu", "from", "policy"])
def test_every_key_that_takes_a_path_is_confined(repository: Path, key: str) -> None:
    outside = "../../secret.yaml"
    plan = deployment("seq: 8k")
    if key == "policy":
        plan = f"policy: {outside}\n" + plan
    elif key == "from":
        plan = plan.replace("model: llama-3.1-8b", f"from: {outside}")
    else:
        plan = deployment("seq: 8k", **{key: outside})
    report = checked(repository / "deploy", plan)
    fault = report.files[0].faults[0] if key == "policy" else only(report).fault
    assert fault is not None
    assert "leads out of" in fault.message


def test_names_in_reports_are_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert shown(str(tmp_path / "a" / "kvplan.yaml")) == "a/kvplan.yaml"
    assert shown("./kvplan.yaml") == "kvplan.yaml"
    assert shown("/etc/x.yaml") == "/etc/x.yaml"
