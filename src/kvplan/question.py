"""From flags to a `Deployment`: each flag once, with its parser and its help.

The command line, the Python API and configuration files all take these names, so a flag means the
same everywhere and its errors read the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from kvplan.deployment import AUTO_LENGTH, Deployment, EngineArgs, check_split
from kvplan.errors import InputError, UnsupportedCombination, nearest_names
from kvplan.hardware.profiles import load_gpu
from kvplan.model.model import Model
from kvplan.model.window import with_window
from kvplan.precision.format import BF16, FP32
from kvplan.precision.kv import AUTO, KV_FORMATS, KvFormat, kv_format
from kvplan.precision.scheme import WeightScheme, plain_scheme, scheme_from
from kvplan.precision.weights import weight_format
from kvplan.sources import load_model
from kvplan.units import parse_count, parse_fraction, parse_size, parse_tokens

MAX_GPUS = 100_000


class Flag(NamedTuple):
    """One flag of the question."""

    name: str
    """As a key in Python and YAML; the command line writes it with ``--`` and dashes."""
    panel: str
    help: str
    parse: Callable[[str, str], Any] | None = None
    """Text and flag to value; None for a switch."""
    metavar: str = "TEXT"
    short: str | None = None
    also: tuple[str, ...] = ()
    repeats: bool = False

    @property
    def option(self) -> str:
        """How the command line writes it."""
        return "--" + self.name.replace("_", "-")


def _text(text: str, name: str) -> str:
    if not text.strip():
        raise InputError(f"{name} is empty")
    return text


def _parallel(text: str, name: str) -> int:
    return parse_count(text, name, maximum=MAX_GPUS)


def _whole(text: str, name: str) -> int:
    return parse_count(text, name)


def _model_len(text: str, name: str) -> int:
    return AUTO_LENGTH if text.strip().lower() in {"auto", "-1"} else parse_tokens(text, name)


_LOAD, _HARDWARE, _FORMATS, _ENGINE = "Workload", "Hardware", "Formats and what-if", "Engine"

FLAGS: tuple[Flag, ...] = (
    Flag("seq", _LOAD, "Tokens kept per sequence; default: the model's native context.",
         parse_tokens, "TOKENS", "-s"),
    Flag("batch", _LOAD, "Sequences held at once.", _whole, "N", "-b"),
    Flag("input_tokens", _LOAD, "Prompt tokens; with --output-tokens instead of --seq.",
         parse_tokens, "TOKENS"),
    Flag("output_tokens", _LOAD, "Generated tokens.", parse_tokens, "TOKENS"),
    Flag("mean_seq", _LOAD, "Mean tokens per sequence, for the concurrency at that length.",
         parse_tokens, "TOKENS"),
    Flag("prefix_tokens", _LOAD, "Tokens at the front that all sequences share.",
         parse_tokens, "TOKENS"),
    Flag("gpu", _HARDWARE, "GPU: a bundled name, a YAML profile, or local.", _text, "GPU", "-g"),
    Flag("gpus", _HARDWARE, "GPUs in all; default tp x pp x dp.", _parallel, "N", "-n"),
    Flag("tp", _HARDWARE, "Tensor-parallel size.", _parallel, "N"),
    Flag("pp", _HARDWARE, "Pipeline stages.", _parallel, "N"),
    Flag("dp", _HARDWARE, "Replicas of the model.", _parallel, "N"),
    Flag("ep", _HARDWARE, "GPUs that the experts are spread over.", _parallel, "N"),
    Flag("dcp", _HARDWARE, "Ranks of tp that share the tokens of a sequence.", _parallel, "N"),
    Flag("gpu_memory", _HARDWARE, "Memory of one GPU, instead of the profile's.",
         parse_size, "SIZE"),
    Flag("reserve", _HARDWARE, "Memory that others hold on each GPU.", parse_size, "SIZE"),
    Flag("weights", _FORMATS, "Weight format; default: the checkpoint's.", _text, "FORMAT",
         also=("--weight-format",)),
    Flag("kv", _FORMATS, "KV cache format, or k=FORMAT,v=FORMAT; default: the model's dtype.",
         _text, "FORMAT", also=("--kv-cache-dtype",)),
    Flag("window", _FORMATS, "What if every full attention layer had this window.",
         parse_tokens, "TOKENS"),
    Flag("set", _FORMATS, "What if a fact of the config were another: FIELD=VALUE.", _text,
         "FIELD=VALUE", repeats=True),
    Flag("assume", _FORMATS, "Read an unknown architecture as: full-attention.", _text, "WHAT"),
    Flag("revision", _FORMATS, "Branch, tag or commit of a model on the hub.", _text, "NAME"),
    Flag("engine", _ENGINE, "Engine, or ENGINE@VERSION; none is the bare formula.", _text,
         "ENGINE"),
    Flag("block_size", _ENGINE, "Tokens per KV block.", _whole, "N", also=("--page-size",)),
    Flag("max_model_len", _ENGINE, "Longest sequence admitted, or auto; default --seq.",
         _model_len, "TOKENS"),
    Flag("max_num_seqs", _ENGINE, "Most sequences in a step.", _whole, "N"),
    Flag("max_num_batched_tokens", _ENGINE, "Most tokens in a step.", parse_tokens, "TOKENS"),
    Flag("gpu_memory_utilization", _ENGINE, "Share of the GPU's total memory to claim.",
         parse_fraction, "SHARE"),
    Flag("kv_cache_memory", _ENGINE, "The pool per GPU is given; the budget is skipped.",
         parse_size, "SIZE"),
    Flag("enforce_eager", _ENGINE, "No CUDA graphs."),
    Flag("no_prefix_caching", _ENGINE, "No prefix cache, which keeps recurrent states too."),
    Flag("no_async_scheduling", _ENGINE, "Do not schedule ahead."),
    Flag("disable_hybrid_kv_cache_manager", _ENGINE, "Keep windows in full beside full layers."),
    Flag("encoder_tokens", _ENGINE, "Tokens that an encoder hands to cross attention.",
         parse_tokens, "TOKENS"),
    Flag("speculative_tokens", _ENGINE, "Draft tokens of speculative decoding.", _whole, "N"),
    Flag("draft_model", _ENGINE, "Model that proposes them; default: MTP layers, or n-grams.",
         _text, "MODEL"),
    Flag("calibration", _ENGINE, "Corrections measured by kvplan calibrate, for this GPU.",
         _text, "FILE"),
    Flag("cache", _ENGINE, "transformers: dynamic or static.", _text, "KIND"),
    Flag("max_cache_len", _ENGINE, "transformers: tokens of a static cache.", parse_tokens,
         "TOKENS"),
    Flag("engine_arg", _ENGINE, "A further argument of the engine: NAME=VALUE.", _text,
         "NAME=VALUE", repeats=True),
)  # fmt: skip

BY_NAME = {flag.name: flag for flag in FLAGS}
DEFAULT_ENGINE = "vllm"


def build_deployment(model: str | Model, **flags: Any) -> Deployment:
    """The deployment that the flags describe; every value may be text as typed, or a number."""
    values = parse_flags(flags)
    if "gpu" not in values:
        raise InputError("no GPU was named", hint="Add --gpu, such as --gpu h100-sxm.")
    if not isinstance(model, str) and "revision" in values:
        raise InputError(f"--revision {values['revision']}: {model.name} is not asked of the hub")
    if isinstance(model, str):
        model = load_model(
            model,
            assume=values.get("assume"),
            overrides=settings_of(values.get("set", ()), "--set"),
            revision=values.get("revision"),
        )
    choice = load_gpu(values["gpu"])
    said = [choice.assumption] if choice.assumption else []
    model = _served(model, said)
    if "window" in values:
        model = with_window(model, values["window"])
    scheme, kv = _formats(model, values)
    sizes = _parallelism(values, said)
    engine, _, version = values.get("engine", DEFAULT_ENGINE).partition("@")
    deployment = Deployment(
        model=model,
        gpu=choice.gpu,
        engine=engine.strip().lower(),
        engine_version=version or None,
        scheme=scheme,
        kv=kv,
        kv_is_stated=values.get("kv", AUTO) != AUTO,
        seq_is_stated=any(name in values for name in ("seq", "input_tokens", "output_tokens")),
        weights_are_stated=values.get("weights", AUTO) != AUTO,
        seq_len=_seq_len(model, values, said),
        batch=values.get("batch", 1),
        mean_seq=values.get("mean_seq"),
        prefix_tokens=values.get("prefix_tokens", 0),
        device_bytes=values.get("gpu_memory"),
        reserve_bytes=_reserve(values, choice.held_bytes, sizes),
        args=EngineArgs(
            block_size=values.get("block_size"),
            max_model_len=values.get("max_model_len"),
            max_num_seqs=values.get("max_num_seqs"),
            max_num_batched_tokens=values.get("max_num_batched_tokens"),
            gpu_memory_utilization=values.get("gpu_memory_utilization"),
            kv_cache_memory_bytes=values.get("kv_cache_memory"),
            enforce_eager=values.get("enforce_eager", False),
            prefix_caching=not values.get("no_prefix_caching", False),
            encoder_tokens=values.get("encoder_tokens"),
            speculative_tokens=values.get("speculative_tokens", 0),
            extra=_further_args(values),
            async_scheduling=not values.get("no_async_scheduling", False),
            disable_hybrid_kv_cache_manager=values.get("disable_hybrid_kv_cache_manager", False),
        ),
        tp=sizes["tp"],
        pp=sizes["pp"],
        dp=sizes["dp"],
        ep=sizes["ep"],
        dcp=values.get("dcp", 1),
        draft=_draft(values),
        assumptions=tuple(said),
    )
    check_split(deployment)
    if "calibration" in values:
        deployment = _calibrated(deployment, values["calibration"])
    return deployment


def _draft(values: Mapping[str, Any]) -> Model | None:
    """The model that proposes tokens, which needs a number of them."""
    if "draft_model" not in values:
        return None
    if "speculative_tokens" not in values:
        raise InputError(
            "--draft-model without --speculative-tokens",
            hint="Add --speculative-tokens, such as --speculative-tokens 5.",
        )
    return _served(load_model(values["draft_model"]), [])


def _calibrated(d: Deployment, path: str) -> Deployment:
    """The deployment with the corrections of a file, which must be for its GPU and engine."""
    from kvplan.calibration.schema import read_calibration
    from kvplan.planning.correction import said

    found = read_calibration(path)
    for wanted, name, what in ((d.gpu.name, found.gpu, "GPU"), (d.engine, found.engine, "engine")):
        if name != wanted:
            raise InputError(
                f"--calibration {path}: it was measured on the {what} {name}, not on {wanted}",
                hint="A calibration holds for one GPU and engine: make one with kvplan calibrate.",
            )
    if d.device_bytes is None and found.device_bytes:
        d = d._replace(device_bytes=found.device_bytes)
    if d.engine_version is None:
        d = d._replace(engine_version=found.engine_version).saying(
            assumption=f"{d.engine} {found.engine_version}: the version that was calibrated"
        )
    d = d._replace(calibration=found).saying(assumption=said(found, d))
    if (d.engine_version or "").split(".")[:2] != found.engine_version.split(".")[:2]:
        d = d.saying(
            warning=f"calibrated on {found.engine} {found.engine_version}: "
            f"its terms may differ in {d.engine_version}"
        )
    return d


def parse_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Each flag's value, parsed; those not given (None, False, empty) are left out."""
    values: dict[str, Any] = {}
    for name, value in flags.items():
        flag = BY_NAME.get(name)
        if flag is None:
            near = ", ".join(nearest_names(name, BY_NAME) or BY_NAME)
            raise InputError(f"{name!r} is not a flag", hint=f"Nearest: {near}")
        if value is None or value is False or value in ((), []):
            continue
        if flag.repeats:
            values[name] = [value] if isinstance(value, str) else list(value)
        elif flag.parse is None:
            values[name] = True
        else:
            values[name] = flag.parse(str(value), flag.option)
    return values


