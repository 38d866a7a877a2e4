"""Names and files of a plan → models and GPUs, without any network.

A model is a bundled name or a path; an id that is not bundled is an error here, never a download,
so that a check gives the same answer on every machine. What was read is kept: a matrix reads each
model once.
"""

from __future__ import annotations

from kvplan.catalogue import catalogue
from kvplan.checking.paths import Folder
from kvplan.errors import KvplanError, ModelNotFound, SourceError
from kvplan.model.model import Model
from kvplan.question import settings_of
from kvplan.sources import load_model, model_from_profile

_PATH_ENDINGS = (".json", ".yaml", ".yml", ".gguf", ".safetensors")
OFFLINE = (
    "kvplan check uses no network: name a bundled model (kvplan models list), or keep the model's "
    "config.json in the repository and give its path."
)


class Models:
    """What the plans of one run name, read once each."""

    def __init__(self) -> None:
        self._models: dict[tuple[str, str | None, tuple[str, ...]], Model | KvplanError] = {}

    def load(self, ref: str, folder: Folder, assume: str | None, sets: tuple[str, ...]) -> Model:
        """The model that ``ref`` means, seen from the plan's folder."""
        ref = ref.strip()
        path = folder.resolve(ref, "model") if is_path(ref, folder) else None
        key = (path or f"name:{ref}", assume, sets)
        if key not in self._models:
            try:
                self._models[key] = _load(ref, path, assume, sets)
            except KvplanError as error:
                self._models[key] = error
        found = self._models[key]
        if isinstance(found, KvplanError):
            raise found
        return found


def is_path(ref: str, folder: Folder) -> bool:
    """Whether ``ref`` is a file or folder, rather than a name: it ends like one or is there."""
    if ref.lower().endswith(_PATH_ENDINGS) or ref.startswith(("./", "../", "/")):
        return True
    return catalogue("models").find(ref) is None and folder.exists(ref, "model")


def gpu_ref(ref: str, folder: Folder) -> str:
    """What ``load_gpu`` takes for it: a profile's path seen from the plan's folder, or the name."""
    if ref.strip().lower() == "local":
        raise SourceError(
            "gpu: local is the GPU of whatever machine runs the check",
            hint="Name the GPU that is deployed, such as h100-sxm.",
        )
    if ref.lower().endswith((".yaml", ".yml")):
        return folder.resolve(ref.strip(), "gpu")
    return ref


def _load(ref: str, path: str | None, assume: str | None, sets: tuple[str, ...]) -> Model:
    overrides = settings_of(list(sets), "set")
    if path is not None:
        return load_model(path, assume=assume, overrides=overrides)
    hub = ref.lower().startswith("hf:")
    match = None if hub else catalogue("models").find(ref)
    if match is not None:
        name = match.profile["name"]
        return model_from_profile(match.profile, f"bundled: {name}", assume, overrides)
    if hub or "/" in ref:
        raise ModelNotFound(f"{ref!r} is neither bundled nor a file here", hint=OFFLINE)
    return load_model(ref, assume=assume, overrides=overrides)  # not found: it names the nearest
