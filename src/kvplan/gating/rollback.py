"""What takes an engine back to a 16-bit KV cache that keeps every token."""

from __future__ import annotations

from kvplan.errors import InputError, nearest_names
from kvplan.monitoring.plan import Plan

FLAGS: dict[str, tuple[str, ...]] = {
    "vllm": ("--kv-cache-dtype", "auto"),
    "sglang": ("--kv-cache-dtype", "auto"),
    "tensorrt-llm": ("--kv_cache_dtype", "auto"),
    "llamacpp": ("--cache-type-k", "f16", "--cache-type-v", "f16"),
    "transformers": ("--cache-implementation", "dynamic"),
}
"""``auto`` follows the model's dtype, so it is 16 bits unless the checkpoint says otherwise. A
window given on top (a changed ``sliding_window``) is taken back by leaving that override out."""


def rollback_flags(engine: str) -> list[str]:
    """The engine's arguments; leave out any override of the window beside them."""
    name = engine.partition("@")[0].strip().lower()
    if name not in FLAGS:
        near = nearest_names(name, FLAGS) or list(FLAGS)
        raise InputError(
            f"--engine {engine!r}: kvplan does not know how its KV cache goes back to 16 bits",
            hint=f"It knows: {', '.join(near)}.",
        )
    return list(FLAGS[name])


def rollback_room(plan: Plan) -> str:
    """Whether the planned GPUs hold the batch at 16 bits."""
    batches = [batch for name, batch in plan.formats if name in {"bf16", "fp16", "f16"}]
    if not batches:
        return "the plan does not say what a 16-bit cache holds: ask kvplan fit with --kv bf16"
    held = max(batches)
    if held >= plan.batch:
        return f"there is room: a 16-bit cache holds {held:,} x {plan.seq_len:,} tokens"
    return (
        f"no room for the batch of {plan.batch:,}: a 16-bit cache holds {held:,} x "
        f"{plan.seq_len:,} tokens; ask kvplan fit --kv bf16 --batch {plan.batch} for what would fit"
    )
