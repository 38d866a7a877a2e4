"""vLLM's arguments. Source: 0.33 ``engine/arg_utils.py`` and ``entrypoints/.../cli_args.py``.

Arguments of earlier releases that changed no memory are among the neutral ones.
"""

from __future__ import annotations

import re

from kvplan.checking.manifests.arguments import ENGINE_ARG, MODEL, Argument, Table

_HUMAN = re.compile(r"(\d+)(?:\.(\d+))?([kKmMgGtT]?)\Z")
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}


def whole_number(text: str) -> str:
    """vLLM's spelling: ``32k`` is 32,000 and ``32K`` 32,768. Source: ``human_readable_int``."""
    match = _HUMAN.match(text.strip())
    if match is None or (match[2] and (not match[3] or match[3].isupper())):
        raise ValueError("not a whole number as vLLM reads them (32k = 32,000, 32K = 32,768)")
    base = 1024 if match[3].isupper() else 1000
    factor = base ** _POWERS.get(match[3].lower(), 0)
    fraction = match[2] or ""
    return str(int(match[1] + fraction) * factor // 10 ** len(fraction))


def _length(text: str) -> str:
    return "auto" if text.strip().lower() in {"auto", "-1"} else whole_number(text)


def _plain(text: str) -> str:
    if not re.fullmatch(r"\d+", text.strip()):
        raise ValueError("not a whole number")
    return text.strip()


def _quantization(text: str) -> str:
    """Formats that vLLM makes while loading; others are how the checkpoint is stored."""
    return {"fp8": "fp8", "bitsandbytes": "nf4"}.get(text, f"{STORED}{text}")


STORED = "stored:"
"""Marks a quantisation that must be the checkpoint's own."""


def _sixteen_bits(text: str) -> str:
    if text not in {"auto", "half", "float16", "bfloat16"}:
        raise ValueError("kvplan judges weights that are served at 16 bits or quantised")
    return text


def _load_format(text: str) -> str:
    if text in {"bitsandbytes", "gguf"}:
        raise ValueError("it changes the weights' format, which kvplan does not follow here")
    return text


def _kv(text: str) -> str:
    return {"bfloat16": "bf16", "float16": "fp16", "half": "fp16"}.get(text, text)


_FLAGS = {
    "--model": Argument(flag=MODEL),
    "--max-model-len": Argument(flag="max_model_len", convert=_length),
    "--max-num-seqs": Argument(flag="max_num_seqs", convert=_plain),
    "--max-num-batched-tokens": Argument(flag="max_num_batched_tokens", convert=whole_number),
    "--gpu-memory-utilization": Argument(flag="gpu_memory_utilization"),
    "--kv-cache-memory-bytes": Argument(flag="kv_cache_memory", convert=whole_number),
    "--kv-cache-dtype": Argument(flag="kv", convert=_kv),
    "--quantization": Argument(flag="weights", convert=_quantization),
    "--dtype": Argument(flag="dtype", convert=_sixteen_bits),
    "--load-format": Argument(flag="load_format", convert=_load_format),
    "--block-size": Argument(flag="block_size", convert=_plain),
    "--tensor-parallel-size": Argument(flag="tp", convert=_plain),
    "--pipeline-parallel-size": Argument(flag="pp", convert=_plain),
    "--data-parallel-size": Argument(flag="dp", convert=_plain),
    "--decode-context-parallel-size": Argument(flag="dcp", convert=_plain),
    "--enable-expert-parallel": Argument("switch", flag="ep"),
    "--enforce-eager": Argument("switch", flag="enforce_eager"),
    "--enable-prefix-caching": Argument("switch", off="no_prefix_caching"),
    "--async-scheduling": Argument("switch", off="no_async_scheduling"),
    "--disable-hybrid-kv-cache-manager": Argument("switch", flag="disable_hybrid_kv_cache_manager"),
    "--num-gpu-blocks-override": Argument(flag=ENGINE_ARG, convert=_plain),
    "--enable-lora": Argument("switch", flag=ENGINE_ARG, convert=lambda _: "true"),
    "--max-loras": Argument(flag=ENGINE_ARG, convert=_plain),
    "--max-lora-rank": Argument(flag=ENGINE_ARG, convert=_plain),
    "--mamba-ssm-cache-dtype": Argument(flag=ENGINE_ARG),
    "--kv-cache-dtype-skip-layers": Argument("many", flag=ENGINE_ARG),
}

_REFUSED = {
    "changes the memory of adapters": ("--lora-dtype",),
    "takes memory for a draft (state draft_model and speculative_tokens, and ignore this)": (
        "--speculative-config", "--spec-method", "--spec-model", "--spec-tokens"),
    "moves weights or cache off the GPU": (
        "--cpu-offload-gb", "--kv-offloading-size", "--kv-offloading-backend", "--offload-backend",
        "--offload-group-size", "--offload-num-in-group", "--kv-transfer-config"),
    "changes the model's facts": ("--hf-overrides", "--hf-config-path", "--model-impl",
                                  "--rope-scaling", "--rope-theta", "--config-format"),
    "reads further arguments from a file": ("--config",),
    "changes what is compiled and captured": (
        "--compilation-config", "--optimization-level", "--cudagraph-capture-sizes",
        "--max-cudagraph-capture-size", "--performance-mode", "--attention-config",
        "--kernel-config", "--additional-config", "--quantization-config"),
    "changes how the model is divided": (
        "--prefill-context-parallel-size", "--data-parallel-size-local", "--ubatch-size",
        "--nnodes", "--data-parallel-rank", "--data-parallel-start-rank",
        "--elastic-ep-max-dp-size"),
    "changes what the cache keeps": (
        "--mamba-cache-dtype", "--mamba-block-size", "--mamba-cache-mode", "--prefix-match-unit",
        "--num-lookahead-slots"),
    "changes what an encoder takes": (
        "--limit-mm-per-prompt", "--mm-processor-kwargs", "--mm-encoder-tp-mode",
        "--mm-encoder-attn-dtype", "--mm-ipc-gpu-memory-gb"),
}  # fmt: skip
_REFUSED_SWITCHES = {
    "changes the memory of adapters": ("--fully-sharded-loras",),
    "changes what the cache keeps": ("--disable-sliding-window", "--kv-sharing-fast-prefill",
                                     "--use-replayssm", "--swa-bounded-replay"),
    "changes what is profiled": ("--skip-mm-profiling", "--language-model-only",
                                 "--mm-encoder-only"),
    "changes how the model is divided": ("--enable-dbo", "--enable-eplb", "--enable-elastic-ep",
                                         "--headless", "--data-parallel-hybrid-lb",
                                         "--data-parallel-external-lb"),
    "changes the largest step": ("--no-enable-chunked-prefill",),
    "allocates memory in another way": ("--enable-sleep-mode", "--enable-cumem-allocator"),
}  # fmt: skip

_NEUTRAL = """
host port uds root-path uvicorn-log-level log-level log-config-file ssl-keyfile ssl-certfile
ssl-ca-certs ssl-cert-reqs ssl-ciphers tokenizer tokenizer-mode tokenizer-revision revision
code-revision seed download-dir safetensors-load-strategy chat-template
chat-template-content-format response-role tool-call-parser tool-parser-plugin tool-server
reasoning-parser reasoning-parser-plugin generation-config override-generation-config max-log-len
max-logprobs logprobs-mode scheduling-policy distributed-executor-backend
master-addr master-port node-rank data-parallel-address data-parallel-rpc-port
data-parallel-backend distributed-timeout-seconds api-server-count max-parallel-loading-workers
prefix-caching-hash-algo otlp-traces-endpoint collect-detailed-traces
show-hidden-metrics-for-version kv-events-config structured-outputs-config guided-decoding-backend
allowed-local-media-path default-chat-template-kwargs stream-interval shutdown-timeout swap-space
hf-token h11-max-incomplete-event-size h11-max-header-count
long-prefill-token-threshold custom-histogram-buckets disable-access-log-for-endpoints
allowed-origins allowed-methods allowed-headers max-num-queued-reqs max-num-queued-tokens
""".split()  # noqa: SIM905  (one word a flag would be 80 lines)
_NEUTRAL_SWITCHES = """
trust-remote-code enable-auto-tool-choice disable-log-requests enable-log-requests
disable-log-stats disable-uvicorn-access-log enable-log-outputs enable-log-deltas
enable-prompt-tokens-details enable-server-load-tracking enable-force-include-usage
return-tokens-as-token-ids enable-request-id-headers disable-fastapi-docs allow-credentials
disable-frontend-multiprocessing use-tqdm-on-load disable-custom-all-reduce skip-tokenizer-init
enable-chunked-prefill enable-reasoning enable-ssl-refresh exclude-tools-when-tool-choice-none
kv-cache-metrics cudagraph-metrics enable-mfu-metrics disable-cascade-attn
use-v2-block-manager
""".split()  # noqa: SIM905  (one word a flag would be 80 lines)
_NEUTRAL_MANY = ("--served-model-name", "--api-key", "--middleware", "--allowed-media-domains")

KNOWN: dict[str, Argument] = {
    **{f"--{name}": Argument() for name in _NEUTRAL},
    **{f"--{name}": Argument("switch") for name in _NEUTRAL_SWITCHES},
    **{name: Argument("many") for name in _NEUTRAL_MANY},
    **{name: Argument(refused=why) for why, names in _REFUSED.items() for name in names},
    **{
        name: Argument("switch", refused=why)
        for why, names in _REFUSED_SWITCHES.items()
        for name in names
    },
    **_FLAGS,
}

TABLE = Table(
    "vllm",
    "vllm serve",
    KNOWN,
    {
        "-tp": "--tensor-parallel-size",
        "-pp": "--pipeline-parallel-size",
        "-dp": "--data-parallel-size",
        "-dcp": "--decode-context-parallel-size",
        "-ep": "--enable-expert-parallel",
        "-q": "--quantization",
        "-sc": "--speculative-config",
        "-cc": "--compilation-config",
        "-ac": "--attention-config",
        "-O": "--optimization-level",
        "-n": "--nnodes",
        "--device-memory-utilization": "--gpu-memory-utilization",
    },
    positional=True,
)
