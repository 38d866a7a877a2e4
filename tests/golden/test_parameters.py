"""Parameters counted from a config against models that transformers built.

``tests/data/params.jsonl``: the config that transformers 5.24 wrote for a class and the number of
its parameters on the meta device, tied weights once. ``tests/data/model_configs.jsonl``: published
configs with the safetensors total of the hub and a count of the text part by hand.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvplan.errors import UnsupportedArchitecture
from kvplan.model.model import Model
from kvplan.model.tensors import VISION
from kvplan.sources.huggingface.config import read_config

Row = dict[str, Any]
DATA = Path(__file__).parents[1] / "data"


def rows(name: str) -> list[Row]:
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


BUILT = rows("params.jsonl")
PUBLISHED = rows("model_configs.jsonl")

UNSUPPORTED = {
    # encoders: there is no generation cache to plan
    "bert-generation": "bert-generation",
    "big_bird": "big_bird",
    "electra": "electra",
    "ernie": "ernie",
    "megatron-bert": "megatron-bert",
    "rembert": "rembert",
    "roberta-prelayernorm": "roberta-prelayernorm",
    "roformer": "roformer",
    "xlm": "xlm",
    "xlm-roberta": "xlm-roberta",
    "xmod": "xmod",
    # caches of their own that no engine serves
    "prophetnet": "prophetnet",
    "xlnet": "xlnet",
    # a language model only together with towers that are not counted
    "git": "git",
    "moshi": "moshi",
    "phi4_multimodal": "phi4_multimodal",
    # a drafter that reads another model's cache
    "gemma4_unified_assistant": "gemma4_unified_assistant",
}
"""Rows that kvplan refuses, and the ``model_type`` it names."""

TEXT_ALONE = {"llama4", "mllama", "qwen3_5", "qwen3_5_moe"}
"""Rows of the causal class: their config has a picture tower that the class does not build."""

TOWER_LEFT_OUT = {
    "emu3": "vq tower left out of the weights",
    "got_ocr2": "vision tower left out of the weights",
    "moss_transcribe_diarize": "audio tower left out of the weights",
}
"""Rows with a tower whose shapes kvplan does not know: it says so, and gives no total."""

DECODER_ALONE = {"pegasus": 406_287_360}
"""The row counts the decoder, but its config says encoder and decoder, which are these."""

FORMULA_DIFFERS = {
    "apertus-8b": -64,  # the formula has two numbers a layer more than the published total
    "deepseek-coder-v2-lite": 42_508_800,  # this copy lacks q_lora_rank: the class default is taken
}
"""kvplan's count less the hand-made one, where that is not what the published total says."""


def read(row: Row) -> Model:
    name = row.get("name") or row["slug"]
    return read_config(row["config"], name=name, source=f"{name}/config.json")


def vision(model: Model) -> int:
    return sum(tensor.parameters for tensor in model.outside if tensor.part == VISION)


def test_rows_are_unique_and_name_their_origin() -> None:
    assert len({row["name"] for row in BUILT}) == len(BUILT) == 204
    assert all(row["origin"] for row in BUILT)
    assert len({row["slug"] for row in PUBLISHED}) == len(PUBLISHED) == 210


@pytest.mark.parametrize("row", BUILT, ids=lambda row: row["name"])
def test_parameters_are_those_that_transformers_builds(row: Row) -> None:
    name, expected = row["name"], row["num_params"]
    if name in UNSUPPORTED:
        with pytest.raises(UnsupportedArchitecture) as refused:
            read(row)
        assert refused.value.value == UNSUPPORTED[name]
        return
    model = read(row)
    assert model.weights_unknown is None
    if name in TOWER_LEFT_OUT:
        assert model.parameters is None
        assert TOWER_LEFT_OUT[name] in model.warnings
    elif name in DECODER_ALONE:
        assert model.parameters == DECODER_ALONE[name]
    elif name in TEXT_ALONE:
        assert model.parameters is not None
        assert vision(model) > 0
        assert model.parameters - vision(model) == expected
    else:
        assert model.parameters == expected


