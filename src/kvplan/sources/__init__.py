"""Where a model comes from: a bundled profile, a config, a folder, GGUF, the hub, a user's YAML."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kvplan.errors import InputError, MissingExtra, ModelNotFound, SourceError, nearest_names
from kvplan.model.model import Checkpoint, Model
from kvplan.sources.huggingface.config import read_config

if TYPE_CHECKING:
    from kvplan.catalogue import Catalogue
    from kvplan.sources.published import Published

_FILE_ENDINGS = (".json", ".yaml", ".yml", ".gguf", ".safetensors")
_LIST = "kvplan models list shows every bundled model."
_HUB_PREFIX = "hf:"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}\Z", re.ASCII)


def load_model(
    ref: str,
    *,
    assume: str | None = None,
    overrides: Mapping[str, str] | None = None,
    revision: str | None = None,
) -> Model:
    """The model that ``ref`` means.

    A path is a path: something with a file's ending, or a folder or file that exists. Anything
    else is looked up among the bundled profiles, in any spelling, and only an ``org/name`` that
    is not one of them is asked for on the hub. ``hf:org/name`` and a ``revision`` always mean the
    hub.
    """
    ref = ref.strip()
    if not ref:
        raise ModelNotFound("no model was named", hint=_LIST)
    hub_id = _hub_id(ref, revision)
    if hub_id is not None:
        return _from_hub(hub_id, revision).model(assume, overrides)
    if _is_path(ref):
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
    if _HUB_ID.match(ref) and not models.candidates(ref):
        return _unbundled(ref, models).model(assume, overrides)
    raise _not_found(ref, models)


def profile_from(ref: str, *, revision: str | None = None) -> str:
    """A user's own profile (YAML) of the model that ``ref`` means, to keep and to edit.

    An ``org/name`` is asked for on the hub, although a profile may be bundled; any other name is a
    bundled one.
    """
    from kvplan.sources.importing import again_text, as_yaml, gguf_text, profile_text

    ref = ref.strip()
    hub_id = _hub_id(ref, revision) or (
        ref if _HUB_ID.match(ref) and not os.path.exists(ref) else None
    )
    if hub_id is not None:
        return profile_text(_from_hub(hub_id, revision))
    if not os.path.exists(ref):
        from kvplan.catalogue import catalogue

        if _is_path(ref):
            raise ModelNotFound(f"{ref}: there is no such file or folder", hint=_LIST)
        match = catalogue("models").find(ref)
        if match is None:
            raise _not_found(ref, catalogue("models"))
        return as_yaml(match.profile)
    if not os.path.isdir(ref):
        if ref.lower().endswith(".gguf"):
            return gguf_text(ref)
        if ref.lower().endswith((".yaml", ".yml")):
            return again_text(ref)
    return profile_text(_published(ref))


def model_from_profile(
    profile: Mapping[str, Any],
    source: str,
    assume: str | None = None,
    overrides: Mapping[str, str] | None = None,
) -> Model:
    """The model of a profile, bundled or a user's own: both have the same form."""
    if "gguf" in profile:
        return _from_gguf_profile(profile, source, assume, overrides)
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


def _from_gguf_profile(
    profile: Mapping[str, Any],
    source: str,
    assume: str | None,
    overrides: Mapping[str, str] | None,
) -> Model:
    from dataclasses import replace

    from kvplan.sources.gguf import model_of
    from kvplan.sources.gguf.profile import header_of

    if overrides:
        raise _set_with_gguf(source)
    header = header_of(profile["gguf"], source)
    model = model_of(header, name=profile["name"], source=source, where=source, assume=assume)
    facts = profile.get("checkpoint")
    if facts:
        stated = Checkpoint(facts.get("parameters"), facts.get("size_bytes"), facts.get("source"))
        model = replace(model, checkpoint=stated)
    return replace(model, hub_id=profile.get("hub_id"))


def _set_with_gguf(source: str) -> InputError:
    return InputError(
        f"--set is not taken with a GGUF file: {source} holds the tensors themselves",
        hint="Ask what-if questions of the model's config.json or its bundled name.",
    )


def _hub_id(ref: str, revision: str | None) -> str | None:
    """The hub id that ``ref`` must mean because of its prefix or a revision; else None."""
    if not ref.lower().startswith(_HUB_PREFIX) and revision is None:
        return None
    hub_id = ref[len(_HUB_PREFIX) :] if ref.lower().startswith(_HUB_PREFIX) else ref
    if not _HUB_ID.match(hub_id) or (hub_id == ref and _is_path(ref)):
        reason = "" if revision is None else ", which --revision asks for"
        raise InputError(f"{ref!r} is not a hub id such as org/name{reason}")
    return hub_id


def _is_path(ref: str) -> bool:
    if ref.startswith(("./", "../", "/", "~/")) or ref.lower().endswith(_FILE_ENDINGS):
        return True
    return os.sep in ref and os.path.exists(ref)


def _from_path(path: str, assume: str | None, overrides: Mapping[str, str] | None) -> Model:
    if not os.path.exists(path):
        raise ModelNotFound(f"{path}: there is no such file or folder", hint=_LIST)
    if path.lower().endswith(".gguf") and not os.path.isdir(path):
        if overrides:
            raise _set_with_gguf(path)
        from kvplan.sources.gguf import read_gguf

        return read_gguf(path, assume=assume)
    if path.lower().endswith((".yaml", ".yml")):
        from kvplan.sources.schema import read_profile

        return model_from_profile(read_profile(path), path, assume, overrides)
    return _published(path).model(assume, overrides)


def _published(path: str) -> Published:
    """The documents at a path: a model folder, one of its weight files, or a config alone."""
    from kvplan.sources.published import CONFIG, from_config, from_folder

    if os.path.isdir(path):
        return from_folder(path)
    if path.lower().endswith(".safetensors"):
        folder = os.path.dirname(path) or "."
        if not os.path.exists(os.path.join(folder, CONFIG)):
            raise SourceError(
                f"{path}: weights alone do not say how the model attends, and there is no "
                "config.json beside them",
                hint="Give the model's folder or its config.json.",
            )
        return from_folder(folder)
    return from_config(path)


def _from_hub(hub_id: str, revision: str | None) -> Published:
    from kvplan.sources.hub import fetch

    return fetch(hub_id, revision)


def _unbundled(ref: str, models: Catalogue) -> Published:
    """A hub id that is not bundled; when the hub cannot help, what is bundled may."""
    try:
        return _from_hub(ref, None)
    except (MissingExtra, ModelNotFound) as error:
        near = _nearest(ref, models)
        if near:
            error.hint = f"Nearest bundled: {', '.join(near)}. {error.hint or ''}".rstrip()
        raise


def _nearest(ref: str, models: Catalogue) -> list[str]:
    near = nearest_names(ref.rsplit("/", 1)[-1], models.spellings(), 10)
    return list(dict.fromkeys(map(models.canonical, near)))[:5]


def _not_found(ref: str, models: Catalogue) -> ModelNotFound:
    candidates = models.candidates(ref)
    if candidates:
        return ModelNotFound(
            f"{ref!r} names several models: {', '.join(candidates)}", hint="Name one of them."
        )
    near = _nearest(ref, models)
    hint = f"Nearest: {', '.join(near)}. {_LIST}" if near else _LIST
    return ModelNotFound(f"{ref!r} is neither a bundled model nor a file", hint=hint)
