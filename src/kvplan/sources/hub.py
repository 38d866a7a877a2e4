"""A model on the Hugging Face hub, by its documents and the headers of its weights.

Fetched are ``config.json``, ``hf_quant_config.json``, the index of the weights and the first bytes
of each weight file; tensors never. The library ``huggingface_hub`` does the talking, so the user's
token, cache, mirror and offline mode apply (``HF_TOKEN``, ``HF_HOME``, ``HF_ENDPOINT``,
``HF_HUB_OFFLINE``). What comes back is bounded and checked like any file from a stranger.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from kvplan import __version__
from kvplan.errors import KvplanError, MalformedFile, MissingExtra, ModelNotFound, SourceError
from kvplan.files import MAX_DOCUMENT_BYTES, read_json_object
from kvplan.sources.huggingface.quantization import with_hf_quant_config
from kvplan.sources.published import CONFIG, QUANT_CONFIG, Published
from kvplan.sources.safetensors import (
    INDEX,
    MAX_HEADER_BYTES,
    MAX_INDEX_BYTES,
    SINGLE,
    Index,
    StoredTensor,
    StoredWeights,
    header_length,
    merge_headers,
    parse_header,
    parse_index,
    read_folder,
    read_header,
)
from kvplan.units import KIB

FIRST_BYTES = 256 * KIB
"""What the first request of a weight file asks for; most headers are smaller."""
CONNECTIONS = 8
"""Weight files whose headers are read at once."""
MAX_SECONDS = 120
"""Longest that one header may take, however slowly its bytes drip."""
_TRIES = 3
_NOT_NOW = frozenset({429, 500, 502, 503, 504})


def fetch(hub_id: str, revision: str | None = None) -> Published:
    """The documents of ``org/name``, all of one commit."""
    with _quiet() as hub, _explained(hub, hub_id, revision):
        return _Repository(hub, hub_id, revision).published()


class _Repository:
    """One model on the hub, at the commit that its config was read from."""

    def __init__(self, hub: Any, hub_id: str, revision: str | None) -> None:
        self.hub = hub
        self.hub_id = hub_id
        self.asked = revision
        self.commit = revision
        self.warnings: list[str] = []
        self.is_offline = bool(hub.constants.HF_HUB_OFFLINE)

    def published(self) -> Published:
        path = self.document(CONFIG, MAX_DOCUMENT_BYTES)
        if path is None:
            raise ModelNotFound(
                f"{self.hub_id} on the hub has no config.json",
                hint="For a repository of GGUF files, download one and give its path.",
            )
        config: Mapping[str, Any] = read_json_object(path)
        if not config.get("quantization_config"):
            beside = self.document(QUANT_CONFIG, MAX_DOCUMENT_BYTES)
            if beside is not None:
                config = with_hf_quant_config(config, read_json_object(beside), beside)
        weights = self.cached_weights(os.path.dirname(path)) if self.is_offline else self.weights()
        at = f"@{self.commit[:12]}" if self.commit else ""
        return Published(
            name=self.hub_id.rpartition("/")[2],
            source=f"hub: {self.hub_id}{at}",
            config=config,
            hub_id=self.hub_id,
            weights=weights,
            warnings=tuple(self.warnings),
        )

    def document(self, name: str, limit: int) -> str | None:
        """The path of a small file in the user's cache; None when the repository has none."""
        errors = self.hub.errors
        if self.is_offline:
            return self.cached(name)
        try:
            meta = self.hub.get_hf_file_metadata(self.url(name))
        except errors.EntryNotFoundError:
            return None
        except self.unreachable as error:
            if name != CONFIG:
                raise
            return self.cached_instead(name, error)
        if meta.size is not None and meta.size > limit:
            raise MalformedFile(
                f"{self.hub_id}/{name}", f"is {meta.size:,} bytes; at most {limit:,} are read"
            )
        # The config is asked for by the revision's name, so that the cache knows it by that name
        # when there is no connection; all else is of the commit that came back.
        path: str = self.hub.hf_hub_download(
            self.hub_id, name, revision=self.commit, library_name="kvplan",
            library_version=__version__,
        )  # fmt: skip
        self.commit = os.path.basename(os.path.dirname(path))
        return path

    def cached(self, name: str) -> str | None:
        """The file in the user's cache, without asking the hub."""
        try:
            path: str = self.hub.hf_hub_download(
                self.hub_id, name, revision=self.asked, local_files_only=True
            )
        except self.hub.errors.LocalEntryNotFoundError:
            if name != CONFIG:
                return None
            raise
        self.commit = os.path.basename(os.path.dirname(path))
        return path

    def cached_instead(self, name: str, error: Exception) -> str | None:
        """The cached copy when the hub does not answer, said as a warning."""
        try:
            path = self.cached(name)
        except self.hub.errors.LocalEntryNotFoundError:
            raise error from None
        self.is_offline = True
        self.warnings.append(
            f"the hub does not answer: the copy of {self.hub_id} in your cache is used"
        )
        return path

    def weights(self) -> StoredWeights | Index | None:
        """The headers of all weight files."""
        where = f"{self.hub_id}/{INDEX}"
        path = self.document(INDEX, MAX_INDEX_BYTES)
        if path is not None:
            from kvplan.files import parse_json_object, read_text

            index = parse_index(parse_json_object(read_text(path, MAX_INDEX_BYTES), where), where)
            return merge_headers(index, self.headers(list(index.shards)), where)
        try:
            return StoredWeights(dict(self.header(SINGLE)), 1, f"{self.hub_id}/{SINGLE}")
        except self.hub.errors.EntryNotFoundError:
            return None

    def cached_weights(self, snapshot: str) -> StoredWeights | Index | None:
        """What the cache holds of the weights: all files, the index alone, or nothing."""
        try:
            return read_folder(snapshot)
        except MalformedFile:
            raise
        except SourceError:  # some files only
            return None

    def headers(self, names: list[str]) -> Iterator[tuple[str, dict[str, StoredTensor]]]:
        """Each file's header, several at a time; the first fault ends them all."""
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(CONNECTIONS) as pool:
            try:
                yield from zip(names, pool.map(self.header, names), strict=True)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def header(self, name: str) -> dict[str, StoredTensor]:
        """One file's header: from the cache when the file is there, else its first bytes."""
        cached = self.hub.try_to_load_from_cache(self.hub_id, name, revision=self.commit)
        if isinstance(cached, str):
            return read_header(cached)
        where = f"{self.hub_id}/{name}"
        start, total = self.bytes_of(name, 0, FIRST_BYTES)
        length = header_length(start, where)
        data = start[8 : 8 + length]
        if len(data) < length:
            more, _ = self.bytes_of(name, 8 + len(data), length - len(data))
            data += more
        if len(data) < length:
            raise MalformedFile(where, f"ends within its header of {length:,} bytes")
        return parse_header(data, where, total)

    def bytes_of(self, name: str, offset: int, count: int) -> tuple[bytes, int | None]:
        """``count`` bytes of a file from ``offset``, and the file's size where it is told.

        A server that ignores the range would send the whole file: reading stops at ``count``.
        """
        headers = self.hub.utils.build_hf_headers(
            library_name="kvplan", library_version=__version__
        )
        headers["Range"] = f"bytes={offset}-{offset + count - 1}"
        timeout = self.hub.constants.HF_HUB_DOWNLOAD_TIMEOUT
        deadline = time.monotonic() + MAX_SECONDS
        for attempt in range(_TRIES):
            session = self.hub.utils.get_session()
            with session.stream("GET", self.url(name), headers=headers, timeout=timeout) as reply:
                if reply.status_code in _NOT_NOW and attempt < _TRIES - 1:
                    time.sleep(0.2 * 2**attempt)
                    continue
                if reply.status_code >= 400:
                    reply.read()
                self.hub.utils.hf_raise_for_status(reply)
                skip = offset if reply.status_code == 200 else 0
                data = bytearray()
                for chunk in reply.iter_bytes(64 * KIB):
                    data += chunk
                    if len(data) >= skip + count:
                        break
                    if time.monotonic() > deadline:
                        raise SourceError(
                            f"{self.hub_id}/{name}: the header took more than {MAX_SECONDS} s",
                            hint="Is the connection slow? Try again later.",
                        )
                    if len(data) > MAX_HEADER_BYTES + FIRST_BYTES:
                        raise MalformedFile(f"{self.hub_id}/{name}", "sends more than was asked")
                return bytes(data[skip : skip + count]), _file_size(reply)
        raise SourceError(f"{self.hub_id}/{name}: the hub does not answer")

    def url(self, name: str) -> str:
        url: str = self.hub.hf_hub_url(self.hub_id, name, revision=self.commit)
        return url

    @property
    def unreachable(self) -> tuple[type[Exception], ...]:
        """Errors of the connection itself."""
        return (OSError, _http(self.hub).TransportError)


