"""What the families with a recurrent state share: dtypes, lists of layer kinds, states, mixers.

Shapes are those of the published checkpoints. A convolution's weight and other stacked numbers
that no quantiser touches are counted as vectors.

Source: transformers 5.24 ``models/*/modeling_*.py``; vLLM 0.33
``model_executor/layers/mamba/mamba_utils.py`` (``MambaStateShapeCalculator``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvplan.errors import MalformedFile, UnsupportedArchitecture
from kvplan.model.caches import Recurrent
from kvplan.model.tensors import MIXER, NORMS, Tensor
from kvplan.precision.format import BF16, DTYPES
from kvplan.sources.huggingface.architecture import FULL, vocabulary
from kvplan.sources.huggingface.fields import Fields
from kvplan.sources.huggingface.quantization import stated_dtype

LINEAR, CONV, HYBRID, MOE, DENSE = "linear_attention", "conv", "hybrid", "moe", "mlp"

SPELLINGS = {"mamba": LINEAR, "attention": FULL}
"""Older names of layer kinds. Source: transformers ``configuration_utils.py``,
``_LEGACY_LAYER_TYPE_REMAP``."""


def layer_kinds(
    c: Fields,
    layers: int | None,
    known: Sequence[str],
    *,
    key: str = "layer_types",
    spellings: Mapping[str, str] = SPELLINGS,
) -> list[str] | None:
    """The list of layer kinds under ``key``; an entry that is not understood is an error."""
    stated = c.sequence(key, length=layers)
    if stated is None:
        return None
    kinds = [spellings.get(kind, kind) if isinstance(kind, str) else kind for kind in stated]
    for index, kind in enumerate(kinds):
        if kind not in known:
            raise UnsupportedArchitecture(
                f"{key}[{index}]", kind, where=c.where, known=(*known, *spellings)
            )
    return kinds


def model_bytes(c: Fields) -> int:
    """Bytes of an element in the model's dtype; 16-bit where none is stated."""
    return (stated_dtype(c) or BF16).bits // 8


def state_dtype(c: Fields) -> tuple[int, bool]:
    """Bytes of a recurrent state's element and whether the config states it; float32 otherwise.

    Source: vLLM ``models/config.py`` (``mamba_ssm_cache_dtype``, ``mamba_ssm_dtype``).
    """
    for key in ("mamba_ssm_cache_dtype", "mamba_ssm_dtype"):
        name = c.text(key)
        if name is None or name == "auto":
            continue
        form = DTYPES.get(name.removeprefix("torch."))
        if form is None:
            raise UnsupportedArchitecture(key, name, where=c.where, known=DTYPES)
        return form.bits // 8, True
    return 4, False


def mamba1_state(c: Fields, inner: int, state: int, kernel: int) -> Recurrent:
    """Mamba: ``inner`` channels, each with its convolution inputs and ``state`` numbers."""
    size, stated = state_dtype(c)
    return Recurrent("mamba1", inner, kernel, inner * state, inner, model_bytes(c), size, stated)


def mamba2_state(
    c: Fields, heads: int, head_size: int, groups: int, state: int, kernel: int
) -> Recurrent:
    """Mamba-2: ``heads`` matrices of ``head_size x state``; groups share their B and C."""
    size, stated = state_dtype(c)
    channels = heads * head_size + 2 * groups * state
    elements = heads * head_size * state
    return Recurrent(
        "mamba2", channels, kernel, elements, heads, model_bytes(c), size, stated, groups, 2 * state
    )


def untied_vocabulary(c: Fields) -> list[Tensor]:
    """The embedding and a head of its own; readers of these models disagree on tied ones.

    transformers keeps two tables whatever the config says, vLLM one; RWKV 5 checkpoints have two.
    """
    if c.boolean("tie_word_embeddings", default=False):
        raise UnsupportedArchitecture("tie_word_embeddings", True, where=c.where)
    return vocabulary(c)


