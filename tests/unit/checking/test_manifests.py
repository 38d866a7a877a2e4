"""Engine commands out of manifests: what is checked is what is deployed."""

from __future__ import annotations

from pathlib import Path

import pytest
from plan_files import checked, deployment, only

from kvplan.checking.manifests.arguments import read_arguments
from kvplan.checking.manifests.engines import Deployed, deployed_by_command, deployed_by_manifest
from kvplan.checking.manifests.llama_server import TABLE as LLAMA_SERVER
from kvplan.checking.manifests.sglang import TABLE as SGLANG
from kvplan.checking.manifests.vllm import TABLE as VLLM
from kvplan.checking.manifests.vllm import whole_number
from kvplan.checking.report import Status
from kvplan.errors import InputError, UnsupportedCombination

EXAMPLES = Path(__file__).parents[3] / "examples" / "ci"


def manifest(folder: Path, text: str, container: str | None = None) -> Deployed:
    path = folder / "deploy.yaml"
    path.write_text(text, encoding="utf-8")
    return deployed_by_manifest(str(path), "deploy.yaml", container, ())


def test_kubernetes_with_a_shell_and_a_sidecar() -> None:
    found = deployed_by_manifest(str(EXAMPLES / "deploy" / "vllm.yaml"), "vllm.yaml", None, ())
    assert found.model == "meta-llama/Llama-3.1-8B-Instruct"
    assert found.flags == {
        "engine": "vllm@0.30.0",
        "max_model_len": "16384",
        "max_num_seqs": "64",
        "kv": "fp8",
        "gpu_memory_utilization": "0.9",
    }
    assert found.where == "vllm.yaml:15"


def test_compose_with_the_images_own_entry_point() -> None:
    found = deployed_by_manifest(str(EXAMPLES / "deploy" / "compose.yaml"), "c.yaml", None, ())
    assert found.model == "meta-llama/Llama-3.1-8B-Instruct"
    assert found.flags == {"engine": "vllm", "max_model_len": "8192", "enforce_eager": True}


@pytest.mark.parametrize(
    "command",
    [
        "vllm serve org/m --tensor-parallel-size 4 --max-model-len 8192 --enforce-eager",
        "vllm serve --tensor_parallel_size=4 --max_model_len=8192 --enforce-eager org/m",
        "/opt/venv/bin/vllm serve org/m -tp 4 --max-model-len 8K --enforce-eager",
        "env CUDA_VISIBLE_DEVICES=0,1 vllm serve org/m -tp=4 --max-model-len=8192 --enforce-eager",
        "python3 -u -m vllm.entrypoints.openai.api_server --model org/m -tp 4 --enforce-eager "
        "--max-model-len 8192 --port 8000 --served-model-name a b",
        "bash -ec 'sleep 1; exec vllm serve org/m -tp 4 --enforce-eager --max-model-len 8192'",
        "tini -- vllm serve org/m -tp 2 -tp 4 --enforce-eager --max-model-len 8192",
    ],
)
def test_ways_to_write_the_same(command: str) -> None:
    found = deployed_by_command(command, ())
    assert found.model == "org/m"
    assert found.flags == {
        "engine": "vllm", "tp": "4", "max_model_len": "8192", "enforce_eager": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        ("-dp 2 -tp 4 -ep", {"tp": "4", "dp": "2", "ep": "8"}),
        ("--no-enable-prefix-caching", {"no_prefix_caching": True}),
        ("--enable-prefix-caching", {}),
        ("--no-async-scheduling", {"no_async_scheduling": True}),
        ("--enforce-eager --no-enforce-eager", {}),
        ("--max-num-batched-tokens 16k", {"max_num_batched_tokens": "16000"}),
        ("--max-model-len auto", {"max_model_len": "auto"}),
        ("--kv-cache-memory-bytes 20G", {"kv_cache_memory": str(20 * 2**30)}),
        ("--kv-cache-dtype bfloat16", {"kv": "bf16"}),
        ("--quantization fp8 --dtype half", {"weights": "fp8"}),
        ("--num-gpu-blocks-override 100", {"engine_arg": ("num_gpu_blocks_override=100",)}),
        ("--kv-cache-dtype-skip-layers 0 31", {"engine_arg": ("kv_cache_dtype_skip_layers=0,31",)}),
        ("--api-key a b --port 1 --trust-remote-code", {}),
    ],
)
def test_vllm_arguments(words: str, flags: dict[str, object]) -> None:
    found = deployed_by_command(f"vllm serve org/m {words}", ())
    assert found.flags == {"engine": "vllm", **flags}


@pytest.mark.parametrize(
    ("text", "value"),
    [("32k", "32000"), ("32K", "32768"), ("1.5k", "1500"), ("1M", "1048576"), ("4096", "4096")],
)
def test_vllm_writes_whole_numbers_in_its_own_way(text: str, value: str) -> None:
    assert whole_number(text) == value


