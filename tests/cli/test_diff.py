"""``kvplan diff`` as a process: files, git revisions and baselines."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import jsonschema
import pytest
from plan_files import deployment

from .conftest import Kvplan

GIB = 1 << 30
BASE, HEAD = (deployment("seq: 32k", f"batch: {n}") for n in (8, 16))


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits: the plan in a folder, with a model beside it that changes too."""
    folder = tmp_path / "repo"
    (folder / "deploy").mkdir(parents=True)
    git(tmp_path, "init", "-q", "-b", "main", "repo")
    (folder / "README").write_text("nothing yet\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "empty")
    git(folder, "tag", "empty")
    config = {
        "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
        "max_position_embeddings": 32768, "vocab_size": 64000, "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }  # fmt: skip
    plan = deployment("seq: 8k", "batch: 8", model="../models/config.json")
    (folder / "models").mkdir()
    (folder / "models" / "config.json").write_text(json.dumps(config))
    (folder / "deploy" / "kvplan.yaml").write_text(plan)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "base")
    git(folder, "checkout", "-q", "-b", "change")
    (folder / "models" / "config.json").write_text(
        json.dumps({**config, "num_key_value_heads": 16})
    )
    git(folder, "commit", "-q", "-am", "head")
    return folder


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "base.yaml").write_text(BASE)
    (tmp_path / "head.yaml").write_text(HEAD)
    return tmp_path


def test_two_files(kvplan: Kvplan, files: Path) -> None:
    run = kvplan("diff", "base.yaml", "head.yaml", "--format", "json")
    assert (run.code, run.err) == (0, "")
    document = json.loads(run.out)
    jsonschema.validate(document, json.loads(kvplan("schema", "diff").out))
    (change,) = document["deployments"]
    kv = next(f for f in change["figures"] if f["figure"] == "kv_needed_bytes")
    assert (kv["base"], kv["head"], kv["ratio"]) == (32 * GIB, 64 * GIB, 1.0)
    assert (change["base_verdict"], change["head_verdict"]) == ("fits", "oom")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("base.yaml", "head.yaml", "--fail-on", "regression"), 1),
        (("head.yaml", "base.yaml", "--fail-on", "regression"), 0),
        (("base.yaml", "base.yaml", "--fail-on", "regression"), 0),
        (("base.yaml", "head.yaml", "--fail-on", "regression", "--tolerance", "10%"), 1),
    ],
)
def test_fail_on_regression(kvplan: Kvplan, files: Path, words: tuple[str, ...], code: int) -> None:
    assert kvplan("diff", *words).code == code


def test_tolerance_lets_a_small_change_pass(kvplan: Kvplan, files: Path) -> None:
    (files / "head.yaml").write_text(deployment("seq: 32k", "batch: 9"))
    words = ("diff", "base.yaml", "head.yaml", "--fail-on", "regression")
    assert kvplan(*words).code == 1
    more = ("--tolerance", "13%", "--tolerance", "headroom_bytes=4GiB")
    assert kvplan(*words, *more).code == 0


def test_a_baseline(kvplan: Kvplan, files: Path) -> None:
    kvplan("check", "base.yaml", "--format", "json", "--output", "baseline.json", "--no-github")
    run = kvplan("diff", "--baseline", "baseline.json", "head.yaml", "--format", "markdown")
    assert run.code == 0
    assert "| `chat` | verdict | fits | oom | changed | ❌ |" in run.out
    assert "| 32.00 GiB | 64.00 GiB | +32.00 GiB (+100.0 %) | ❌ |" in run.out
    assert kvplan("diff", "baseline.json", "head.yaml", "--format", "markdown").out == run.out


def test_revisions_read_the_files_of_their_own(kvplan: Kvplan, repository: Path) -> None:
    run = kvplan("diff", "main", "HEAD", "--file", "deploy/kvplan.yaml", "-f", "json",
                 cwd=repository)  # fmt: skip
    assert (run.code, run.err) == (0, "")
    (change,) = json.loads(run.out)["deployments"]
    token = next(f for f in change["figures"] if f["figure"] == "kv_bytes_per_token")
    # 2 x 32 layers x heads x 128 x 2 bytes, with 8 heads and then 16
    assert (token["base"], token["head"], token["regression"]) == (131_072, 262_144, True)


def test_a_revision_against_the_work_tree(kvplan: Kvplan, repository: Path) -> None:
    plan = repository / "deploy" / "kvplan.yaml"
    run = kvplan("diff", "HEAD", str(plan), "-f", "json", "--file", "deploy/kvplan.yaml",
                 cwd=repository)  # fmt: skip
    assert run.code == 2  # with --file both are revisions
    run = kvplan("diff", "HEAD", "kvplan.yaml", "-f", "json", cwd=repository / "deploy")
    assert run.code == 0
    assert [c["change"] for c in json.loads(run.out)["deployments"]] == ["same"]


def test_a_base_without_the_plan_makes_everything_new(kvplan: Kvplan, repository: Path) -> None:
    words = ("--file", "deploy/kvplan.yaml", "-f", "json")
    run = kvplan("diff", "empty", "main", *words, cwd=repository)
    assert (run.code, "empty has no deploy/kvplan.yaml" in run.err) == (0, True)
    assert [c["change"] for c in json.loads(run.out)["deployments"]] == ["added"]
    gone = kvplan("diff", "main", "empty", *words, cwd=repository)
    assert (gone.code, "empty has no deploy/kvplan.yaml" in gone.err) == (2, True)


def test_nothing_of_a_temporary_folder_is_shown(kvplan: Kvplan, repository: Path) -> None:
    (repository / "models" / "config.json").write_text('{"model_type": "zebra"}')
    git(repository, "commit", "-q", "-am", "broken")
    words = ("diff", "main", "HEAD", "--file", "deploy/kvplan.yaml")
    first, second = (kvplan(*words, cwd=repository) for _ in range(2))
    assert first == second
    assert first.code == 2
    assert "HEAD, line 4: models/config.json: model_type = 'zebra'" in first.out


@pytest.mark.parametrize(
    "revision",
    ["--output=/tmp/kvplan-injected", "-h", "--upload-pack=touch /tmp/x", "main:deploy", "no such",
     "main..HEAD", "", "a\nb", "$(touch x)", "HEAD^{tree}"],
)  # fmt: skip
def test_a_revision_is_never_an_option(kvplan: Kvplan, repository: Path, revision: str) -> None:
    run = kvplan("diff", "--file", "deploy/kvplan.yaml", "--", revision, "HEAD", cwd=repository)
    assert (run.code, run.out) == (2, "")
    assert "git revision" in run.err
    assert not Path("/tmp/kvplan-injected").exists()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "a difference needs BASE and HEAD"),
        (("base.yaml",), "a difference needs BASE and HEAD"),
        (("base.yaml", "head.yaml", "--baseline", "x.json"), "--baseline takes BASE's place"),
        (("--baseline", "base.yaml", "head.yaml"), "base.yaml: is not valid JSON"),
        (("base.yaml", "no-such-branch"), "is not in a git repository"),
        (("base.yaml", "head.yaml", "--fail-on", "warn"), "--fail-on 'warn'"),
        (("base.yaml", "head.yaml", "--tolerance", "2"), "--tolerance '2' is not"),
        (("base.yaml", "head.yaml", "--format", "csv"), "--format 'csv'"),
    ],
)
def test_usage_errors(kvplan: Kvplan, files: Path, words: tuple[str, ...], why: str) -> None:
    run = kvplan("diff", *words)
    assert (run.code, run.out) == (2, "")
    assert why in run.err
