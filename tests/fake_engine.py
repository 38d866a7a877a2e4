"""An engine whose every figure the test sets, to judge planning without any real engine's rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvplan.deployment import Deployment
from kvplan.engines.base import Claim, KvLayout, PoolFigures, Term
from kvplan.precision.kv import KV_FORMATS, KvFormat


class FakeEngine:
    """Claims ``claim`` bytes, takes ``terms`` of them, stores the logical bytes, or in blocks."""

    name = "fake"

    def __init__(
        self,
        claim: int,
        terms: Sequence[Term] = (),
        *,
        outside: Term | None = None,
        block_size: int | None = None,
        held_blocks: int = 0,
        last_stage_terms: Sequence[Term] = (),
        formats: Sequence[str] = ("bf16",),
        settings: Sequence[tuple[str, dict[str, Any]]] = (),
    ) -> None:
        self.claimed = Claim(claim, outside)
        self.terms = tuple(terms)
        self.last_stage_terms = tuple(last_stage_terms)
        self.block_size = block_size
        self.held_blocks = held_blocks
        self.formats = [KV_FORMATS[name] for name in formats]
        self.settings = settings

    def resolve(self, deployment: Deployment) -> Deployment:
        return deployment

    def claim(self, deployment: Deployment) -> Claim:
        return self.claimed

    def weight_bytes(self, deployment: Deployment, stage: int) -> int:
        d = deployment
        return d.model.weight_bytes(d.scheme, d.split, stage)

    def overheads(self, deployment: Deployment, stage: int) -> Sequence[Term]:
        last = stage == deployment.pp - 1
        return self.terms + (self.last_stage_terms if last else ())

    def kv_layout(self, deployment: Deployment, stage: int) -> KvLayout:
        d = deployment
        rows = d.model.logical_rows(d.kv, d.split, stage)
        if self.block_size is None:
            return KvLayout(rows)
        size = self.block_size
        (row,) = rows
        blocks = row._replace(unit_bytes=row.unit_bytes * size, unit_tokens=size)
        return KvLayout((blocks,), size, blocks.unit_bytes, self.held_blocks)

    def pool_figures(
        self, deployment: Deployment, layout: KvLayout, pool_bytes: int
    ) -> PoolFigures:
        return PoolFigures()

    def kv_formats(self, deployment: Deployment) -> Sequence[KvFormat]:
        return self.formats

    def block_sizes(self, deployment: Deployment) -> Sequence[int]:
        return [] if self.block_size is None else [self.block_size]

    def flags(self, deployment: Deployment) -> list[str]:
        return ["serve", deployment.kv.name]

    def changes(self, deployment: Deployment) -> Sequence[tuple[str, Deployment]]:
        return [(words, deployment.with_args(**changed)) for words, changed in self.settings]
