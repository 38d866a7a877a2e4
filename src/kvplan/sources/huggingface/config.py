"""A Hugging Face ``config.json`` → `Model`. The bundled profiles go through the same reader."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kvplan.errors import InputError, MalformedFile, SourceError, UnsupportedArchitecture
from kvplan.model.caches import Cache, Recurrent
from kvplan.model.model import Checkpoint, Layer, Model
from kvplan.model.tensors import VISION, Tensor
from kvplan.precision.format import BF16
from kvplan.precision.scheme import plain_scheme
from kvplan.sources.huggingface.architecture import Weights
from kvplan.sources.huggingface.families import (
    ALIASES,
    ARCHITECTURES,
    FULL_ATTENTION,
    Build,
    family,
    known_types,
    load,
)
from kvplan.sources.huggingface.fields import Fields
from kvplan.sources.huggingface.overrides import apply_overrides, latent_what_if
from kvplan.sources.huggingface.quantization import (
    checkpoint_scheme,
    declared_kv_format,
    stated_dtype,
)
from kvplan.sources.huggingface.towers import AUDIO_SECTION, SEEING, VISION_SECTION, tower

TEXT_SECTIONS = ("text_config", "llm_config", "language_config")
"""Where multimodal configs keep the language model; its layers are never read elsewhere."""
WRAPPER = "thinker_config"
"""Where omni models keep the part that reads and writes text, itself multimodal."""
NOT_READ = ("gemma4_assistant", "gemma4_unified_assistant")
"""Wrappers whose language model is no model of its own: drafters that read another's cache."""
NO_PARTS = (*TEXT_SECTIONS, WRAPPER, "quantization_config", "generation_config", "slice_config",
            "img_token_compression_config", "mtp_config")  # fmt: skip
"""Sections that are no further parts of a model."""
TOWERS = ("vision_config", "audio_config", "talker_config", "token2wav_config")


def read_config(
    data: Mapping[str, Any],
    *,
    name: str,
    source: str,
    checkpoint: Checkpoint = Checkpoint(),
    assume: str | None = None,
    overrides: Mapping[str, str] | None = None,
    hub_id: str | None = None,
) -> Model:
    """The model that a config describes; ``source`` names the file in errors."""
    text, warnings = text_section(data, source), list[str]()
    model_type = text.get("model_type") or data.get("model_type") or _by_architecture(data)
    if model_type is None:
        raise MalformedFile(
            source,
            "model_type is missing: nothing says which architecture this is",
            hint="Give the config.json as it was published, which states it.",
        )
    if not isinstance(model_type, str):
        raise UnsupportedArchitecture("model_type", model_type, where=source, known=known_types())
    build, defaults = _reader(model_type, source, assume)
    facts = dict(text)
    for key in ("quantization_config", "torch_dtype", "dtype", "tie_word_embeddings"):
        if data.get(key) is not None and (facts.get(key) is None or _wins(key, data)):
            facts[key] = data[key]
    assumptions = apply_overrides(facts, overrides or {}, defaults)
    c = Fields(facts, source, defaults)
    architecture = build(c)
    caches = architecture.caches
    what_if = latent_what_if(caches, overrides or {})
    if what_if is not None:
        caches, said = what_if
        assumptions.append(said)
    assumptions += architecture.assumptions

    dtype = stated_dtype(c)
    if dtype is None:
        dtype = BF16
        assumptions.append("the config states no dtype: 16-bit weights and KV cache are taken")
    weights, scheme, unknown = Weights([()] * len(caches), ()), plain_scheme(dtype), None
    try:
        weights = architecture.weights()
        scheme = checkpoint_scheme(c, dtype)
    except SourceError as error:  # a width is missing or a scheme unknown: the KV cache stands
        unknown = error.message.removeprefix(f"{source}: ")
    hidden_size = _lenient(c, "hidden_size", "n_embd", "d_model", "model_dim", "n_embed")
    towers = {
        part: tower(data, part, hidden_size, source) for part in (VISION_SECTION, AUDIO_SECTION)
    }
    known = [tensor for tensors in towers.values() for tensor in tensors or ()]
    missing = left_out(data, [part for part, tensors in towers.items() if tensors])
    if missing and unknown is None:
        rest, said = rest_of_checkpoint(checkpoint, (*weights.outside, *known), weights.layers)
        known += rest
        warnings += [f"{part} tower {said}" for part in missing]
        missing = [] if rest else missing
    kv_cache_dtype, not_known = declared_kv_format(c)
    warnings += [not_known] if not_known else []
    return Model(
        name=name,
        source=source,
        model_type=ALIASES.get(model_type, model_type),
        layers=tuple(
            Layer(kept, tensors) for kept, tensors in zip(caches, weights.layers, strict=True)
        ),
        outside=(*weights.outside, *known),
        num_attention_heads=architecture.heads or _query_heads(c, caches),
        scheme=scheme,
        dtype=dtype,
        hidden_size=hidden_size,
        vocab_size=_lenient(c, "vocab_size", "padded_vocab_size"),
        max_position_embeddings=c.context(),
        is_multimodal=text is not data or any(data.get(part) for part in TOWERS),
        hub_id=hub_id,
        kv_cache_dtype=kv_cache_dtype,
        weights_unknown=unknown,
        left_out=tuple(missing),
        checkpoint=checkpoint,
        assumptions=tuple(assumptions),
        warnings=tuple(warnings),
        facts=facts,
    )