def test_every_exception_is_a_row() -> None:
    names = {row["name"] for row in BUILT}
    assert {*UNSUPPORTED, *TEXT_ALONE, *TOWER_LEFT_OUT, *DECODER_ALONE} <= names
    assert {row["slug"] for row in PUBLISHED} >= set(FORMULA_DIFFERS)


@pytest.mark.parametrize(
    "row",
    [row for row in PUBLISHED if row["text_parameters"] is not None],
    ids=lambda row: row["slug"],
)
def test_text_part_of_published_configs(row: Row) -> None:
    """The hand-made count has routers' correction biases and layer scalars, which are buffers."""
    model = read(row)
    stored = sum(t.parameters for t in model.all_tensors() if t.part != VISION)
    assert stored - row["text_parameters"] == FORMULA_DIFFERS.get(row["slug"], 0)


EXACT_TOTALS = """
    apertus-8b codellama-13b codellama-34b-instruct codellama-7b deepseek-coder-v2-236b
    deepseek-r1-distill-llama-70b deepseek-r1-distill-llama-8b deepseek-v2-lite
    deepseek-v2-lite-chat exaone-4.0-32b falcon-h1-0.5b-instruct falcon-mamba-7b falcon3-10b
    falcon3-1b falcon3-7b gemma-2-27b gemma-2-2b gemma-2-9b gemma-2b gemma-3-1b-it
    gemma-3-27b-it gemma-3-4b-it gpt-bigcode-santacoder-1.1b gpt-oss-120b gpt-oss-20b
    granite-4.0-h-tiny hunyuan-4b-instruct hunyuan-7b-instruct hunyuan-a13b internlm2.5-7b
    jamba-v0.1 lfm2-2.6b lfm2.5-vl-1.6b llama-3-70b llama-3-8b llama-3.1-405b llama-3.1-70b
    llama-3.1-70b-instruct llama-3.1-8b llama-3.1-8b-instruct llama-3.2-11b-vision llama-3.2-1b
    llama-3.2-3b llama-3.2-90b-vision llama-3.3-70b minicpm4-8b minimax-text-01
    mistral-7b-instruct-v0.2 mistral-7b-v0.1 mistral-nemo-12b nemotron-3-nano-30b-a3b
    nemotron-h-56b-base-8k nemotron-super-49b-v1 olmo-3-7b olmo-3.1-32b-instruct olmo-7b
    olmo2-32b openelm-1.1b-instruct phi-1.5 phi-2 phi-3-medium-4k phi-3-mini-4k phi-3.5-mini
    phi-4 phi-4-mini phi-mini-moe qwen-14b-chat qwen-7b-chat qwen1.5-1.8b-chat qwen1.5-7b-chat
    qwen1.5-moe-a2.7b qwen2-72b-instruct qwen2-7b-instruct qwen2-vl-2b qwen2.5-1.5b qwen2.5-32b
    qwen2.5-32b-instruct qwen2.5-3b qwen2.5-72b qwen2.5-7b-instruct qwen2.5-coder-32b
    qwen2.5-vl-3b qwen2.5-vl-7b qwen3-14b qwen3-235b-a22b qwen3-30b-a3b qwen3-32b qwen3-4b
    qwen3-8b qwen3-coder-480b-a35b qwen3-vl-2b qwen3-vl-4b qwen3-vl-8b qwq-32b salamandra-7b
    seed-oss-36b smollm-1.7b smollm-135m smollm-360m smollm2-360m stablelm-2-zephyr-1.6b
    stablelm-3b-4e1t starcoder2-7b tinyllama-1.1b-chat yi-34b yi-6b-chat
""".split()  # noqa: SIM905  (one word a model)


@pytest.mark.parametrize(
    "row", [row for row in PUBLISHED if row["slug"] in EXACT_TOTALS], ids=lambda row: row["slug"]
)
def test_safetensors_total_of_the_hub(row: Row) -> None:
    """Text, pictures and all, where the files have no prediction layer, scales or duplicates."""
    assert read(row).parameters == row["published_parameters"]
