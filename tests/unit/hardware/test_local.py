"""``--gpu local`` against a stand-in for ``pynvml`` with the calls and errors of the real one."""

from __future__ import annotations

import sys
import types
from typing import Any, NamedTuple

import pytest

from kvplan.errors import InputError, MissingExtra
from kvplan.hardware.local import detect
from kvplan.hardware.profiles import load_gpu
from kvplan.question import build_deployment
from kvplan.units import GIB, MIB

H100 = ("NVIDIA H100 80GB HBM3", (9, 0), 81_559 * MIB, 81_559 * MIB)
"""As nvidia-smi of an idle card shows it: the driver's own share is not in use."""
H100_USABLE = 81_090 * MIB  # 79.19 GiB, what vLLM's start-up log prints on it


class NVMLError(Exception):
    pass


class Memory(NamedTuple):
    total: int
    free: int


def library(*devices: tuple[Any, ...], starts: bool = True, divided: bool = False) -> Any:
    """A module named ``pynvml`` that sees these devices: name, capability, total, free."""
    nvml = types.ModuleType("pynvml")

    def start() -> None:
        if not starts:
            raise NVMLError("NVML Shared Library Not Found")

    def memory(handle: int) -> Memory:
        if devices[handle][2] is None:
            raise NVMLError("Not Supported")
        return Memory(*devices[handle][2:])

    def mode(handle: int) -> list[int]:
        if "H100" not in str(devices[handle][0]):
            raise NVMLError("Not Supported")
        return [int(divided), 0]

    calls = {
        "NVMLError": NVMLError,
        "nvmlInit": start,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: len(devices),
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda handle: devices[handle][0],
        "nvmlDeviceGetCudaComputeCapability": lambda handle: devices[handle][1],
        "nvmlDeviceGetMemoryInfo": memory,
        "nvmlDeviceGetMigMode": mode,
    }
    vars(nvml).update(calls)
    return nvml


@pytest.fixture
def sees(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put such a module in the place of pynvml."""
    return lambda *devices, **more: monkeypatch.setitem(
        sys.modules, "pynvml", library(*devices, **more)
    )


@pytest.mark.parametrize(
    ("name", "capability", "mib", "profile"),
    [
        ("NVIDIA H100 80GB HBM3", (9, 0), 81_559, "h100-sxm"),
        (b"NVIDIA A100-SXM4-40GB", (8, 0), 40_960, "a100-40g-sxm"),
        ("NVIDIA A100 80GB PCIe", (8, 0), 81_920, "a100-80g-pcie"),
        ("NVIDIA GeForce RTX 4090", (8, 9), 24_564, "rtx-4090"),
        ("Tesla T4", (7, 5), 15_360, "t4"),
        ("NVIDIA B200", (10, 0), 183_359, "b200-sxm"),
    ],
)
def test_a_gpu_is_known_by_its_driver_name(
    sees: Any, name: str | bytes, capability: tuple[int, int], mib: int, profile: str
) -> None:
    sees((name, capability, mib * MIB, mib * MIB))
    found = detect()
    assert (found.gpu.name, found.held_bytes) == (profile, (0,))


def test_the_bundled_total_counts_and_not_the_driver_s(sees: Any) -> None:
    sees(H100)
    choice = load_gpu("LOCAL")
    assert choice.gpu.memory_bytes == H100_USABLE
    assert choice.assumption == "local: 1 GPU, NVIDIA H100 80GB HBM3, taken as h100-sxm"
    assert choice.held_bytes == (0,)


def test_what_others_hold_is_reserved(sees: Any) -> None:
    sees(H100, (*H100[:3], 60 * GIB))
    one = build_deployment("llama-3.1-8b", gpu="local", seq="4k")
    assert (one.gpus, one.reserve_bytes) == (1, 0)  # the freer of the two
    two = build_deployment("llama-3.1-8b", gpu="local", seq="4k", tp=2)
    assert two.reserve_bytes == H100_USABLE - 60 * GIB
    assert any("other processes hold 0.00 GiB, 19.19 GiB now" in said for said in two.assumptions)
    stated = build_deployment("llama-3.1-8b", gpu="local", seq="4k", tp=2, reserve="1GiB")
    assert stated.reserve_bytes == GIB


def test_more_gpus_than_there_are(sees: Any) -> None:
    sees(H100)
    with pytest.raises(InputError, match="2 GPUs are asked for, and there are 1"):
        build_deployment("llama-3.1-8b", gpu="local", seq="4k", tp=2)


def test_a_gpu_that_is_not_bundled_takes_the_careful_end(sees: Any) -> None:
    """A 4090 rebuilt with 48 GB is no 4090 to a planner."""
    total = 49_140 * MIB
    sees(("NVIDIA GeForce RTX 4090", (8, 9), total, total))
    gpu = load_gpu("local").gpu
    assert gpu.name == "nvidia-geforce-rtx-4090"
    assert gpu.compute_capability == (8, 9)
    assert gpu.memory_bytes == 48_157 * MIB  # 0.98 x 49,140 = 48,157.2
    assert not gpu.memory_is_certain
    assert "49,140 MiB" in gpu.memory_basis


def test_memory_of_the_computer_itself(sees: Any) -> None:
    sees(("NVIDIA GB10", (12, 1), None, None))
    found = detect()
    assert (found.gpu.name, found.held_bytes) == ("dgx-spark", (0,))
    sees(("NVIDIA Something New", (13, 0), None, None))
    with pytest.raises(InputError, match="does not say its memory"):
        detect()


def test_faults_are_said(sees: Any) -> None:
    sees(starts=False)
    with pytest.raises(InputError, match="no NVIDIA GPU can be seen here") as caught:
        detect()
    assert "kvplan gpus list" in (caught.value.hint or "")
    sees()
    with pytest.raises(InputError, match="finds no GPU"):
        detect()
    sees(H100, ("Tesla T4", (7, 5), 15_360 * MIB, 15_360 * MIB))
    with pytest.raises(InputError, match="several kinds: NVIDIA H100 80GB HBM3, Tesla T4"):
        detect()
    sees(H100, divided=True)
    with pytest.raises(InputError, match="divided into MIG instances"):
        detect()


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(MissingExtra) as caught:
        detect()
    assert "kvplan[nvml]" in (caught.value.hint or "")
