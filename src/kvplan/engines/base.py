"""What planning asks of an engine. Nothing outside an engine's own room knows its name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from kvplan.model.rows import Row, largest_tokens, sequence_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvplan.calibration import Observed
    from kvplan.deployment import Deployment
    from kvplan.precision.kv import KvFormat
    from kvplan.units import N


class Term(NamedTuple):
    """Memory that an engine takes besides weights and the KV pool, with its range."""

    key: str
    """``activation``, ``cuda_graph``, ``runtime``, ``lora`` or ``draft``."""
    low: int
    likely: int
    high: int
    source: str
    """The rule or the measurements behind it."""
    in_claim: bool = True
    """Part of what the engine claims; False: it needs room beside the claim."""


class Claim(NamedTuple):
    """Memory that an engine asks for."""

    size_bytes: int
    outside: Term | None = None
    """What must be free beside the claim for the engine to start."""


class Group(NamedTuple):
    """Layers that the engine keeps in one block table."""

    kind: str
    layers: int
    block_tokens: int
    blocks_row: Row
    """Blocks of one sequence: a row whose unit is one block."""


class KvLayout(NamedTuple):
    """How one rank stores sequences: bytes by length, and blocks where the engine has them."""

    rows: tuple[Row, ...]
    """Reserved bytes of one sequence."""
    block_size: int | None = None
    """Tokens of a block; None for an engine without blocks."""
    block_bytes: int | None = None
    """Bytes of one block over all the layers that share it."""
    held_blocks: int = 0
    """Blocks of the pool that no sequence may use."""
    least_blocks: int = 0
    """Blocks for which the engine refuses to start with fewer, one for each of max_num_seqs."""
    fixed_blocks: int | None = None
    """Blocks of the pool where the user gives their number."""
    groups: tuple[Group, ...] = ()

    def reserved_bytes(self, tokens: N) -> N:
        """Bytes that this rank sets aside for one sequence."""
        return sequence_bytes(self.rows, tokens)

    def sequence_blocks(self, tokens: N) -> N | None:
        """Blocks that one sequence takes; None for an engine without blocks."""
        if self.block_bytes is None:
            return None
        return self.reserved_bytes(tokens) // self.block_bytes

    def pool_blocks(self, pool_bytes: int) -> int | None:
        """Whole blocks that the pool holds."""
        if self.fixed_blocks is not None:
            return self.fixed_blocks
        if self.block_bytes is None:
            return None
        return max(0, pool_bytes) // self.block_bytes

    def available_bytes(self, pool_bytes: int) -> int:
        """Bytes of the pool that sequences can use: whole blocks, less those held back."""
        blocks = self.pool_blocks(pool_bytes)
        if blocks is None or self.block_bytes is None:
            return max(0, pool_bytes)
        return max(0, blocks - self.held_blocks) * self.block_bytes

    def shared_bytes(self, prefix_tokens: N) -> N:
        """Bytes of a common prefix that further sequences need not store again.

        Only whole blocks of caches that keep every token are shared; a window moves past its
        prefix and a recurrent state is each sequence's own.
        """
        unit = self.block_size or 1
        whole = prefix_tokens // unit * unit
        growing = tuple(
            row._replace(constant_bytes=0) for row in self.rows if row.cap_tokens is None
        )
        return sequence_bytes(growing, whole)

    def longest(self, budget_bytes: int) -> int:
        """The longest sequence whose reserved bytes are within the budget."""
        return largest_tokens(self.rows, budget_bytes)


class PoolFigures(NamedTuple):
    """What the engine itself prints about its pool; None where it prints no such figure."""

    tokens: int | None = None
    max_concurrency: float | None = None


_SETTINGS = {
    "block_size": "--block-size",
    "max_num_seqs": "--max-num-seqs",
    "max_num_batched_tokens": "--max-num-batched-tokens",
    "gpu_memory_utilization": "--gpu-memory-utilization",
    "enforce_eager": "--enforce-eager",
    "prefix_caching": "--no-prefix-caching",
    "async_scheduling": "--no-async-scheduling",
    "disable_hybrid_kv_cache_manager": "--disable-hybrid-kv-cache-manager",
    "speculative_tokens": "--speculative-tokens",
}
"""Arguments of a serving engine, which one without a scheduler has not."""


def without_settings(deployment: Deployment) -> Deployment:
    """The deployment of an engine that has no settings: those given are said not to be used."""
    args = deployment.args
    defaults = type(args)()
    if deployment.draft is not None:
        deployment = deployment._replace(draft=None).saying(
            warning=f"--engine {deployment.engine} has no --draft-model: not used"
        )
    given = [name for name in _SETTINGS if getattr(args, name) != getattr(defaults, name)]
    if not given:
        return deployment
    flags = ", ".join(_SETTINGS[name] for name in given)
    return deployment.with_args(**{name: getattr(defaults, name) for name in given}).saying(
        warning=f"--engine {deployment.engine} has no {flags}: not used"
    )


class Engine(Protocol):
    """The questions that every engine answers."""

    name: str

    def resolve(self, deployment: Deployment) -> Deployment:
        """The deployment with this engine's defaults filled in, each said as an assumption."""

    def claim(self, deployment: Deployment) -> Claim:
        """The memory of one GPU that the engine may use for everything."""

    def weight_bytes(self, deployment: Deployment, stage: int) -> int:
        """The weights on one rank of a pipeline stage as the engine holds them."""

    def overheads(self, deployment: Deployment, stage: int) -> Sequence[Term]:
        """What it takes besides weights and KV on one rank of a pipeline stage."""

    def kv_layout(self, deployment: Deployment, stage: int) -> KvLayout:
        """How it stores the KV cache on one rank of a pipeline stage."""

    def pool_figures(
        self, deployment: Deployment, layout: KvLayout, pool_bytes: int
    ) -> PoolFigures:
        """Tokens and concurrency of a pool as the engine prints them."""

    def kv_formats(self, deployment: Deployment) -> Sequence[KvFormat]:
        """The KV formats that it takes for this model on this GPU, mildest first."""

    def block_sizes(self, deployment: Deployment) -> Sequence[int]:
        """The block sizes that it takes; empty for an engine without blocks."""

    def flags(self, deployment: Deployment) -> list[str]:
        """The command line that realises the plan; empty where there is none to run."""

    def changes(self, deployment: Deployment) -> Sequence[tuple[str, Deployment]]:
        """Other settings of this engine that cost no quality and may free memory, with words."""


