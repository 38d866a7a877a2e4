"""A person's own model profile: what is taken, and what is said of a fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvplan.errors import MalformedFile
from kvplan.sources.schema import read_profile

OWN = """\
name: my-llama
config:
  model_type: llama
  num_hidden_layers: 4
  sliding_window: null
"""


def write(folder: Path, text: str) -> str:
    path = folder / "model.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def fault(folder: Path, text: str) -> MalformedFile:
    path = write(folder, text)
    with pytest.raises(MalformedFile) as caught:
        read_profile(path)
    assert caught.value.message.startswith(f"{path}: ")
    return caught.value


def test_a_name_and_a_config_are_enough(tmp_path: Path) -> None:
    profile = read_profile(write(tmp_path, OWN))
    assert profile["name"] == "my-llama"
    assert profile["config"] == {
        "model_type": "llama", "num_hidden_layers": 4, "sliding_window": None,
    }  # fmt: skip
    assert "checkpoint" not in profile


def test_the_config_is_not_judged_here(tmp_path: Path) -> None:
    profile = read_profile(
        write(tmp_path, "name: x\nconfig: {anything: [1, {a: 2.5}], goes: yes}\n")
    )
    assert profile["config"] == {"anything": [1, {"a": 2.5}], "goes": True}


def test_an_unknown_key_is_named_with_the_nearest(tmp_path: Path) -> None:
    error = fault(tmp_path, OWN + "alias: [m]\n")
    assert error.message.endswith("alias is not a key of a model profile")
    assert error.hint == "Did you mean aliases?"


def test_an_unknown_key_of_a_section(tmp_path: Path) -> None:
    error = fault(tmp_path, OWN + "checkpoint: {size: 10}\n")
    assert error.message.endswith("checkpoint.size is not a key of a model profile")
    assert error.hint == "Did you mean size_bytes?"


def test_a_config_json_in_place_of_a_profile(tmp_path: Path) -> None:
    error = fault(tmp_path, "model_type: llama\nnum_hidden_layers: 4\n")
    assert "model_type stands outside config" in error.message
    assert error.hint == "In a profile the keys of config.json go under config:"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: x\n", "config is missing"),
        ("config: {model_type: llama}\n", "name is missing"),
        ("name: x\nconfig: llama\n", "config = 'llama' should be a valid dictionary"),
        ("name: x\nconfig: {}\n", "config = {}"),
        ("name: 'a/b'\nconfig: {a: 1}\n", "name = 'a/b' should be letters, digits"),
        ("name: x\nhub_id: llama\nconfig: {a: 1}\n", "hub_id = 'llama' should be the name on"),
        (
            "name: x\nconfig: {a: 1}\ncheckpoint: {parameters: 7B}\n",
            "checkpoint.parameters = '7B' should be a valid integer",
        ),
        (
            "name: x\nconfig: {a: 1}\ncheckpoint: {parameters: -1}\n",
            "checkpoint.parameters = -1 should be greater than 0",
        ),
        (
            'name: x\nconfig: {a: 1}\nsources: ["a\\eb"]\n',
            "sources[0] = 'a\\x1bb' should be one line of plain text",
        ),
    ],
)
def test_faults_in_words(tmp_path: Path, text: str, said: str) -> None:
    assert said in fault(tmp_path, text).message
