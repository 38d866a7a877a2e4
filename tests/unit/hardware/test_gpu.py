"""The Gpu record: sizes from logged GiB, and NVIDIA's compute capability."""

from __future__ import annotations

import dataclasses

import pytest

from kvplan.hardware.gpu import Gpu, Link, usable_from_gib

GIB, MIB = 2**30, 2**20


def a_gpu(arch: str) -> Gpu:
    return Gpu(
        name="any",
        display_name="Any",
        vendor="nvidia",
        arch=arch,
        memory_bytes=None,
        memory_basis="",
        memory_is_certain=False,
        driver_bytes=None,
        bandwidth_gb_per_s=None,
        tflops={},
        weight_formats=(),
        kv_formats=(),
        link=Link("PCIe", None, 1),
        sources=(),
    )


@pytest.mark.parametrize(
    ("gib", "mib"),
    [
        (79.25, 81152),  # 79.25 * 1024, exact
        (79.19, 81090),  # 81,090.56: a log with both prints 81,090 MiB for an H100 SXM
        (14.74, 15093),  # 15,093.76
        (0.01, 10),  # 10.24
    ],
)
def test_a_logged_total_is_rounded_down_to_a_whole_mib(gib: float, mib: int) -> None:
    assert usable_from_gib(gib) == mib * MIB
    assert usable_from_gib(gib) <= gib * GIB


@pytest.mark.parametrize(
    ("arch", "capability"),
    [
        ("sm_75", (7, 5)),
        ("sm_90", (9, 0)),
        ("sm_90a", (9, 0)),
        ("sm_103", (10, 3)),
        ("sm_121", (12, 1)),
        ("gfx942", None),
        ("metal", None),
    ],
)
def test_compute_capability(arch: str, capability: tuple[int, int] | None) -> None:
    assert a_gpu(arch).compute_capability == capability


def test_a_gpu_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        a_gpu("sm_90").name = "other"  # type: ignore[misc]
