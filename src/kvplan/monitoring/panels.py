"""Grafana panels as plain JSON: the few kinds that a dashboard here is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

Json = dict[str, Any]
DATASOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH = 24
GREEN, YELLOW, RED = "green", "#EAB839", "red"


class Query(NamedTuple):
    """One PromQL expression and what its line is called."""

    expr: str
    legend: str


class Threshold(NamedTuple):
    """A line across the panel from this value on."""

    value: float
    colour: str


def warn(value: float) -> Threshold:
    """A yellow line."""
    return Threshold(value, YELLOW)


def bad(value: float) -> Threshold:
    """A red line."""
    return Threshold(value, RED)


def good(value: float) -> Threshold:
    """A green line: fine from here on."""
    return Threshold(value, GREEN)


class Panel(NamedTuple):
    """A graph over time, or the latest value, with the plan's figures as thresholds."""

    title: str
    description: str
    unit: str
    queries: Sequence[Query]
    thresholds: Sequence[Threshold] = ()
    width: int = 12
    height: int = 8
    kind: str = "timeseries"
    stacked: bool = False
    maximum: float | None = None
    below: str = GREEN
    """The colour below the first threshold."""


def text_panel(title: str, markdown: str, *, height: int = 6) -> Json:
    """Words of our own, in Markdown."""
    return {
        "type": "text",
        "title": title,
        "gridPos": {"h": height, "w": _WIDTH, "x": 0, "y": 0},
        "options": {"mode": "markdown", "content": markdown},
    }


def lay_out(panels: Sequence[Json]) -> list[Json]:
    """The panels in rows from left to right, each with its place and number."""
    x = y = row_height = 0
    placed = []
    for number, panel in enumerate(panels, start=1):
        place = panel["gridPos"]
        if x + place["w"] > _WIDTH:
            x, y, row_height = 0, y + row_height, 0
        placed.append({**panel, "id": number, "gridPos": {**place, "x": x, "y": y}})
        x += place["w"]
        row_height = max(row_height, place["h"])
    return placed


def as_json(panel: Panel) -> Json:
    """The panel as Grafana reads it."""
    steps: list[Json] = [{"color": panel.below, "value": None}]
    steps += [{"color": t.colour, "value": t.value} for t in sorted(panel.thresholds)]
    defaults: Json = {
        "unit": panel.unit,
        "min": 0,
        "thresholds": {"mode": "absolute", "steps": steps},
    }
    if panel.maximum is not None:
        defaults["max"] = panel.maximum
    if panel.kind == "timeseries":
        defaults["custom"] = {
            "drawStyle": "line",
            "fillOpacity": 30 if panel.stacked else 8,
            "lineWidth": 1,
            "showPoints": "never",
            "stacking": {"group": "A", "mode": "normal" if panel.stacked else "none"},
            "thresholdsStyle": {"mode": "line" if panel.thresholds else "off"},
        }
        options: Json = {
            "legend": {
                "calcs": ["lastNotNull", "max"],
                "displayMode": "table",
                "placement": "bottom",
                "showLegend": True,
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    else:
        defaults["color"] = {"mode": "thresholds"}
        options = {
            "colorMode": "background",
            "graphMode": "area",
            "justifyMode": "auto",
            "orientation": "auto",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "textMode": "auto",
        }
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": DATASOURCE,
        "gridPos": {"h": panel.height, "w": panel.width, "x": 0, "y": 0},
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "targets": [
            {
                "refId": _letters(number),
                "datasource": DATASOURCE,
                "editorMode": "code",
                "expr": query.expr,
                "legendFormat": query.legend,
                "range": True,
            }
            for number, query in enumerate(panel.queries)
        ],
    }


def _letters(number: int) -> str:
    """A, B, … Z, AA."""
    text = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        text = chr(ord("A") + rest) + text
    return text