def settings_of(settings: list[str] | tuple[()], option: str) -> dict[str, str]:
    """``NAME=VALUE`` pairs of a flag that may be repeated."""
    found = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not (name.strip() and equals and value.strip()):
            raise InputError(f"{option} {setting!r} is not NAME=VALUE")
        found[name.strip()] = value.strip()
    return found


def _further_args(values: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The engine's own arguments by name, those with a flag of their own among them."""
    found = settings_of(values.get("engine_arg", ()), "--engine-arg")
    for name in ("cache", "max_cache_len"):
        if name in values:
            found[name] = str(values[name])
    return tuple(sorted(found.items()))


def _reserve(values: Mapping[str, Any], held: tuple[int, ...], sizes: Mapping[str, int]) -> int:
    """What others hold of each GPU: as stated, else what was found of the freest ones."""
    if "reserve" in values or not held:
        return int(values.get("reserve", 0))
    wanted = sizes["tp"] * sizes["pp"] * sizes["dp"]
    if wanted > len(held):
        raise InputError(
            f"--gpu local: {wanted} GPUs are asked for, and there are {len(held)} here",
            hint="Name the GPU to plan for more of them, such as --gpu h100-sxm.",
        )
    return held[wanted - 1]


def _served(model: Model, said: list[str]) -> Model:
    """Engines serve a 32-bit checkpoint at 16 bits. Source: vLLM ``_get_and_verify_dtype``."""
    if model.dtype is not FP32:
        return model
    said.append("the checkpoint is 32-bit: served at 16 bits, as engines do (else --weights fp32)")
    scheme = model.scheme if model.scheme.name != FP32.name else plain_scheme(BF16)
    return replace(model, dtype=BF16, scheme=scheme)


def _formats(model: Model, values: Mapping[str, Any]) -> tuple[WeightScheme, KvFormat]:
    weights = values.get("weights", AUTO)
    scheme = model.scheme
    if weights != AUTO:
        scheme = scheme_from(weight_format(weights))
        _check_parts(model, scheme)
    kv = values.get("kv", AUTO)
    if kv != AUTO:
        return scheme, kv_format(kv)
    return scheme, KV_FORMATS[model.kv_cache_dtype or model.dtype.name]


def _check_parts(model: Model, scheme: WeightScheme) -> None:
    """Refuse a format of which this model has no part: its 16-bit figures would bear its name."""
    parts = {tensor.part for layer in set(model.layers) for tensor in layer.tensors}
    if parts and not parts & scheme.parts:
        only = " and ".join(sorted(part.replace("_", " ") for part in scheme.parts))
        raise UnsupportedCombination(
            f"--weights {scheme.name} stores only {only} in it, and {model.name} has none",
            hint="Formats for every linear layer: fp8, int8, awq, gptq, nvfp4.",
        )


def _seq_len(model: Model, values: Mapping[str, Any], said: list[str]) -> int:
    parts = [values[name] for name in ("input_tokens", "output_tokens") if name in values]
    if "seq" in values:
        seq: int = values["seq"]
        if parts and sum(parts) > seq:
            raise InputError(
                f"--seq {seq:,} is less than the {sum(parts):,} tokens of input and output"
            )
        return seq
    if parts:
        return sum(parts)
    native = model.max_position_embeddings
    if native is None:
        raise InputError(
            f"{model.name} does not state its context", hint="Add --seq, such as --seq 8k."
        )
    said.append(f"seq {native:,}: the model's native context")
    return native


def _parallelism(values: Mapping[str, Any], said: list[str]) -> dict[str, int]:
    """tp, pp, dp and ep, with what ``--gpus`` leaves open filled in."""
    sizes = {name: values.get(name, 1) for name in ("tp", "pp", "dp", "ep")}
    gpus = values.get("gpus")
    product = sizes["tp"] * sizes["pp"] * sizes["dp"]
    if gpus is None or product == gpus:
        return sizes
    shown = " x ".join(f"{name} {sizes[name]}" for name in ("tp", "pp", "dp"))
    if product > gpus:
        raise InputError(
            f"{shown} needs {product} GPUs, but --gpus is {gpus}",
            hint=f"Use --gpus {product}, or smaller parallel sizes.",
        )
    open_name = "dp" if "tp" in values or "pp" in values else "tp"
    if open_name in values or gpus % product:
        raise InputError(
            f"{shown} is {product} GPUs, which is not the {gpus} of --gpus",
            hint="Their product must be the number of GPUs.",
        )
    sizes[open_name] = gpus // product
    words = "tensor-parallel ranks" if open_name == "tp" else "replicas"
    said.append(f"{open_name} {sizes[open_name]}: {gpus} GPUs as {words}")
    return sizes
