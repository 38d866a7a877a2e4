"""What a vLLM worker needs beside weights and KV: memory terms as rules and measured laws.

Every function takes plain whole numbers and returns bytes per GPU (GiB = 2**30 in the text). A
term that is a law and not a rule is an :class:`Estimate` ``(low, likely, high)``: ``high`` is the
careful end, because the dangerous mistake is to predict too little memory.

**Versions modelled.** V1 engine from 0.8 to 0.33; the V0 engine (``v1=False``, 0.6 to 0.10) where
start-up logs exist. Rules are read from vLLM 0.33.0 (paths below are inside its ``vllm`` package);
older behaviour is dated by the change that made it (``vllm#N`` is
https://github.com/vllm-project/vllm/pull/N), and where the release is not known the boundary is
called assumed. Law constants come from the start-up logs in ``tests/data/vllm_overheads.jsonl``
(``vllm-NNN``; each with its public source): they are fitted to those logs, not to others.

**The identity the terms are for** (``v1/worker/gpu_worker.py: determine_available_memory``)::

    KV = ceil(total * utilisation) - weights - runtime - activation              up to 0.19
    KV = ceil(total * utilisation) - weights - runtime - activation - graphs     from 0.20

From 0.20 the ``graphs`` subtracted is an *estimate* made before capture, and the line "Actual usage
is ... GiB for peak activation" already contains it (``peak_activation_memory =
transient_peak_headroom + cudagraph_memory_estimate_applied``). Read as activation alone, that line
is too large: 2.40 GiB printed with an estimate of 1.55 is 0.85 of activation, and the 36.74 GiB of
one B300 log is 33.06 of estimate and 3.68 of activation.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

from kvplan.engines.vllm.versions import GRAPHS_IN_BUDGET, Version
from kvplan.units import GIB, MIB, cdiv

_SAMPLER_WITHOUT_SORT = (0, 17)
_SAMPLER_NEVER_SORTS = (0, 21)
_COARSE_CAPTURE_SIZES = (0, 12)
_SAMPLER_STATE_ON_GPU = (0, 26)
_RUNNER_V2_EVERYWHERE = (0, 33)


class Estimate(NamedTuple):
    """Bytes of one memory term: the friendly end, the expected figure, the careful end."""

    low: int
    likely: int
    high: int

    def __add__(self, other: object) -> Estimate:
        """Term by term: the sum of careful ends is the careful end of the sum."""
        if not isinstance(other, Estimate):
            return NotImplemented
        return Estimate(self.low + other.low, self.likely + other.likely, self.high + other.high)


def _gib(hundredths: int) -> int:
    return hundredths * GIB // 100


def activation_peak_bytes(
    *,
    batched_tokens: int,
    max_num_seqs: int,
    vocab_size: int,
    hidden_size: int,
    intermediate_size: int,
    tp: int,
    version: Version,
    experts_per_token: int = 0,
    moe_intermediate_size: int = 0,
    expert_parallel: bool = False,
    logits_per_seq: int = 1,
    logit_softcap: bool = False,
    samples: bool = True,
) -> Estimate:
    """Peak of the start-up profile run beyond weights, text model only, bytes per GPU.

    Formula: the larger of two moments of the profile run with T = ``batched_tokens``::

        MLP      T * 2 B * (3*I/tp + 4*H)                            dense
                 T * 2 B * (k*(max(2*I_moe/tp, H) + I_moe/tp) + 4*H) mixture of experts
        sampler  c B * rows * V  +  T * 2 B * H                      rows = S * logits_per_seq

    MLP: gate and up outputs and their product are 3 widths of I; residual, input, normed and
    output rows 4 of H. Experts: one workspace serves the first and third product, another the
    second. The larger of the dense and the expert figure counts. With ``expert_parallel``, I_moe
    is not divided by tp. Sampler: logits are gathered on every rank, so tp does not divide them,
    and the profile's hidden rows stay alive meanwhile. ``logits_per_seq`` is 1 plus the draft
    tokens of speculative decoding. Widths divided by tp, and bytes, are rounded up.

    Range. Bytes per logit ``c`` (low, likely, high):

    - to 0.16: 6, 38.4, 40, sampling by sorting. Low is FlashInfer, used where it was installed
    - 0.17 to 0.20: 6, 14, 40, Triton top-k/top-p added (vllm#33538, 2026-02; release assumed)
    - from 0.21: 6, 14, 16. No GPU path sorts (``v1/sample/ops/topk_topp_sampler.py``, FlashInfer
      or Triton; vllm#40376, 2026-04; release assumed): bf16 logits 2, fp32 copy 4, probabilities
      4, noise 4, slack 2

    ``logit_softcap`` (Gemma 2 class) adds 4 to the high end. MLP: low has 3*H for 4*H; high adds
    10 % (dense) or 25 % (experts). ``samples=False`` is V0 with chunked prefill, whose profile run
    sampled nothing: the sampler then counts only in ``high``, because serving still needs it.

    Goes wrong otherwise: "5 GiB for any dense model" is one vocabulary times 1,024 sequences. On an
    A100 or a 24 GB card (256 sequences) it is a quarter of that, and tp does not make it smaller.

    Source: c = 38.4 from 16 logs of 0.6 to 0.11 whose sampler dominates (38.1 to 39.2, standard
    deviation 0.3; 0.9 without the hidden rows): vllm-001 to 004, 007, 011, 017, 060, 061, 103, 119,
    121, 122, 125, 126, 128. c = 14.0 from vllm-052, 8.4 from vllm-051 (both 0.26 to 0.28), 6.1 in
    vllm#48037 and 11.5 in vllm#32558. MLP: vllm-062, 063, 064, 120, 129 (observed over likely
    1.00 to 1.01) and 014 (0.93); experts: vllm-074 alone (1.11), so that half is a rule with little
    measurement. Not modelled: encoders (:func:`encoder_peak_bytes`), GPUs without flash attention
    (quadratic in T), compilation with a cold cache (1.9 GiB more in one log), expert parallelism
    over data-parallel ranks (vllm-056: 1.8 times likely), and the temporaries of linear attention,
    which the profile run itself misses (vllm#52872: it starts, then runs out of memory).
    """
    dense = 3 * cdiv(intermediate_size, tp)
    expert_width = cdiv(moe_intermediate_size, 1 if expert_parallel else tp)
    experts = experts_per_token * (max(2 * expert_width, hidden_size) + expert_width)
    width = max(dense, experts)
    margin = 125 if experts > dense else 110
    mlp = Estimate(
        batched_tokens * 2 * (width + 3 * hidden_size),
        batched_tokens * 2 * (width + 4 * hidden_size),
        cdiv(batched_tokens * 2 * (width + 4 * hidden_size) * margin, 100),
    )

    logits = max_num_seqs * logits_per_seq * vocab_size
    hidden_rows = batched_tokens * 2 * hidden_size
    if version < _SAMPLER_WITHOUT_SORT:
        low, likely, high = 60, 384, 400
    elif version < _SAMPLER_NEVER_SORTS:
        low, likely, high = 60, 140, 400
    else:
        low, likely, high = 60, 140, 160
    sampler = Estimate(
        logits * low // 10 + hidden_rows if samples else 0,
        cdiv(logits * likely, 10) + hidden_rows if samples else 0,
        cdiv(logits * (high + 40 * logit_softcap), 10) + hidden_rows,
    )
    return Estimate(
        max(mlp.low, sampler.low), max(mlp.likely, sampler.likely), max(mlp.high, sampler.high)
    )


def encoder_peak_bytes(*, multimodal: bool) -> Estimate:
    """Peak of the profile run's image or audio encoder, bytes per GPU: an envelope, not a law.

    It competes with :func:`activation_peak_bytes`: the peak is the larger of both, not the sum.
    Zero for text models and where the engine is told to load no encoder.

    Range: 0, 2 GiB, 5 GiB. Source: 1.6 to 2.33 GiB on Qwen3.5 and 3.8 (vllm-108 less its graph
    estimate, 113), 2.12 on Mistral-Small-3.2 (vllm-008), 2.87 on gemma-3-27b (vllm-072), 4.06
    and 4.93 on Qwen2.5-VL 3B and 7B. Above the range: 6.49 on an omni model (vllm-136), about 11
    GiB where 31 images are profiled at once (vllm-034), 15.7 on a 90B vision model, 20 on
    Qwen2.5-VL at 128k.

    Goes wrong otherwise: a small vision model's peak is the picture's and not the text's, and a
    planner without it promises GiB of KV that are not there.
    """
    return Estimate(0, 2 * GIB, _gib(500)) if multimodal else Estimate(0, 0, 0)


def sampler_state_bytes(*, max_num_seqs: int, vocab_size: int, version: Version) -> Estimate:
    """Penalty counters that model runner V2 keeps on the GPU for every sequence, bytes per GPU.

    Formula: ``4 * S * V + 4 * S * ceil(V / 32)``: int32 output counts and a bit mask of prompt
    tokens, allocated at start whether or not anyone asks for penalties
    (``v1/worker/gpu/sample/penalties.py``); on the last pipeline stage only.

    Range: exact for 0.33, where every model uses runner V2 unless told otherwise. From 0.26 to 0.32
    some models ran on runner V1, which has no such table: low is 0. Before 0.26: zero (assumed;
    runner V2 was opt-in).

    Goes wrong otherwise: it is part of "consumed memory (weights + non-torch)" and not of "Model
    loading took", so weights read from that line miss it: 1.0 GiB at 1,024 sequences and a
    vocabulary of 248,320. Source: the code; logs agree but do not prove it (vllm-051 and 108 have
    0.30 and 0.33 GiB beyond their weights, of which 0.15 and 0.24 would be this table).
    """
    table = 4 * max_num_seqs * vocab_size + 4 * max_num_seqs * cdiv(vocab_size, 32)
    if version >= _RUNNER_V2_EVERYWHERE:
        return Estimate(table, table, table)
    if version >= _SAMPLER_STATE_ON_GPU:
        return Estimate(0, table, table)
    return Estimate(0, 0, 0)


def communication_bytes(
    *, tp: int, pp: int, link_is_nvlink: bool, vendor: str, version: Version
) -> Estimate:
    """Non-torch memory inside the budget, bytes per GPU: kernels, cuBLAS, all-reduce, NCCL.

    A table in GiB (low, likely, high), not a formula. ``pp`` counts as ``tp`` does (it needs the
    same communicators), by the larger of both:

    ==============  ==================  ==================================================
    GPUs            NVIDIA              source (GiB)
    ==============  ==================  ==================================================
    1, to 0.19      0.01  0.09  0.40    23 logs: 0.01 to 0.35, median 0.09
    1, from 0.20    0.05  0.30  0.65    0.26, 0.30, 0.33, 0.56 (with the sampler's state)
    2+ PCIe         0.10  0.30  0.75    0.25, 0.30 (2 GPUs), 0.20 (4), 0.20 (16)
    2 NVLink        0.25  0.55  1.40    0.54, 0.55, 1.38
    4 NVLink        0.25  1.00  2.00    0.60, 1.39
    8+ NVLink       0.25  1.50  2.50    2.10 (8), 0.93 (16, two nodes)
    ==============  ==================  ==================================================

    AMD: 0.50 more at likely and high (0.46 to 0.53 on one GPU, 0.73 on two). NVLink turns on custom
    all-reduce and symmetric-memory buffers, which is why a slower link costs less memory.

    Since vllm#25359 (0.11) NCCL starts before the baseline is taken, so most of it
    lies outside the claim (:func:`outside_claim_bytes`). What is left inside is still logged at
    0.54 to 0.60, so one table serves both.

    Goes wrong otherwise: half a GiB too much KV on two H100. Not covered: 1.79 and 3.58 GiB in a
    development build of 0.6.5 (vllm-011, 012), 2.4 to 4.0 on GB10 pairs (vllm-110, 111), 2.36 with
    expert-parallel buffers on B300 (vllm-056), and unified memory, where page cache is counted.
    """
    gpus = max(tp, pp)
    if gpus == 1:
        low, likely, high = (5, 30, 65) if version >= GRAPHS_IN_BUDGET else (1, 9, 40)
    elif not link_is_nvlink:
        low, likely, high = 10, 30, 75
    elif gpus < 4:
        low, likely, high = 25, 55, 140
    elif gpus < 8:
        low, likely, high = 25, 100, 200
    else:
        low, likely, high = 25, 150, 250
    more = 50 if vendor.lower() == "amd" else 0
    return Estimate(_gib(low), _gib(likely + more), _gib(high + more))


def outside_claim_bytes(*, tp: int, pp: int, version: Version) -> Estimate:
    """Memory in use before vLLM takes its baseline, bytes per GPU: CUDA context, NCCL from 0.11.

    It is not subtracted from the KV pool, but start-up is refused when ``free < ceil(total *
    utilisation)``, so ``total - claim`` has to hold it (``v1/worker/utils.py: request_memory``;
    the order in ``gpu_worker.py: init_device``, since vllm#25359).

    Range in GiB: one GPU 0.01, 0.40, 1.20; several 0.20, 1.50, 3.40. Before 0.11 NCCL came after
    the baseline, so several GPUs count as one. Source: total minus free in "Free memory on device
    (a/b GiB) on startup": 0.01, 0.19, 0.23, 0.47, 0.70 on one GPU (vllm-052, 108, 053, 095,
    vllm#21489), 1.13 and 1.54 under WSL2, where the desktop shares the card (vllm-107, 051); 1.54
    on 4 GPUs (vllm#48601), 2.35 with expert parallelism (vllm-056). One report of pipeline stages
    on consumer cards reaches 8.8 (vllm#45517).

    Goes wrong otherwise: a utilisation of 0.98 looks affordable and the engine refuses to start.
    """
    if max(tp, pp) == 1 or version < (0, 11):
        return Estimate(_gib(1), _gib(40), _gib(120))
    return Estimate(_gib(20), _gib(150), _gib(340))


@lru_cache(maxsize=256)
def capture_sizes(
    *,
    max_num_seqs: int,
    batched_tokens: int,
    version: Version,
    v1: bool = True,
    tokens_per_seq: int = 1,
    data_centre_blackwell: bool = False,
) -> int:
    """How many batch sizes are captured as CUDA graphs by default.

    Rule (``config/vllm.py: _set_cudagraph_sizes``, 0.33): 1, 2, 4, then every 8 below 256, every 16
    from 256 up to ``min(2 * S * tokens_per_seq, 512)`` (1,024 on compute capability 10), none above
    ``max_num_batched_tokens``, which is added when it lies within. Before 0.12 every 8 all the way
    to 512 (67 sizes, as logs of 0.10 and 0.11 print). V0: up to S itself (35 sizes for 256, 43 for
    320, as vllm-060 prints). The sizes that dynamic or wide speculative decoding appends are not
    counted.
    """
    if v1:
        ceiling = 1024 if data_centre_blackwell else 512
        largest = min(max_num_seqs * tokens_per_seq * 2, ceiling)
    else:
        largest = max_num_seqs
    if not v1 or version < _COARSE_CAPTURE_SIZES:
        sizes = {1, 2, 4, *range(8, largest + 1, 8)}
    else:
        sizes = {1, 2, 4, *range(8, min(largest + 1, 256), 8), *range(256, largest + 1, 16)}
        if batched_tokens <= largest:
            sizes.add(batched_tokens)
    return sum(size <= min(largest, batched_tokens) for size in sizes)


def cuda_graph_bytes(
    *,
    enforce_eager: bool,
    num_layers: int,
    sizes: int,
    is_moe: bool,
    version: Version,
) -> Estimate:
    """CUDA graphs, bytes per GPU; inside the budget or beside it: :func:`graphs_in_budget`.

    Formula: ``sizes * num_layers`` pieces (:func:`capture_sizes`; layers of this pipeline stage) at
    MiB each (low, likely, high), bytes rounded up. To 0.19, as captured: 0, 0.25, 0.70. From 0.20,
    as estimated before capture and subtracted: 0, 0.30, 0.75. MoE: high doubles. Eager mode: zero.
    Low is 0 because memory freed during capture lets logs print -0.8 to -0.2 GiB.

    Source: 20 logs above zero have 0.13 to 0.67 MiB a piece, median 0.25 (0.39 GiB on 24 layers,
    0.68 on 36, 1.22 on 80); vllm-053 has 0.01. Estimated: 0.49 (vllm-052), and 0.04 to 0.05 with
    few sizes (vllm-091, 092). Neither hidden size nor tp predicts it better. The estimate
    extrapolates two captures: estimated and captured GiB are 0.61 and 0.69, 1.55 and 0.71, 0.64 and
    0.19, 2.44 and 2.51.

    Goes wrong otherwise: to 0.19 a start that sizes its pool and then dies capturing; from 0.20 a
    pool a GiB smaller than planned. Not predictable: mixtures of experts with data or expert
    parallelism, where the extrapolation explodes: 33.06 estimated for 8.57 GiB captured (vllm-056),
    118.65 GiB in vllm#53013. ``VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0`` and a lower
    utilisation is the way out there.
    """
    if enforce_eager:
        return Estimate(0, 0, 0)
    pieces = sizes * num_layers * MIB
    low, likely, high = (0, 30, 75) if graphs_in_budget(version) else (0, 25, 70)
    high *= 2 if is_moe else 1
    return Estimate(pieces * low // 100, cdiv(pieces * likely, 100), cdiv(pieces * high, 100))


def graphs_in_budget(version: Version) -> bool:
    """Whether graph memory is taken from the KV pool (True) or lies beside the claim (False).

    Rule: from 0.20 the estimate is subtracted (``VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS``, on by
    default since vllm#38284: False in ``envs.py`` of 0.19.0, True in that of 0.20.0, although
    vLLM's start-up line says v0.21.0). Before, graphs come on top of ``total * utilisation``:
    they need room in ``total - claim`` and out-of-memory follows capture, not sizing (vllm-036:
    71.27 - 14.08 - 1.97 - 0.07 = 55.15 GiB of KV exactly, with 0.67 of graphs on top).
    """
    return version >= GRAPHS_IN_BUDGET


def claim_bytes(total_bytes: int, utilization: float) -> int:
    """``ceil(total * utilisation)``, as ``v1/worker/utils.py: request_memory`` computes it."""
    return math.ceil(total_bytes * utilization)
