"""SGLang's arguments. Source: 0.5 ``srt/server_args.py``."""

from __future__ import annotations

from kvplan.checking.manifests.arguments import MODEL, Argument, Table

KNOWN: dict[str, Argument] = {
    **{
        f"--{name}": Argument()
        for name in (
            "host", "port", "tokenizer-path", "tokenizer-mode", "served-model-name", "api-key",
            "chat-template", "log-level", "log-level-http", "random-seed", "download-dir",
            "load-format", "revision", "reasoning-parser", "tool-call-parser", "schedule-policy",
            "attention-backend", "sampling-backend", "grammar-backend", "watchdog-timeout",
            "dist-init-addr", "node-rank", "stream-interval",
        )
    },
    **{
        f"--{name}": Argument("switch")
        for name in (
            "trust-remote-code", "enable-metrics", "log-requests", "skip-tokenizer-init",
            "enable-cache-report", "disable-custom-all-reduce",
        )
    },
    **{
        f"--{name}": Argument(refused=why)
        for name, why in (
            ("speculative-algorithm", "takes memory for a draft"),
            ("speculative-draft-model-path", "takes memory for a draft"),
            ("lora-paths", "takes memory for adapters"),
            ("json-model-override-args", "changes the model's facts"),
            ("cpu-offload-gb", "moves weights off the GPU"),
            ("max-total-tokens", "fixes the pool"),
            ("cuda-graph-max-bs", "changes what is captured"),
            ("nnodes", "spreads the model over servers"),
        )
    },
    "--model-path": Argument(flag=MODEL),
    "--tensor-parallel-size": Argument(flag="tp"),
    "--pipeline-parallel-size": Argument(flag="pp"),
    "--data-parallel-size": Argument(flag="dp"),
    "--expert-parallel-size": Argument(flag="ep"),
    "--context-length": Argument(flag="max_model_len"),
    "--max-running-requests": Argument(flag="max_num_seqs"),
    "--chunked-prefill-size": Argument(flag="max_num_batched_tokens"),
    "--mem-fraction-static": Argument(flag="gpu_memory_utilization"),
    "--page-size": Argument(flag="block_size"),
    "--kv-cache-dtype": Argument(flag="kv"),
    "--quantization": Argument(flag="weights"),
    "--disable-cuda-graph": Argument("switch", flag="enforce_eager"),
    "--disable-radix-cache": Argument("switch", flag="no_prefix_caching"),
}  # fmt: skip

TABLE = Table(
    "sglang",
    "sglang",
    KNOWN,
    {
        "--model": "--model-path",
        "--tp": "--tensor-parallel-size",
        "--tp-size": "--tensor-parallel-size",
        "--pp-size": "--pipeline-parallel-size",
        "--dp": "--data-parallel-size",
        "--dp-size": "--data-parallel-size",
        "--ep": "--expert-parallel-size",
        "--ep-size": "--expert-parallel-size",
    },
    positional=False,
)