def text_section(data: Mapping[str, Any], source: str) -> Mapping[str, Any]:
    """The language model's own facts."""
    if data.get("model_type") in NOT_READ:
        raise UnsupportedArchitecture("model_type", data["model_type"], where=source)
    inner = data.get(WRAPPER)
    if isinstance(inner, dict):
        return text_section(inner, source)
    for key in TEXT_SECTIONS:
        section = data.get(key)
        if isinstance(section, dict):
            return section
        if section is not None:
            raise UnsupportedArchitecture(key, section, where=source)
    return data


def left_out(data: Mapping[str, Any], counted: Sequence[str]) -> list[str]:
    """The parts of a multimodal model whose weights the reader cannot count."""
    inner = data.get(WRAPPER)
    facts = {**data, **inner} if isinstance(inner, dict) else data
    has_text_section = any(isinstance(facts.get(key), dict) for key in TEXT_SECTIONS)
    parts = [key for key in TOWERS if facts.get(key)]
    if has_text_section:
        sections = [key for key in facts if key.endswith("_config") and key not in parts]
        parts += [key for key in sections if facts[key] and key not in NO_PARTS]
        # An explicit null is a model without the tower; a file that leaves it out has the default.
        if str(data.get("model_type")) in SEEING and VISION_SECTION not in facts:
            parts.append(VISION_SECTION)
    return [part.removesuffix("_config") for part in parts if part not in counted]


def rest_of_checkpoint(
    checkpoint: Checkpoint, outside: Iterable[Tensor], layers: Iterable[tuple[Tensor, ...]]
) -> tuple[list[Tensor], str]:
    """What the published total holds beyond the tensors that are known, and words for it.

    A tower that cannot be counted from its config is the difference where the total is published;
    without one it is missing from the weights, and no verdict may be "fits" for sure.
    """
    counted = sum(t.parameters for t in outside) + sum(
        t.parameters for layer in layers for t in layer
    )
    rest = (checkpoint.parameters or 0) - counted
    if rest <= 0:
        return [], "left out of the weights"
    tensor = Tensor(VISION, "rest of the published checkpoint", rest, units=rest)
    return [tensor], "counted as what the published checkpoint holds beyond the language model"


def _by_architecture(data: Mapping[str, Any]) -> str | None:
    """The ``model_type`` of a file that states only the name of its class."""
    names = data.get("architectures")
    first = names[0] if isinstance(names, list) and names else None
    return ARCHITECTURES.get(first) if isinstance(first, str) else None


def _wins(key: str, data: Mapping[str, Any]) -> bool:
    """Whether the outer config's word counts before the text section's.

    The outer class ties the head to the embedding. Source: transformers ``modeling_utils.py``,
    ``get_expanded_tied_weights_keys`` (``self.config.tie_word_embeddings``).
    """
    return key == "tie_word_embeddings" and isinstance(data.get("text_config"), dict)


def _reader(model_type: str, source: str, assume: str | None) -> tuple[Build, Mapping[str, Any]]:
    if assume not in {None, "full-attention"}:
        raise InputError(
            f"--assume {assume!r} is not an assumption kvplan takes",
            hint="Use: --assume full-attention",
        )
    found = family(model_type)
    if found is not None:
        return found
    if assume is None:
        raise UnsupportedArchitecture("model_type", model_type, where=source, known=known_types())
    return load(FULL_ATTENTION)


def _query_heads(c: Fields, caches: Sequence[tuple[Cache, ...]]) -> int:
    """Query heads; without any attention layer the mixer's heads where it has them, else 0."""
    if any(not isinstance(cache, Recurrent) for kept in caches for cache in kept):
        return c.heads()
    return _lenient(c, "num_attention_heads", "num_heads") or 0


def _lenient(c: Fields, *names: str) -> int | None:
    return c.optional_integer(*names, maximum=10**8)
