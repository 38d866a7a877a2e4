"""From what a person names to the plan that is watched."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from kvplan.engines import engine_names as planned_engines
from kvplan.errors import InputError
from kvplan.monitoring.engines import engine_names, split_engine
from kvplan.monitoring.plan import Plan, plan_from_document, plan_from_report
from kvplan.policy import Policy

_PLANNED_BY = {"triton": "tensorrt-llm", "dynamo": "vllm"}
"""Servers in front of an engine: whose pool they show."""


def find_plan(
    deployment: str | None, plan_file: str | None, policy: Policy, flags: Mapping[str, Any]
) -> Plan | None:
    """The plan that the arguments name; None where they name none."""
    if plan_file is not None and deployment is not None:
        raise InputError(
            f"{deployment!r} and --plan {plan_file!r} are two plans", hint="Name one of them."
        )
    path = plan_file or deployment
    if path is None:
        refuse_flags(flags, "asks about a model, but none was named", None)
        return None
    document = _plan_document(path)
    if plan_file is None and document is None:
        return _planned(path, policy, flags)
    refuse_flags(
        flags,
        f"beside the finished plan {path!r}",
        "Make the plan with that flag: kvplan fit MODEL ... --format json.",
    )
    if document is None:
        from kvplan.files import read_json_object

        document = read_json_object(path)
    return plan_from_document(document, path)


def refuse_flags(flags: Mapping[str, Any], why: str, hint: str | None) -> None:
    """Refuse the first flag about a model where there is none to ask about."""
    given = sorted(
        name
        for name, value in flags.items()
        if name != "engine" and value not in (None, False, (), [])
    )
    if given:
        raise InputError(f"--{given[0].replace('_', '-')} {why}", hint=hint)


def _plan_document(path: str) -> dict[str, Any] | None:
    """The document where ``path`` is a plan in JSON; None where it is a model or something else."""
    if not (path.lower().endswith(".json") and os.path.isfile(path)):
        return None
    from kvplan.files import read_json_object

    document = read_json_object(path)
    return document if str(document.get("schema", "")).startswith("kvplan.") else None


def _planned(model: str, policy: Policy, flags: Mapping[str, Any]) -> Plan:
    from kvplan.planning.fit import fit
    from kvplan.question import build_deployment

    question = {**flags, "engine": planning_engine(flags.get("engine"))}
    return plan_from_report(fit(build_deployment(model, **question), policy))


def planning_engine(text: str | None) -> str | None:
    """The engine to plan with: the one watched where kvplan models it, else the bare formula."""
    if text is None:
        return None
    watched, version = split_engine(text)
    name = _PLANNED_BY.get(watched, watched)
    if name not in planned_engines():
        return "none"
    return f"{name}@{version}" if version and name == watched else name


def watched_engine(text: str | None, plan: Plan | None) -> str:
    """The engine whose metrics are meant: as asked, else the plan's own, else vLLM."""
    if text is not None:
        return text
    if plan is not None and plan.engine in engine_names():
        version = f"@{plan.engine_version}" if plan.engine_version else ""
        return f"{plan.engine}{version}"
    return "vllm"
