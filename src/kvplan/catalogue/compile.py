"""Compile ``configs/`` into the catalogue that ships: ``python -m kvplan.catalogue.compile``.

Run by ``make catalogue`` after a profile is added or edited; a test fails when it was forgotten.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from kvplan.catalogue import name_key
from kvplan.errors import BundledDataError
from kvplan.files import read_yaml_object

_FOLDER = os.path.dirname(os.path.abspath(__file__))
CONFIGS = os.path.join(_FOLDER, "..", "..", "..", "configs")


def compile_profiles(folder: str) -> str:
    """The JSON-lines text for a folder of profiles, in order of their names."""
    names = sorted(name[:-5] for name in os.listdir(folder) if name.endswith(".yaml"))
    keys: dict[str, int] = {}
    implied: dict[str, int] = {}
    families: dict[str, list[str]] = {}
    lines: list[str] = []
    for number, name in enumerate(names, start=1):
        profile = read_yaml_object(os.path.join(folder, f"{name}.yaml"))
        if profile.get("name") != name:
            raise BundledDataError(f"{folder}/{name}.yaml: name must be {name!r}")
        for spelling in [name, *profile.get("aliases", ())]:
            _claim(keys, spelling, number, names)
        for spelling in profile.get("implied_aliases", ()):
            _claim(implied, spelling, number, names)
        if "family" in profile:
            families.setdefault(name_key(profile["family"]), []).append(name)
        lines.append(_dump(profile))
    index = {"names": names, "keys": keys, "implied": implied, "families": families}
    return "\n".join([_dump(index), *lines]) + "\n"


def _claim(table: dict[str, int], spelling: str, number: int, names: list[str]) -> None:
    key = name_key(spelling)
    if table.setdefault(key, number) != number:
        raise BundledDataError(
            f"{names[number - 1]} and {names[table[key] - 1]} both claim the name {spelling!r}"
        )


def _dump(document: dict[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def compiled() -> dict[str, str]:
    """Every file of the compiled catalogue: its name and its text."""
    policy = read_yaml_object(os.path.join(CONFIGS, "policies", "default.yaml"))
    return {
        "models.jsonl": compile_profiles(os.path.join(CONFIGS, "models")),
        "gpus.jsonl": compile_profiles(os.path.join(CONFIGS, "gpus")),
        "policy.json": _dump(policy) + "\n",
    }


def main() -> None:
    """Write the compiled catalogue beside this module."""
    for name, text in compiled().items():
        with open(os.path.join(_FOLDER, name), "w", encoding="utf-8", newline="") as file:
            file.write(text)
        sys.stderr.write(f"wrote {name}: {text.count(chr(10)):,} lines, {len(text):,} characters\n")


if __name__ == "__main__":
    main()
