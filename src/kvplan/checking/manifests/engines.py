"""Which engine a container runs, and the flags that its command line means."""

from __future__ import annotations

from typing import NamedTuple

from kvplan.checking.manifests import llama_server, sglang, vllm
from kvplan.checking.manifests.arguments import Arguments, Table, read_arguments
from kvplan.checking.manifests.containers import Container, read_containers
from kvplan.checking.manifests.shell import one_command, refuse_substitutions, statements
from kvplan.errors import InputError, UnsupportedCombination
from kvplan.question import BY_NAME

_MODULES = {
    "vllm.entrypoints.openai.api_server": vllm.TABLE,
    "sglang.launch_server": sglang.TABLE,
}
_PROGRAMS = {"llama-server": llama_server.TABLE}
_SERVING = {"vllm": vllm.TABLE, "sglang": sglang.TABLE}
"""Programs whose first word is ``serve``."""
_IMAGES = (("vllm-openai", vllm.TABLE), ("llama.cpp", llama_server.TABLE))
"""Images whose own entry point is the engine, by a part of their name."""
_SHELLS = {"sh", "bash", "ash", "dash", "zsh"}
_WRAPPERS = {"exec", "env", "tini", "dumb-init", "nohup"}
_ENGINE_WORDS = ("vllm", "sglang", "llama")
_RESOLVED_ELSEWHERE = {"dtype", "n_gpu_layers", "load_format"}
"""Checked when read, of no further meaning."""


class Deployed(NamedTuple):
    """What is deployed, as flags of kvplan."""

    where: str
    """For messages: the manifest and the container."""
    model: str | None
    flags: dict[str, str | bool | tuple[str, ...]]
    words: dict[str, str]
    stored: str | None
    """The quantisation that the checkpoint must have."""
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


def deployed_by_command(command: tuple[str, ...] | str, ignore: tuple[str, ...]) -> Deployed:
    """An engine's command line, as words or as one text."""
    if isinstance(command, str):
        words = one_command(refuse_substitutions(command))
    else:
        words = [refuse_substitutions(word) for word in command]
    engine = _engine(words, "", has_command=True)
    if engine is None:
        raise InputError(
            f"{' '.join(words[:3])!r} is not an engine's command that kvplan reads",
            hint="It reads vllm serve, python -m sglang.launch_server and llama-server.",
        )
    return _deployed("command", engine[0], engine[1], ignore, None)


def deployed_by_manifest(
    path: str, shown: str, container: str | None, ignore: tuple[str, ...]
) -> Deployed:
    """The engine that a manifest deploys; ``shown`` names the file in messages."""
    found = read_containers(path, shown)
    if container is not None:
        wanted = [c for c in found if container in {c.name, c.name.rsplit("/", 1)[-1]}]
        if not wanted:
            names = ", ".join(c.name for c in found) or "none"
            raise InputError(f"{shown} has no container {container!r}", hint=f"It has: {names}.")
        found = wanted
    engines: list[tuple[Container, Table, list[str]]] = []
    problem = None
    for each in found:
        try:
            engine = _engine(each.words(), each.image, has_command=each.command is not None)
        except InputError as error:
            problem = InputError(
                f"{shown}:{each.line}: {each.name}: {error.message}", hint=error.hint
            )
            if each.mentions(_ENGINE_WORDS):
                raise problem from None
            continue  # a sidecar's: of no matter if another container is the engine
        if engine is not None:
            engines.append((each, *engine))
    if not engines and problem is not None:
        raise problem
    if not engines:
        names = ", ".join(c.name for c in found) or "no container"
        raise InputError(
            f"{shown} runs no engine that kvplan reads ({names})",
            hint="It reads vllm serve, python -m sglang.launch_server and llama-server out of "
            "command and args. A chart's own settings: render it with helm template.",
        )
    if len(engines) > 1:
        names = ", ".join(each.name for each, _, _ in engines)
        raise InputError(
            f"{shown} runs {len(engines)} engines: {names}", hint="Say which with container: NAME."
        )
    each, table, words = engines[0]
    where = f"{shown}:{each.line}"
    try:
        return _deployed(where, table, words, ignore, each)
    except InputError as error:
        raise InputError(f"{where}: {error.message}", hint=error.hint) from None


def _engine(words: list[str], image: str, *, has_command: bool) -> tuple[Table, list[str]] | None:
    """The engine that the words start, and its arguments; None when they start none."""
    if not has_command:
        for part, table in _IMAGES:
            if part in image.rsplit("/", 1)[-1] and not _named(words):
                return table, words
    return _named(words)


