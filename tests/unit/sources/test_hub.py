"""The hub, spoken to over real HTTP: a small server with the hub's routes, and kvplan beside it."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import re
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from filemakers import (
    TINY_LLAMA,
    TINY_LLAMA_PARAMETERS,
    safetensors_header,
    tiny_llama_tensors,
    write_checkpoint,
)

pytest.importorskip("huggingface_hub")

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TINY_BYTES = 2 * TINY_LLAMA_PARAMETERS
ROUTE = re.compile(r"/([\w.-]+/[\w.-]+)/resolve/([\w.-]+)/([\w.-]+)\Z")


class Hub(http.server.ThreadingHTTPServer):
    """Repositories by name; what went wrong in some of them; every request that came."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repos: dict[str, Path] = {}
        self.seen: list[tuple[str, str, str | None, str | None]] = []
        self.failures: dict[str, int] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def log_message(self, *_: Any) -> None:
        pass

    def answer(self, *, body: bool) -> None:
        wanted = self.headers.get("Range")
        self.server.seen.append(
            (self.command, self.path, wanted, self.headers.get("Authorization"))
        )
        path = self.path
        is_cdn = path.startswith("/cdn")
        match = ROUTE.match(path.removeprefix("/cdn"))
        if match is None:
            return self.fail(404, "EntryNotFound")
        repo, revision, name = match.groups()
        kind = repo.partition("/")[2]
        if kind == "gated":
            return self.fail(403, "GatedRepo")
        if kind == "private":
            return self.fail(401, "RepoNotFound")
        if kind == "badtoken":
            return self.fail(401, None, "Invalid credentials in Authorization header")
        if kind == "forbidden":
            return self.fail(403, None)
        if kind == "limited":
            return self.fail(429, None)
        if kind == "broken":
            return self.fail(500, None)
        if kind == "slow":
            time.sleep(3)
        if kind == "flaky" and is_cdn and self.server.failures.setdefault(path, 0) < 2:
            self.server.failures[path] += 1
            return self.fail(503, None)
        if revision not in {"main", "v1", COMMIT}:
            return self.fail(404, "RevisionNotFound")
        if repo not in self.server.repos:
            return self.fail(404, "RepoNotFound")
        file = self.server.repos[repo] / name
        if not file.exists():
            return self.fail(404, "EntryNotFound")
        if name.endswith(".safetensors") and not is_cdn:
            return self.redirect(f"{self.server.url}/cdn{path}", file.stat().st_size)
        data = file.read_bytes()
        status = 200
        etag = f'"{hashlib.sha1(data).hexdigest()}"'
        extra = {"ETag": etag, "X-Repo-Commit": COMMIT}
        if wanted and kind != "norange":
            start, end = (int(part) for part in wanted.removeprefix("bytes=").split("-"))
            if start >= len(data):
                return self.fail(416, None)
            extra["Content-Range"] = f"bytes {start}-{min(end, len(data) - 1)}/{len(data)}"
            data, status = data[start : end + 1], 206
        self.send(status, extra, data, body=body)
        return None

    def redirect(self, location: str, size: int) -> None:
        extra = {
            "Location": location, "ETag": '"x"', "X-Linked-ETag": '"abc"',
            "X-Linked-Size": str(size), "X-Repo-Commit": COMMIT,
        }  # fmt: skip
        self.send(302, extra, b"", body=False)

    def fail(self, status: int, code: str | None, message: str = "no") -> None:
        extra = {"X-Error-Message": message}
        if code:
            extra["X-Error-Code"] = code
        self.send(status, extra, b"", body=False)

    def send(self, status: int, extra: dict[str, str], data: bytes, *, body: bool) -> None:
        self.send_response(status)
        for key, value in extra.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body and self.command == "GET":
            self.wfile.write(data)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    root = tmp_path_factory.mktemp("repos")
    server = Hub()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    for name in ("tiny", "norange", "flaky", "slow"):
        server.repos[f"acme/{name}"] = write_checkpoint(root / name)
    server.repos["acme/single"] = write_checkpoint(root / "single", shards=1)
    server.repos["acme/bare"] = write_checkpoint(root / "bare", shards=1)
    (root / "bare" / "model.safetensors").unlink()
    quantised = write_checkpoint(root / "quantised", shards=1)
    (quantised / "hf_quant_config.json").write_text(
        json.dumps({"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}})
    )
    server.repos["acme/quantised"] = quantised
    gguf = root / "gguf"
    gguf.mkdir()
    (gguf / "x.gguf").write_bytes(b"GGUF")
    server.repos["acme/gguf"] = gguf
    server.repos["acme/holed"] = write_checkpoint(root / "holed", shards=3)
    (root / "holed" / "model-00002-of-00003.safetensors").unlink()
    evil = write_checkpoint(root / "evil")
    (evil / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"w": "../../etc/passwd"}})
    )
    server.repos["acme/evil"] = evil
    huge = write_checkpoint(root / "huge", shards=1)
    (huge / "config.json").write_text(" " * (17 * 2**20) + "{}")
    server.repos["acme/huge"] = huge
    lying = write_checkpoint(root / "lying", shards=1)
    (lying / "model.safetensors").write_bytes(struct.pack("<Q", 2**40) + b"{}")
    server.repos["acme/lying"] = lying
    wide = {f"model.filler.{number}": ("F32", [1]) for number in range(6000)}
    server.repos["acme/wide"] = write_checkpoint(
        root / "wide", TINY_LLAMA, tiny_llama_tensors() | wide, shards=1
    )
    assert len(safetensors_header(wide)[0]) > 300_000  # more than the first request asks for
    yield server
    server.shutdown()
    server.server_close()


