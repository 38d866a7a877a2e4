"""The homes of ``kvplan check`` run as far as they can without their service.

The hooks run through pre-commit itself, the action's and the template's steps through the shell
that would run them, and every CI file is held against its service's own schema.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import check_jsonschema
import jsonschema
import pytest
import yaml
from plan_files import CHAT

from .conftest import environment

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "ci"
BIN = Path(sys.executable).parent
VENDORED = Path(check_jsonschema.__file__).parent / "builtin_schemas" / "vendor"


def load(path: Path) -> dict[str, Any]:
    # BaseLoader: "on" stays a word
    document: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    return document


@pytest.mark.parametrize(
    ("path", "schema"),
    [
        (ROOT / "action.yml", "github-actions"),
        (EXAMPLE / ".github" / "workflows" / "kvplan.yml", "github-workflows"),
        (ROOT / "ci" / "gitlab" / "kvplan.gitlab-ci.yml", "gitlab-ci"),
        (EXAMPLE / ".gitlab-ci.yml", "gitlab-ci"),
    ],
    ids=lambda value: str(value).rsplit("/", 1)[-1],
)
def test_ci_files_keep_their_services_schema(path: Path, schema: str) -> None:
    form = json.loads((VENDORED / f"{schema}.json").read_text(encoding="utf-8"))
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    document = {("on" if key is True else key): value for key, value in document.items()}
    jsonschema.Draft7Validator(form).validate(document)


def run(words: list[str], folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(BIN), os.environ["PATH"]])
    plain = {k: v for k, v in environment().items() if not k.startswith(("GITHUB_", "GIT_"))}
    return subprocess.run(
        words,
        cwd=folder,
        env={**plain, "PATH": path, **more},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    done = run(["git", *who, *words], folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a passing plan on main, and a failing one on the branch."""
    folder = tmp_path / "repo"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "kvplan.yaml").write_text(CHAT)
    (folder / "other.yaml").write_text("a: 1\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "base")
    git(folder, "checkout", "-q", "-b", "change")
    (folder / "kvplan.yaml").write_text(CHAT.replace("batch: 8", "batch: 26"))
    git(folder, "commit", "-q", "-am", "head")
    return folder


# --- pre-commit


@pytest.fixture
def hooked(repository: Path, tmp_path: Path) -> Path:
    """The repository with kvplan's hooks, taken from a repository of their own.

    The hooks run the kvplan that is installed (``language: system``), so that nothing is
    downloaded; all else is as published.
    """
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    git(hooks, "init", "-q", "-b", "main")
    shutil.copy(ROOT / ".pre-commit-hooks.yaml", hooks)
    git(hooks, "add", "-A")
    git(hooks, "commit", "-q", "-m", "hooks")
    config = {
        "repos": [
            {
                "repo": str(hooks),
                "rev": git(hooks, "rev-parse", "HEAD"),
                "hooks": [
                    {"id": "kvplan-check", "language": "system"},
                    {"id": "kvplan-check-all", "language": "system"},
                ],
            }
        ]
    }
    (repository / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    git(repository, "add", "-A")
    return repository


def pre_commit(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    home = folder.parent / "pre-commit-home"
    return run([str(BIN / "pre-commit"), *words], folder, PRE_COMMIT_HOME=str(home))


def test_the_hooks_are_a_valid_manifest(repository: Path) -> None:
    done = pre_commit(repository, "validate-manifest", str(ROOT / ".pre-commit-hooks.yaml"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_hook_checks_changed_plans(hooked: Path) -> None:
    done = pre_commit(hooked, "run", "kvplan-check", "--all-files")
    assert done.returncode == 1
    assert "fits: 104.00 GiB of KV cache for 26 x 32,768 tokens" in done.stdout
    (hooked / "kvplan.yaml").write_text(CHAT)
    done = pre_commit(hooked, "run", "kvplan-check", "--all-files")
    assert (done.returncode, "Passed" in done.stdout) == (0, True), done.stdout
    skipped = pre_commit(hooked, "run", "kvplan-check", "--files", "other.yaml")
    assert "no files to check" in skipped.stdout


def test_the_other_hook_checks_whatever_changes(hooked: Path) -> None:
    done = pre_commit(hooked, "run", "kvplan-check-all", "--files", "other.yaml")
    assert (done.returncode, "fits: 104.00 GiB" in done.stdout) == (1, True), done.stdout


def test_the_examples_hook_is_one_of_ours() -> None:
    ours = {hook["id"] for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
    config = load(EXAMPLE / ".pre-commit-config.yaml")
    assert {hook["id"] for repo in config["repos"] for hook in repo["hooks"]} <= ours


# --- GitHub


def act(folder: Path, temp: Path, **inputs: str) -> tuple[int, dict[str, str], str]:
    """Run the action's steps as the runner would: exit code, outputs, everything printed.

    Only the installation is replaced: the step's venv has the kvplan under test.
    """
    action = load(ROOT / "action.yml")
    given = {name: field["default"] for name, field in action["inputs"].items()}
    given |= {name.replace("_", "-"): value for name, value in inputs.items()}
    temp.mkdir()
    (temp / "kvplan-venv" / "bin").mkdir(parents=True)
    (temp / "kvplan-venv" / "bin" / "kvplan").symlink_to(BIN / "kvplan")
    output, summary = temp / "output", temp / "summary"
    printed, code = "", 0
    for step in action["runs"]["steps"]:
        assert step["shell"] == "bash"
        assert "${{" not in step["run"], "inputs reach a script by its environment only"
        if step["name"] == "Install kvplan":
            continue
        if "if" in step and not given[re.findall(r"inputs\.([\w-]+) != ''", step["if"])[0]]:
            continue
        settings = {
            name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda m: given[m[1]], value)
            for name, value in step.get("env", {}).items()
        }
        done = run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            folder,
            GITHUB_ACTIONS="true",
            GITHUB_OUTPUT=str(output),
            GITHUB_STEP_SUMMARY=str(summary),
            RUNNER_TEMP=str(temp),
            **settings,
        )
        printed += done.stdout + done.stderr
        if done.returncode:
            code = done.returncode
            break
    plain = re.findall(r"^([\w-]+)=(.*)$", output.read_text(), re.MULTILINE)
    return code, {**dict(plain), "summary": summary.read_text()}, printed


def test_the_action_on_a_failing_change(repository: Path, tmp_path: Path) -> None:
    code, outputs, printed = act(
        repository, tmp_path / "temp", base="main", sarif="kvplan.sarif", junit="kvplan.xml"
    )
    assert code == 1
    assert (outputs["status"], outputs["failed"]) == ("failed", "1")
    assert "::error file=kvplan.yaml,line=2,col=36,title=kvplan%3A chat::fits: " in printed
    assert "1 deployment: 1 passed, 1 warning, 1 failed" in printed
    assert json.loads((repository / "kvplan.sarif").read_text())["version"] == "2.1.0"
    assert (repository / "kvplan.xml").exists()
    comment = Path(outputs["comment-file"]).read_text()
    assert comment.startswith("## kvplan: `main` → `HEAD`")
    assert "| 32.00 GiB | 104.00 GiB | +72.00 GiB (+225.0 %) | ❌ |" in comment
    assert "## kvplan check: ❌ failed" in comment
    assert outputs["summary"].count("## kvplan") == 2


def test_the_action_on_a_good_plan(repository: Path, tmp_path: Path) -> None:
    git(repository, "checkout", "-q", "main")
    code, outputs, printed = act(repository, tmp_path / "temp")
    assert (code, outputs["status"], outputs["passed"]) == (0, "passed", "3"), printed


def test_the_action_takes_names_as_they_are(repository: Path, tmp_path: Path) -> None:
    """Neither a file's name nor a revision is ever run or taken for an option."""
    names = "$(touch injected).yaml\n--output=injected\n`touch injected`"
    code, outputs, _ = act(repository, tmp_path / "temp", files=names, base="--output=injected")
    assert (code, outputs["status"]) == (2, "error")
    assert not (repository / "injected").exists()


def test_the_actions_outputs_are_those_that_are_written(repository: Path, tmp_path: Path) -> None:
    _, outputs, _ = act(repository, tmp_path / "temp")
    action = load(ROOT / "action.yml")
    wanted = {
        re.findall(r"outputs\.([\w-]+)", field["value"])[0] for field in action["outputs"].values()
    }
    assert wanted - {"comment"} <= set(outputs)
    assert "comment<<kvplan-" in (tmp_path / "temp" / "output").read_text()


def test_the_example_workflow_uses_inputs_and_outputs_that_exist() -> None:
    action = load(ROOT / "action.yml")
    text = (EXAMPLE / ".github" / "workflows" / "kvplan.yml").read_text()
    (job,) = yaml.safe_load(text)["jobs"].values()
    (step,) = [step for step in job["steps"] if step.get("id") == "kvplan"]
    assert set(step["with"]) <= set(action["inputs"])
    assert set(re.findall(r"steps\.kvplan\.outputs\.([\w-]+)", text)) <= set(action["outputs"])


# --- GitLab


def gitlab(folder: Path, tools: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the template's script as a runner does, with an installation that does nothing."""
    job = load(ROOT / "ci" / "gitlab" / "kvplan.gitlab-ci.yml")[".kvplan"]
    tools.mkdir()
    (tools / "python").write_text("#!/bin/sh\nexit 0\n")
    (tools / "python").chmod(0o755)
    script = "set -e\n" + "\n".join(job["script"])
    path = os.pathsep.join([str(tools), str(BIN), os.environ["PATH"]])
    return run(["bash", "-c", script], folder, **{**job["variables"], **variables, "PATH": path})


def test_the_gitlab_template(repository: Path, tmp_path: Path) -> None:
    done = gitlab(repository, tmp_path / "tools", KVPLAN_BASE="main")
    assert done.returncode == 1, done.stderr
    assert "1 passed, 1 warning, 1 failed" in done.stdout
    for name in ("kvplan-junit.xml", "kvplan.md", "kvplan-diff.md"):
        assert (repository / name).exists(), name


def test_the_gitlab_template_on_a_good_plan(repository: Path, tmp_path: Path) -> None:
    git(repository, "checkout", "-q", "main")
    done = gitlab(repository, tmp_path / "tools", KVPLAN_FILES="kvplan.yaml kvplan.yaml")
    assert (done.returncode, (repository / "kvplan-diff.md").exists()) == (0, False), done.stderr
    assert "2 deployments: 6 passed" in done.stdout