def _named(words: list[str]) -> tuple[Table, list[str]] | None:
    while words and (_program(words[0]) in _WRAPPERS or _is_assignment(words[0])):
        words = words[1:]
        while words and words[0] in {"--", "-g"}:
            words = words[1:]
    if not words:
        return None
    program = _program(words[0])
    if program in _SERVING and words[1:2] == ["serve"]:
        return _SERVING[program], words[2:]
    if program in _PROGRAMS:
        return _PROGRAMS[program], words[1:]
    if program.startswith("python"):
        for position, word in enumerate(words[1:-1], 1):
            if word == "-m":
                table = _MODULES.get(words[position + 1])
                return (table, words[position + 2 :]) if table else None
            if not word.startswith("-"):
                return None
    if program in _SHELLS:
        return _in_shell(words)
    return None


def _in_shell(words: list[str]) -> tuple[Table, list[str]] | None:
    script = next(
        (
            words[position + 1]
            for position, word in enumerate(words[:-1])
            if position and word.startswith("-") and not word.startswith("--") and "c" in word
        ),
        None,
    )
    if script is None:
        return None
    found = [engine for engine in map(_named, statements(script)) if engine is not None]
    if len(found) > 1:
        raise InputError(f"the script starts {len(found)} engines")
    return found[0] if found else None


def _program(word: str) -> str:
    return word.rsplit("/", 1)[-1]


def _is_assignment(word: str) -> bool:
    name, equals, _ = word.partition("=")
    return bool(equals) and name.isidentifier()


def _deployed(
    where: str, table: Table, words: list[str], ignore: tuple[str, ...], container: Container | None
) -> Deployed:
    from kvplan.engines import engine_names

    if table.engine not in engine_names():
        raise UnsupportedCombination(
            f"{where}: it runs {table.program}, an engine that kvplan does not model yet",
            hint=f"It models: {', '.join(engine_names())}. What is deployed cannot be checked.",
        )
    read = read_arguments(words, table, ignore)
    flags = {name: value for name, value in read.flags.items() if name not in _RESOLVED_ELSEWHERE}
    stored = _take_stored(flags)
    _join_kv(flags)
    if flags.get("ep") is True:
        sizes = [int(str(flags.get(name, 1))) for name in ("tp", "dp")]
        flags["ep"] = str(sizes[0] * sizes[1])
    unknown = [name for name in flags if name not in BY_NAME]
    if unknown:
        said = ", ".join(read.words.get(name, name) for name in unknown)
        raise InputError(f"{table.program} {said}: kvplan has no flag for it yet")
    version = container.version if container is not None and table.engine == "vllm" else None
    flags["engine"] = f"{table.engine}@{version}" if version else table.engine
    notes = [f"arguments of {table.program} read from {where}"]
    if container is not None and version is None:
        notes.append(f"the image {container.image or '(none)'} names no version of {table.engine}")
    if ignore:
        notes.append(f"not judged, as ignore_args says: {', '.join(ignore)}")
    return Deployed(
        where, read.model, flags, read.words, stored, tuple(notes), _warnings(container, read)
    )


def _take_stored(flags: dict[str, str | bool | tuple[str, ...]]) -> str | None:
    weights = flags.get("weights")
    if isinstance(weights, str) and weights.startswith(vllm.STORED):
        del flags["weights"]
        return weights.removeprefix(vllm.STORED)
    return None


def _join_kv(flags: dict[str, str | bool | tuple[str, ...]]) -> None:
    """llama.cpp's two formats as one."""
    k, v = flags.pop("kv_k", None), flags.pop("kv_v", None)
    if k is not None or v is not None:
        flags["kv"] = f"k={k or 'fp16'},v={v or 'fp16'}"


def _warnings(container: Container | None, read: Arguments) -> tuple[str, ...]:
    """What a manifest says beside the command that may matter."""
    if container is None:
        return ()
    said = []
    variables = [name for name in container.variables if name.startswith(("VLLM_", "SGLANG_"))]
    if variables:
        said.append(f"environment variables are not judged: {', '.join(variables)}")
    asked = 1
    for name in ("tp", "pp", "dp"):
        asked *= int(str(read.flags.get(name, 1)))
    if container.gpus is not None and container.gpus != str(asked):
        said.append(
            f"{container.name} asks for {container.gpus} nvidia.com/gpu, but its arguments use "
            f"{asked}"
        )
    return tuple(said)