WORKER = """
import json, sys
from kvplan.errors import KvplanError
from kvplan.sources import load_model, profile_from
for line in sys.stdin:
    ask = json.loads(line)
    try:
        if ask.pop("profile", False):
            reply = {"profile": profile_from(ask["ref"])}
        else:
            model = load_model(ask["ref"], revision=ask.get("revision"))
            reply = {
                "name": model.name, "source": model.source, "hub_id": model.hub_id,
                "layers": model.num_hidden_layers, "size": model.checkpoint.size_bytes,
                "bytes": model.weight_bytes(model.scheme), "scheme": model.scheme.name,
                "kv": model.kv_cache_dtype, "warnings": model.warnings,
            }
    except KvplanError as error:
        reply = {"error": type(error).__name__, "message": error.message, "hint": error.hint}
    print(json.dumps(reply), flush=True)
"""


class Asker:
    """A process with its own environment: the hub's library reads it once, when imported."""

    def __init__(self, url: str, home: Path, **environment: str) -> None:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
        kept.pop("HUGGING_FACE_HUB_TOKEN", None)
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **kept, "HF_ENDPOINT": url, "HF_HOME": str(home), "HF_HUB_DOWNLOAD_TIMEOUT": "1",
                "HF_HUB_ETAG_TIMEOUT": "1", "HF_HUB_DISABLE_XET": "1", "NO_PROXY": "127.0.0.1",
                **environment,
            },
        )  # fmt: skip

    def __call__(self, ref: str, **more: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"ref": ref, **more}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read() if self.process.stderr else ""
        reply: dict[str, Any] = json.loads(line)
        return reply

    def close(self) -> str:
        """End the process; what it wrote to standard error."""
        _, said = self.process.communicate(timeout=20)
        return said


@pytest.fixture(scope="module")
def ask(hub: Hub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asker]:
    asker = Asker(hub.url, tmp_path_factory.mktemp("home"), HF_TOKEN="hf_secret")
    yield asker
    assert asker.close() == ""  # no progress bars, no warnings


def test_a_model_by_its_headers(ask: Asker, hub: Hub) -> None:
    before = len(hub.seen)
    reply = ask("acme/tiny")
    assert reply["bytes"] == reply["size"] == TINY_BYTES
    assert (reply["name"], reply["hub_id"], reply["layers"]) == ("tiny", "acme/tiny", 2)
    assert reply["source"] == f"hub: acme/tiny@{COMMIT[:12]}"
    requests = [request for request in hub.seen[before:] if "/resolve/" in request[1]]
    weights = [request for request in requests if request[1].endswith(".safetensors")]
    assert all(wanted is not None for _, _, wanted, _ in weights)
    assert {path.rsplit("/", 1)[1] for _, path, _, _ in requests} == {
        "config.json", "hf_quant_config.json", "model.safetensors.index.json",
        "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
    }  # fmt: skip
    # The user's own token goes along, and everything but the config is asked for by its commit.
    assert {token for _, path, _, token in requests if "/cdn" not in path} == {"Bearer hf_secret"}
    assert all(COMMIT in path for _, path, _, _ in requests if not path.endswith("/config.json"))


def test_a_single_file_needs_no_index(ask: Asker) -> None:
    assert ask("acme/single")["bytes"] == TINY_BYTES


def test_weights_may_be_missing_altogether(ask: Asker) -> None:
    reply = ask("acme/bare")
    assert reply["size"] is None
    assert reply["bytes"] == TINY_BYTES


def test_a_long_header_takes_a_second_request(ask: Asker) -> None:
    assert ask("acme/wide")["size"] == TINY_BYTES + 4 * 6000


def test_quantisation_in_a_file_of_its_own(ask: Asker) -> None:
    reply = ask("acme/quantised")
    assert (reply["scheme"], reply["kv"]) == ("fp8", "fp8_e4m3")


