"""Where a model comes from: a bundled profile, a config.json, a folder, a user's own YAML."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kvplan.errors import ModelNotFound, SourceError, nearest_names
from kvplan.model.model import Checkpoint, Model
from kvplan.sources.huggingface.config import read_config

if TYPE_CHECKING:
    from kvplan.catalogue import Catalogue

_FILE_ENDINGS = (".json", ".yaml", ".yml", ".gguf", ".safetensors")
_LIST = "kvplan models list shows every bundled model."


def load_model(
    ref: str, *, assume: str | None = None, overrides: Mapping[str, str] | None = None
) -> Model:
    """The model that ``ref`` means.

    A path is a path: something with a file's ending, or a folder or file that exists. Anything
    else is looked up among the bundled profiles, in any spelling.
    """
    if not ref.strip():
        raise ModelNotFound("no model was named", hint=_LIST)
    if ref.lower().endswith(_FILE_ENDINGS) or (os.sep in ref and os.path.exists(ref)):
        return _from_path(ref, assume, overrides)
    from kvplan.catalogue import catalogue

    models = catalogue("models")
    match = models.find(ref)
    if match is not None:
        return model_from_profile(
            match.profile, f"bundled: {match.profile['name']}", assume, overrides
        )
    if os.path.exists(ref):
        return _from_path(ref, assume, overrides)
    raise _not_found(ref, models)


def model_from_profile(
    profile: Mapping[str, Any],
    source: str,
    assume: str | None = None,
    overrides: Mapping[str, str] | None = None,
) -> Model:
    """The model of a profile, bundled or a user's own: both have the same form."""
    facts = profile.get("checkpoint", {})
    return read_config(
        profile["config"],
        name=profile["name"],
        source=source,
        checkpoint=Checkpoint(
            facts.get("parameters"), facts.get("size_bytes"), facts.get("source")
        ),
        assume=assume,
        overrides=overrides,
        hub_id=profile.get("hub_id"),
    )


def _from_path(path: str, assume: str | None, overrides: Mapping[str, str] | None) -> Model:
    from kvplan.files import read_json_object

    if not os.path.exists(path):
        raise ModelNotFound(f"{path}: there is no such file or folder", hint=_LIST)
    if path.lower().endswith((".gguf", ".safetensors")):
        raise SourceError(
            f"{path}: this version of kvplan does not read {os.path.splitext(path)[1]} files",
            hint="Give the model's config.json, or a bundled name.",
        )
    if path.lower().endswith((".yaml", ".yml")):
        from kvplan.sources.schema import read_profile

        return model_from_profile(read_profile(path), path, assume, overrides)
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    config = os.path.join(path, "config.json") if os.path.isdir(path) else path
    if not os.path.exists(config):
        raise ModelNotFound(
            f"{path}: the folder has no config.json",
            hint="Give a folder as downloaded from the hub.",
        )
    stem = os.path.splitext(os.path.basename(config))[0]
    name = os.path.basename(os.path.abspath(folder)) if stem == "config" else stem
    return read_config(
        read_json_object(config),
        name=name,
        source=config,
        assume=assume,
        overrides=overrides,
        hub_id=folder or ".",
    )


def _not_found(ref: str, models: Catalogue) -> ModelNotFound:
    candidates = models.candidates(ref)
    if candidates:
        return ModelNotFound(
            f"{ref!r} names several models: {', '.join(candidates)}", hint="Name one of them."
        )
    near = list(dict.fromkeys(map(models.canonical, nearest_names(ref, models.spellings(), 10))))[
        :5
    ]
    hint = f"Nearest: {', '.join(near)}. {_LIST}" if near else _LIST
    if "/" in ref:
        hint += " For a model from the hub, download its config.json and give the path."
    return ModelNotFound(f"{ref!r} is neither a bundled model nor a file", hint=hint)
