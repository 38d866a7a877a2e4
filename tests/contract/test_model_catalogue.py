"""Every bundled model profile is whole, traced, and gives the figures its publisher gives.

The expected figures are written out here: totals of parameters as published, and KV bytes from
the published geometry with their arithmetic.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kvplan import catalogue as catalogue_package
from kvplan.catalogue import catalogue, name_key
from kvplan.catalogue.compile import CONFIGS, compile_profiles, compiled
from kvplan.files import read_yaml_object
from kvplan.model.model import WIDE_KV, Model
from kvplan.model.rows import sequence_bytes
from kvplan.sources.huggingface.config import read_config
from kvplan.sources.schema import read_profile

FOLDER = Path(CONFIGS).resolve() / "models"
PATHS = sorted(FOLDER.glob("*.yaml"))
PROFILES = {path.stem: read_yaml_object(str(path)) for path in PATHS}

ASKED_FOR = {
    "llama-7b": "llama-7b",
    "LLaMA-13B": "llama-13b",
    "huggyllama/llama-65b": "llama-65b",
    "llama2-7b": "llama-2-7b",
    "meta-llama/Llama-2-70b-chat-hf": "llama-2-70b",
    "llama3-8b": "llama-3-8b",
    "meta-llama/Meta-Llama-3-70B-Instruct": "llama-3-70b",
    "meta-llama/Llama-3.1-8B": "llama-3.1-8b",
    "meta-llama/Meta-Llama-3.1-8B-Instruct": "llama-3.1-8b",
    "Llama_3.1_70B": "llama-3.1-70b",
    "Llama-3.1-405B-Instruct": "llama-3.1-405b",
    "llama-3.2-1b": "llama-3.2-1b",
    "llama-3.3-70b": "llama-3.3-70b",
    "codellama-34b": "codellama-34b",
    "mistral-7b-v0.1": "mistral-7b-v0.1",
    "mistralai/Mistral-7B-Instruct-v0.3": "mistral-7b-v0.3",
    "mistral-nemo-12b": "mistral-nemo-12b",
    "mistral-small-24b": "mistral-small-24b",
    "mixtral-8x7b": "mixtral-8x7b",
    "mistralai/Mixtral-8x22B-v0.1": "mixtral-8x22b",
    "qwen2-7b": "qwen2-7b",
    "qwen2.5-0.5b": "qwen2.5-0.5b",
    "Qwen/Qwen2.5-7B-Instruct": "qwen2.5-7b-instruct",
    "qwen2.5-14b": "qwen2.5-14b",
    "qwen2.5-72b": "qwen2.5-72b",
    "qwen3-8b": "qwen3-8b",
    "qwen3-32b": "qwen3-32b",
    "Qwen/Qwen3-30B-A3B": "qwen3-30b-a3b",
    "qwen3-235b-a22b": "qwen3-235b-a22b",
    "QwQ-32B": "qwq-32b",
    "gemma-7b": "gemma-7b",
    "gemma-2-9b-it": "gemma-2-9b",
    "gemma-3-12b": "gemma-3-12b",
    "gemma-3-27b": "gemma-3-27b",
    "google/gemma-3-27b-it": "gemma-3-27b",
    "phi-3-mini-4k": "phi-3-mini-4k",
    "microsoft/Phi-4": "phi-4",
    "deepseek-v2": "deepseek-v2",
    "deepseek-v2-lite": "deepseek-v2-lite",
    "deepseek-v3": "deepseek-v3",
    "deepseek-ai/DeepSeek-R1": "deepseek-r1",
    "DeepSeek-R1-Distill-Qwen-32B": "deepseek-r1-distill-qwen-32b",
    "kimi-k2": "kimi-k2",
    "openai/gpt-oss-120b": "gpt-oss-120b",
    "gpt-oss-20b": "gpt-oss-20b",
    "falcon-7b": "falcon-7b",
    "falcon-40b": "falcon-40b",
    "falcon-180b": "falcon-180b",
    "yi-34b": "yi-34b",
    "starcoder": "starcoder",
    "gpt2": "gpt2",
    "GPT2-XL": "gpt2-xl",
    "opt-1.3b": "opt-1.3b",
    "opt-13b": "opt-13b",
    "facebook/opt-66b": "opt-66b",
    "tinyllama-1.1b": "tinyllama-1.1b",
    "vicuna-7b-v1.5": "vicuna-7b",
}
"""What people type, and the profile they mean."""

PARAMETERS = {
    # Hugging Face safetensors totals of checkpoints that store the trained weights and no more.
    "llama-3-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "codellama-34b": 33_743_970_304,
    "mistral-7b-v0.1": 7_241_732_096,
    "mistral-7b-v0.3": 7_248_023_552,
    "mistral-nemo-12b": 12_247_782_400,
    "mistral-small-24b": 23_572_403_200,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b-instruct": 140_630_071_296,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-4b": 4_022_468_096,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "gemma-2b": 2_506_172_416,
    "gemma-2-27b": 27_227_128_320,
    "gemma-3-1b": 999_885_952,
    "phi-3-mini-4k": 3_821_079_552,
    "phi-4": 14_659_507_200,
    "deepseek-v2": 235_741_434_880,
    "deepseek-v2-lite": 15_706_484_224,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "yi-34b": 34_388_917_248,
    "falcon-11b": 11_102_822_400,
    "granite-34b-code": 33_715_603_456,
    "tinyllama-1.1b": 1_100_048_384,
    # Published totals less what such a checkpoint stores besides the trained weights.
    "llama-7b": 6_738_417_664 - 32 * 64,  # rotary frequencies
    "llama-2-70b": 68_976_653_312 - 80 * 64,
    "gpt2": 137_022_720 - 12 * 1024**2,  # attention masks
    "gpt2-xl": 1_607_942_848 - 48 * 1024**2,
    "falcon-7b": 7_217_189_760 - 65_024 * 4544,  # a copy of the tied embedding
    "falcon-40b": 41_835_970_560 - 65_024 * 8192,
    "falcon-180b": 179_522_565_120 - 65_024 * 14_848,
    "starcoder": 15_819_446_272 - 49_152 * 6144,
    "qwen3-0.6b": 751_632_384 - 151_936 * 1024,
    # SigLIP tower, projector of 1152 x width and its norm included
    "gemma-3-4b": 4_300_079_472,
    "gemma-3-12b": 12_187_325_040,
    "gemma-3-27b": 27_432_406_640,
    # DeepSeek-V3: 671 billion without the prediction layer (arXiv 2412.19437, section 4.2)
    "deepseek-v3": 671_026_404_352,
    "deepseek-r1": 671_026_404_352,
}
"""Trained parameters of the language model."""

KV_BYTES = [
    # model, tokens of one sequence, bytes at 16 bits
    ("llama-7b", 1, 524_288),  # 2 * 32 layers * 32 heads * 128 * 2
    ("llama-2-70b", 1, 327_680),  # 2 * 80 * 8 * 128 * 2
    ("llama-3.1-8b", 1, 131_072),  # 2 * 32 * 8 * 128 * 2
    ("llama-3.1-405b", 1, 516_096),  # 2 * 126 * 8 * 128 * 2
    ("llama-3.2-1b", 1, 32_768),  # 2 * 16 * 8 * 64 * 2
    ("mistral-nemo-12b", 1, 163_840),  # 2 * 40 * 8 * 128 * 2: head_dim is stated, not 5120 / 32
    ("mistral-7b-v0.1", 4096, 536_870_912),  # 4096 * 2 * 32 * 8 * 128 * 2
    ("mistral-7b-v0.1", 32_768, 536_870_912),  # no more than the window of 4096
    ("mistral-7b-v0.2", 32_768, 4_294_967_296),  # 32768 * 131072: no window
    ("mixtral-8x7b", 1, 131_072),  # 2 * 32 * 8 * 128 * 2
    ("qwen2.5-7b", 1, 57_344),  # 2 * 28 * 4 * 128 * 2
    ("qwen2.5-72b", 1, 327_680),  # 2 * 80 * 8 * 128 * 2
    ("qwen2.5-32b", 131_072, 34_359_738_368),  # 131072 * 2 * 64 * 8 * 128 * 2: the window is off
    ("qwen3-32b", 1, 262_144),  # 2 * 64 * 8 * 128 * 2: head_dim is stated, not 5120 / 64
    ("qwen3-235b-a22b", 1, 192_512),  # 2 * 94 * 4 * 128 * 2
    ("gemma-7b", 1, 458_752),  # 2 * 28 * 16 * 256 * 2
    ("gemma-2-27b", 1, 376_832),  # 2 * 46 * 16 * 128 * 2
    ("gemma-2-27b", 8192, 2_315_255_808),  # 23 * 8192 * (8192 full + 4096 window)
    ("gemma-3-27b", 1, 507_904),  # 2 * 62 * 16 * 128 * 2
    ("gemma-3-27b", 131_072, 11_173_625_856),  # 8192 * (10 * 131072 + 52 * 1024)
    ("gemma-3-4b", 131_072, 2_805_989_376),  # 4096 * (5 * 131072 + 29 * 1024)
    ("gpt-oss-120b", 1, 73_728),  # 2 * 36 * 8 * 64 * 2
    ("gpt-oss-120b", 131_072, 4_836_556_800),  # 2048 * (18 * 131072 + 18 * 128)
    ("phi-3-mini-4k", 4096, 804_913_152),  # 2047 * 2 * 32 * 32 * 96 * 2
    ("phi-3.5-mini", 131_072, 51_539_607_552),  # 131072 * 393216: the window is beyond the context
    ("phi-4", 1, 204_800),  # 2 * 40 * 10 * 128 * 2
    ("deepseek-v2-lite", 1, 31_104),  # 27 * (512 + 64) * 2
    ("deepseek-v2", 1, 69_120),  # 60 * (512 + 64) * 2
    ("deepseek-v3", 1, 70_272),  # 61 * (512 + 64) * 2
    ("kimi-k2", 1, 70_272),  # 61 * (512 + 64) * 2
    ("falcon-7b", 1, 8_192),  # 2 * 32 * 1 * 64 * 2
    ("falcon-40b", 1, 122_880),  # 2 * 60 * 8 * 64 * 2
    ("falcon-180b", 1, 163_840),  # 2 * 80 * 8 * 64 * 2
    ("yi-34b", 1, 245_760),  # 2 * 60 * 8 * 128 * 2
    ("starcoder", 1, 20_480),  # 2 * 40 * 1 * 128 * 2
    ("gpt2", 1, 36_864),  # 2 * 12 * 12 * 64 * 2
    ("opt-66b", 1, 2_359_296),  # 2 * 64 * 72 * 128 * 2
]


@cache
def model(name: str) -> Model:
    return read_config(PROFILES[name]["config"], name=name, source=f"{name}.yaml")


def claimed(profile: dict[str, Any]) -> list[str]:
    return [profile["name"], *profile.get("aliases", ())]


def test_there_are_enough() -> None:
    assert len(PATHS) >= 50


@pytest.mark.parametrize(("spelling", "name"), ASKED_FOR.items())
def test_what_people_type_is_found(spelling: str, name: str) -> None:
    found = catalogue("models").find(spelling)
    assert found is not None
    assert found.profile["name"] == name
    assert not found.implied


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_profile_is_valid_and_traced(path: Path) -> None:
    profile = read_profile(str(path))
    assert profile["name"] == path.stem
    assert "config" in profile, "a bundled model is described by its published config"
    assert "gguf" not in profile
    for key in ("display_name", "family", "hub_id", "sources"):
        assert profile[key], key
    checkpoint = profile.get("checkpoint", {})
    assert ("parameters" in checkpoint) == ("source" in checkpoint)
    assert ("size_bytes" in checkpoint) <= ("parameters" in checkpoint)


@pytest.mark.parametrize("name", PROFILES)
def test_a_validated_config_is_the_files_word_for_word(name: str) -> None:
    """Explicit nulls included: ``sliding_window: null`` says that there is none."""
    assert read_profile(str(FOLDER / f"{name}.yaml"))["config"] == PROFILES[name]["config"]


WITHOUT_CONTEXT = {"codestral-mamba-7b", "hunyuan-a13b", "mamba-130m", "mamba-2.8b"}
"""Models whose published config states no context: a state has none, one file leaves it out."""


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_reads_as_a_model(name: str) -> None:
    read = model(name)
    assert read.max_position_embeddings or name in WITHOUT_CONTEXT
    assert sequence_bytes(read.logical_rows(WIDE_KV), 1) > 0
    if read.weights_unknown is not None:
        assert PROFILES[name].get("notes"), read.weights_unknown


@pytest.mark.parametrize("name", PROFILES)
def test_parameters_are_the_published_total_or_the_notes_say_why_not(name: str) -> None:
    published = PROFILES[name].get("checkpoint", {}).get("parameters")
    counted = model(name).parameters
    if published is None or counted is None or published == counted:
        return
    assert published > counted, "a checkpoint stores more than the trained weights, never less"
    assert PROFILES[name].get("notes")


@pytest.mark.parametrize(("name", "total"), PARAMETERS.items())
def test_parameters(name: str, total: int) -> None:
    assert model(name).parameters == total


@pytest.mark.parametrize(("name", "tokens", "total"), KV_BYTES)
def test_kv_bytes_of_a_sequence(name: str, tokens: int, total: int) -> None:
    assert sequence_bytes(model(name).logical_rows(WIDE_KV), tokens) == total


SIZED = [n for n, profile in PROFILES.items() if "size_bytes" in profile.get("checkpoint", {})]


@pytest.mark.parametrize("name", SIZED)
def test_a_stated_size_is_that_of_the_stored_elements(name: str) -> None:
    checkpoint = PROFILES[name]["checkpoint"]
    if checkpoint["dtype"] in {"bfloat16", "float16"}:
        assert checkpoint["size_bytes"] == 2 * checkpoint["parameters"]
    else:
        assert checkpoint["size_bytes"] == model(name).weight_bytes(model(name).scheme)


def test_spellings_are_claimed_once() -> None:
    """A family is an incomplete name, so it must not be a model's own."""
    owner: dict[str, str] = {}
    for name, profile in PROFILES.items():
        for spelling in claimed(profile):
            assert owner.setdefault(name_key(spelling), name) == name, spelling
    for profile in PROFILES.values():
        assert name_key(profile["family"]) not in owner, profile["family"]


