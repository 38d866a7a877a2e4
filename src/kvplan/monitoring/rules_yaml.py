"""A rule set as the YAML file that Prometheus loads, with what a person should know on top."""

from __future__ import annotations

import textwrap

from kvplan import __version__
from kvplan.monitoring.plan import Plan
from kvplan.monitoring.rules import RuleSet

_WIDTH = 100


def render(rules: RuleSet, plan: Plan | None) -> str:
    """The file. Names of strangers stay in quotes, and in comments stay on their line."""
    import yaml

    head = [f"Prometheus rules for {rules.title}, written by kvplan {__version__}."]
    head.append(f"Plan: {plan.words()}." if plan else "No plan was given.")
    head.append("Check with: promtool check rules FILE. Load with rule_files in prometheus.yml.")
    for title, texts in (("Left out:", rules.left_out), ("Notes:", rules.notes)):
        if texts:
            head += ["", title, *(f"- {text}" for text in texts)]
    document = yaml.safe_dump(
        {"groups": rules.groups}, sort_keys=False, allow_unicode=True, width=4 * _WIDTH
    )
    return "".join(map(_comment, head)) + document


def _comment(text: str) -> str:
    safe = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
    indent = "  " if safe.startswith("- ") else ""
    lines = textwrap.wrap(
        safe, _WIDTH - 2, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return "".join(f"# {line}\n" for line in lines) or "#\n"
