"""Models that run the same layers several times: each run keeps a cache of its own.

The weights are counted once, the caches once a run, which is the trap for a reader that multiplies
layers by heads.
Source: transformers ``modeling_hrm_text.py``, ``modeling_dory.py`` and their configurations.
"""

from __future__ import annotations

from kvplan.errors import UnsupportedArchitecture
from kvplan.model.caches import Cache
from kvplan.model.tensors import ATTENTION, NORMS, Tensor
from kvplan.sources.huggingface.architecture import (
    FULL,
    SLIDING,
    Architecture,
    Weights,
    head_cache,
    local,
    window,
)
from kvplan.sources.huggingface.families.blocks import (
    every_nth_full,
    layer_mlp,
    outside,
    projections,
)
from kvplan.sources.huggingface.families.dense import attention_bias
from kvplan.sources.huggingface.families.routed_recent import output_gate
from kvplan.sources.huggingface.fields import Fields

DEFAULTS = {
    # configuration_hrm_text.py
    "hrm_text": {"H_cycles": 2, "L_cycles": 3, "head_dim": 128},
    # configuration_dory.py
    "dory": {
        "head_dim": 256,
        "sliding_window": 1024,
        "n_input_layers": 16,
        "n_output_layers": 16,
        "n_recurrent_loops": 2,
        "recurrent_kv_cache_mode": "per_loop",
    },
}


def hrm_text(c: Fields) -> Architecture:
    """HRM-Text: a low stack that runs ``H_cycles * L_cycles`` times, a high one ``H_cycles`` times.

    Saved files give the layers of one stack in ``num_layers_per_stack`` and the caches of all
    runs together in ``num_hidden_layers``; original ones mean one stack by ``num_hidden_layers``.
    """
    stack = c.optional_integer("num_layers_per_stack", maximum=10**4) or c.layers()
    high, low = c.integer("H_cycles"), c.integer("L_cycles")
    cache, heads = head_cache(c), c.heads()
    if cache.num_kv_heads != heads:
        raise UnsupportedArchitecture("num_key_value_heads", cache.num_kv_heads, where=c.where)
    caches: list[tuple[Cache, ...]] = [
        *([(cache,) * (high * low)] * stack),
        *([(cache,) * high] * stack),
    ]

    def count() -> Weights:
        bias = attention_bias(c)
        layer = (
            *projections(c, qkv_bias=bias, o_bias=bias),
            output_gate(c),
            *(
                [Tensor(ATTENTION, "self_attn.gate_proj.bias", heads * c.head_size())]
                if bias
                else ()
            ),
            *layer_mlp(c, bias=c.boolean("mlp_bias", default=False)),
        )
        start = Tensor(NORMS, "model.z_L_init", c.hidden())
        return Weights([layer] * (2 * stack), outside(c, final=None, more=[start]))

    return Architecture(caches, count)


def dory(c: Fields) -> Architecture:
    """Dory: the layers in the middle run ``n_recurrent_loops`` times.

    Released files list attention and MLP as separate layers, so that every number of layers in
    them is twice what it means.
    """
    listed = c.sequence("layer_types")
    half = 2 if listed is not None and "mlp" in listed else 1
    layers = c.layers() // half
    kinds = every_nth_full(layers, 4) if listed is None else listed[::half]
    if len(kinds) != layers:
        raise UnsupportedArchitecture("layer_types", kinds, where=c.where)
    for index, kind in enumerate(kinds):
        if kind not in (FULL, SLIDING):
            raise UnsupportedArchitecture(f"layer_types[{index}]", kind, where=c.where)
    first = c.integer("n_input_layers", minimum=0) // half
    last = layers - c.integer("n_output_layers", minimum=0) // half
    stated = c.optional_integer("n_recurrent_layers", minimum=0)
    if stated is not None and stated // half != last - first:
        raise UnsupportedArchitecture("n_recurrent_layers", stated, where=c.where)
    mode = c.text("recurrent_kv_cache_mode")
    if mode not in ("per_loop", "last_loop"):
        raise UnsupportedArchitecture("recurrent_kv_cache_mode", mode, where=c.where)
    loops = c.integer("n_recurrent_loops") if mode == "per_loop" else 1
    cache, span = head_cache(c), window(c)
    caches: list[tuple[Cache, ...]] = [
        (local(cache, kind, span, c.where),) * (loops if first <= index < last else 1)
        for index, kind in enumerate(kinds)
    ]

    def count() -> Weights:
        hidden, bias = c.hidden(), attention_bias(c)
        inner, width = c.heads() * cache.head_size, c.integer("intermediate_size")
        layer = (
            *projections(c, qkv_bias=bias, o_bias=bias),
            output_gate(c),
            Tensor(ATTENTION, "self_attn.scales", inner, copies=2),
            *layer_mlp(c, bias=c.boolean("mlp_bias", default=False)),
            Tensor(NORMS, "mlp.scales", width, copies=2),
            Tensor(NORMS, "lambda", hidden, copies=2),
        )
        scale = Tensor(NORMS, "lm_head.logit_scale", c.vocab())
        return Weights([layer] * layers, (*outside(c, final=None), scale))

    return Architecture(caches, count)
