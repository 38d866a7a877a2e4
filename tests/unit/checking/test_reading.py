"""The strict form of kvplan.yaml: a fault in each field gives its line."""

from __future__ import annotations

import pytest

from kvplan.checking.plan import Plan, Problem
from kvplan.checking.reading import read_plan
from kvplan.question import FLAGS

HEAD = "version: 1\ndeployments:\n  - name: a\n    model: llama-3.1-8b\n    gpu: h100-sxm\n"


def problems(plan: Plan) -> list[Problem]:
    return [*plan.problems, *(p for d in plan.deployments for p in d.problems)]


def read(text: str) -> Plan:
    return read_plan(text, "kvplan.yaml")


def test_a_good_plan() -> None:
    plan = read(
        "version: 1\n"
        "policy: policy.yaml\n"
        "defaults: {gpu: h100-sxm, seq: 8k, budgets: {fits: true, max_gpus: 8}}\n"
        "deployments:\n"
        "  - {name: a, model: llama-3.1-8b, seq: [4k, 32k], enforce_eager: yes}\n"
        "  - name: b\n"
        "    model: x/config.json\n"
        "    kv_cache_dtype: fp8\n"
        "    set: {num_kv_heads: 4}\n"
        "    budgets: {max_gpus: {value: 2, level: off}, min_headroom: {level: warn}}\n"
    )
    assert problems(plan) == []
    assert plan.policy is not None
    assert plan.policy[0] == "policy.yaml"
    a, b = plan.deployments
    assert [c.value for c in a.flags["seq"].choices] == ["4k", "32k"]
    assert (a.flags["seq"].is_default, a.flags["gpu"].is_default) == (False, True)
    assert a.flags["enforce_eager"].choices[0].value is True
    assert b.flags["kv"].choices[0].value == "fp8"
    assert b.flags["set"].choices[0].value == ("num_kv_heads=4",)
    assert {n: (s.text, s.level) for n, s in b.budgets.items()} == {
        "fits": ("true", "error"),
        "max_gpus": ("2", "off"),
        "min_headroom": (None, "warn"),
    }


