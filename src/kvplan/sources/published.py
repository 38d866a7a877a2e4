"""A model as it is published: a config, and what the headers of its weights say."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kvplan.errors import ModelNotFound
from kvplan.files import read_json_object
from kvplan.sources.huggingface.quantization import with_hf_quant_config

if TYPE_CHECKING:
    from kvplan.model.model import Model
    from kvplan.sources.safetensors import Index, StoredWeights

CONFIG, QUANT_CONFIG = "config.json", "hf_quant_config.json"


class Published(NamedTuple):
    """What was found of a model, before it is understood."""

    name: str
    source: str
    """What errors and the report name."""
    config: Mapping[str, Any]
    """The config, with the quantisation that stands in a file of its own."""
    hub_id: str | None
    weights: StoredWeights | Index | None = None
    warnings: tuple[str, ...] = ()

    def model(self, assume: str | None, overrides: Mapping[str, str] | None) -> Model:
        """The model of these documents; stored bytes count unless a what-if changed the shapes."""
        from dataclasses import replace

        from kvplan.sources.huggingface.config import read_config

        model = read_config(
            self.config,
            name=self.name,
            source=self.source,
            assume=assume,
            overrides=overrides,
            hub_id=self.hub_id,
        )
        if self.warnings:
            model = replace(model, warnings=(*model.warnings, *self.warnings))
        if self.weights is None:
            return model
        from kvplan.sources.stored import with_stored

        return with_stored(model, self.weights, what_if=bool(overrides))


def from_folder(folder: str) -> Published:
    """A folder as downloaded from the hub: config, quantisation, and headers of the weights."""
    from kvplan.sources.safetensors import read_folder

    config = os.path.join(folder, CONFIG)
    if not os.path.exists(config):
        raise ModelNotFound(
            f"{folder}: the folder has no config.json",
            hint="Give a folder as downloaded from the hub, or the .gguf file in it by its path.",
        )
    return from_config(config)._replace(weights=read_folder(folder))


def from_config(path: str) -> Published:
    """A config alone, with the ``hf_quant_config.json`` beside it where there is one."""
    folder = os.path.dirname(path)
    stem = os.path.splitext(os.path.basename(path))[0]
    data: Mapping[str, Any] = read_json_object(path)
    beside = os.path.join(folder, QUANT_CONFIG)
    if os.path.basename(path) == CONFIG and os.path.exists(beside):
        data = with_hf_quant_config(data, read_json_object(beside), beside)
    return Published(
        name=os.path.basename(os.path.abspath(folder)) if stem == "config" else stem,
        source=path,
        config=data,
        hub_id=folder or ".",
    )
