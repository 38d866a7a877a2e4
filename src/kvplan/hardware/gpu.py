"""What a model runs on: one GPU's memory, speeds, number formats and links.

Memory is what the framework sees as the device's total (`torch.cuda.mem_get_info`), which is
what an engine's memory fraction is taken of: 79.25 GiB on an A100-80, never the marketing
figure and not the driver's MiB.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvplan.units import GIB, MIB


@dataclass(frozen=True, eq=False)
class Link:
    """How a GPU talks to its neighbours."""

    type: str
    gb_per_s: float | None
    """Both directions together, decimal GB/s per GPU; None when not known."""
    max_gpus: int
    """GPUs in one domain of this link."""
    pcie: str | None = None


@dataclass(frozen=True, eq=False)
class Gpu:
    """One GPU's facts, each traced in its profile."""

    name: str
    display_name: str
    vendor: str
    arch: str
    """Compute capability or architecture, such as ``sm_90`` or ``gfx942``."""
    memory_bytes: int | None
    """Total memory as the framework reports it; None when no log or rule says."""
    memory_basis: str
    """Where ``memory_bytes`` comes from, in words."""
    memory_is_certain: bool
    driver_bytes: int | None
    """Total that the driver's tool shows (nvidia-smi, rocm-smi)."""
    bandwidth_gb_per_s: float | None
    tflops: dict[str, float]
    """Dense peaks by number format."""
    weight_formats: tuple[str, ...]
    """Formats whose arithmetic is native."""
    kv_formats: tuple[str, ...]
    link: Link
    sources: tuple[str, ...]
    notes: str | None = None
    uncertain: tuple[str, ...] = ()
    """Names of facts whose confidence is low."""
    marketing_gb: float | None = None
    """The figure in the product's name, for display only: no arithmetic uses it."""

    @property
    def compute_capability(self) -> tuple[int, int] | None:
        """NVIDIA's (major, minor), None for other vendors."""
        if not self.arch.startswith("sm_"):
            return None
        digits = self.arch[3:].rstrip("abcf")
        return int(digits[:-1]), int(digits[-1])


def usable_from_gib(gib: float) -> int:
    """Bytes for a total logged in GiB with two decimals, rounded down to a whole MiB.

    The log's last digit is +-5 MiB; rounding down keeps the error on the careful side.
    """
    return int(gib * GIB) // MIB * MIB
