"""What vLLM keeps of the weights beyond the checkpoint's own bytes.

Start-up logs print "Model loading took". The rules here are within 2 % of it on 36 of 40 logs, and
mostly below: the line is a peak, so it holds temporaries of loading and the rotary table
(``max_position_embeddings * head_size * 2`` bytes: 0.03 GiB for Llama-3.1).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from kvplan.deployment import Deployment
from kvplan.engines.vllm.versions import Version
from kvplan.hardware.gpu import Gpu
from kvplan.model.model import Model, Split, stage_layers
from kvplan.model.tensors import EXPERTS, VISION
from kvplan.precision.format import Format
from kvplan.precision.scheme import WeightScheme
from kvplan.units import cdiv, round_up

_DOUBLE_QUANTISED = Format("nf4", 4, 64, 8)
"""vLLM quantises block scales as well (``compress_statistics=True``, bitsandbytes loader); their
own scale, 0.002 bits an element, is left out."""
_MARLIN_ON_HOPPER_TO: Version = (0, 10)


class Alignment(NamedTuple):
    """What the MXFP4 expert kernels pad a rank's widths to."""

    intermediate: int
    hidden: int


def weight_bytes(d: Deployment, stage: int, version: Version) -> int:
    """Bytes of weights on one rank as vLLM holds them."""
    scheme = d.scheme
    if scheme.name == "nf4" and d.weights_are_stated:
        scheme = scheme._replace(form=_DOUBLE_QUANTISED)
    total = d.model.weight_bytes(scheme, d.split, stage)
    total += expert_padding_bytes(d.model, scheme, d.split, stage, mxfp4_alignment(d.gpu, version))
    return total + (cdiv(encoder_bytes(d.model), d.tp) if stage == 0 else 0)


def mxfp4_alignment(gpu: Gpu, version: Version) -> Alignment:
    """Padding of the MXFP4 backend that vLLM chooses on this GPU.

    Marlin (everything but Hopper and data-centre Blackwell) pads the intermediate width to 128 and
    the hidden one to 256, which makes gpt-oss-120b 65.9 GiB of 60.8 (logged: 65.97, vllm-031 on a
    Hopper of 0.10). Triton's Hopper layout is counted as the hidden width padded to 256: 64.55 GiB
    for a logged 64.38 (vllm-002), 13.45 for 13.47 (vllm-001).
    Source: ``quantization/mxfp4.py`` of 0.11.0, ``fused_moe/oracle/mxfp4.py`` of 0.33
    (``mxfp4_round_up_hidden_size_and_intermediate_size``).
    """
    capability = gpu.compute_capability
    if capability is None:
        return Alignment(256, 256)
    if capability[0] == 9 and version > _MARLIN_ON_HOPPER_TO:
        return Alignment(1, 256)
    if capability[0] == 10 and version < (0, 33):
        return Alignment(256, 256)
    return Alignment(128, 256)


@lru_cache(maxsize=1024)
def expert_padding_bytes(
    model: Model, scheme: WeightScheme, split: Split, stage: int, to: Alignment
) -> int:
    """What padding adds to the MXFP4 experts of one rank; 0 for experts in any other format."""
    start, end = stage_layers(model.num_hidden_layers, split.pp, stage)
    total = 0
    for layer in model.layers[start:end]:
        for tensor in layer.tensors:
            if tensor.part != EXPERTS or not tensor.is_matrix:
                continue
            form = scheme.format_for(tensor, "model.layers.*.", model.dtype)
            if form.name != "mxfp4":
                continue
            inner, hidden = tensor.rows, tensor.columns
            if tensor.by_column:
                inner, hidden = hidden, inner
            spread = split.expert_ranks > 1
            inner = round_up(inner if spread else cdiv(inner, split.tp), to.intermediate)
            hidden = round_up(hidden, to.hidden)
            copies = cdiv(tensor.copies, split.expert_ranks)
            rows, columns = (hidden, inner) if tensor.by_column else (inner, hidden)
            padded = form.matrix_bytes(rows, columns) * copies
            total += max(0, padded - tensor.rank_bytes(form, split.tp, split.expert_ranks))
    return total


@lru_cache(maxsize=64)
def encoder_bytes(model: Model) -> int:
    """A vision or audio encoder that the layers do not list: the published total less theirs.

    vLLM divides it by tp as it does the rest (``mm_encoder_tp_mode: weights``).
    """
    published, counted = model.checkpoint.parameters, model.parameters
    if not model.is_multimodal or published is None or counted is None:
        return 0
    if any(tensor.part == VISION for tensor in model.outside):
        return 0
    return max(0, published - counted) * 2
