"""A model's published documents → a profile in the form of ``configs/models/*.yaml``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kvplan.errors import InputError
from kvplan.files import MAX_DOCUMENT_BYTES
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


def gguf_text(path: str) -> str:
    """The YAML of a GGUF file, or of all its parts; it reads back to the same model."""
    from kvplan.sources.gguf import model_of, name_of
    from kvplan.sources.gguf.parts import read_parts
    from kvplan.sources.gguf.profile import header_of, section_of

    header, parts = read_parts(path)
    section = section_of(header, path)
    _check_length(len(repr(section)), path)  # about the same, before the slow writing of YAML
    name = _name(name_of(header, path))
    model_of(header_of(section, path), name=name, source=path, where=path)  # or it says why not
    origin = f"GGUF header of {path}" + (f" ({parts} parts)" if parts > 1 else "")
    text = as_yaml({"name": name, "gguf": section, "sources": [_one_line(origin)]})
    _check_length(len(text.encode()), path)
    return text


def _check_length(length: int, path: str) -> None:
    """A profile that is longer than a document may be would not be read back."""
    if length > MAX_DOCUMENT_BYTES:
        raise InputError(
            f"{path}: its profile would have {length:,} bytes; a document has at most "
            f"{MAX_DOCUMENT_BYTES:,}",
            hint="The .gguf file itself is taken by its path.",
        )


def again_text(path: str) -> str:
    """The YAML of a person's own profile once more, with where it came from."""
    from kvplan.sources import model_from_profile
    from kvplan.sources.schema import read_profile

    profile = read_profile(path)
    model_from_profile(profile, path)  # or it says why not
    origin = _one_line(f"profile {path}")
    sources = [source for source in profile.pop("sources", []) if source != origin]
    return as_yaml({**profile, "sources": [*sources, origin]})


def as_yaml(profile: Mapping[str, Any]) -> str:
    """A profile in the form of ``configs/models``."""
    import yaml

    from kvplan.sources.schema import Profile

    Profile.model_validate(profile)

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
            return True  # a profile with aliases would not be read back

    class InLine(list[Any]):
        """A list on one line: a tensor, or one number a layer."""

    def in_line(dumper: yaml.SafeDumper, data: InLine) -> yaml.Node:
        return dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=True)

    Dumper.add_representer(InLine, in_line)
    document = dict(profile)
    if "gguf" in document:
        document["gguf"] = {
            key: {k: InLine(v) if isinstance(v, list) else v for k, v in value.items()}
            if isinstance(value, dict)
            else value
            for key, value in document["gguf"].items()
        }
    return yaml.dump(document, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100)


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
