"""Every bundled GPU profile is whole, traced, and says what its sources say.

The expected figures are written out here from the places they were first read in: start-up logs
of engines for memory, datasheets and published tables for the rest.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kvplan.catalogue import name_key
from kvplan.catalogue.compile import CONFIGS, compile_profiles
from kvplan.files import read_yaml_object
from kvplan.hardware.gpu import usable_from_gib
from kvplan.hardware.profiles import all_gpus, load_gpu
from kvplan.hardware.schema import read_profile

FOLDER = Path(CONFIGS).resolve() / "gpus"
PATHS = sorted(FOLDER.glob("*.yaml"))
PROFILES = {path.stem: read_yaml_object(str(path)) for path in PATHS}

ESSENTIAL = [
    "v100-16g", "v100-32g", "t4", "p100-16g", "a100-40g-pcie", "a100-40g-sxm", "a100-40g",
    "a100-80g-pcie", "a100-80g", "a100-80g-sxm", "a800-80g", "a30", "a10", "a10g", "a40",
    "a6000", "l4", "l40", "l40s", "rtx-6000-ada", "h100", "h100-pcie", "h100-sxm", "h100-nvl",
    "h800", "h20", "h200", "h200-sxm", "h200-nvl", "gh200-96g", "gh200-144g", "b200", "b300",
    "gb200", "gb300", "rtx-pro-6000", "rtx-3060", "rtx-3090", "rtx-4060ti-16g", "rtx-4070",
    "rtx-4080", "rtx-4090", "rtx-5070ti", "rtx-5080", "rtx-5090", "dgx-spark",
    "jetson-agx-orin-64g", "jetson-thor", "mi210", "mi250x", "mi300a", "mi300x", "mi325x",
    "mi350x", "mi355x", "rx-7900xtx", "w7900", "gaudi2", "gaudi3", "arc-b580", "arc-a770",
    "tpu-v5e", "tpu-v6e", "m1-max", "m2-ultra", "m3-max", "m3-ultra", "m4-max", "m5-max",
    "a100-40g-mig-3g.20gb", "a100-80g-mig-1g.10gb", "h100-mig-3g.40gb", "h200-mig-1g.18gb",
]  # fmt: skip
"""What published planners, clouds and reports of real deployments name most."""

USABLE_GIB = {
    # Logs that name the GPU, or print the total that only this class of card has.
    "a100-80g-sxm": 79.25,
    "a100-80g-pcie": 79.25,
    "a100-40g-sxm": 39.49,
    "a100-40g-pcie": 39.38,  # 40,326 MiB
    "h100-sxm": 79.19,  # 81,090 MiB
    "h100-pcie": 79.11,  # 81,008 MiB
    "h100-nvl": 93.10,
    "h200-sxm": 139.80,  # 143,156 MiB
    "b200-sxm": 178.35,
    "b300-sxm": 267.69,
    "gb200": 184.31,
    "gb300": 276.50,
    "l4": 22.03,
    "l40s": 44.39,
    "a10g": 22.06,  # 22,587 MiB
    "a40": 44.34,
    "rtx-a6000": 47.53,
    "t4": 14.74,
    "v100-16g-sxm": 15.77,
    "v100-32g-sxm": 31.74,
    "rtx-3090": 23.69,  # 24,259 MiB
    "rtx-4090": 23.64,  # 24,210 MiB
    "rtx-5090": 31.36,
    "rtx-pro-6000": 94.97,  # 97,250 MiB
    "mi300x": 191.98,  # 196,592 MiB
    "mi325x": 255.98,
    "mi355x": 287.98,
    "gaudi3": 126.50,
    "dgx-spark": 119.64,
    # nvidia-smi mig -lgip
    "a100-40g-mig-3g.20gb": 19.50,
    "h100-sxm-mig-3g.40gb": 39.50,
    # Three quarters of the unified memory
    "m4-max-128g": 96.00,
    # Derived: 146,831 MiB - 1,103 MiB = 145,728 MiB = 142.31 GiB, rounded down
    "gh200-144g": 142.30,
}

BANDWIDTH = {
    "a100-80g-sxm": 2039, "a100-40g-sxm": 1555, "h100-sxm": 3350, "h200-sxm": 4800, "l4": 300,
    "b200-sxm": 8000, "mi300x": 5300, "rtx-4090": 1008, "t4": 320, "m3-ultra-512g": 819,
}  # fmt: skip


def test_there_are_enough_and_the_ones_people_ask_for() -> None:
    assert len(PATHS) >= 90
    for spelling in ESSENTIAL:
        load_gpu(spelling)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_profile_is_valid_and_traced(path: Path) -> None:
    profile = read_profile(str(path))
    assert profile["name"] == path.stem
    for key in ("display_name", "arch", "family", "sources", "weight_formats", "kv_formats"):
        assert profile[key], key
    for key in ("vendor", "link", "bandwidth_gb_per_s"):
        assert key in PROFILES[path.stem], key
    memory = profile["memory"]
    assert memory["basis"]
    assert memory["marketing_gb"]
    assert "confidence" in PROFILES[path.stem]["memory"]
    assert (memory["confidence"] == "low") == ("memory" in profile["uncertain"])


@pytest.mark.parametrize("name", PROFILES)
def test_what_the_framework_sees_is_less_than_what_is_sold(name: str) -> None:
    memory: dict[str, Any] = PROFILES[name]["memory"]
    usable = memory.get("usable_gib")
    if usable is None:
        assert "--gpu-memory" in memory["basis"]
        return
    assert usable <= memory["marketing_gb"]
    driver = memory.get("driver_mib")
    # A MIG slice reports its profile's size whole: nothing is kept back a second time.
    if driver and PROFILES[name]["vendor"] == "nvidia" and "-mig-" not in name:
        assert usable * 1024 < driver


@pytest.mark.parametrize("name", [name for name in PROFILES if "-mig-" in name])
def test_a_mig_slice_is_no_more_than_its_gpu(name: str) -> None:
    whole = load_gpu(name.split("-mig-")[0]).gpu.memory_bytes
    part = load_gpu(name).gpu.memory_bytes
    assert whole
    assert part
    assert part <= whole


def test_spellings_are_claimed_once() -> None:
    """A full spelling must not also be an incomplete one, nor shadow another's family."""
    owner: dict[str, str] = {}
    for name, profile in PROFILES.items():
        for spelling in (name, *profile.get("aliases", ()), *profile.get("implied_aliases", ())):
            assert owner.setdefault(name_key(spelling), name) == name, spelling
    families = {name_key(profile["family"]): profile["family"] for profile in PROFILES.values()}
    for key, family in families.items():
        if key in owner:
            assert PROFILES[owner[key]]["family"] == family


