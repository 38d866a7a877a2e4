"""No engine: the bare formula, KV cache and weights against the device's memory.

The figure to compare with a paper or another calculator. It takes every number format, rounds to
no block and adds nothing; a real engine needs more.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.deployment import Deployment
from kvplan.engines.base import KvLayout, Settled, Unmanaged, without_settings
from kvplan.errors import InputError, UnsupportedCombination
from kvplan.precision.kv import KV_FORMATS, KvFormat, check_packs
from kvplan.units import MAX_TOKENS


class NoEngine(Unmanaged):
    """The bare formula."""

    name = "none"

    def resolve(self, deployment: Deployment) -> Deployment:
        """Nothing to fill in but what is left out."""
        if deployment.engine_version is not None:
            raise UnsupportedCombination("--engine none has no versions")
        if deployment.args.extra:
            raise InputError(f"--engine none has no argument {deployment.args.extra[0][0]!r}")
        check_packs(deployment.kv, deployment.model.head_sizes())
        if deployment.dcp > 1:
            deployment = deployment.saying(
                warning=f"--engine none shares no tokens among ranks: --dcp {deployment.dcp} is "
                "not used"
            )
        return without_settings(deployment).saying(
            assumption="engine none: no activation, graph or runtime memory, no block rounding"
        )

    def kv_layout(self, deployment: Deployment, stage: int) -> KvLayout:
        """The logical rows as they are."""
        return KvLayout(deployment.model.logical_rows(deployment.kv, deployment.split, stage))

    def settled(self, deployment: Deployment) -> Settled:  # noqa: ARG002
        """There are no settings."""
        return Settled(1, MAX_TOKENS, MAX_TOKENS)

    def kv_formats(self, deployment: Deployment) -> Sequence[KvFormat]:
        """Every format whose blocks divide this model's heads."""
        sizes = deployment.model.head_sizes()
        return [
            form
            for form in KV_FORMATS.values()
            if all(size % side.packs == 0 for size in sizes for side in (form.k, form.v))
        ]

    def changes(self, deployment: Deployment) -> Sequence[tuple[str, Deployment]]:  # noqa: ARG002
        """There are no settings."""
        return ()


ENGINE = NoEngine()
