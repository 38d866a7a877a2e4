"""``kvplan gpus list`` and ``kvplan gpus show``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kvplan.cli.options import FormatOption, OutputOption, new_group
from kvplan.cli.output import check_format, emit

if TYPE_CHECKING:
    from kvplan.hardware.gpu import Gpu
    from kvplan.reports.listing import Entry

app = new_group("List the bundled GPUs, or show one with its sources.")

VendorOption = Annotated[
    str | None,
    typer.Option(
        "--vendor", metavar="NAME", help="Only this vendor's, such as nvidia.", show_default=False
    ),
]
GpuArgument = Annotated[
    str,
    typer.Argument(
        metavar="GPU", help="A bundled name in any spelling, or a YAML profile.", show_default=False
    ),
]


@app.command("list")
def list_gpus(
    format: FormatOption = "table",
    vendor: VendorOption = None,
    output: OutputOption = None,
) -> None:
    """List the bundled GPUs with the memory that a framework sees on them."""
    from kvplan.errors import InputError, nearest_names
    from kvplan.hardware.profiles import all_gpus
    from kvplan.reports.listing import LIST_FORMATS, Shown, render_list, whole
    from kvplan.units import format_gib

    check_format(format, LIST_FORMATS)
    gpus = list(all_gpus())
    if vendor is not None:
        vendors = sorted({gpu.vendor for gpu in gpus})
        if vendor.lower() not in vendors:
            near = nearest_names(vendor, vendors) or vendors
            raise InputError(
                f"--vendor {vendor!r} has no bundled GPU", hint=f"Try: {', '.join(near)}"
            )
        gpus = [gpu for gpu in gpus if gpu.vendor == vendor.lower()]
    columns = [
        Shown("name", "name"),
        Shown("vendor", "vendor", drop=4),
        Shown("arch", "arch", drop=3),
        Shown("memory_bytes", "memory", lambda size: format_gib(whole(size)), right=True),
        Shown("bandwidth_gb_per_s", "bandwidth", _rate, right=True, drop=2),
        Shown("bf16_tflops", "bf16", lambda rate: f"{rate:,g} TFLOPS", right=True, drop=5),
        Shown("link_gb_per_s", "link", _rate, right=True, drop=6),
        Shown("uncertain", "not certain", lambda names: " ".join(_names(names)), drop=7),
    ]
    text = render_list([record(gpu) for gpu in gpus], columns, format, to_file=output is not None)
    emit(text, output)


@app.command("show")
def show_gpu(gpu: GpuArgument, format: FormatOption = "table", output: OutputOption = None) -> None:
    """Show a GPU's facts, their sources, and what of them is not certain."""
    from kvplan.hardware.profiles import load_gpu
    from kvplan.reports.listing import SHOW_FORMATS, render_entry

    check_format(format, SHOW_FORMATS)
    choice = load_gpu(gpu)
    entry = _entry(choice.gpu)
    if choice.assumption:
        from kvplan.cli.output import tell_warnings

        tell_warnings([choice.assumption])
    emit(render_entry(entry, format, to_file=output is not None), output)


def record(gpu: Gpu) -> dict[str, object]:
    """A GPU as plain figures."""
    return {
        "name": gpu.name,
        "display_name": gpu.display_name,
        "vendor": gpu.vendor,
        "arch": gpu.arch,
        "memory_bytes": gpu.memory_bytes,
        "memory_is_certain": gpu.memory_is_certain,
        "driver_bytes": gpu.driver_bytes,
        "marketing_gb": gpu.marketing_gb,
        "bandwidth_gb_per_s": gpu.bandwidth_gb_per_s,
        "bf16_tflops": gpu.tflops.get("bf16"),
        "fp8_tflops": gpu.tflops.get("fp8"),
        "link": gpu.link.type,
        "link_gb_per_s": gpu.link.gb_per_s,
        "link_max_gpus": gpu.link.max_gpus,
        "weight_formats": list(gpu.weight_formats),
        "kv_formats": list(gpu.kv_formats),
        "uncertain": list(gpu.uncertain),
    }


def _entry(gpu: Gpu) -> Entry:
    from kvplan.reports.listing import Entry
    from kvplan.units import format_bytes, format_gib

    unknown = "not known"
    memory = unknown
    if gpu.memory_bytes is not None:
        memory = f"{format_gib(gpu.memory_bytes)} ({format_bytes(gpu.memory_bytes)})"
    peaks = ", ".join(f"{name} {rate:,g} TFLOPS" for name, rate in gpu.tflops.items())
    link = gpu.link.type
    if gpu.link.gb_per_s is not None:
        link += f", {_rate(gpu.link.gb_per_s)} both directions together"
    if gpu.link.max_gpus > 1:
        link += f", up to {gpu.link.max_gpus} GPUs"
    facts = [
        ("name", gpu.name),
        ("vendor", f"{gpu.vendor}, {gpu.arch}"),
        ("memory", f"{memory}: what a framework sees"),
        ("how it is known", gpu.memory_basis),
    ]
    if gpu.driver_bytes is not None:
        facts.append(("the driver shows", format_gib(gpu.driver_bytes)))
    if gpu.marketing_gb is not None:
        facts.append(("it is sold as", f"{gpu.marketing_gb:g} GB"))
    facts += [
        ("bandwidth", unknown if gpu.bandwidth_gb_per_s is None else _rate(gpu.bandwidth_gb_per_s)),
        ("dense peaks", peaks or unknown),
        ("weight formats", ", ".join(gpu.weight_formats) or unknown),
        ("KV formats", ", ".join(gpu.kv_formats) or unknown),
        ("link", link),
    ]
    if gpu.link.pcie:
        facts.append(("PCIe", gpu.link.pcie))
    uncertain = list(gpu.uncertain)
    if not gpu.memory_is_certain and "memory" not in uncertain:
        uncertain.insert(0, "memory")
    document = {
        **record(gpu),
        "tflops": gpu.tflops,
        "memory_basis": gpu.memory_basis,
        "notes": gpu.notes,
        "sources": list(gpu.sources),
    }
    return Entry(
        gpu.display_name,
        facts,
        f"not certain: {', '.join(uncertain)}" if uncertain else "",
        gpu.sources,
        gpu.notes,
        document,
    )


def _rate(value: object) -> str:
    return f"{value:,g} GB/s"


def _names(value: object) -> list[str]:
    return [str(name) for name in value] if isinstance(value, list) else []