def test_spellings_are_not_only_the_same_name_again() -> None:
    """`name_key` forgives case and separators already, so such an alias would be noise."""
    for name, profile in PROFILES.items():
        spellings = [name, *profile.get("aliases", ()), *profile.get("implied_aliases", ())]
        keys = [name_key(spelling) for spelling in spellings]
        assert len(keys) == len(set(keys)), name


@pytest.mark.parametrize(("name", "gib"), USABLE_GIB.items())
def test_usable_memory_is_what_was_logged(name: str, gib: float) -> None:
    assert load_gpu(name).gpu.memory_bytes == usable_from_gib(gib)


@pytest.mark.parametrize(("name", "gb_per_s"), BANDWIDTH.items())
def test_bandwidth_is_the_datasheets(name: str, gb_per_s: float) -> None:
    assert load_gpu(name).gpu.bandwidth_gb_per_s == gb_per_s


def test_a_bare_family_of_several_sizes_is_nobodys_name() -> None:
    for family in ("a100", "v100", "gh200"):
        for profile in PROFILES.values():
            claimed = [*profile.get("aliases", ()), *profile.get("implied_aliases", ())]
            assert family not in map(name_key, claimed)


def test_native_formats_follow_the_generation() -> None:
    for gpu in all_gpus():
        capability = gpu.compute_capability
        if capability is None:
            continue
        assert ("bf16" in gpu.weight_formats) == (capability >= (8, 0)), gpu.name
        assert ("fp8_e4m3" in gpu.weight_formats) == (capability >= (8, 9)), gpu.name
        assert ("nvfp4" in gpu.weight_formats) == (capability >= (10, 0)), gpu.name


def test_the_compiled_catalogue_is_up_to_date() -> None:
    from kvplan import catalogue

    compiled = Path(catalogue.__file__).with_name("gpus.jsonl").read_text(encoding="utf-8")
    assert compiled == compile_profiles(str(FOLDER)), "run: python -m kvplan.catalogue.compile"
