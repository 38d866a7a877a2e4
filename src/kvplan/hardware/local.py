"""``--gpu local``: the GPUs of this computer, as NVIDIA's management library sees them.

The library says the driver's total and what is free of it; the total that a framework sees is that
of the bundled profile with the same name and memory. A GPU that is not bundled gets the careful end
of what frameworks have been seen to leave of the driver's figure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple

from kvplan.errors import InputError, MissingExtra
from kvplan.hardware.gpu import Gpu, Link
from kvplan.units import MIB, format_gib

EXTRA = "nvml"
_LIST = "Name the GPU, such as --gpu h100-sxm. All names: kvplan gpus list"
_MAKERS = re.compile(r"^(?:NVIDIA|Tesla|GeForce|Quadro)\s+", re.IGNORECASE)
_SAME_MEMORY = 0.02
"""Difference of two driver totals of one product: firmware and ECC take a little."""
_SEEN_PERMILLE = 980
"""A framework's total in thousandths of the driver's: 980 to 996 in the bundled profiles."""
_IDLE_PERMILLE = 10
"""Memory in use that is the driver's own: less than a hundredth of the total."""


class Device(NamedTuple):
    """One GPU as the library describes it."""

    name: str
    capability: tuple[int, int]
    total_bytes: int | None
    """The driver's total; None where memory is shared with the processor."""
    free_bytes: int | None


class Local(NamedTuple):
    """The GPUs found, all of one kind."""

    gpu: Gpu
    held_bytes: tuple[int, ...]
    """What others hold of each, the freest first."""
    said: str


def detect() -> Local:
    """The GPUs of this computer. Raises where there is none, or they are of several kinds."""
    with _library() as nvml:
        devices = [_device(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
    if not devices:
        raise InputError("--gpu local: NVIDIA's driver finds no GPU here", hint=_LIST)
    kinds = list(dict.fromkeys((device.name, device.total_bytes) for device in devices))
    if len(kinds) > 1:
        found = ", ".join(name for name, _ in kinds)
        raise InputError(f"--gpu local: the GPUs here are of several kinds: {found}", hint=_LIST)
    gpu = _bundled(devices[0]) or _unbundled(devices[0])
    held = tuple(sorted(_held(gpu, device) for device in devices))
    return Local(gpu, held, _said(devices, gpu, held))


@contextmanager
def _library() -> Iterator[Any]:
    """The library, started and stopped; its faults in words."""
    try:
        nvml: Any = import_module("pynvml")
    except ImportError:
        raise MissingExtra(EXTRA, "--gpu local") from None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise InputError(
            f"--gpu local: no NVIDIA GPU can be seen here ({error})", hint=_LIST
        ) from None
    try:
        yield nvml
    except nvml.NVMLError as error:
        raise InputError(f"--gpu local: NVIDIA's driver says: {error}", hint=_LIST) from None
    finally:
        nvml.nvmlShutdown()


def _device(nvml: Any, index: int) -> Device:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    name = nvml.nvmlDeviceGetName(handle)
    name = name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)
    if _is_divided(nvml, handle):
        raise InputError(
            f"--gpu local: GPU {index} ({name}) is divided into MIG instances",
            hint="Name the instance, such as --gpu h100-sxm-mig-3g.40gb.",
        )
    capability = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    except nvml.NVMLError:  # not supported where the memory is the computer's own
        return Device(name, tuple(capability), None, None)
    return Device(name, tuple(capability), int(memory.total), int(memory.free))


def _is_divided(nvml: Any, handle: Any) -> bool:
    try:
        return bool(nvml.nvmlDeviceGetMigMode(handle)[0])
    except nvml.NVMLError:  # not supported: it cannot be divided
        return False


def _bundled(device: Device) -> Gpu | None:
    """The bundled profile of that name whose memory agrees."""
    from kvplan.catalogue import catalogue
    from kvplan.hardware.profiles import gpu_from_profile

    gpus, name, names = catalogue("gpus"), device.name, [device.name]
    while (shorter := _MAKERS.sub("", name)) != name:
        names.append(name := shorter)
    for name in names:
        match = gpus.find(name)
        options = [match.profile["name"]] if match else gpus.candidates(name)
        for option in options:
            found = gpus.find(option)
            gpu = gpu_from_profile(found.profile) if found else None
            if gpu is not None and _agrees(gpu, device):
                return gpu
    return None


def _agrees(gpu: Gpu, device: Device) -> bool:
    if gpu.memory_bytes is None:
        return False
    if device.total_bytes is None:
        return True
    expected = gpu.driver_bytes or gpu.memory_bytes
    return abs(device.total_bytes - expected) <= _SAME_MEMORY * expected


def _unbundled(device: Device) -> Gpu:
    """A GPU by what the library says of it alone."""
    total = device.total_bytes
    if total is None:
        raise InputError(
            f"--gpu local: {device.name} is not bundled, and its driver does not say its memory",
            hint="Write a profile (.yaml) with memory.usable_gib, and give its path as --gpu.",
        )
    major, minor = device.capability
    return Gpu(
        name=re.sub(r"[^a-z0-9]+", "-", device.name.lower()).strip("-") or "local",
        display_name=device.name,
        vendor="nvidia",
        arch=f"sm_{major}{minor}",
        memory_bytes=total * _SEEN_PERMILLE // 1000 // MIB * MIB,
        memory_basis=f"{_SEEN_PERMILLE / 10:g} % of the {total // MIB:,} MiB that its driver "
        "reports, the careful end of what frameworks see",
        memory_is_certain=False,
        driver_bytes=total,
        bandwidth_gb_per_s=None,
        tflops={},
        weight_formats=(),
        kv_formats=(),
        link=Link("unknown", None, 1),
        sources=("nvmlDeviceGetMemoryInfo on this computer",),
        uncertain=("memory", "compute", "bandwidth", "link"),
    )


def _held(gpu: Gpu, device: Device) -> int:
    """What other processes hold; the little that the driver keeps for itself is not theirs."""
    if gpu.memory_bytes is None or device.free_bytes is None:
        return 0
    held = max(0, gpu.memory_bytes - device.free_bytes)
    return held if held * 1000 >= gpu.memory_bytes * _IDLE_PERMILLE else 0


def _said(devices: list[Device], gpu: Gpu, held: tuple[int, ...]) -> str:
    count = "1 GPU" if len(devices) == 1 else f"{len(devices)} GPUs"
    text = f"local: {count}, {devices[0].name}, taken as {gpu.name}"
    if held[-1]:
        sizes = ", ".join(map(format_gib, held))
        text += f"; other processes hold {sizes} now"
    return text
