"""The JSON Schema of kvplan.yaml, for editors: made from the tables that the reader goes by."""

from __future__ import annotations

from typing import Any

from kvplan.checking.budgets import BUDGETS, LEVELS, Budget
from kvplan.checking.plan import FLAG_KEYS, OWN_KEYS, VERSION
from kvplan.question import BY_NAME

IDENTITY = "urn:kvplan:plan/1"
_SCALAR = ["string", "number"]


def plan_schema() -> dict[str, Any]:
    """The form of a plan; what a value must be beyond its kind, ``kvplan check`` says."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": IDENTITY,
        "title": "kvplan.yaml",
        "description": "Deployments and the budgets that they are held to.",
        **_object(
            {
                "version": {"const": int(VERSION)},
                "policy": _text("A file of thresholds, from the plan's folder."),
                "defaults": {"$ref": "#/$defs/defaults"},
                "deployments": {
                    "type": "array",
                    "minItems": 1,
                    "items": {"$ref": "#/$defs/deployment"},
                },
            },
            ["version", "deployments"],
        ),
        "$defs": {
            "budgets": {
                "description": "What the deployment is held to.",
                **_object({budget.name: _budget(budget) for budget in BUDGETS}),
            },
            "defaults": {
                "description": "Flags and budgets of every deployment that does not state its own.",
                **_object({**_flags(), "budgets": {"$ref": "#/$defs/budgets"}}),
            },
            "deployment": {
                "description": "One deployment; lists make one of each combination.",
                **_object({**_own(), **_flags()}, ["name"]),
                "not": {"required": ["from", "command"]},
            },
        },
    }


def _object(properties: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    found = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**found, "required": required} if required else found


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "description": description}


def _own() -> dict[str, Any]:
    words = {"type": "array", "minItems": 1, "items": {"type": _SCALAR}}
    known = {
        "name": {**_text("Its name in every report."), "maxLength": 100},
        "from": _text("A Compose file, a Kubernetes manifest or Helm values that deploy it."),
        "command": {
            "description": "The engine's command line, as one text or as words.",
            "anyOf": [{"type": "string", "minLength": 1}, words],
        },
        "container": _text("Which container of from, where several run an engine."),
        "ignore_args": {
            "description": "Arguments of the command that are left out of account.",
            "anyOf": [{"type": "string", "minLength": 1}, words],
        },
        "budgets": {"$ref": "#/$defs/budgets"},
    }
    return {key: known[key] for key in OWN_KEYS}


def _flags() -> dict[str, Any]:
    return {key: _flag(name) for key, name in FLAG_KEYS.items()}


def _flag(name: str) -> dict[str, Any]:
    flag = BY_NAME.get(name)
    if flag is None:
        return {
            "description": "A bundled model, or the path of its config.json, folder or profile.",
            **_one_or_list({"type": "string", "minLength": 1}),
        }
    if flag.repeats:
        pairs = {"type": "string", "pattern": "="}
        forms = [
            pairs,
            {"type": "array", "minItems": 1, "items": pairs},
            {"type": "object", "minProperties": 1,
             "additionalProperties": {"type": [*_SCALAR, "boolean"]}},
        ]  # fmt: skip
        return {"description": flag.help, "anyOf": forms}
    kind: dict[str, Any] = {"type": "boolean"} if flag.parse is None else {"type": _SCALAR}
    return {"description": flag.help, **_one_or_list(kind)}


def _one_or_list(kind: dict[str, Any]) -> dict[str, Any]:
    listed = {"type": "array", "minItems": 1, "uniqueItems": True, "items": kind}
    return {"anyOf": [kind, listed]}


def _budget(budget: Budget) -> dict[str, Any]:
    value = {"const": True} if budget.name == "fits" else {"type": _SCALAR}
    # YAML 1.1 reads a bare off as false.
    level = {"enum": [*LEVELS, False], "description": "Default: error."}
    with_level = _object({"value": value, "level": level})
    if budget.from_policy is None:
        with_level["anyOf"] = [
            {"required": ["value"]},
            {"properties": {"level": {"enum": ["off", False]}}, "required": ["level"]},
        ]
    return {"description": budget.help, "anyOf": [value, with_level]}
