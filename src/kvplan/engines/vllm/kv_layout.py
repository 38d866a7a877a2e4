"""How vLLM divides its KV pool: specs by layer, layers in groups, one block size in bytes.

All groups draw blocks from one pool, so a block has the same bytes whichever group takes it, and
a sequence takes the sum of the groups' blocks. That is why a model that mixes windows and full
attention reserves more than the mathematics needs: windows hold in-flight tokens, pages are made
alike by padding, and groups are filled up to one number of layers.
"""

from __future__ import annotations

from functools import lru_cache

from kvplan.engines.base import Group, KvLayout
from kvplan.engines.vllm.groups import group_layers, pack_groups, without_windows
from kvplan.engines.vllm.specs import Paging, layer_specs
from kvplan.engines.vllm.versions import NEWEST, Rules, as_stored, check_pages, rules
from kvplan.model.caches import Cache
from kvplan.model.model import Model, stage_layers

NEWEST_RULES = rules(NEWEST, v1=True)


@lru_cache(maxsize=1024)
def vllm_layout(
    model: Model,
    paging: Paging,
    *,
    pp: int = 1,
    stage: int = 0,
    hybrid: bool = True,
    r: Rules = NEWEST_RULES,
    draft: tuple[tuple[Cache, ...], ...] = (),
    draft_from: int = 0,
) -> KvLayout:
    """The layout of one rank of a stage.

    Groups are formed over the whole model and each stage keeps its own layers of them; a block is
    as large as the largest group's pages together. Block 0 is taken at start and never given to a
    sequence (``v1/core/block_pool.py``). ``draft`` is what the layers of a draft keep, all on the
    last stage: they are planned like further layers of the model, numbered from ``draft_from`` on
    where a list of layers is asked.
    Source: vLLM ``v1/core/kv_cache_planning.py`` ``_project_kv_cache_groups_to_worker``,
    ``_get_kv_cache_bytes_per_block``.
    """
    specs = [
        (index, spec)
        for index, layer in enumerate(as_stored(model, r).layers)
        for cache in layer.caches
        for spec in layer_specs(cache, index, paging, model.name)
    ]
    layers = model.num_hidden_layers
    specs += [
        (layers + place, spec)
        for place, caches in enumerate(draft)
        for cache in caches
        for spec in layer_specs(cache, draft_from + place, paging, model.name)
    ]
    if paging.page_alignment > 1:
        groups = pack_groups(specs)
    else:
        specs = specs if hybrid else without_windows(specs)
        if len({(spec.kind, spec.cap_tokens) for _, spec in specs}) > 1:
            check_pages({spec.page_bytes for _, spec in specs}, model, r)
        groups = group_layers(specs, r.evens_below)
    start, end = stage_layers(layers, pp, stage)
    end += len(draft) * (stage == pp - 1)
    block_bytes = max(group.bytes_between(start, end) for group in groups)
    rows = tuple(group.spec.row(block_bytes, paging.dcp) for group in groups)
    return KvLayout(
        rows=rows,
        block_size=paging.block_size,
        block_bytes=block_bytes,
        held_blocks=r.held_blocks,
        groups=tuple(
            Group(group.spec.kind, len(group.layers), group.spec.block_tokens, row)
            for group, row in zip(groups, rows, strict=True)
        ),
    )
