"""The published JSON Schema and the reader agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from kvplan.checking.reading import read_plan
from kvplan.checking.schema import plan_schema
from kvplan.question import FLAGS

EXAMPLES = Path(__file__).parents[3] / "examples" / "ci"
HEAD = "version: 1\ndeployments:\n  - name: a\n    model: llama-3.1-8b\n    gpu: h100-sxm\n"

jsonschema.Draft202012Validator.check_schema(plan_schema())


def both(text: str) -> tuple[bool, bool]:
    """Whether the schema and the reader take a plan."""
    validator = jsonschema.Draft202012Validator(plan_schema())
    document: Any = yaml.safe_load(text)
    plan = read_plan(text, "kvplan.yaml")
    return validator.is_valid(document), not (
        plan.problems or any(d.problems for d in plan.deployments)
    )


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("kvplan.yaml")), ids=str)
def test_examples_are_good(path: Path) -> None:
    assert both(path.read_text(encoding="utf-8")) == (True, True)


@pytest.mark.parametrize(
    "more",
    [
        "seq: 32k", "seq: [8k, 16384]", "enforce_eager: true", "enforce_eager: [true, false]",
        "set: {num_kv_heads: 4}", "set: [num_kv_heads=4]", "set: num_kv_heads=4",
        "kv_cache_dtype: fp8", "gpu_memory_utilization: 0.9", "from: a.yaml", "command: [vllm]",
        "budgets: {fits: true}", "budgets: {max_gpus: {value: 1, level: off}}",
        "budgets: {max_gpus: {level: off}}", "budgets: {max_kv_fraction: {level: warn}}",
        "budgets: {min_headroom: 4GiB, min_max_seq: 64k}",
    ],
)  # fmt: skip
def test_both_take(more: str) -> None:
    assert both(f"{HEAD}    {more}\n") == (True, True)


@pytest.mark.parametrize(
    "text",
    [
        "version: 2\ndeployments: [{name: a, model: b, gpu: c}]\n",
        "version: 1\n",
        "version: 1\ndeployments: []\n",
        "version: 1\ndeployments: [{model: b, gpu: c}]\n",
        "version: 1\nmore: 1\ndeployments: [{name: a, model: b, gpu: c}]\n",
        "version: 1\ndefaults: {name: x}\ndeployments: [{name: a, model: b, gpu: c}]\n",
        *(
            f"{HEAD}    {more}\n"
            for more in (
                "bach: 8", "seq: []", "seq: {a: 1}", "seq: [8k, 8k]", "enforce_eager: 1",
                "set: num_kv_heads", "budgets: 3", "budgets: {max_gpu: 3}",
                "budgets: {max_gpus: {}}", "budgets: {max_gpus: {value: 1, level: warning}}",
                "budgets: {fits: false}", "from: a.yaml\n    command: x",
            )
        ),
    ],
)  # fmt: skip
def test_both_refuse(text: str) -> None:
    assert both(text) == (False, False)


def test_every_flag_is_described() -> None:
    properties = plan_schema()["$defs"]["deployment"]["properties"]
    for flag in FLAGS:
        assert properties[flag.name]["description"] == flag.help
