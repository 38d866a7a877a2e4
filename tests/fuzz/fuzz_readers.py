"""Coverage-guided fuzzing of every reader of files. Not part of the test suite.

    pip install atheris
    python tests/fuzz/fuzz_readers.py [READER] -max_total_time=600 [CORPUS_FOLDER]

READER is one of ``config``, ``safetensors``, ``gguf``, ``yaml``, ``expression``; by default the
first byte of the input chooses. Anything but a `KvplanError` stops the run with a traceback and
leaves the input in a ``crash-*`` file beside the working directory; an input that takes longer
than 5 seconds (``-timeout=5``) or 2 GiB (``-rss_limit_mb=2048``) counts as a crash as well.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[1]))

with atheris.instrument_imports(include=["kvplan"]):
    from kvplan.errors import KvplanError
    from kvplan.model.model import Model
    from kvplan.model.rows import sequence_bytes
    from kvplan.precision.kv import KV_FORMATS
    from kvplan.precision.modules import UnknownPattern, expression
    from kvplan.sources import load_model
    from kvplan.sources.gguf import read_gguf
    from kvplan.sources.huggingface.config import read_config
    from kvplan.sources.safetensors import parse_header

from filemakers import (
    TINY_GGUF,
    TINY_LLAMA,
    gguf_bytes,
    safetensors_header,
    tiny_gguf_tensors,
    tiny_llama_tensors,
)

_FILE = Path(tempfile.mkdtemp(prefix="kvplan-fuzz-"))


def _exercise(model: Model) -> None:
    sequence_bytes(model.logical_rows(KV_FORMATS["bf16"]), 1000)
    if model.weights_unknown is None:
        model.weight_bytes(model.scheme)


def config(data: bytes) -> None:
    """A config.json; good JSON is laid over a small model so that it gets past the first checks."""
    path = _FILE / "config.json"
    path.write_bytes(data)
    try:
        changes = json.loads(data)
    except (ValueError, RecursionError):
        changes = None
    if isinstance(changes, dict):
        _exercise(read_config({**TINY_LLAMA, **changes}, name="x", source="x"))
    else:
        load_model(str(path))


def safetensors(data: bytes) -> None:
    """A safetensors header."""
    parse_header(data, "x", None)


def gguf(data: bytes) -> None:
    """A GGUF file."""
    path = _FILE / "x.gguf"
    path.write_bytes(data)
    _exercise(read_gguf(str(path)))


def yaml(data: bytes) -> None:
    """A user's own profile."""
    path = _FILE / "x.yaml"
    path.write_bytes(data)
    _exercise(load_model(str(path)))


def pattern(data: bytes) -> None:
    """An expression of a list of modules, and a name."""
    text, _, name = data.decode(errors="replace").partition("\n")
    try:
        expression(text)(name)
    except UnknownPattern:
        return


READERS: dict[str, Callable[[bytes], None]] = {
    "config": config,
    "safetensors": safetensors,
    "gguf": gguf,
    "yaml": yaml,
    "expression": pattern,
}


def seeds(folder: str) -> None:
    """One good input a reader, from which the fuzzer starts."""
    os.makedirs(folder, exist_ok=True)
    good = {
        "config": json.dumps(TINY_LLAMA).encode(),
        "safetensors": safetensors_header(tiny_llama_tensors())[0],
        "gguf": gguf_bytes(TINY_GGUF, tiny_gguf_tensors(), data=False),
        "yaml": b"name: x\nconfig: " + json.dumps(TINY_LLAMA).encode() + b"\n",
        "expression": rb".*mlp\.(gate|up)_proj.*" + b"\nmodel.layers.0.mlp.up_proj",
    }
    for number, (name, data) in enumerate(good.items()):
        Path(folder, name).write_bytes(data)
        Path(folder, f"{name}-chosen").write_bytes(bytes([number]) + data)


def main() -> None:
    """Run the fuzzer until it is stopped or something breaks."""
    arguments = sys.argv[:]
    chosen = READERS.get(arguments[1]) if len(arguments) > 1 else None
    if chosen is not None:
        del arguments[1]
    corpus = str(_FILE / "corpus")
    seeds(corpus)

    def one(data: bytes) -> None:
        reader, rest = chosen, data
        if reader is None:
            if not data:
                return
            reader, rest = list(READERS.values())[data[0] % len(READERS)], data[1:]
        try:
            reader(rest)
        except KvplanError as error:
            if not error.message:
                raise

    limits = ["-timeout=5", "-rss_limit_mb=2048", "-max_len=65536"]
    atheris.Setup([arguments[0], *limits, *arguments[1:], corpus], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
