"""The report as YAML: the JSON document in the form that people keep beside their manifests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvplan.reports.json_report import full_document

if TYPE_CHECKING:
    from kvplan.deployment import Deployment
    from kvplan.planning.report import FitReport


def render(report: FitReport, explained: Deployment | None, to_file: bool) -> str:  # noqa: ARG001
    """One document, keys in the order of the contract."""
    import yaml

    text: str = yaml.safe_dump(
        full_document(report, explained), sort_keys=False, allow_unicode=True, width=100
    )
    return text
