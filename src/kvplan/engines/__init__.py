"""How each engine spends memory: one module or folder holds everything about that engine.

Adding one is adding its module here; its name is what ``--engine`` takes.
"""

from __future__ import annotations

import os
from importlib import import_module

from kvplan.engines.base import Engine
from kvplan.errors import InputError

_PLAIN = {"__init__", "base"}


def engine_names() -> list[str]:
    """The engines that ``--engine`` takes, found by the modules of this folder."""
    folder = os.path.dirname(os.path.abspath(__file__))
    stems = {name.removesuffix(".py") for name in os.listdir(folder) if not name.startswith("_")}
    return sorted(stem.replace("_", "-") for stem in stems - _PLAIN)


def load_engine(name: str) -> Engine:
    """The engine of that name."""
    names = engine_names()
    if name not in names:
        raise InputError(
            f"--engine {name!r} is not an engine kvplan models",
            hint=f"It models: {', '.join(names)}.",
        )
    engine: Engine = import_module(f"{__name__}.{name.replace('-', '_')}").ENGINE
    return engine