@pytest.mark.parametrize(
    ("text", "line", "column", "message", "hint"),
    [
        ("", 1, 1, "the plan is empty", "version: 1"),
        ("- a\n", 1, 1, "the plan holds a list", ""),
        ("a: 1\n---\nb: 2\n", 3, 1, "several documents", ""),
        ("deployments: []\n", 1, 1, "version is missing", "Write: version: 1"),
        ("version: 2\ndeployments: [{name: a, model: b, gpu: c}]\n", 1, 10, "version '2'", "1."),
        ("version: 1\n", 1, 1, "deployments is missing", ""),
        ("version: 1\ndeployments: []\n", 2, 14, "deployments should be a list", ""),
        ("version: 1\nversions: 1\ndeployments: []\n", 2, 1, "versions is not a key", "version?"),
        ("version: 1\npolicy:\ndeployments: []\n", 2, 8, "policy has no value", ""),
        ("version: 1\ndefaults: x\ndeployments: []\n", 2, 11, "defaults is 'x'", ""),
        ("version: 1\ndefaults: {name: x}\ndeployments: []\n", 2, 12, "defaults.name is not", ""),
        ("version: 1\ndeployments: [x]\n", 2, 15, "deployments[0] is 'x'", ""),
        ("version: 1\ndeployments:\n  - gpu: x\n    model: y\n", 3, 5, "[0].name is missing", ""),
        ("version: 1\ndeployments:\n  - name: ''\n", 3, 11, "[0].name has no value", ""),
        ("version: 1\ndeployments:\n  - name: 'a\\e'\n", 3, 11, "is not a name", "Letters"),
        (HEAD + "  - {name: a, model: x, gpu: y}\n", 6, 12, "the name 'a' is used twice", ""),
        ("version: 1\ndeployments:\n  - name: a\n    gpu: x\n", 3, 5, "[0].model is missing", ""),
        ("version: 1\ndeployments:\n  - name: a\n    model: x\n", 3, 5, "[0].gpu is missing", ""),
        (HEAD + "    sequence: 8k\n", 6, 5, "[0].sequence is not a key", ""),
        (HEAD + "    bach: 8\n", 6, 5, "[0].bach is not a key", "Did you mean batch?"),
        (HEAD + "    max-num-seqs: 8\n", 6, 5, "is not a key", "Did you mean max_num_seqs?"),
        (HEAD + "    seq: 80G B\n", 6, 10, "seq '80G B' is not a number of tokens", ""),
        (HEAD + "    seq: [8k, x]\n", 6, 15, "seq 'x' is not a number of tokens", ""),
        (HEAD + "    seq: [8k, 8k]\n", 6, 10, "seq lists a value twice", ""),
        (HEAD + "    seq: []\n", 6, 10, "seq is an empty list", ""),
        (HEAD + "    seq: {a: 1}\n", 6, 10, "seq is a mapping", ""),
        (HEAD + "    seq:\n", 6, 9, "seq has no value", ""),
        (HEAD + "    kv: fp8\n    kv_cache_dtype: fp8\n", 7, 5, "is kv, stated before", ""),
        (HEAD + "    enforce_eager: 1\n", 6, 20, "it should be true or false", ""),
        (HEAD + "    set: num_kv_heads\n", 6, 10, "'num_kv_heads' is not NAME=VALUE", ""),
        (HEAD + "    set: {a: [1]}\n", 6, 14, "set.a is a list", ""),
        (HEAD + "    gpu_memory: 80G\n", 6, 17, "can mean two sizes", "80GiB"),
        (HEAD + "    budgets: 3\n", 6, 14, "budgets is '3'", ""),
        (HEAD + "    budgets: {max_gpu: 3}\n", 6, 15, "max_gpu is not a key", "max_gpus?"),
        (HEAD + "    budgets: {max_gpus: }\n", 6, 24, "max_gpus is nothing", ""),
        (HEAD + "    budgets: {max_gpus: {}}\n", 6, 15, "max_gpus has no value", ""),
        (HEAD + "    budgets: {max_gpus: {value: 0}}\n", 6, 33, "is too small", ""),
        (HEAD + "    budgets: {max_gpus: {value: 1, levl: warn}}\n", 6, 36, "levl is", "level?"),
        (HEAD + "    budgets: {max_gpus: {value: 1, level: warni}}\n", 6, 43, "'warni'", "warn?"),
        (HEAD + "    budgets: {max_kv_fraction: 60%}\n", 6, 32, "write 60% as 0.60", ""),
        (HEAD + "    budgets: {max_kv_fraction: 60}\n", 6, 32, "at most 1", ""),
        (HEAD + "    budgets: {min_headroom: 1}\n", 6, 29, "neither a share", "0.05"),
        (HEAD + "    budgets: {min_headroom: 4G}\n", 6, 29, "can mean two sizes", "4GiB"),
        (HEAD + "    budgets: {fits: false}\n", 6, 21, "can only be true", "level: off"),
        (HEAD + "    budgets: {min_concurrency: -1}\n", 6, 32, "is not a number above 0", ""),
        (HEAD + "    budgets: {min_max_seq: 1.5}\n", 6, 28, "is not a whole number", ""),
        (HEAD + "    from: a.yaml\n    command: x\n", 7, 5, "are both stated", ""),
        (HEAD + "    container: x\n", 6, 5, "is of use only with from", ""),
        (HEAD + "    command: [[x]]\n", 6, 14, "it should be a command line", ""),
        (HEAD + "    from: a.yaml\n    ignore_args: {}\n", 7, 18, "ignore_args is a mapping", ""),
    ],
)  # fmt: skip
def test_a_fault_gives_its_place(
    text: str, line: int, column: int, message: str, hint: str
) -> None:
    found = problems(read(text))
    assert found, "the fault was not noticed"
    matching = [p for p in found if message in p.message]
    assert matching, found
    assert matching[0].place == (line, column), found
    assert hint in (matching[0].hint or "")


@pytest.mark.parametrize("flag", [f for f in FLAGS if f.parse is not None], ids=lambda f: f.name)
def test_every_flag_of_the_question_is_read_at_its_line(flag: object) -> None:
    name = getattr(flag, "name", "")
    text = HEAD.replace("    gpu: h100-sxm\n", "") if name == "gpu" else HEAD
    (found, *_) = problems(read(f"{text}    {name}: ''\n"))
    assert found.place.line == text.count("\n") + 1
    assert name in found.message


def test_all_faults_are_told_at_once() -> None:
    found = problems(read(HEAD + "    seq: x\n    batch: y\n  - name: b\n    tp: z\n"))
    assert [p.place.line for p in found] == [6, 7, 9]
