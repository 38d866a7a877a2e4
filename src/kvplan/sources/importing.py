"""A model's published documents → a profile in the form of ``configs/models/*.yaml``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kvplan.sources.published import Published
from kvplan.sources.safetensors import Index
from kvplan.sources.stored import with_stored

if TYPE_CHECKING:
    from kvplan.model.model import Model

_NOT_FACTS = frozenset({
    "_name_or_path", "auto_map", "id2label", "label2id", "transformers_version",
    "task_specific_params", "custom_pipelines", "torch_dtype_str",
})  # fmt: skip
"""Keys of a config that say nothing of the model's memory."""


def profile_text(published: Published) -> str:
    """The YAML; it reads back to the same model, with the weights counted from the shapes."""
    model = published.model(None, None)
    profile: dict[str, Any] = {"name": _name(published.name)}
    if published.hub_id and re.fullmatch(r"[\w.-]+/[\w.-]+", published.hub_id, re.ASCII):
        profile["hub_id"] = published.hub_id
    profile["config"] = _facts(published.config)
    checkpoint = _checkpoint(published, model)
    if checkpoint:
        profile["checkpoint"] = checkpoint
    profile["sources"] = [_one_line(f"config.json of {published.source}")]
    return as_yaml(profile)


def as_yaml(profile: Mapping[str, Any]) -> str:
    """A profile in the form of ``configs/models``."""
    import yaml

    from kvplan.sources.schema import Profile

    Profile.model_validate(profile)

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
            return True  # a profile with aliases would not be read back

    return yaml.dump(dict(profile), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100)


def _checkpoint(published: Published, model: Model) -> dict[str, Any]:
    if published.weights is None:
        return {}
    facts = with_stored(model, published.weights, what_if=True).checkpoint
    known = {"parameters": facts.parameters, "size_bytes": facts.size_bytes}
    stated = {key: value for key, value in known.items() if value}
    if not stated:
        return {}
    of = "index" if isinstance(published.weights, Index) else "headers"
    return {**stated, "source": _one_line(f"safetensors {of} of {published.source}")}


def _facts(value: Any) -> Any:
    """The config without what says nothing of memory."""
    if isinstance(value, dict):
        return {key: _facts(inner) for key, inner in value.items() if key not in _NOT_FACTS}
    return value


def _name(text: str) -> str:
    name = re.sub(r"[^A-Za-z0-9 ._+-]+", "-", text).strip(" ._+-")[:100]
    return name or "model"


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)[:2000]
