"""Hugging Face transformers: the bytes of its cache object, without blocks or a pool.

A dynamic cache grows by the tokens it has seen; a static cache is laid out for its longest length
at once. Nothing is reserved beyond the tensors, so these are the bytes that ``Cache`` holds after
a step, and the activations of a step come on top.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from kvplan.deployment import Deployment
from kvplan.engines.base import KvLayout, Settled, Unmanaged, without_settings
from kvplan.engines.transformers.tensors import CACHES, DYNAMIC, STATIC, Options, cache_rows
from kvplan.errors import InputError, UnsupportedCombination, nearest_names
from kvplan.model.model import stage_layers
from kvplan.precision.kv import KV_FORMATS, KvFormat
from kvplan.units import MAX_TOKENS, parse_tokens

VERSION = "5.24"
FORMATS = ("bf16", "fp16", "fp32")
"""The dtypes that a model runs in, and so those of its cache."""
ARGUMENTS = ("cache", "max_cache_len")
"""The arguments of this engine that are modelled."""


class TransformersEngine(Unmanaged):
    """The ``Cache`` object of transformers."""

    name = "transformers"

    def resolve(self, deployment: Deployment) -> Deployment:
        """Check what the cache can do; there are no defaults but the dynamic cache."""
        d = without_settings(deployment)
        if d.engine_version is not None and not f"{d.engine_version}.".startswith(f"{VERSION}."):
            raise UnsupportedCombination(
                f"transformers {d.engine_version} is not modelled: its cache changes with versions",
                hint=f"Modelled: transformers@{VERSION}.",
            )
        if max(d.tp, d.dcp, d.ep) > 1:
            raise UnsupportedCombination(
                "--engine transformers: layers are placed on GPUs whole (device_map), not split",
                hint="Use --pp to divide layers over GPUs, or --dp for copies of the model.",
            )
        if d.kv.name not in FORMATS:
            raise UnsupportedCombination(
                f"--kv {d.kv.name}: transformers keeps keys and values in the dtype the model "
                f"runs in",
                hint=f"Use: {', '.join(FORMATS)}. Quantised caches are not modelled.",
            )
        options = parse_options(d.args.extra)
        if options.max_cache_len is not None and options.max_cache_len < d.seq_len:
            raise InputError(
                f"--max-cache-len {options.max_cache_len:,} is less than the {d.seq_len:,} tokens "
                "of a sequence"
            )
        if d.kv.name != d.model.dtype.name:
            d = d.saying(assumption=f"the model runs in {d.kv.name}, and so does its cache")
        if options.cache == STATIC and options.max_cache_len is None:
            d = d.saying(assumption="static cache: laid out for the sequence's own length")
        if d.prefix_tokens:
            d = d._replace(prefix_tokens=0).saying(
                assumption="transformers shares no prefix: every sequence has a cache of its own"
            )
        if d.pp > 1:
            d = d.saying(assumption=f"device_map: layers divided evenly over {d.pp} GPUs")
        return d.saying(
            assumption="transformers: no activation or runtime memory is counted; leave room for it"
        )

    def kv_layout(self, deployment: Deployment, stage: int) -> KvLayout:
        """The tensors of the cache."""
        d = deployment
        options = parse_options(d.args.extra)
        start, end = stage_layers(d.model.num_hidden_layers, d.pp, stage)
        return KvLayout(
            cache_rows(d.model, d.kv, options, d.args.encoder_tokens, start=start, end=end)
        )

    def settled(self, deployment: Deployment) -> Settled:
        """Every load, as far as a static cache is long."""
        options = parse_options(deployment.args.extra)
        return Settled(1, options.max_cache_len or MAX_TOKENS, MAX_TOKENS)

    def kv_formats(self, deployment: Deployment) -> Sequence[KvFormat]:
        """The dtype that the model runs in."""
        name = deployment.kv.name
        return (KV_FORMATS[name if name in FORMATS else deployment.model.dtype.name],)

    def changes(self, deployment: Deployment) -> Sequence[tuple[str, Deployment]]:
        """A dynamic cache never holds more than a static one."""
        if parse_options(deployment.args.extra).cache == DYNAMIC:
            return ()
        kept = tuple(pair for pair in deployment.args.extra if pair[0] not in ARGUMENTS)
        return (("--cache dynamic", deployment.with_args(extra=kept)),)


@lru_cache(maxsize=64)
def parse_options(extra: tuple[tuple[str, str], ...]) -> Options:
    """The engine's arguments by name; one it does not model is an error."""
    options = Options()
    for name, value in extra:
        if name == "cache":
            if value not in CACHES:
                raise InputError(
                    f"--cache {value}: not a cache kvplan models", hint=f"Use: {', '.join(CACHES)}."
                )
            options = options._replace(cache=value)
        elif name == "max_cache_len":
            options = options._replace(max_cache_len=parse_tokens(value, "--max-cache-len"))
        else:
            near = ", ".join(nearest_names(name, ARGUMENTS) or ARGUMENTS)
            raise InputError(
                f"--engine-arg {name}: kvplan models no such argument of transformers",
                hint=f"Nearest: {near}",
            )
    if options.max_cache_len is not None and options.cache != STATIC:
        raise InputError("--max-cache-len belongs to a static cache", hint="Add --cache static.")
    return options


ENGINE = TransformersEngine()
