"""``kvplan schema``: the schemas describe what is really written."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from .conftest import Kvplan

QUESTIONS = [
    ("llama-3.1-8b", "--gpu", "a100-80g", "--seq", "8k"),
    ("llama-3.1-8b", "--gpu", "rtx-4090", "--seq", "128k", "--exit-zero"),
    ("gemma-3-27b", "--gpu", "h100", "--seq", "32k", "--explain"),
    ("llama-2-7b", "--gpu", "a100-80g", "--engine", "none", "--mean-seq", "1k"),
    ("llama-2-7b", "--gpu", "a100-80g", "--seq", "8k", "--kv-cache-memory", "20GiB"),
]


def schema(kvplan: Kvplan, name: str) -> dict[str, Any]:
    run = kvplan("schema", name)
    assert run.code == 0, run
    assert run.err == ""
    found: dict[str, Any] = json.loads(run.out)
    jsonschema.Draft202012Validator.check_schema(found)
    return found


def test_schema_has_a_stable_identity_and_descriptions(kvplan: Kvplan) -> None:
    found = schema(kvplan, "fit")
    assert found["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert found["$id"] == "urn:kvplan:fit/1"
    assert found["properties"]["schema"]["const"] == "kvplan.fit/1"
    kv = found["$defs"]["KvCacheReport"]["properties"]
    assert kv["bytes_per_token"]["description"].startswith("Slope of the logical bytes")
    assert found["$defs"]["Verdict"]["enum"] == ["fits", "tight", "oom"]
    assert schema(kvplan, "explain")["$id"] == "urn:kvplan:explain/1"


@pytest.mark.parametrize("words", QUESTIONS, ids=" ".join)
def test_fit_writes_what_the_schema_says(kvplan: Kvplan, words: tuple[str, ...]) -> None:
    run = kvplan("fit", *words, "--format", "json")
    assert run.code == 0, run
    jsonschema.validate(json.loads(run.out), schema(kvplan, "fit"))


@pytest.mark.parametrize("model", ["gemma-3-27b", "deepseek-v3", "llama-3.1-8b"])
def test_explain_writes_what_the_schema_says(kvplan: Kvplan, model: str) -> None:
    run = kvplan("explain", model, "--format", "json")
    jsonschema.validate(json.loads(run.out), schema(kvplan, "explain"))


def test_schema_notices_what_does_not_belong(kvplan: Kvplan) -> None:
    document = json.loads(kvplan("fit", *QUESTIONS[0], "--format", "json").out)
    found = schema(kvplan, "fit")
    for wrong in (
        {**document, "more": 1},
        {**document, "verdict": "maybe"},
        {**document, "schema": "kvplan.fit/2"},
        {key: value for key, value in document.items() if key != "memory"},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, found)


def test_unknown_document_names_the_known_ones(kvplan: Kvplan) -> None:
    run = kvplan("schema", "fti")
    assert run.code == 2
    assert "'fti' is not a document" in run.err
    assert "kvplan schema fit" in run.err
    assert kvplan("schema").code == 2
