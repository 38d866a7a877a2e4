"""What the GPU exporters export: NVIDIA's dcgm-exporter and nvidia_gpu_exporter.

Sources: ``etc/default-counters.csv`` of NVIDIA/dcgm-exporter (2026-05), ``docs/METRICS.md`` of
utkuozdemir/nvidia_gpu_exporter (2026-08). Preallocating engines keep the used memory flat, so it
says whether the plan's claim holds, never how full the KV cache is.
"""

from __future__ import annotations

from typing import NamedTuple

from kvplan.errors import InputError, nearest_names
from kvplan.monitoring.series import Series


class Exporter(NamedTuple):
    """One exporter of GPU facts."""

    name: str
    title: str
    used_bytes: Series
    use: Series
    """GPU use, a share from 0 to 1."""
    gpu_label: str
    collected: Series | None = None
    """1 while the exporter itself can read the GPU."""

    def names(self) -> set[str]:
        """Every exported name that a query may use."""
        return {part.name for part in self if isinstance(part, Series)}


EXPORTERS = {
    "dcgm": Exporter(
        name="dcgm",
        title="dcgm-exporter",
        used_bytes=Series("DCGM_FI_DEV_FB_USED", scale=2.0**20),
        use=Series("DCGM_FI_DEV_GPU_UTIL", scale=0.01),
        gpu_label="gpu",
    ),
    "nvidia_gpu_exporter": Exporter(
        name="nvidia_gpu_exporter",
        title="nvidia_gpu_exporter",
        used_bytes=Series("nvidia_smi_memory_used_bytes"),
        use=Series("nvidia_smi_utilization_gpu_ratio"),
        gpu_label="uuid",
        collected=Series("nvidia_smi_last_collect_success"),
    ),
}


def load_exporter(name: str) -> Exporter:
    """The exporter of that name."""
    if name not in EXPORTERS:
        near = nearest_names(name, EXPORTERS) or list(EXPORTERS)
        raise InputError(
            f"--exporter {name!r} is not one of {', '.join(EXPORTERS)}",
            hint=f"Try: --exporter {near[0]}",
        )
    return EXPORTERS[name]
