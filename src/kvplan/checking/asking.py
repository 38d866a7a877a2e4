"""One combination of a plan → the `Deployment` to judge, with what its manifest says put in.

Of one flag the deployment's own word counts before the plan's defaults. A manifest counts before
the defaults, and what it states may not be stated again: what is checked is what is deployed. Only
``model`` may be stated beside it, to say where the facts of the deployed model are.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from kvplan.checking.document import Place
from kvplan.checking.manifests.engines import Deployed, deployed_by_command, deployed_by_manifest
from kvplan.checking.matrix import Cell
from kvplan.checking.models import OFFLINE, Models, gpu_ref
from kvplan.checking.paths import Folder, shown
from kvplan.checking.plan import Choice, Manifest, Problem
from kvplan.checking.values import Refused
from kvplan.deployment import Deployment
from kvplan.errors import KvplanError
from kvplan.hardware.profiles import load_gpu
from kvplan.model.model import Model
from kvplan.question import build_deployment

T = TypeVar("T")

_OPTION = re.compile(r"--([a-z][a-z-]*)")
_MENTIONS = (("KV format", "kv"), ("weight format", "weights"), ("vLLM", "engine"))
"""Words of an error that point to a key, where it names no flag."""
_SIXTEEN_BITS = 16


class Asker:
    """Makes deployments of combinations; what they share is read once."""

    def __init__(self, folder: Folder, models: Models) -> None:
        self._folder = folder
        self._models = models
        self._manifests: dict[Manifest, Deployed | KvplanError] = {}

    def ask(self, cell: Cell) -> Deployment:
        """The deployment; raises `Refused` for anything that is not understood."""
        choices, deployed = dict(cell.choices), None
        if cell.planned.manifest is not None:
            deployed = self._deployed(cell.planned.manifest)
            choices = _with_deployed(cell, cell.planned.manifest, deployed)
        for key in ("model", "gpu"):
            if key not in choices:
                hint = "Say where its facts are with model."
                raise Refused(Problem(cell.planned.place, f"the manifest names no {key}", hint))
        model = self._model(choices)
        if deployed is not None and deployed.stored is not None and "weights" not in choices:
            _check_stored(model, deployed, choices["model"].place)
        flags: dict[str, object] = {
            name: list(choice.value) if isinstance(choice.value, tuple) else choice.value
            for name, choice in choices.items()
            if name not in {"model", "assume", "set"}
        }
        flags["gpu"] = _placed(choices["gpu"].place, lambda: self._gpu(choices["gpu"]))
        try:
            asked = build_deployment(model, **flags)
        except KvplanError as error:
            raise Refused(problem_of(error, cell, choices)) from None
        for note in deployed.notes if deployed is not None else ():
            asked = asked.saying(assumption=note)
        for warning in deployed.warnings if deployed is not None else ():
            asked = asked.saying(warning=warning)
        return asked

    def _gpu(self, choice: Choice) -> str:
        """What ``build_deployment`` takes for the GPU, known to be one."""
        ref = gpu_ref(str(choice.value), self._folder)
        load_gpu(ref)
        return ref

    def _model(self, choices: dict[str, Choice]) -> Model:
        assume, sets = choices.get("assume"), choices.get("set")
        words = sets.value if sets is not None and isinstance(sets.value, tuple) else ()
        model, revision = choices["model"], choices.get("revision")
        if revision is not None:
            raise Refused(
                Problem(
                    revision.place,
                    f"revision {revision.text} is one of the hub, which a check does not ask",
                    OFFLINE,
                )
            )
        return _placed(
            model.place,
            lambda: self._models.load(
                str(model.value),
                self._folder,
                None if assume is None else str(assume.value),
                words,
            ),
        )

    def _deployed(self, manifest: Manifest) -> Deployed:
        if manifest not in self._manifests:
            try:
                self._manifests[manifest] = self._read(manifest)
            except KvplanError as error:
                self._manifests[manifest] = error
        found = self._manifests[manifest]
        if isinstance(found, KvplanError):
            raise Refused(Problem(manifest.place, found.message, found.hint))
        return found

    def _read(self, manifest: Manifest) -> Deployed:
        if manifest.command is not None:
            return deployed_by_command(manifest.command, manifest.ignore)
        path = self._folder.resolve(str(manifest.path), "from")
        return deployed_by_manifest(path, shown(path), manifest.container, manifest.ignore)


def problem_of(error: KvplanError, cell: Cell, choices: dict[str, Choice] | None = None) -> Problem:
    """An error of the arithmetic, at the key that it is about."""
    return Problem(_place(error.message, cell, choices or cell.choices), error.message, error.hint)


def _place(message: str, cell: Cell, choices: dict[str, Choice]) -> Place:
    for match in _OPTION.finditer(message):
        choice = choices.get(match[1].replace("-", "_"))
        if choice is not None:
            return choice.place
    for words, key in _MENTIONS:
        if words in message and key in choices:
            return choices[key].place
    return cell.planned.place


def _placed(place: Place, read: Callable[[], T]) -> T:
    try:
        return read()
    except KvplanError as error:
        raise Refused(Problem(place, error.message, error.hint)) from None


def _with_deployed(cell: Cell, manifest: Manifest, deployed: Deployed) -> dict[str, Choice]:
    """The plan's choices with those of the manifest, which may not contradict."""
    choices = dict(cell.choices)
    for name, value in deployed.flags.items():
        stated = cell.stated(name)
        if stated is not None and not stated.is_default:
            if name == "engine" and "@" not in str(value) and _engine(choices) == value:
                continue  # the plan adds the version that the manifest leaves open
            said = deployed.words.get(name, name)
            raise Refused(
                Problem(
                    stated.place,
                    f"{name} is stated here and by {deployed.where} ({said} {value})",
                    "Leave it out here: the check follows what is deployed.",
                )
            )
        choices[name] = Choice(value, manifest.place)
    length = choices.get("max_model_len")
    is_open = not {"seq", "input_tokens", "output_tokens"} & set(choices)
    if is_open and length is not None and str(length.value).isdigit():
        choices["seq"] = Choice(length.value, manifest.place)  # the longest that it admits
    stated = cell.stated("model")
    if deployed.model is not None and (stated is None or stated.is_default):
        choices["model"] = Choice(deployed.model, manifest.place)
    return choices


def _engine(choices: dict[str, Choice]) -> str:
    return str(choices["engine"].value).partition("@")[0].strip().lower()


def _check_stored(model: Model, deployed: Deployed, place: Place) -> None:
    """A quantisation that must be the checkpoint's own is not a 16-bit model's."""
    if model.scheme.form.bits_per_element() < _SIXTEEN_BITS:
        return
    raise Refused(
        Problem(
            place,
            f"{deployed.where} says --quantization {deployed.stored}, but {model.name} is stored "
            f"as {model.scheme.name}",
            "State the format with weights, or the quantised model with model.",
        )
    )
