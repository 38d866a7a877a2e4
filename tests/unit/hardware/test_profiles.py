"""What a name or a file after ``--gpu`` means, and what is said when it means nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvplan.errors import GpuNotFound, InputError, MalformedFile, SourceError
from kvplan.hardware.profiles import all_gpus, load_gpu

GIB, MIB = 2**30, 2**20

OWN = """\
name: my-card
vendor: nvidia
arch: sm_89
memory: {marketing_gb: 48, driver_mib: 49140, usable_gib: 47.37, basis: vLLM start-up log}
bandwidth_gb_per_s: 1008
tflops: {bf16: 165.2}
kv_formats: [bf16, fp8_e4m3]
link: {type: PCIe, max_gpus: 1, pcie: 4.0 x16}
"""


def profile(folder: Path, text: str, name: str = "card.yaml") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


class TestBundledNames:
    @pytest.mark.parametrize(
        ("spelling", "name"),
        [
            ("a100-80g-sxm", "a100-80g-sxm"),
            ("A100_80G_SXM4", "a100-80g-sxm"),
            ("NVIDIA A100-SXM4-80GB", "a100-80g-sxm"),  # as PyTorch names the device
            ("NVIDIA A100 80GB PCIe", "a100-80g-pcie"),
            ("nvidia/h100-nvl", "h100-nvl"),
            ("NVIDIA H100 80GB HBM3", "h100-sxm"),
            ("Tesla T4", "t4"),
            ("Tesla V100-SXM2-32GB", "v100-32g-sxm"),
            ("RTX 4090", "rtx-4090"),
            ("NVIDIA GeForce RTX 4090", "rtx-4090"),
            ("4090", "rtx-4090"),
            ("a6000", "rtx-a6000"),
            ("gb10", "dgx-spark"),
            ("AMD Instinct MI300X", "mi300x"),
            ("rx-7900xtx", "rx-7900-xtx"),
        ],
    )
    def test_spellings_of_one_gpu(self, spelling: str, name: str) -> None:
        choice = load_gpu(spelling)
        assert choice.gpu.name == name
        assert choice.assumption is None

    @pytest.mark.parametrize(
        ("short", "name"),
        [
            ("h100", "h100-sxm"),
            ("H100-80GB", "h100-sxm"),
            ("h200", "h200-sxm"),
            ("b200", "b200-sxm"),
            ("b300", "b300-sxm"),
            ("a100-80g", "a100-80g-sxm"),
            ("a100-40g", "a100-40g-sxm"),
            ("v100-16g", "v100-16g-sxm"),
            ("v100-32g", "v100-32g-sxm"),
            ("h800", "h800-sxm"),
            ("m4-max", "m4-max-128g"),
            ("mi250x", "mi250x-gcd"),
        ],
    )
    def test_a_name_without_form_factor_is_filled_in_and_says_so(
        self, short: str, name: str
    ) -> None:
        choice = load_gpu(short)
        assert choice.gpu.name == name
        assert choice.assumption == f'"{short}" taken as {name}'

    def test_the_facts_of_one_gpu(self) -> None:
        gpu = load_gpu("a100-80g-sxm").gpu
        assert gpu.memory_bytes == 85_094_039_552  # 79.25 * 2**30: whole MiB already
        assert gpu.driver_bytes == 81920 * MIB
        assert gpu.marketing_gb == 80
        assert gpu.bandwidth_gb_per_s == 2039
        assert gpu.tflops["bf16"] == 312
        assert gpu.compute_capability == (8, 0)
        assert gpu.kv_formats == ("fp16", "bf16")
        assert gpu.link.gb_per_s == 600
        assert gpu.memory_is_certain
        assert gpu.sources

    def test_a_gpu_of_unknown_memory_loads(self) -> None:
        gpu = load_gpu("mi300a").gpu
        assert gpu.memory_bytes is None
        assert not gpu.memory_is_certain
        assert "--gpu-memory" in gpu.memory_basis

    def test_all_gpus_in_order_of_name(self) -> None:
        names = [gpu.name for gpu in all_gpus()]
        assert names == sorted(names)
        assert len(names) == len(set(names)) >= 90

    def test_a_file_does_not_hide_a_bundled_name(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        profile(tmp_path, OWN, "h100-sxm")
        monkeypatch.chdir(tmp_path)
        assert load_gpu("h100-sxm").gpu.name == "h100-sxm"


class TestNamesThatMeanNothing:
    def test_a_name_that_leaves_the_memory_open_lists_every_candidate(self) -> None:
        with pytest.raises(GpuNotFound) as caught:
            load_gpu("a100")
        assert caught.value.message == (
            '"a100" does not say which memory: it could be a100-40g-pcie (39.38 GiB), '
            "a100-40g-sxm (39.49 GiB), a100-80g-pcie (79.25 GiB), a100-80g-sxm (79.25 GiB)"
        )
        assert caught.value.hint == "Say which, such as --gpu a100-80g-sxm"

    @pytest.mark.parametrize(
        ("short", "some"),
        [
            ("v100", "v100-32g-sxm"),
            ("gh200", "gh200-144g"),
            ("h100-mig", "h100-sxm-mig-1g.10gb"),
            ("a100-sxm", "a100-40g-sxm"),  # the form factor alone is not enough either
            ("A100 PCIe", "a100-80g-pcie"),
        ],
    )
    def test_other_names_that_leave_the_memory_open(self, short: str, some: str) -> None:
        with pytest.raises(GpuNotFound, match="does not say which memory") as caught:
            load_gpu(short)
        assert some in caught.value.message

    def test_an_unknown_name_suggests_the_nearest_once_each(self) -> None:
        with pytest.raises(GpuNotFound, match="not a GPU that kvplan knows") as caught:
            load_gpu("h1000-sxm")
        hint = caught.value.hint or ""
        assert hint.startswith("Nearest: h100-sxm (79.19 GiB)")
        assert hint.count("h100-sxm (") == 1
        assert "kvplan gpus list" in hint

    def test_a_name_like_no_other_still_says_where_to_look(self) -> None:
        with pytest.raises(GpuNotFound) as caught:
            load_gpu("qqqqqqqq")
        hint = caught.value.hint or ""
        assert "Nearest" not in hint
        assert "kvplan gpus list" in hint

    @pytest.mark.parametrize("ref", ["", "  "])
    def test_empty_is_an_input_error(self, ref: str) -> None:
        with pytest.raises(InputError) as caught:
            load_gpu(ref)
        assert "kvplan gpus list" in (caught.value.hint or "")


class TestOwnProfile:
    def test_a_whole_profile(self, tmp_path: Path) -> None:
        choice = load_gpu(profile(tmp_path, OWN))
        gpu = choice.gpu
        assert choice.assumption is None
        assert gpu.name == gpu.display_name == "my-card"
        assert gpu.memory_bytes == 48_506 * MIB  # 47.37 * 1024 = 48,506.88
        assert gpu.memory_basis == "vLLM start-up log"
        assert gpu.kv_formats == ("bf16", "fp8_e4m3")
        assert gpu.link.pcie == "4.0 x16"

    def test_the_least_a_profile_must_say(self, tmp_path: Path) -> None:
        gpu = load_gpu(profile(tmp_path, "name: x\nmemory: {usable_gib: 10}\n", "x.yml")).gpu
        assert gpu.memory_bytes == 10 * GIB
        assert gpu.tflops == {}
        assert gpu.bandwidth_gb_per_s is None
        assert gpu.compute_capability is None

    def test_an_existing_file_needs_no_yaml_ending(self, tmp_path: Path) -> None:
        assert load_gpu(profile(tmp_path, OWN, "my-card")).gpu.name == "my-card"

    def test_memory_may_be_left_out_only_by_saying_so(self, tmp_path: Path) -> None:
        text = "name: x\nuncertain: [memory]\nmemory: {marketing_gb: 80}\n"
        assert load_gpu(profile(tmp_path, text)).gpu.memory_bytes is None

    def test_a_missing_file_is_named(self) -> None:
        with pytest.raises(SourceError, match=r"nope\.yaml.*No such file"):
            load_gpu("nope.yaml")

    @pytest.mark.parametrize(
        ("text", "problem", "hint"),
        [
            (
                "memory: {usable_gb: 80}",
                "memory.usable_gb is not a key",
                "Did you mean usable_gib?",
            ),
            ("memory: {usable_gib: '80'}", "memory.usable_gib = '80' should be a valid number", ""),
            (
                "memory: {usable_gib: 80GiB}",
                "memory.usable_gib = '80GiB' should be a valid num",
                "",
            ),
            ("memory: {usable_gib: true}", "memory.usable_gib = True should be a valid number", ""),
            ("memory: {usable_gib: -1}", "memory.usable_gib = -1 should be greater", ""),
            ("memory: {usable_gib: 0}", "memory.usable_gib = 0 should be greater", ""),
            ("memory: {usable_gib: .nan}", "memory.usable_gib = nan should be a finite", ""),
            ("memory: {usable_gib: .inf}", "memory.usable_gib = inf should be", ""),
            ("memory: {usable_gib: 16385}", "should be less than or equal to 16384", ""),
            ("memory: {driver_mib: 81920}", "memory.usable_gib is missing", "torch.cuda.mem_get"),
            ("vendor: amd", "memory.usable_gib is missing", "torch.cuda.mem_get_info"),
            ("memory: 80", "memory = 80 should be a mapping", ""),
            ("memory: {usable_gib: 80, driver_mib: 80}", "more than the 80.0 MiB", "in GiB and"),
        ],
    )
    def test_faults_in_memory(self, tmp_path: Path, text: str, problem: str, hint: str) -> None:
        self.check(tmp_path, f"name: x\n{text}\n", problem, hint)

    @pytest.mark.parametrize(
        ("text", "problem", "hint"),
        [
            ("bandwith_gb_per_s: 1", "bandwith_gb_per_s is not a key", "bandwidth_gb_per_s?"),
            ("bandwidth_gb_per_s: -1", "bandwidth_gb_per_s = -1 should be greater than 0", ""),
            ("tflops: {fp17: 3}", "tflops.fp17 = 'fp17' is not one of", "Did you mean"),
            ("tflops: {fp16: 1e99}", "tflops.fp16", ""),
            ("kv_formats: [fp8_e4m4]", "kv_formats[0] = 'fp8_e4m4' is not one", "fp8_e4m3?"),
            ("kv_formats: bf16", "kv_formats = 'bf16' should be a valid list", ""),
            ("link: {type: PCIe, max_gpu: 2}", "link.max_gpu is not a key", "max_gpus?"),
            ("link: {type: PCIe, max_gpus: 0}", "link.max_gpus = 0 should be greater", ""),
            ("arch: sm_ninety", "should be an architecture such as sm_90", ""),
            ("vendor: Nvidea", "vendor = 'Nvidea' is not one of", "Did you mean nvidia?"),
            ('notes: "a\\eb"', r"notes = 'a\x1bb' should be one line of plain text", ""),
            ('"\\e[31m": 1', r"'\x1b[31m' is not a key", ""),
            ("bad_one: 1\nbad_two: 2", "bad_one is not a key of a GPU profile (and 1 more)", ""),
        ],
    )
    def test_faults_elsewhere(self, tmp_path: Path, text: str, problem: str, hint: str) -> None:
        self.check(tmp_path, f"name: x\nmemory: {{usable_gib: 10}}\n{text}\n", problem, hint)

    def test_a_profile_without_a_name(self, tmp_path: Path) -> None:
        self.check(tmp_path, "memory: {usable_gib: 10}\n", "name is missing", "")

    def check(self, folder: Path, text: str, problem: str, hint: str) -> None:
        path = profile(folder, text)
        with pytest.raises(MalformedFile) as caught:
            load_gpu(path)
        assert caught.value.path == path
        assert caught.value.message.startswith(f"{path}: ")
        assert problem in caught.value.message
        assert hint in (caught.value.hint or "")
        assert "\x1b" not in caught.value.message


def test_a_bundled_gpu_needs_neither_yaml_nor_pydantic() -> None:
    code = (
        "import sys; from kvplan.hardware.profiles import load_gpu; load_gpu('h100');"
        "print(sorted({'yaml', 'pydantic', 'numpy', 'difflib'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=_environment()
    )
    assert done.stdout.strip() == "[]"


def _environment() -> dict[str, str]:
    """The child must import the same kvplan, installed or not."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