def test_spellings_are_not_only_the_same_name_again() -> None:
    """`name_key` forgives case, separators and the organisation already."""
    for name, profile in PROFILES.items():
        keys = [name_key(spelling) for spelling in claimed(profile)]
        assert len(keys) == len(set(keys)), name


def test_the_hub_name_finds_its_profile() -> None:
    for name, profile in PROFILES.items():
        found = catalogue("models").find(profile["hub_id"])
        assert found is not None, profile["hub_id"]
        assert found.profile["name"] == name


def test_an_incomplete_name_lists_what_it_could_be() -> None:
    models = catalogue("models")
    assert models.find("mistral-7b") is None
    assert models.candidates("Mistral-7B") == [
        "mistral-7b-v0.1", "mistral-7b-v0.2", "mistral-7b-v0.3",
    ]  # fmt: skip
    assert "llama-3.1-70b" in models.candidates("llama3.1")


def test_the_point_in_a_size_counts() -> None:
    """``opt-1.3b`` and ``opt-13b`` differ tenfold; elsewhere a point is a separator."""
    assert name_key("opt-1.3b") != name_key("opt-13b")
    assert name_key("Llama-3.1-8B") == name_key("llama_3_1_8b")
    assert name_key("A100.80GB") == name_key("a100-80g")
    assert name_key("a100-40g-mig-1g.10gb") == name_key("a100 40g mig 1g 10gb")


def test_profiles_name_public_sources() -> None:
    for path in PATHS:
        text = path.read_text(encoding="utf-8")
        for private in ("../", "/work", "shared/", "/tmp"):
            assert private not in text, (path.name, private)


def test_the_compiled_catalogue_is_up_to_date() -> None:
    if (FOLDER.parent / "policies" / "default.yaml").exists():
        expected = compiled()
    else:
        kinds = ("models", "gpus")
        expected = {f"{k}.jsonl": compile_profiles(str(FOLDER.parent / k)) for k in kinds}
    for name, text in expected.items():
        bundled = Path(catalogue_package.__file__).with_name(name).read_text(encoding="utf-8")
        assert bundled == text, f"{name}: run python -m kvplan.catalogue.compile"
