"""Arguments of llama.cpp's ``llama-server``. Source: ``common/arg.cpp``."""

from __future__ import annotations

from kvplan.checking.manifests.arguments import MODEL, Argument, Table


def _all_layers(text: str) -> str:
    if not text.isdigit() or int(text) < 99:
        raise ValueError("kvplan judges models that are wholly on the GPU (-ngl 99 or more)")
    return text


KNOWN: dict[str, Argument] = {
    **{
        f"--{name}": Argument()
        for name in (
            "host", "port", "alias", "api-key", "threads", "threads-batch", "batch-size",
            "timeout", "chat-template", "log-file", "seed", "temp", "top-k", "top-p", "min-p",
            "cache-reuse", "slot-save-path", "threads-http",
        )
    },
    **{
        f"--{name}": Argument("switch")
        for name in ("jinja", "metrics", "slots", "props", "no-webui", "log-disable", "verbose",
                     "mlock", "no-mmap", "cont-batching")
    },
    **{
        f"--{name}": Argument(refused=why)
        for name, why in (
            ("model-draft", "takes memory for a draft"),
            ("lora", "takes memory for adapters"),
            ("mmproj", "takes memory for an encoder"),
            ("tensor-split", "changes how the model is divided"),
            ("split-mode", "changes how the model is divided"),
            ("n-cpu-moe", "moves weights off the GPU"),
            ("override-tensor", "moves weights off the GPU"),
        )
    },
    "--no-kv-offload": Argument("switch", refused="keeps the cache off the GPU"),
    "--cpu-moe": Argument("switch", refused="moves weights off the GPU"),
    "--model": Argument(flag=MODEL),
    "--hf-repo": Argument(flag=MODEL),
    "--ctx-size": Argument(flag="max_model_len"),
    "--parallel": Argument(flag="batch"),
    "--ubatch-size": Argument(flag="ubatch"),
    "--cache-type-k": Argument(flag="kv_k"),
    "--cache-type-v": Argument(flag="kv_v"),
    "--flash-attn": Argument("either", flag="flash_attn"),
    "--swa-full": Argument("switch", flag="swa_full"),
    "--kv-unified": Argument("switch", flag="kv_unified"),
    "--n-gpu-layers": Argument(convert=_all_layers, flag="n_gpu_layers"),
}  # fmt: skip

TABLE = Table(
    "llamacpp",
    "llama-server",
    KNOWN,
    {
        "-m": "--model", "-hf": "--hf-repo", "-c": "--ctx-size", "-np": "--parallel",
        "-ub": "--ubatch-size", "-b": "--batch-size", "-ctk": "--cache-type-k",
        "-ctv": "--cache-type-v", "-fa": "--flash-attn", "-ngl": "--n-gpu-layers",
        "--gpu-layers": "--n-gpu-layers", "-t": "--threads", "-a": "--alias",
        "-kvu": "--kv-unified", "-md": "--model-draft", "-ts": "--tensor-split",
        "-sm": "--split-mode", "-ot": "--override-tensor", "-nkvo": "--no-kv-offload",
    },
    positional=False,
)  # fmt: skip
