"""kvplan: will this model, at this context and batch, fit on these GPUs?

The names below are loaded when they are first used, so that ``import kvplan`` and
``kvplan --version`` stay as quick as the bare interpreter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from kvplan.deployment import Deployment
    from kvplan.hardware.gpu import Gpu
    from kvplan.hardware.profiles import load_gpu
    from kvplan.model.model import Model
    from kvplan.planning.fit import fit
    from kvplan.planning.report import FitReport, Verdict
    from kvplan.question import build_deployment
    from kvplan.sources import load_model
    from kvplan.sweeping.api import sweep

_HOMES = {
    "Deployment": "kvplan.deployment",
    "FitReport": "kvplan.planning.report",
    "Gpu": "kvplan.hardware.gpu",
    "Model": "kvplan.model.model",
    "Verdict": "kvplan.planning.report",
    "build_deployment": "kvplan.question",
    "fit": "kvplan.planning.fit",
    "load_gpu": "kvplan.hardware.profiles",
    "load_model": "kvplan.sources",
    "sweep": "kvplan.sweeping.api",
}

__all__ = [
    "Deployment",
    "FitReport",
    "Gpu",
    "Model",
    "Verdict",
    "__version__",
    "build_deployment",
    "fit",
    "load_gpu",
    "load_model",
    "sweep",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'kvplan' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
