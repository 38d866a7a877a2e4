"""Which KV formats and block sizes vLLM takes for a model on a GPU, and its default block size.

Source: vLLM 0.33 ``v1/attention/backends`` (``supported_kv_cache_dtypes``,
``supports_compute_capability``, ``get_supported_kernel_block_sizes``) and
``platforms/interface.py`` ``update_block_size_for_backend``.
"""

from __future__ import annotations

from functools import lru_cache

from kvplan.deployment import Deployment
from kvplan.engines.vllm.versions import latent_block_size, parse
from kvplan.errors import UnsupportedCombination
from kvplan.model.caches import ChunkedLocal, Compressed, Indexer, Latent, SlidingWindow
from kvplan.model.model import Model
from kvplan.precision.format import FP32
from kvplan.precision.kv import KV_FORMATS, KvFormat

_SIXTEEN_BIT = {"bf16", "fp16"}
_BY_TOKEN_AND_HEAD = {"int8_per_token_head", "int4_per_token_head", "fp8_per_token_head"}
_SPARSE_LATENT = {"fp8_ds_mla", "nvfp4_ds_mla"}
DEFAULT_BLOCK_SIZE = 16
"""``CacheConfig.DEFAULT_BLOCK_SIZE``."""
SPARSE_BLOCK_SIZE = 64
"""What the sparse kernels and their indexer take."""
PACKED_BLOCK_SIZE = 256
LARGEST_BLOCK_SIZE = 1024


def is_latent(model: Model) -> bool:
    """Whether any layer keeps a latent cache."""
    return any(isinstance(group.cache, Latent) for group in model.groups)


def with_own_format(deployment: Deployment) -> Deployment:
    """The deployment with the format that vLLM makes of the asked one for its sparse models.

    * DeepSeek-V4 has only a packed fp8 layout.
    * GLM-5 takes fp8 on data-centre Blackwell unless told otherwise.
    * On Hopper, fp8 with an indexer means the packed ``fp8_ds_mla`` (656 B a token and layer).
    Source: ``model_executor/models/config.py``, ``layers/attention/mla_attention.py``.
    """
    d, model = deployment, deployment.model
    family = (d.gpu.compute_capability or (0, 0))[0]
    kv = d.kv
    if not d.kv_is_stated and (
        is_packed(model) or (model.model_type in _FP8_ON_BLACKWELL and family == 10)
    ):
        kv = KV_FORMATS["fp8_e4m3"]
        d = d.saying(assumption=f"kv {kv.name}: vLLM's own choice for {model.model_type} here")
    if is_sparse_latent(model) and kv.name == "fp8_e4m3" and family == 9:
        kv = KV_FORMATS["fp8_ds_mla"]
        d = d.saying(assumption="kv fp8_ds_mla: what vLLM makes of fp8 for this model on Hopper")
    return d._replace(kv=kv)


_FP8_ON_BLACKWELL = {"glm_moe_dsa", "glm5_next", "glm5_next_text"}


def is_packed(model: Model) -> bool:
    """Whether the model has DeepSeek-V4's packed caches."""
    return any(isinstance(group.cache, Compressed) for group in model.groups)


def is_sparse_latent(model: Model) -> bool:
    """Whether an indexer chooses the tokens of a latent cache."""
    return is_latent(model) and any(isinstance(group.cache, Indexer) for group in model.groups)


def refusal(deployment: Deployment, kv: KvFormat) -> str | None:
    """Why vLLM does not take this format here; None when it does."""
    model, gpu = deployment.model, deployment.gpu
    capability = gpu.compute_capability
    name = kv.name
    if is_packed(model):
        return None if name.startswith("fp8") else "its layout takes only fp8"
    if name == FP32.name and model.dtype is FP32:
        return None
    if name in _SIXTEEN_BIT:
        if deployment.kv_is_stated and kv.k.bits != model.dtype.bits:
            return f"the model's dtype is {model.dtype.name}, and a 16-bit KV cache must match it"
        return None
    if "vllm" not in kv.engines:
        return "vLLM has no such format"
    if name.startswith("turboquant"):
        return _turboquant_refusal(model, capability)
    if name in _SPARSE_LATENT:
        if not is_sparse_latent(model):
            return "only sparse latent attention (an indexer beside the latent cache) takes it"
        if name == "nvfp4_ds_mla" and (capability or (0, 0)) < (10, 0):
            return "it needs Blackwell (compute capability 10.0)"
        return None
    if is_latent(model) and name not in {"fp8_e4m3"}:
        return "latent attention takes only 16-bit and fp8 caches"
    if name == "fp8_e5m2" and model.scheme.name.startswith("fp8"):
        return "fp8_e5m2 cannot be used with an fp8 checkpoint"
    if name in _BY_TOKEN_AND_HEAD or name.startswith("fp8"):
        return None
    if name.startswith("nvfp4"):
        return _nvfp4_refusal(model, capability, name)
    return "vLLM has no such format"