def test_a_revision_and_the_prefix_mean_the_hub(ask: Asker) -> None:
    assert ask("acme/tiny", revision="v1")["bytes"] == TINY_BYTES
    assert ask("hf:acme/tiny")["bytes"] == TINY_BYTES
    reply = ask("acme/tiny", revision="v9")
    assert (reply["error"], "no revision 'v9'" in reply["message"]) == ("ModelNotFound", True)


def test_a_bundled_name_never_asks_the_hub(ask: Asker, hub: Hub) -> None:
    before = len(hub.seen)
    assert ask("meta-llama/Llama-3.1-8B")["source"].startswith("bundled")
    assert len(hub.seen) == before
    assert ask("hf:meta-llama/Llama-3.1-8B")["error"] == "ModelNotFound"


def test_a_server_without_ranges_sends_no_more_than_is_read(ask: Asker) -> None:
    assert ask("acme/norange")["bytes"] == TINY_BYTES


def test_a_passing_failure_is_tried_again(ask: Asker) -> None:
    assert ask("acme/flaky")["bytes"] == TINY_BYTES


def test_a_profile_from_the_hub(ask: Asker) -> None:
    text = ask("acme/tiny", profile=True)["profile"]
    assert "hub_id: acme/tiny" in text
    assert f"acme/tiny@{COMMIT[:12]}" in text
    assert f"size_bytes: {TINY_BYTES}" in text


@pytest.mark.parametrize(
    ("ref", "error", "message", "hint"),
    [
        ("acme/gated", "SourceError", "access is gated", "hf auth login"),
        ("acme/private", "ModelNotFound", "no such model, or it is private", "hf auth login"),
        ("acme/missing", "ModelNotFound", "no such model", "Check the name"),
        ("acme/badtoken", "SourceError", "not accepted (401)", "hf auth login"),
        ("acme/forbidden", "SourceError", "forbidden (403)", "hf auth login"),
        ("acme/limited", "SourceError", "too many requests (429)", "Wait"),
        ("acme/broken", "SourceError", "status 500", "Try again"),
        ("acme/slow", "SourceError", "no answer in time", "HF_HUB_DOWNLOAD_TIMEOUT"),
        ("acme/gguf", "ModelNotFound", "no config.json", "GGUF"),
        ("acme/holed", "SourceError", "a file that its index names is missing", ""),
        ("acme/evil", "MalformedFile", "not a file of this folder", ""),
        ("acme/huge", "MalformedFile", "at most 16,777,216 are read", ""),
        ("acme/lying", "MalformedFile", "states a header of 1,099,511,627,776", ""),
        ("meta/lama-3.1-8b-instrct", "ModelNotFound", "no such model", "Nearest bundled: llama-3"),
    ],
)
def test_faults_say_what_to_do(
    ask: Asker, hub: Hub, ref: str, error: str, message: str, hint: str
) -> None:
    reply = ask(ref)
    assert reply["error"] == error
    assert message in reply["message"]
    assert hint in (reply["hint"] or "")
    assert "hf_secret" not in json.dumps(reply)


def test_offline_uses_the_cache_and_says_when_it_cannot(hub: Hub, tmp_path: Path) -> None:
    online = Asker(hub.url, tmp_path)
    assert online("acme/tiny")["bytes"] == TINY_BYTES
    online.close()
    before = len(hub.seen)
    offline = Asker(hub.url, tmp_path, HF_HUB_OFFLINE="1")
    reply = offline("acme/tiny")  # config and index are cached, weight files never are
    assert reply["bytes"] == reply["size"] == TINY_BYTES
    assert "files are not there" in reply["warnings"][0]
    unknown = offline("acme/single")
    assert (unknown["error"], "HF_HUB_OFFLINE" in unknown["message"]) == ("SourceError", True)
    offline.close()
    assert len(hub.seen) == before


def test_without_a_connection(hub: Hub, tmp_path: Path) -> None:
    online = Asker(hub.url, tmp_path)
    online("acme/tiny")
    online.close()
    asker = Asker("http://127.0.0.1:9", tmp_path)  # nothing listens there
    reply = asker("acme/tiny")
    assert reply["bytes"] == TINY_BYTES
    assert "in your cache is used" in " ".join(reply["warnings"])
    refused = asker("acme/single")
    assert (refused["error"], "cannot be reached" in refused["message"]) == ("SourceError", True)
    asker.close()


def test_a_revision_asked_for_on_the_command_line(hub: Hub, tmp_path: Path) -> None:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    done = subprocess.run(
        [sys.executable, "-m", "kvplan", "models", "import", "acme/tiny", "--revision", "v1"],
        capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path,
        env={**kept, "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path), "NO_PROXY": "127.0.0.1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "hub_id: acme/tiny" in done.stdout
    configs = [path for _, path, _, _ in hub.seen if path.endswith("/config.json")]
    assert configs[-1] == "/acme/tiny/resolve/v1/config.json"