def vector(name: str, size: int, units: int = 1) -> Tensor:
    """Numbers of a mixer that are never quantised: convolution weights, decays, time steps."""
    return Tensor(MIXER, name, size, units=units)


def projection(
    name: str, rows: int, columns: int, units: int, *, bias: bool = False, by_column: bool = False
) -> list[Tensor]:
    """A linear layer of a mixer, split over ranks by ``units``."""
    tensors = [Tensor(MIXER, name, rows, columns, units=units, by_column=by_column)]
    if bias:
        tensors.append(vector(f"{name}.bias", rows, 1 if by_column else units))
    return tensors


def mamba1_mixer(
    hidden: int,
    inner: int,
    state: int,
    kernel: int,
    rank: int,
    *,
    bias: bool,
    conv_bias: bool,
    norms: bool = False,
    prefix: str = "mixer",
) -> list[Tensor]:
    """One Mamba mixer; ``norms`` on the time step, B and C are Jamba's."""
    tensors = [
        *projection(f"{prefix}.in_proj", 2 * inner, hidden, inner, bias=bias),
        vector(f"{prefix}.conv1d", inner * kernel, inner),
        *projection(f"{prefix}.x_proj", rank + 2 * state, inner, inner, by_column=True),
        *projection(f"{prefix}.dt_proj", inner, rank, inner, bias=True),
        vector(f"{prefix}.A_log", inner * state, inner),
        vector(f"{prefix}.D", inner, inner),
        *projection(f"{prefix}.out_proj", hidden, inner, inner, bias=bias, by_column=True),
    ]
    if conv_bias:
        tensors.append(vector(f"{prefix}.conv1d.bias", inner, inner))
    if norms:
        tensors += [
            Tensor(NORMS, f"{prefix}.dt_layernorm", rank),
            Tensor(NORMS, f"{prefix}.b_layernorm", state),
            Tensor(NORMS, f"{prefix}.c_layernorm", state),
        ]
    return tensors


def mamba2_mixer(
    hidden: int,
    cache: Recurrent,
    inner: int,
    *,
    bias: bool,
    conv_bias: bool,
    out_bias: bool | None = None,
    gated_norm: bool = True,
    prefix: str = "mixer",
) -> list[Tensor]:
    """One Mamba-2 mixer: z, x, B, C and the time step in one projection of its input."""
    heads, channels = cache.heads, cache.conv_channels
    tensors = [
        *projection(f"{prefix}.in_proj", inner + channels + heads, hidden, heads, bias=bias),
        vector(f"{prefix}.conv1d", channels * cache.conv_kernel, heads),
        vector(f"{prefix}.A_log", heads, heads),
        vector(f"{prefix}.D", heads, heads),
        vector(f"{prefix}.dt_bias", heads, heads),
        *projection(
            f"{prefix}.out_proj", hidden, inner, heads,
            bias=bias if out_bias is None else out_bias, by_column=True,
        ),
    ]  # fmt: skip
    if conv_bias:
        tensors.append(vector(f"{prefix}.conv1d.bias", channels, heads))
    if gated_norm:
        tensors.append(Tensor(NORMS, f"{prefix}.norm", inner, units=heads))
    return tensors


def time_step_rank(c: Fields, key: str, hidden: int) -> int:
    """Rank of Mamba's time-step projection: stated, or a sixteenth of the hidden size."""
    value = c.raw(key)
    if value is None or value == "auto":
        return -(-hidden // 16)
    return c.checked(value, key)


def head_size_or(c: Fields, key: str, whole: int, heads: int) -> int:
    """A mixer's head size: stated, or ``whole`` channels over ``heads`` where it is ``auto``."""
    value = c.raw(key)
    if value is None or value == "auto":
        return whole // heads
    return c.checked(value, key)


def number(c: Fields, key: str, default: float) -> float:
    """A factor between 0 and 1,000 that a config may state as a fraction."""
    value = c.raw(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1000:
        raise MalformedFile(c.where, f"{key} must be a number above 0, not {value!r:.40}")
    return float(value)