def _turboquant_refusal(model: Model, capability: tuple[int, int] | None) -> str | None:
    """Why the TURBOQUANT backend cannot serve this model: it has no windows, sinks or latents.

    Source: ``v1/attention/backends/turboquant_attn.py``; vLLM's own refusals name the layer types.
    """
    if capability is None:
        return "it needs an NVIDIA GPU"
    if is_latent(model):
        return "latent attention takes only 16-bit and fp8 caches"
    if _has_sinks(model) or any(
        isinstance(group.cache, (SlidingWindow, ChunkedLocal)) for group in model.groups
    ):
        return "its attention backend has neither windows nor sinks"
    return None


def _nvfp4_refusal(model: Model, capability: tuple[int, int] | None, name: str) -> str | None:
    """Why FlashInfer, the only backend with nvfp4, cannot read such a cache here.

    Source: ``v1/attention/backends/flashinfer.py`` ``supports_kv_cache_dtype``,
    ``supports_combination``.
    """
    if capability is None or capability < (8, 0):
        return "it needs an NVIDIA GPU of compute capability 8.0 or newer"
    if capability[0] == 10:
        return None
    if name == "nvfp4_4over6":
        return "it needs data-centre Blackwell (compute capability 10)"
    if 64 in model.head_sizes():
        return "below compute capability 10 it cannot be read at head size 64"
    if _has_sinks(model):
        return "below compute capability 10 it cannot be read with attention sinks"
    return None


@lru_cache(maxsize=64)
def _has_sinks(model: Model) -> bool:
    return any(
        tensor.name == "self_attn.sinks" for layer in set(model.layers) for tensor in layer.tensors
    )


def check_format(deployment: Deployment) -> None:
    """Raise the error that names why vLLM refuses the asked KV format, and what it takes."""
    why = refusal(deployment, deployment.kv)
    if why is not None:
        takes = ", ".join(form.name for form in accepted(deployment))
        raise UnsupportedCombination(
            f"vLLM on {deployment.gpu.display_name} does not take --kv {deployment.kv.name} for "
            f"{deployment.model.name}: {why}",
            hint=f"It takes: {takes}. The bare formula takes any format: --engine none.",
        )


def accepted(deployment: Deployment) -> list[KvFormat]:
    """The formats vLLM takes here; of the plain types only the model's own."""
    own = deployment.model.dtype.name
    own = own if own in {"fp16", "fp32"} else "bf16"
    return [
        form
        for form in KV_FORMATS.values()
        if (form.name == own or form.name not in _SIXTEEN_BIT) and refusal(deployment, form) is None
    ]


def default_block_size(deployment: Deployment) -> tuple[int, str]:
    """Tokens of a block where the user names none, and the attention backend that decides it.

    16 wherever a backend takes it; dense latent attention takes what its kernel wants.
    """
    if is_packed(deployment.model):
        return PACKED_BLOCK_SIZE, "DeepSeek-V4's kernels take 256"
    if not is_latent(deployment.model):
        return DEFAULT_BLOCK_SIZE, "every attention backend takes 16"
    capability = deployment.gpu.compute_capability
    if is_sparse_latent(deployment.model):
        return SPARSE_BLOCK_SIZE, "sparse latent attention takes 64"
    older = latent_block_size(parse(deployment.engine_version), deployment.gpu)
    if older is not None:
        return older
    if capability is not None and capability[0] == 9:
        if deployment.kv.k.bits == 8:
            return 64, "FLASHMLA"
        return DEFAULT_BLOCK_SIZE, "FLASH_ATTN_MLA"
    if capability is not None and capability[0] == 10:
        return 32, "FLASHINFER_MLA"
    return DEFAULT_BLOCK_SIZE, "TRITON_MLA"


def block_sizes(deployment: Deployment) -> list[int]:
    """The block sizes to choose from."""
    if is_latent(deployment.model) or is_packed(deployment.model):
        return [default_block_size(deployment)[0]]
    return [16, 32, 64, 128]


def check_block_size(deployment: Deployment) -> None:
    """Refuse a block size that no attention backend takes (they take multiples of 16)."""
    size = deployment.args.block_size
    if size is not None and (size % 16 or size > LARGEST_BLOCK_SIZE):
        raise UnsupportedCombination(
            f"vLLM takes block sizes that are multiples of 16 up to {LARGEST_BLOCK_SIZE}, "
            f"not {size}",
            hint="Try --block-size 16.",
        )