class Unmanaged:
    """An engine that sets no pool aside, has no blocks and is started by no command."""

    def claim(self, deployment: Deployment) -> Claim:
        """All of the usable memory: nothing is set aside."""
        return Claim(deployment.usable_bytes)

    def weight_bytes(self, deployment: Deployment, stage: int) -> int:
        """The weights as the checkpoint's scheme stores them."""
        return deployment.model.weight_bytes(deployment.scheme, deployment.split, stage)

    def overheads(self, deployment: Deployment, stage: int) -> Sequence[Term]:  # noqa: ARG002
        """None are counted."""
        return ()

    def pool_figures(
        self,
        deployment: Deployment,  # noqa: ARG002
        layout: KvLayout,  # noqa: ARG002
        pool_bytes: int,  # noqa: ARG002
    ) -> PoolFigures:
        """There is no pool."""
        return PoolFigures()

    def block_sizes(self, deployment: Deployment) -> Sequence[int]:  # noqa: ARG002
        """There are no blocks."""
        return ()

    def flags(self, deployment: Deployment) -> list[str]:  # noqa: ARG002
        """There is no command to run."""
        return []


class Settled(NamedTuple):
    """Loads that an engine's settings do not depend on.

    Between these lengths, deployments that differ in seq_len and batch alone resolve to the same
    settings (but for a max_model_len that follows seq_len), the same pool and the same layout, as
    long as a replica holds at most ``max_sequences``; beyond that, they do for one and the same
    batch.
    """

    min_seq_len: int
    max_seq_len: int
    max_sequences: int


@runtime_checkable
class SettlesLoads(Protocol):
    """What an engine answers besides, so that a sweep resolves it once for many loads.

    Its `pool_figures` then takes arrays of max_model_len too. Without it every load is resolved by
    itself.
    """

    def settled(self, deployment: Deployment) -> Settled | None:
        """The loads of one resolution; None where every load has its own."""


class LogReader(Protocol):
    """What an engine answers besides, when it prints its memory at start-up."""

    def read_log(self, lines: Iterable[str]) -> Observed:
        """What a start-up log says. Raises where it says nothing of memory."""

    def other_settings(self, deployment: Deployment) -> Sequence[tuple[str, Deployment]]:
        """Other values of what a log rarely states, with words, to explain a difference by."""
