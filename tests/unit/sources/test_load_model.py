"""What a reference means, and how a checkpoint's exact bytes reach the plan."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from filemakers import (
    TINY_GGUF,
    TINY_LLAMA,
    TINY_LLAMA_PARAMETERS,
    gguf_bytes,
    tiny_gguf_tensors,
    tiny_llama_tensors,
    write_checkpoint,
)

from kvplan.errors import InputError, ModelNotFound, SourceError
from kvplan.model.model import Split
from kvplan.precision.scheme import scheme_from
from kvplan.precision.weights import WEIGHT_FORMATS
from kvplan.sources import load_model, profile_from

TINY_BYTES = 2 * TINY_LLAMA_PARAMETERS


def test_a_folder_takes_the_bytes_of_its_files(tmp_path: Path) -> None:
    model = load_model(str(write_checkpoint(tmp_path / "tiny")))
    assert model.name == "tiny"
    assert model.checkpoint.size_bytes == TINY_BYTES
    assert model.checkpoint.parameters == TINY_LLAMA_PARAMETERS == model.parameters
    assert model.weight_bytes(model.scheme) == TINY_BYTES
    assert model.warnings == ()


def test_a_config_alone_is_counted_by_its_shapes(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "tiny")
    model = load_model(str(folder / "config.json"))
    assert model.checkpoint.size_bytes is None
    assert model.stored is None
    assert model.weight_bytes(model.scheme) == TINY_BYTES


def test_a_weight_file_stands_for_its_folder(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "tiny", shards=1)
    model = load_model(str(folder / "model.safetensors"))
    assert model.stored is not None
    (folder / "config.json").unlink()
    with pytest.raises(SourceError, match="weights alone do not say"):
        load_model(str(folder / "model.safetensors"))


def test_towers_draft_layers_and_buffers_are_told_apart(tmp_path: Path) -> None:
    tensors = tiny_llama_tensors() | {
        "vision_tower.encoder.layers.40.mlp.fc1.weight": ("BF16", [1024, 1024]),
        "multi_modal_projector.linear.weight": ("BF16", [64, 1024]),
        "model.layers.2.eh_proj.weight": ("BF16", [512, 1024]),
        "mtp.norm.weight": ("BF16", [64]),
        "model.layers.0.self_attn.rotary_emb.inv_freq": ("F32", [8]),
    }
    config = {"model_type": "llama", "text_config": TINY_LLAMA, "vision_config": {"x": 1}}
    model = load_model(str(write_checkpoint(tmp_path / "tiny", config, tensors)))
    tower = 2 * (1024 * 1024 + 64 * 1024)
    assert model.stored is not None
    assert model.stored.text_bytes == TINY_BYTES
    assert model.stored.tower_bytes == tower
    assert model.weight_bytes(model.scheme) == TINY_BYTES + tower
    # The encoder stays at 16 bits under any format of the language model, on the first stage.
    q8 = scheme_from(WEIGHT_FORMATS["fp8"])
    config_only = load_model(str(tmp_path / "tiny" / "config.json"))
    assert model.weight_bytes(q8) == config_only.weight_bytes(q8) + tower
    last = Split(pp=2)
    assert model.weight_bytes(q8, last, 1) == config_only.weight_bytes(q8, last, 1)
    # One warning, for the draft layer; none for the tower, which is counted.
    assert [said.split(" of ")[0] for said in model.warnings] == ["draft (MTP) layers"]
    assert [said for said in config_only.warnings if "tower" in said]


def test_a_tied_copy_of_the_embedding_is_not_loaded_twice(tmp_path: Path) -> None:
    config = {**TINY_LLAMA, "tie_word_embeddings": True}
    model = load_model(str(write_checkpoint(tmp_path / "tiny", config)))
    assert model.weight_bytes(model.scheme) == TINY_BYTES - 2 * 128 * 64
    assert model.checkpoint.size_bytes == TINY_BYTES
    assert model.warnings == ()


def test_a_difference_that_nothing_explains_is_said_with_both_numbers(tmp_path: Path) -> None:
    tensors = tiny_llama_tensors() | {"model.extra.weight": ("BF16", [2048, 1024])}
    model = load_model(str(write_checkpoint(tmp_path / "tiny", tensors=tensors)))
    assert model.weight_bytes(model.scheme) == TINY_BYTES + 2 * 2048 * 1024
    assert "the files store <0.01 GiB of weights where" in model.warnings[0]
    assert "the stored bytes are taken" in model.warnings[0]


def test_ranks_share_stored_bytes_as_the_shapes_do(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "tiny")
    stored, counted = load_model(str(folder)), load_model(str(folder / "config.json"))
    for split in (Split(tp=2), Split(pp=2), Split(tp=2, pp=2)):
        for stage in range(split.pp):
            assert stored.weight_bytes(stored.scheme, split, stage) == counted.weight_bytes(
                counted.scheme, split, stage
            )


def test_an_unknown_scheme_is_answered_by_the_files(tmp_path: Path) -> None:
    config = {**TINY_LLAMA, "quantization_config": {"quant_method": "quark"}}
    tensors = tiny_llama_tensors("F8_E4M3")
    model = load_model(str(write_checkpoint(tmp_path / "tiny", config, tensors)))
    assert model.weights_unknown is None
    assert model.weight_bytes(model.scheme) == TINY_LLAMA_PARAMETERS
    assert model.weight_bytes(model.scheme, Split(tp=2)) < TINY_LLAMA_PARAMETERS
    assert "quark" in model.warnings[0]
    assert model.checkpoint.parameters is None  # packed or 8-bit: elements are not parameters
    alone = load_model(str(tmp_path / "tiny" / "config.json"))
    assert alone.weights_unknown is not None


def test_what_if_changes_leave_the_bytes_as_a_fact(tmp_path: Path) -> None:
    folder = str(write_checkpoint(tmp_path / "tiny"))
    model = load_model(folder, overrides={"num_kv_heads": "4"})
    assert model.stored is None
    assert model.weight_bytes(model.scheme) > TINY_BYTES
    assert model.checkpoint.size_bytes == TINY_BYTES


def test_the_index_alone_gives_the_size_as_a_fact(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "tiny")
    for shard in folder.glob("*.safetensors"):
        shard.unlink()
    model = load_model(str(folder))
    assert model.checkpoint.size_bytes == TINY_BYTES
    assert model.stored is None
    assert "files are not there" in model.warnings[0]


def test_quantisation_in_a_file_of_its_own(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "tiny")
    beside = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    (folder / "hf_quant_config.json").write_text(json.dumps(beside))
    model = load_model(str(folder / "config.json"))
    assert model.scheme.name == "fp8"
    assert model.kv_cache_dtype == "fp8_e4m3"


def test_gguf_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(gguf_bytes(TINY_GGUF, tiny_gguf_tensors()))
    assert load_model(str(path)).scheme.name == "q4_k_m"
    with pytest.raises(InputError, match="--set is not taken"):
        load_model(str(path), overrides={"num_kv_heads": "1"})


@pytest.mark.parametrize("ref", ["", "   "])
def test_no_name(ref: str) -> None:
    with pytest.raises(ModelNotFound, match="no model was named"):
        load_model(ref)


@pytest.mark.parametrize("ref", ["none.json", "none.gguf", "no/such/folder/config.json"])
def test_a_path_that_is_not_there(ref: str) -> None:
    with pytest.raises(ModelNotFound, match="no such file or folder"):
        load_model(ref)


def test_a_folder_without_a_config(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"no config\.json"):
        load_model(str(tmp_path))


@pytest.mark.parametrize(
    ("ref", "revision"),
    [("hf:x", None), ("hf:", None), ("hf:a/b/c", None), ("hf:../x", None), ("llama", "main"),
     ("x/config.json", "main")],
)  # fmt: skip
def test_what_can_only_be_a_hub_id_must_be_one(ref: str, revision: str | None) -> None:
    with pytest.raises(InputError, match="is not a hub id"):
        load_model(ref, revision=revision)


def test_the_hub_needs_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(Exception, match="'hub'") as caught:
        load_model("acme/no-such-model")
    assert "kvplan[hub]" in (getattr(caught.value, "hint", "") or "")


def test_a_profile_reads_back_to_the_same_model(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "tiny" / "My Model (v2)")
    text = profile_from(str(folder))
    path = tmp_path / "profile.yaml"
    path.write_text(text)
    model, read = load_model(str(folder)), load_model(str(path))
    assert read.name == "My Model -v2"
    assert read.groups == model.groups
    assert read.weight_bytes(read.scheme) == model.weight_bytes(model.scheme)
    assert read.checkpoint.size_bytes == TINY_BYTES
    assert str(folder) in " ".join(text.split())  # a long line is folded


def test_a_profile_is_made_of_what_exists(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="there is no such file or folder"):
        profile_from(str(tmp_path / "none.gguf"))
    with pytest.raises(ModelNotFound, match="neither a bundled model nor a file"):
        profile_from("no-such-thing")


def test_a_profile_keeps_repeated_parts_without_aliases(tmp_path: Path) -> None:
    """JSON gives equal lists; YAML would write the second as an alias if they were one object."""
    config: dict[str, Any] = {**TINY_LLAMA, "a": [1, 2], "b": [1, 2], "id2label": {"0": "x"}}
    folder = write_checkpoint(tmp_path / "tiny", config)
    text = profile_from(str(folder))
    assert "&" not in text
    assert "id2label" not in text


def test_a_bundled_name_imports_no_reader_of_files() -> None:
    code = (
        "import sys; from kvplan.sources import load_model; load_model('llama-3.1-8b');"
        "bad = [m for m in ('yaml', 'pydantic', 'numpy', 'huggingface_hub', 'kvplan.sources.gguf',"
        " 'kvplan.sources.safetensors', 'kvplan.sources.hub') if m in sys.modules];"
        "sys.exit(repr(bad) if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