def test_lora_slots_are_read() -> None:
    command = "vllm serve m --enable-lora --max-loras=4 --max-lora-rank 64"
    found = deployed_by_command(command, ())
    assert found.flags["engine_arg"] == ("enable_lora=true", "max_loras=4", "max_lora_rank=64")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            "--fully-sharded-loras",
            "changes the memory of adapters, which kvplan does not read here",
        ),
        ("--cpu-offload-gb 4", "moves weights or cache off the GPU"),
        ('--speculative-config \'{"method": "ngram"}\'', "takes memory for a draft"),
        ("--config x.yaml", "reads further arguments from a file"),
        ("-cc 3", "changes what is compiled"),
        ("--no-enable-chunked-prefill", "changes the largest step"),
        ("--tensor-parralel-size 4", "is not an argument that kvplan knows"),
        ("--dtype float32", "served at 16 bits"),
        ("--load-format gguf", "changes the weights' format"),
        ("--max-model-len 8.5K", "not a whole number as vLLM reads them"),
        ("--max-num-seqs", "has no value"),
        ("second/model", "is given 2 models"),
    ],
)
def test_what_is_not_modelled_is_refused(words: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        deployed_by_command(f"vllm serve org/m {words}", ())


def test_the_nearest_argument_is_named() -> None:
    with pytest.raises(InputError) as caught:
        deployed_by_command("vllm serve m --tensor-parralel-size 4", ())
    assert "--tensor-parallel-size" in (caught.value.hint or "")


def test_arguments_that_are_left_out_on_purpose() -> None:
    command = "vllm serve m --enable-lora --made-up a b --max-loras=2 -tp 2"
    found = deployed_by_command(command, ("--enable-lora", "--made-up", "--max-loras"))
    assert found.flags == {"engine": "vllm", "tp": "2"}
    assert "ignore_args" in found.notes[1]
    with pytest.raises(InputError, match="the command has no such argument"):
        deployed_by_command("vllm serve m", ("--enable-lora",))


@pytest.mark.parametrize("name", ["sglang serve", "python -m sglang.launch_server", "llama-server"])
def test_an_engine_that_is_not_modelled_is_an_error(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvplan.engines.engine_names", lambda: ["none", "vllm"])
    with pytest.raises(UnsupportedCombination, match="an engine that kvplan does not model yet"):
        deployed_by_command(f"{name} --model m", ())


def test_sglang_and_llama_server_arguments_are_read() -> None:
    words = "--model-path m --tp 2 --context-length 8192 --mem-fraction-static 0.85 --port 1"
    assert read_arguments(words.split(), SGLANG).flags == {
        "tp": "2", "max_model_len": "8192", "gpu_memory_utilization": "0.85",
    }  # fmt: skip
    words = "-m m.gguf -c 8192 -np 4 -ctk q8_0 -fa on -ngl 99 --swa-full"
    assert read_arguments(words.split(), LLAMA_SERVER).model == "m.gguf"
    with pytest.raises(InputError, match="wholly on the GPU"):
        read_arguments(["-ngl", "20"], LLAMA_SERVER)
    with pytest.raises(InputError, match="'stray' belongs to no argument"):
        read_arguments(["stray"], SGLANG)


def test_no_argument_means_two_things() -> None:
    for table in (VLLM, SGLANG, LLAMA_SERVER):
        assert not set(table.short) & set(table.known)
        assert set(table.short.values()) <= set(table.known)


TWO = """\
services:
  big: {image: "vllm/vllm-openai:v0.30.0", command: [--model, org/big, -tp, "2"]}
  small: {image: "vllm/vllm-openai:v0.30.0", command: [--model, org/small]}
  web: {image: nginx, command: ["nginx", "-g", "daemon off;", "$X"]}
"""


def test_several_engines_need_a_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="runs 2 engines: big, small"):
        manifest(tmp_path, TWO)
    assert manifest(tmp_path, TWO, "small").model == "org/small"
    with pytest.raises(InputError, match="has no container 'none'") as caught:
        manifest(tmp_path, TWO, "none")
    assert "big, small, web" in (caught.value.hint or "")


def test_a_substitution_names_its_container(tmp_path: Path) -> None:
    text = TWO.replace("org/small", "'${MODEL}'").replace("big", "huge")
    with pytest.raises(InputError, match=r"deploy.yaml:3: small: \$\{MODEL\} is substituted"):
        manifest(tmp_path, text)


def test_helm_values_where_they_are_plain_lists(tmp_path: Path) -> None:
    text = """\
replicaCount: 1
servers:
  - name: a
    image: {repository: vllm/vllm-openai, tag: v0.29.1}
    command: ["vllm", "serve", "org/m"]
    args: ["--max-model-len", "4096"]
"""
    found = manifest(tmp_path, text)
    assert found.model == "org/m"
    assert found.flags == {"engine": "vllm@0.29.1", "max_model_len": "4096"}
    template = text.replace('"org/m"', '"{{ .Values.model }}"')
    with pytest.raises(InputError, match="is a template") as caught:
        manifest(tmp_path, template)
    assert "helm template" in (caught.value.hint or "")


def test_lists_init_containers_and_further_kinds(tmp_path: Path) -> None:
    text = """\
apiVersion: v1
kind: List
items:
  - apiVersion: serving.kserve.io/v1beta1
    kind: InferenceService
    metadata: {name: chat}
    spec:
      predictor:
        initContainers: [{name: load, image: x, command: [vllm, serve, org/no]}]
        containers:
          - name: server
            image: registry/vllm-openai@sha256:00
            args: [org/m]
            env: [{name: VLLM_USE_V1, value: "1"}]
            resources: {limits: {nvidia.com/gpu: "4"}}
"""
    found = manifest(tmp_path, text)
    assert (found.model, found.flags) == ("org/m", {"engine": "vllm"})
    assert found.warnings == (
        "environment variables are not judged: VLLM_USE_V1",
        "InferenceService/chat/server asks for 4 nvidia.com/gpu, but its arguments use 1",
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("services: {web: {image: nginx}}", "runs no engine that kvplan reads"),
        ("a: 1", "runs no engine"),
        ("vllmConfig: {extraArgs: [--enforce-eager]}", "runs no engine"),
        ("services: {a: {image: vllm/vllm-openai, command: {x: 1}}}", "is not a plain list"),
        ("services: {a: {command: 'vllm serve m | tee x'}}", r"the shell's '\|'"),
    ],
)
def test_nothing_is_guessed(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        manifest(tmp_path, text)


def planned(folder: Path, command: str, *lines: str) -> str:
    return deployment(f"command: {command}", *lines).replace("    model: llama-3.1-8b\n", "")


def test_a_command_in_the_plan_is_judged(tmp_path: Path) -> None:
    plan = planned(
        tmp_path, "vllm serve meta-llama/Llama-3.1-8B --max-model-len 16K --kv-cache-dtype fp8",
        "batch: 4",
    )  # fmt: skip
    result = only(checked(tmp_path, plan))
    assert result.deployment is not None
    assert (result.deployment.max_model_len, result.deployment.kv_cache_dtype) == (
        16_384, "fp8_e4m3",
    )  # fmt: skip
    assert result.figures is not None
    assert result.figures.kv_needed_bytes == 4 * 16_384 * 65_536
    assert "arguments of vllm serve read from command" in result.assumptions


def test_the_manifest_counts_before_defaults_and_may_not_be_contradicted(tmp_path: Path) -> None:
    command = "vllm serve meta-llama/Llama-3.1-8B --max-num-seqs 64"
    plan = planned(tmp_path, command, "seq: 4k")
    default = plan.replace("deployments:", "defaults: {max_num_seqs: 8}\ndeployments:")
    d = only(checked(tmp_path, default)).deployment
    assert d is not None
    assert d.max_num_seqs == 64
    report = checked(tmp_path, planned(tmp_path, command, "max_num_seqs: 8"))
    fault = only(report).fault
    assert fault is not None
    assert (report.status, fault.line) == (Status.ERROR, 6)
    assert "max_num_seqs is stated here and by command (--max-num-seqs 64)" in fault.message


def test_the_plan_may_add_the_version_and_the_facts_of_the_model(tmp_path: Path) -> None:
    command = "vllm serve /models/acme --max-model-len 4096"
    lines = ("engine: vllm@0.30", "model: llama_3.1_8B")
    d = only(checked(tmp_path, planned(tmp_path, command, *lines))).deployment
    assert d is not None
    assert (d.model, d.engine_version) == ("llama-3.1-8b", "0.30")


def test_a_stored_quantisation_must_be_the_models(tmp_path: Path) -> None:
    command = "vllm serve meta-llama/Llama-3.1-8B --quantization awq --max-model-len 4096"
    fault = only(checked(tmp_path, planned(tmp_path, command))).fault
    assert fault is not None
    assert "says --quantization awq, but llama-3.1-8b is stored as bf16" in fault.message
    assert only(checked(tmp_path, planned(tmp_path, command, "weights: awq"))).fault is None


def test_a_manifest_that_is_not_there(tmp_path: Path) -> None:
    plan = deployment("seq: 8k").replace("model: llama-3.1-8b", "from: no.yaml")
    fault = only(checked(tmp_path, plan)).fault
    assert fault is not None
    assert ("cannot be read" in fault.message, fault.line) == (True, 4)
