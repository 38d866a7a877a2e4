"""A GGUF file's profile gives the model of the file, and its faults are named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from filemakers import TINY_GGUF, gguf_bytes, tiny_gguf_tensors
from pydantic import ValidationError

from kvplan.errors import InputError, KvplanError, UnsupportedArchitecture
from kvplan.model.model import Model, Split
from kvplan.sources import importing, load_model, profile_from
from kvplan.sources.gguf import profile as section
from kvplan.sources.schema import Profile

METADATA = {
    **TINY_GGUF,
    "llama.attention.head_count_kv": [2, 1],
    "llama.rope.freq_base": 10000.0,
    "llama.rope.scaling.type": "none",
    "llama.labels": ["a", "b"],
    "general.license": "mit",
    "tokenizer.chat_template": "{{ messages }}",
}


def whole(folder: Path) -> str:
    path = folder / "tiny-q4_k_m.gguf"
    path.write_bytes(gguf_bytes(METADATA, tiny_gguf_tensors()))
    return str(path)


def split(folder: Path) -> str:
    tensors = tiny_gguf_tensors()
    for number in (0, 1):
        metadata: dict[str, Any] = {"split.no": number, "split.count": 2}
        if number == 0:
            metadata |= METADATA
        part = {name: tensors[name] for name in list(tensors)[number::2]}
        (folder / f"tiny-0000{number + 1}-of-00002.gguf").write_bytes(gguf_bytes(metadata, part))
    return str(folder / "tiny-00002-of-00002.gguf")


def vocabulary_only(folder: Path) -> str:
    path = folder / "vocabulary.gguf"
    path.write_bytes(gguf_bytes(METADATA))
    return str(path)


def kept(folder: Path, text: str, name: str = "own.yaml") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def figures(model: Model) -> tuple[Any, ...]:
    return (
        model.name, model.model_type, model.groups, model.layers, model.outside,
        None if model.weights_unknown else model.weight_bytes(model.scheme),
        None if model.weights_unknown else model.weight_bytes(model.scheme, Split(tp=2, pp=2), 1),
        model.parameters, model.active_parameters, model.checkpoint, model.scheme.name,
        model.scheme.form, model.dtype, model.hidden_size, model.vocab_size,
        model.max_position_embeddings, model.weights_unknown, model.warnings, model.assumptions,
    )  # fmt: skip


@pytest.mark.parametrize("write", [whole, split, vocabulary_only])
def test_it_reads_back_to_the_same_model(tmp_path: Path, write: Callable[[Path], str]) -> None:
    path = write(tmp_path)
    own = kept(tmp_path, profile_from(path))
    assert figures(load_model(own)) == figures(load_model(path))
    assert load_model(own).source == own


def test_it_holds_what_says_something_of_memory(tmp_path: Path) -> None:
    text = profile_from(split(tmp_path))
    profile = yaml.safe_load(text)
    assert list(profile) == ["name", "gguf", "sources"]
    assert profile["sources"] == [f"GGUF header of {tmp_path}/tiny-00002-of-00002.gguf (2 parts)"]
    assert profile["gguf"]["vocabulary"] == 3
    assert not {key for key in profile["gguf"]["metadata"] if key.startswith(("tok", "split"))}
    assert "llama.labels" not in profile["gguf"]["metadata"]
    assert "    blk.0.attn_q.weight: [q4_k, 256, 256]\n" in text
    assert "    llama.attention.head_count_kv: [2, 1]\n" in text


def test_a_profile_is_written_again_with_its_origin(tmp_path: Path) -> None:
    first = kept(tmp_path, profile_from(whole(tmp_path)))
    again = kept(tmp_path, profile_from(first), "again.yaml")
    one, two = (yaml.safe_load(Path(path).read_text()) for path in (first, again))
    assert two["sources"] == [*one["sources"], f"profile {first}"]
    assert two["gguf"] == one["gguf"]
    assert figures(load_model(again)) == figures(load_model(first))
    bundled = kept(tmp_path, profile_from("llama-3.1-8b"), "llama.yml")
    same = yaml.safe_load(profile_from(bundled))
    assert same.pop("sources")[-1] == f"profile {bundled}"
    assert same.items() <= yaml.safe_load(Path(bundled).read_text()).items()


def test_a_stated_checkpoint_and_hub_id_are_taken(tmp_path: Path) -> None:
    text = profile_from(whole(tmp_path)) + "hub_id: acme/tiny\ncheckpoint: {parameters: 7}\n"
    model = load_model(kept(tmp_path, text))
    assert (model.hub_id, model.checkpoint.parameters) == ("acme/tiny", 7)


def test_settings_are_refused_as_with_the_file(tmp_path: Path) -> None:
    for path in (whole(tmp_path), kept(tmp_path, profile_from(whole(tmp_path)))):
        with pytest.raises(InputError, match="--set is not taken with a GGUF file"):
            load_model(path, overrides={"num_hidden_layers": "3"})


def test_too_many_tensors_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert section.MAX_TENSORS == 100_000
    many = {f"t{number}": ["f32", 1] for number in range(100_001)}
    with pytest.raises(ValidationError, match="at most 100000 items"):
        Profile.model_validate({"name": "x", "gguf": {"metadata": {"a": 1}, "tensors": many}})
    monkeypatch.setattr(section, "MAX_TENSORS", 20)
    with pytest.raises(InputError, match="21 tensors are more than the 20"):
        profile_from(whole(tmp_path))


def test_a_profile_too_large_to_read_back_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = whole(tmp_path)
    for limit in (500, len(profile_from(path)) - 1):
        with monkeypatch.context() as patch:
            patch.setattr(importing, "MAX_DOCUMENT_BYTES", limit)
            with pytest.raises(InputError, match=rf"a document has at most {limit:,}"):
                profile_from(path)


def test_an_unknown_architecture_is_not_imported(tmp_path: Path) -> None:
    path = tmp_path / "lama.gguf"
    path.write_bytes(gguf_bytes({**METADATA, "general.architecture": "lama"}))
    with pytest.raises(UnsupportedArchitecture, match="lama"):
        profile_from(str(path))


OWN = """\
name: own
gguf:
  metadata: {general.architecture: llama, llama.block_count: 1, llama.embedding_length: 64,
    llama.attention.head_count: 2}
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (OWN + "  tensors: {a: [q9, 64]}\n", "gguf.tensors: 'a' has the unknown type 'q9'"),
        (OWN + "  tensors: {a: [64, 64]}\n", "gguf.tensors: 'a' has the unknown type '64'"),
        (OWN + "  tensors: {a: [q8_0, 33]}\n", "rows of 33, which blocks of 32"),
        (OWN + "  tensors: {a: [f32]}\n", "gguf.tensors: 'a' should have 1 to 4 dimensions"),
        (OWN + "  tensors: {a: [f32, 1, 1, 1, 1, 1]}\n", "should have 1 to 4 dimensions"),
        (OWN + "  tensors: {a: [f32, -1]}\n", "each a whole number"),
        (OWN + "  tensors: {a: [f32, true]}\n", "each a whole number"),
        (OWN + "  tensors: {a: [f32, 9000000000, 9000000000]}\n", "larger than any memory"),
        (OWN + "  tensors: {a: []}\n", "gguf.tensors.a"),
        (OWN + "  tensors: {a: [f32, 1], a: [f32, 1]}\n", "'a' is stated twice"),
        (OWN + "  tensor: {}\n", "gguf.tensor is not a key of a model profile"),
        (OWN + "config: {model_type: llama}\n", "config and gguf are both stated"),
        ("name: own\n", "config is missing"),
        ("name: own\ngguf: {}\n", "gguf.metadata is missing"),
        ("name: own\ngguf: {metadata: {a: 1}}\n", "general.architecture is missing"),
        ("name: own\ngguf: {metadata: {general.architecture: llama}}\n", "block_count is missing"),
        (OWN + "  vocabulary: -1\n", "gguf.vocabulary = -1"),
    ],
)
def test_faults_are_named(tmp_path: Path, text: str, said: str) -> None:
    path = kept(tmp_path, text)
    with pytest.raises(KvplanError) as caught:
        load_model(path)
    assert said in caught.value.message
    assert path in caught.value.message
