"""What to do about an alert, from the plan: limits and the options that `fit` found."""

from __future__ import annotations

from kvplan.monitoring.plan import Plan

RUNBOOK = "docs/runbook.md"


def runbook_link(alert: str, base: str = RUNBOOK) -> str:
    """The section of an alert: headings in Markdown link by their lower-case text."""
    return f"{base}#{alert.lower()}"


def more_room(plan: Plan | None) -> str:
    """The cheapest ways to more KV cache, best first, in one sentence or two."""
    if plan is None:
        return "Ask kvplan fit for the options of this deployment."
    said = []
    if plan.options:
        changes = [f"{change} (holds {batch:,})" for change, batch in plan.options[:3]]
        said.append(f"kvplan fit offers: {'; '.join(changes)}.")
    elif narrower := _narrower(plan):
        name, batch = narrower
        said.append(
            f"--kv {name} would hold {batch:,} sequences of {plan.seq_len:,} tokens where "
            f"{plan.kv_cache_dtype} holds {plan.max_batch:,}."
        )
    if plan.max_batch:
        said.append(
            f"At {plan.seq_len:,} tokens each the plan's pool holds {plan.max_batch:,} sequences: "
            "admit no more, or add a replica."
        )
    return " ".join(said) or "Add GPUs, or shorten the context: kvplan fit shows what would fit."


def _narrower(plan: Plan) -> tuple[str, int] | None:
    """The mildest format that holds more sequences than the one in use."""
    now = plan.batch_of(plan.kv_cache_dtype)
    if now is None:
        return None
    return next((entry for entry in plan.formats if entry[1] > now), None)
