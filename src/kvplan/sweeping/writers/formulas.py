"""The arithmetic of a budget as spreadsheet formulas: `planning.budget`, cell by cell.

One line of the hidden sheet ``Stages`` is one rank's pool under one configuration; its cells are
facts (numbers that kvplan found) or formulas over the inputs of the sheet ``Plan`` and the rows
table of `model.rows` on the hidden sheet ``Rows``. Every formula works in Excel and LibreOffice
without array entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvplan.planning.budget import StagePool
from kvplan.planning.fitting import Bounds, Pools
from kvplan.units import GIB

INPUTS = {
    "users": "Plan!$B$3", "per_user": "Plan!$B$4", "batch": "Plan!$B$5", "seq": "Plan!$B$6",
    "kv_bits": "Plan!$B$7", "weight_bits": "Plan!$B$8", "utilisation": "Plan!$B$9",
    "memory": "Plan!$B$10",
}  # fmt: skip
NO_CAP = 10**15
_LINEAR = {"full", "sliding_window", "chunked_local"}
"""Caches whose bytes are in proportion to the bits of an element."""

# Facts first, then formulas; {name} is the cell of that column, {rows} the lines of this stage.
FORMULAS: dict[str, str] = {
    "sequences": "ROUNDUP({batch_in}/{dp},0)",
    "kv_factor": 'IF(OR({kv_bits_in}="",{linear}=0),1,{kv_bits_in}/{kv_bits})',
    "weight_factor": 'IF({weight_bits_in}="",1,{weight_bits_in}/{weight_bits})',
    "total": f'IF({{memory_in}}="",{{device}},{{memory_in}}*{GIB})',
    "share": 'IF({utilisation_in}="",{utilisation},{utilisation_in})',
    "claim": "IF({pool_given}>0,0,IF({by_share}=1,ROUNDUP({total}*{share},0),{total}-{reserve}))",
    "weights": "{weight_facts}*{weight_factor}",
    "pool": "IF({pool_given}>0,{pool_given},{claim}-{weights}-{inside})",
    "careful": "IF({pool_given}>0,{pool_given},{claim}-{weights}-{inside_high})",
    "beside": "{total}-{reserve}-{claim}-{outside}",
    "reserved": "{kv_factor}*SUMPRODUCT({rows_constant}+{rows_unit}*ROUNDUP(({seq_in}"
    "-({seq_in}>{rows_cap})*({seq_in}-{rows_cap}))/{rows_tokens},0))",
    "whole_prefix": "INT(MIN({prefix},{seq_in})/{prefix_unit})*{prefix_unit}",
    "shared": f"{{kv_factor}}*SUMPRODUCT(({{rows_cap}}={NO_CAP})*{{rows_unit}}"
    "*ROUNDUP({whole_prefix}/{rows_tokens},0))",
    "needed": "{sequences}*{reserved}-({sequences}-1)*{shared}",
    "page": "{block}*{kv_factor}",
    "blocks": "IF({block}=0,0,IF({fixed_blocks}>=0,{fixed_blocks},INT(MAX({pool},0)/{page})))",
    "available": "IF({block}=0,MAX({pool},0),MAX({blocks}-{held},0)*{page})",
    "careful_blocks": "IF({block}=0,0,IF({fixed_blocks}>=0,{fixed_blocks},"
    "INT(MAX({careful},0)/{page})))",
    "careful_available": "IF({block}=0,MAX({careful},0),MAX({careful_blocks}-{held},0)*{page})",
    "headroom": "IF({pool}<=0,{pool},{available})-{needed}",
    "longest": "IF({model_len}>0,{kv_factor}*SUMPRODUCT({rows_constant}+{rows_unit}*ROUNDUP("
    "({model_len}-({model_len}>{rows_cap})*({model_len}-{rows_cap}))/{rows_tokens},0)),0)",
    "severity": "IF(AND({pool_given}=0,{beside}<0),2,IF(OR({pool}<=0,"
    "AND({block}>0,{blocks}<{least}),{longest}>{available},{needed}>{available}),2,"
    "IF(AND({pool_given}=0,{beside_likely}>{beside}),2,"
    "IF(OR(AND({pool_given}=0,{beside_high}>{beside}),{careful}<=0,"
    "AND({block}>0,{careful_blocks}<{least}),{longest}>{careful_available},"
    "{needed}>{careful_available},"
    "{headroom}<{min_headroom}*IF({pool_given}>0,{pool_given},{total}-{reserve}),"
    "{not_sure}=1),1,0))))",
    "room": "IF({block}=0,{headroom},{blocks})",
    "asks_again": "IF(OR({sequences}>{most_sequences},{sequences}<{least_sequences},"
    "{seq_in}<{least_seq},{seq_in}>{most_seq}),1,0)",
}  # fmt: skip


def facts(pools: Pools, pool: StagePool, bounds: Bounds, min_headroom: float) -> dict[str, float]:
    """The numbers that a stage's formulas stand on."""
    d, layout = pools.resolved, pool.layout
    inside = [term for term in pool.terms if term.in_claim]
    beside = [term for term in pool.terms if not term.in_claim]
    kinds = {group.cache.kind for group in d.model.groups}
    usable = d.usable_bytes if d.total_bytes is not None else 0
    outside = 0
    if pool.beside_bytes is not None:
        outside = usable - (pool.claim_bytes or 0) - pool.beside_bytes
    return {
        "dp": d.dp,
        "kv_bits": d.kv.bits,
        "linear": int(kinds <= _LINEAR and not d.kv.residual_tokens),
        "weight_bits": d.scheme.form.bits_per_element(),
        "device": d.total_bytes or 0,
        "reserve": d.reserve_bytes,
        "utilisation": d.args.gpu_memory_utilization or 1,
        "by_share": int(d.args.gpu_memory_utilization is not None),
        "pool_given": d.args.kv_cache_memory_bytes or 0,
        "weight_facts": pool.weight_bytes or 0,
        "inside": sum(term.likely for term in inside),
        "inside_high": sum(term.high for term in inside),
        "beside_likely": sum(term.likely for term in beside),
        "beside_high": sum(term.high for term in beside),
        "outside": outside,
        "prefix": d.prefix_tokens,
        "prefix_unit": layout.block_size or 1,
        "block": layout.block_bytes or 0,
        "held": layout.held_blocks,
        "least": layout.least_blocks,
        "fixed_blocks": -1 if layout.fixed_blocks is None else layout.fixed_blocks,
        "model_len": 0 if pools.follows else d.args.max_model_len or 0,
        "min_headroom": min_headroom,
        "not_sure": int(bool(d.model.left_out) and not d.args.kv_cache_memory_bytes),
        **bounds._asdict(),
    }


def formula(name: str, cells: Mapping[str, str]) -> str:
    """The formula of a column with its cells put in."""
    return "=" + FORMULAS[name].format_map({**cells, **_inputs()})


def _inputs() -> dict[str, Any]:
    return {f"{name}_in": cell for name, cell in INPUTS.items()}
