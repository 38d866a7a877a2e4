"""Does 4-bit AWQ halve the memory of Llama-2-70B at 32k tokens and 32 sequences?

    python examples/llama-2-70b-awq/run.py

Prints the table of README.md. Three deployments, from the same functions as ``kvplan fit``.
"""

from __future__ import annotations

from kvplan import build_deployment, fit
from kvplan.units import GIB

LOAD = {"gpu": "a100-80g-sxm", "seq": "32k", "batch": 32}
CASES = {
    "16-bit": {},
    "AWQ 4-bit": {"weights": "awq"},
    "AWQ 4-bit + FP8 KV": {"weights": "awq", "kv": "fp8"},
}


def main() -> None:
    """One row a case: bytes of the whole model, and the GPUs it takes under vLLM."""
    print("| | weights | KV cache, 32 x 32,768 tokens | together | of 16-bit | A100-80 needed |")
    print("|---|---|---|---|---|---|")
    first = 0
    for name, formats in CASES.items():
        # The bare formula on one imaginary GPU counts the model whole.
        whole = fit(
            build_deployment("llama-2-70b", engine="none", gpu_memory="2TiB", **LOAD, **formats)
        )
        weights = whole.memory.weight_bytes or 0
        kv = whole.kv_cache.needed_bytes
        first = first or weights + kv
        gpus = fit(build_deployment("llama-2-70b", **LOAD, **formats)).limits.min_gpus
        print(
            f"| {name} | {weights / GIB:,.1f} GiB | {kv / GIB:,.1f} GiB "
            f"| {(weights + kv) / GIB:,.1f} GiB | {(weights + kv) / first:.0%} | {gpus} |"
        )


if __name__ == "__main__":
    main()
