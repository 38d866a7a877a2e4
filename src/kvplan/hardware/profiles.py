"""From what a person types after ``--gpu`` to a `Gpu`: a bundled name, or a profile of their own.

Bundled profiles come from the compiled catalogue, which is checked when it is built, so looking
one up imports neither YAML nor pydantic. A person's own file has the same form, is validated by
`kvplan.hardware.schema`, and goes through the same reader.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from kvplan.errors import GpuNotFound, InputError, nearest_names
from kvplan.hardware.gpu import Gpu, Link, usable_from_gib
from kvplan.units import MIB, format_gib

if TYPE_CHECKING:
    from kvplan.catalogue import Catalogue

_LIST_COMMAND = "kvplan gpus list"
_SUGGESTIONS = 5


class GpuChoice(NamedTuple):
    """The GPU that a reference meant."""

    gpu: Gpu
    assumption: str | None
    """What kvplan filled in to decide, to be shown with the answer; None if nothing was."""
    held_bytes: tuple[int, ...] = ()
    """What other processes hold of each GPU found here, the freest first; empty for a name."""


def load_gpu(ref: str) -> GpuChoice:
    """The GPU that ``ref`` means: a bundled name in any spelling, the path of a profile, or
    ``local``.

    A name ending in ``.yaml`` or ``.yml`` is always a path. Any other name is looked up in the
    catalogue first, so that a file that happens to be called ``h100`` does not hide the GPU.
    """
    ref = ref.strip()
    if not ref:
        raise InputError("--gpu is empty", hint=f"Name a GPU: {_LIST_COMMAND}")
    if ref.lower() == "local":
        from kvplan.hardware.local import detect

        found = detect()
        return GpuChoice(found.gpu, found.said, found.held_bytes)
    if ref.lower().endswith((".yaml", ".yml")):
        return _from_file(ref)

    from kvplan.catalogue import catalogue

    gpus = catalogue("gpus")
    match = gpus.find(ref)
    if match is not None:
        gpu = gpu_from_profile(match.profile)
        return GpuChoice(gpu, f'"{ref}" taken as {gpu.name}' if match.implied else None)
    if os.path.isfile(ref):
        return _from_file(ref)
    candidates = gpus.candidates(ref) or _completions(ref, gpus)
    raise _ambiguous(ref, candidates, gpus) if candidates else _unknown(ref, gpus)


def all_gpus() -> Iterator[Gpu]:
    """Every bundled GPU, in order of name."""
    from kvplan.catalogue import catalogue

    return map(gpu_from_profile, catalogue("gpus"))


def gpu_from_profile(profile: dict[str, Any]) -> Gpu:
    """The `Gpu` of a valid profile; bundled ones and people's own have the same form."""
    memory = profile["memory"]
    usable_gib = memory.get("usable_gib")
    driver_mib = memory.get("driver_mib")
    link = profile.get("link", {})
    return Gpu(
        name=profile["name"],
        display_name=profile.get("display_name", profile["name"]),
        vendor=profile.get("vendor", "other"),
        arch=profile.get("arch", "unknown"),
        memory_bytes=None if usable_gib is None else usable_from_gib(usable_gib),
        memory_basis=memory.get("basis", "stated in the profile"),
        memory_is_certain=memory.get("confidence", "high") == "high",
        driver_bytes=None if driver_mib is None else int(driver_mib * MIB),
        bandwidth_gb_per_s=profile.get("bandwidth_gb_per_s"),
        tflops=dict(profile.get("tflops", {})),
        weight_formats=tuple(profile.get("weight_formats", ())),
        kv_formats=tuple(profile.get("kv_formats", ())),
        link=Link(
            type=link.get("type", "unknown"),
            gb_per_s=link.get("gb_per_s"),
            max_gpus=link.get("max_gpus", 1),
            pcie=link.get("pcie"),
        ),
        sources=tuple(profile.get("sources", ())),
        notes=profile.get("notes"),
        uncertain=tuple(profile.get("uncertain", ())),
        marketing_gb=memory.get("marketing_gb"),
    )


def _from_file(path: str) -> GpuChoice:
    from kvplan.hardware.schema import read_profile

    return GpuChoice(gpu_from_profile(read_profile(path)), None)


def _completions(ref: str, gpus: Catalogue) -> list[str]:
    """Profiles whose names have every part of ``ref``: ``a100-sxm`` leaves out the memory."""
    from kvplan.catalogue import name_key

    wanted = {name_key(part) for part in ref.replace("_", "-").replace(" ", "-").split("-")}
    return [name for name in gpus.names if wanted <= {name_key(part) for part in name.split("-")}]


def _ambiguous(ref: str, candidates: list[str], gpus: Catalogue) -> GpuNotFound:
    """The name leaves open how much memory it is: choosing for the user could be off by half."""
    return GpuNotFound(
        f'"{ref}" does not say which memory: it could be {_with_memory(candidates, gpus)}',
        hint=f"Say which, such as --gpu {candidates[-1]}",
    )


def _unknown(ref: str, gpus: Catalogue) -> GpuNotFound:
    own = "For a GPU that is not bundled, give the path of a profile (.yaml)."
    hint = f"All names: {_LIST_COMMAND}. {own}"
    near = _nearest(ref, gpus)
    if near:
        hint = f"Nearest: {_with_memory(near, gpus)}. {hint}"
    return GpuNotFound(f'"{ref}" is not a GPU that kvplan knows, nor a file', hint=hint)


def _nearest(ref: str, gpus: Catalogue) -> list[str]:
    """Profiles whose name or one of whose spellings is most like ``ref``, best first.

    Several spellings of one profile are often all near, so more are asked for than are shown.
    """
    names: dict[str, None] = {}
    for spelling in nearest_names(ref, gpus.spellings(), count=4 * _SUGGESTIONS):
        for name in gpus.candidates(spelling) or [gpus.canonical(spelling)]:
            names[name] = None
    return list(names)[:_SUGGESTIONS]


def _with_memory(names: list[str], gpus: Catalogue) -> str:
    return ", ".join(f"{name} ({_memory(name, gpus)})" for name in names)


def _memory(name: str, gpus: Catalogue) -> str:
    match = gpus.find(name)
    size = gpu_from_profile(match.profile).memory_bytes if match else None
    return "memory not known" if size is None else format_gib(size)
