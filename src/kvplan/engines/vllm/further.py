"""vLLM's further arguments, given as ``--engine-arg NAME=VALUE``."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from kvplan.deployment import Deployment
from kvplan.errors import InputError, UnsupportedCombination, nearest_names
from kvplan.model.caches import Recurrent
from kvplan.precision.format import BF16, FP16, FP32, Format
from kvplan.units import parse_count

KNOWN = (
    "num_gpu_blocks_override", "kv_cache_dtype_skip_layers", "mamba_ssm_cache_dtype", "dtype",
    "use_v1", "max_loras", "max_lora_rank", "enable_lora", "fully_sharded_loras",
)  # fmt: skip
_SWITCH = {"0": False, "false": False, "1": True, "true": True}
_DTYPES = {
    "float32": FP32, "float": FP32, "bfloat16": BF16, "float16": FP16, "half": FP16,
}  # fmt: skip
_STATE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Source: vLLM ``config/lora.py`` ``MaxLoRARanks``."""
_PROTECTED = 2
"""Layers at each end that TurboQuant leaves at 16 bits in a model without recurrent layers."""


class Further(NamedTuple):
    """Those arguments, understood."""

    num_gpu_blocks_override: int | None = None
    """Blocks of the pool, whatever the profile run measured."""
    skipped_layers: frozenset[int] = frozenset()
    """Layers that keep 16 bits under a quantised cache."""
    skips_windows: bool = False
    """The same for every layer with a window."""
    mamba_ssm_cache_bytes: int | None = None
    """Bytes of a recurrent state's element."""
    dtype: Format | None = None
    """What the model runs in, and its 16-bit weights and KV cache with it."""
    use_v1: bool | None = None
    """The environment's ``VLLM_USE_V1``, which 0.8 to 0.10 listen to."""
    max_loras: int = 0
    """LoRA adapters in one batch, each with a slot on the GPU; 0 without LoRA."""
    max_lora_rank: int = 16


def further(deployment: Deployment) -> Further:
    """What the deployment's ``extra`` arguments say."""
    d = deployment
    if not d.kv.name.startswith("turboquant"):
        return understood(d.args.extra)
    recurrent = any(isinstance(group.cache, Recurrent) for group in d.model.groups)
    return understood(d.args.extra, 0 if recurrent else d.model.num_hidden_layers)


@lru_cache(maxsize=64)
def understood(extra: tuple[tuple[str, str], ...], protected_layers: int = 0) -> Further:
    """Parse the arguments; ``protected_layers`` is the depth of a model under TurboQuant, else 0.

    Source: vLLM ``turboquant/config.py`` ``get_boundary_skip_layers``.
    """
    found = Further()
    skipped: set[int] = set()
    if protected_layers:
        ends = min(_PROTECTED, protected_layers // 2)
        skipped = {*range(ends), *range(protected_layers - ends, protected_layers)}
    for name, value in extra:
        option = f"--engine-arg {name}"
        if name == "num_gpu_blocks_override":
            found = found._replace(num_gpu_blocks_override=parse_count(value, option))
        elif name == "mamba_ssm_cache_dtype":
            if value not in _STATE_BYTES and value != "auto":
                raise InputError(f"{option}={value}: it is one of auto, {', '.join(_STATE_BYTES)}")
            found = found._replace(mamba_ssm_cache_bytes=_STATE_BYTES.get(value))
        elif name == "dtype":
            if value not in _DTYPES and value != "auto":
                raise InputError(f"{option}={value}: it is one of auto, {', '.join(_DTYPES)}")
            found = found._replace(dtype=_DTYPES.get(value))
        elif name == "use_v1":
            if value.lower() not in _SWITCH:
                raise InputError(f"{option}={value}: it is one of {', '.join(_SWITCH)}")
            found = found._replace(use_v1=_SWITCH[value.lower()])
        elif name == "max_loras":
            found = found._replace(max_loras=parse_count(value, option))
        elif name == "max_lora_rank":
            rank = parse_count(value, option)
            if rank not in _RANKS:
                raise InputError(f"{option}={value}: it is one of {', '.join(map(str, _RANKS))}")
            found = found._replace(max_lora_rank=rank, max_loras=found.max_loras or 1)
        elif name in {"enable_lora", "fully_sharded_loras"}:
            if value.lower() not in _SWITCH:
                raise InputError(f"{option}={value}: it is one of {', '.join(_SWITCH)}")
            if _SWITCH[value.lower()] and name == "fully_sharded_loras":
                raise UnsupportedCombination(f"{option}: how it divides LoRA slots is not modelled")
            if _SWITCH[value.lower()]:
                found = found._replace(max_loras=found.max_loras or 1)
        elif name == "kv_cache_dtype_skip_layers":
            for part in filter(None, (part.strip() for part in value.split(","))):
                if part == "sliding_window":
                    found = found._replace(skips_windows=True)
                else:
                    skipped.add(parse_count(part, option, minimum=0))
        else:
            near = ", ".join(nearest_names(name, KNOWN) or KNOWN)
            raise InputError(
                f"--engine-arg {name}: kvplan models no such argument of vLLM",
                hint=f"Nearest: {near}",
            )
    return found._replace(skipped_layers=frozenset(skipped))