def _file_size(reply: Any) -> int | None:
    """The whole file's size: after the slash of Content-Range, or the length of a whole reply."""
    stated = reply.headers.get("Content-Range", "").rpartition("/")[2]
    if reply.status_code == 200:
        stated = reply.headers.get("Content-Length", "")
    return int(stated) if stated.isascii() and stated.isdecimal() and len(stated) < 20 else None


def _http(hub: Any) -> Any:
    """The HTTP library (``httpx`` or its successor) whose errors the hub's library lets through."""
    return sys.modules[type(hub.utils.get_session()).__module__.partition(".")[0]]


@contextmanager
def _quiet() -> Iterator[Any]:
    """The hub's library, without progress bars: standard error is for what kvplan says."""
    try:
        hub = import_module("huggingface_hub")
        for part in ("constants", "errors", "utils"):
            import_module(f"huggingface_hub.{part}")
    except ImportError:
        raise MissingExtra("hub", "asking the Hugging Face hub") from None
    shown = not hub.utils.are_progress_bars_disabled()
    hub.utils.disable_progress_bars()
    try:
        yield hub
    finally:
        if shown:
            hub.utils.enable_progress_bars()


@contextmanager
def _explained(hub: Any, hub_id: str, revision: str | None) -> Iterator[None]:
    """Every fault of the hub or the way to it, as an error that says what to do."""
    errors = hub.errors
    endpoint = hub.constants.ENDPOINT
    at = f"{hub_id} at {endpoint}"
    login = "Log in with: hf auth login (or set HF_TOKEN)."
    try:
        yield
    except KvplanError:
        raise
    except errors.GatedRepoError:
        raise SourceError(
            f"{at}: access is gated",
            hint=f"Accept the terms on the model's page, then: {login}",
        ) from None
    except errors.RevisionNotFoundError:
        raise ModelNotFound(f"{at}: there is no revision {revision!r}") from None
    except errors.RepositoryNotFoundError:
        raise ModelNotFound(
            f"{at}: there is no such model, or it is private",
            hint=f"Check the name. For a private model: {login}",
        ) from None
    except errors.OfflineModeIsEnabled:
        raise _offline(at) from None
    except errors.LocalEntryNotFoundError:
        if hub.constants.HF_HUB_OFFLINE:
            raise _offline(at) from None
        raise _unreachable(at) from None
    except errors.EntryNotFoundError as error:
        raise SourceError(f"{at}: a file that its index names is missing: {_line(error)}") from None
    except errors.HfHubHTTPError as error:
        raise _refused(at, error, login) from None
    except errors.HFValidationError as error:
        raise SourceError(f"{hub_id!r} is not a hub id: {_line(error)}") from None
    except _http(hub).TimeoutException:
        raise SourceError(
            f"{at}: no answer in time", hint="Try again, or raise HF_HUB_DOWNLOAD_TIMEOUT."
        ) from None
    except (OSError, _http(hub).HTTPError, errors.FileMetadataError):
        raise _unreachable(at) from None


def _offline(at: str) -> SourceError:
    return SourceError(
        f"{at}: HF_HUB_OFFLINE is set and the model is not in the cache",
        hint="Unset HF_HUB_OFFLINE, or give the path of a config.json.",
    )


def _unreachable(at: str) -> SourceError:
    return SourceError(
        f"{at}: the hub cannot be reached",
        hint="Check the connection and HF_ENDPOINT, or give the path of a config.json.",
    )


def _refused(at: str, error: Any, login: str) -> SourceError:
    status = error.response.status_code if error.response is not None else 0
    if status == 401:
        return SourceError(f"{at}: the token is not accepted (401)", hint=login)
    if status == 403:
        return SourceError(f"{at}: access is forbidden (403)", hint=login)
    if status == 429:
        return SourceError(f"{at}: too many requests (429)", hint=f"Wait a little. {login}")
    return SourceError(f"{at}: the hub answers with status {status}", hint="Try again later.")


def _line(error: Exception) -> str:
    """The first line of another library's message, made safe for a terminal."""
    first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return "".join(c if c.isprintable() else "?" for c in first)[:200]
