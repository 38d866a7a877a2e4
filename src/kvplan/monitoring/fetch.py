"""Fetching a page over HTTP from the one place the user named, and nowhere else.

Bounded in time and size whatever the server does: a deadline for the whole exchange, at most
`MAX_PAGE_BYTES`, redirects only within the same scheme, host and port, certificates always
verified, no proxies from the environment, no decompression. A token comes from an environment
variable, so that it is in no process list, and goes nowhere but to that host.
"""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import threading
import time
from typing import NamedTuple
from urllib.parse import SplitResult, urljoin, urlsplit

from kvplan import __version__
from kvplan.errors import InputError, SourceError
from kvplan.units import MIB

MAX_PAGE_BYTES = 16 * MIB
TOKEN_VARIABLE = "KVPLAN_METRICS_TOKEN"  # noqa: S105  (the variable's name, not a token)
_MOST_REDIRECTS = 3
_CHUNK = 64 * 1024
_LOCAL = {"localhost", "127.0.0.1", "::1"}


class Unreachable(SourceError):
    """The server does not answer, or not in time, or with an error: for a probe it is down."""


class Page(NamedTuple):
    """A page and how long it took."""

    text: str
    url: str
    seconds: float


def check_url(url: str, flag: str) -> SplitResult:
    """The parts of a URL that can be fetched."""
    if any(not char.isprintable() or char.isspace() for char in url):
        raise InputError(f"{flag} {url!r} holds characters that no URL has")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InputError(f"{flag} {url!r} is not a URL: {error}") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise InputError(
            f"{flag} {url!r} is not an http or https URL",
            hint=f"Such as {flag} http://127.0.0.1:8000/metrics.",
        )
    if parts.username or parts.password:
        raise InputError(
            f"{flag}: a password in a URL ends in logs and process lists",
            hint=f"Put a bearer token in the environment variable {TOKEN_VARIABLE}.",
        )
    if port == 0:
        raise InputError(f"{flag} {url!r}: port 0 is nobody's")
    return parts


def fetch(url: str, *, flag: str = "--url", timeout: float = 10.0) -> Page:
    """The page at ``url``; `Unreachable` where there is none to be had in time."""
    started = time.monotonic()
    deadline = started + timeout
    parts = check_url(url, flag)
    home = _origin(parts)
    for _ in range(_MOST_REDIRECTS + 1):
        status, location, body = _get(parts, deadline, timeout)
        if status not in {301, 302, 303, 307, 308}:
            break
        target = check_url(urljoin(parts.geturl(), location), flag)
        if _origin(target) != home:
            raise SourceError(
                f"{url} redirects to another place, {_shown(target.geturl())}",
                hint=f"Only the place you named is fetched. If you trust that one: {flag}.",
            )
        parts = target
    else:
        raise SourceError(f"{url} redirects more than {_MOST_REDIRECTS} times")
    if status != http.client.OK:
        raise Unreachable(f"{url} answers with status {status}", hint=_status_hint(status))
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SourceError(f"{url}: byte {error.start:,} is not UTF-8: not a metrics page") from None
    return Page(text, parts.geturl(), time.monotonic() - started)


def _get(parts: SplitResult, deadline: float, timeout: float) -> tuple[int, str, bytes]:
    """Status, location and body of one request."""
    where = parts.geturl()
    connection = _connection(parts, max(0.01, deadline - time.monotonic()))
    late = threading.Event()
    watchdog: threading.Timer | None = None
    try:
        connection.connect()
        # http.client forgets the socket of a reply that ends it: hand it to the watchdog now.
        remaining = max(0.01, deadline - time.monotonic())
        watchdog = threading.Timer(remaining, _hang_up, (connection.sock, late))
        watchdog.daemon = True
        watchdog.start()
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("GET", path, headers=_headers())
        response = connection.getresponse()
        encoding = response.getheader("Content-Encoding", "identity")
        if encoding != "identity":
            raise SourceError(
                f"{where} is compressed ({_shown(encoding)}) though that was not asked"
            )
        location = response.getheader("Location", "")
        body = _read(response, where, deadline)
        if late.is_set():  # what was read ends where the watchdog hung up
            raise TimeoutError
    except (OSError, http.client.HTTPException, ValueError) as error:
        if late.is_set() or isinstance(error, TimeoutError):
            raise Unreachable(
                f"{where} did not answer within {timeout:g} s", hint="Give it more with --timeout."
            ) from None
        raise Unreachable(f"{where} cannot be read: {_reason(error)}") from None
    else:
        return response.status, location, body
    finally:
        if watchdog is not None:
            watchdog.cancel()
        connection.close()


def _connection(parts: SplitResult, timeout: float) -> http.client.HTTPConnection:
    host = parts.hostname or ""
    if parts.scheme == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(host, parts.port, timeout=timeout, context=context)
    return http.client.HTTPConnection(host, parts.port, timeout=timeout)


def _hang_up(sock: socket.socket, late: threading.Event) -> None:
    """End an exchange in which the server gives a byte now and then, for ever."""
    late.set()
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:  # it is closed already
        return


def _headers() -> dict[str, str]:
    headers = {
        "Accept": "text/plain;version=0.0.4, application/json;q=0.9, */*;q=0.1",
        "Accept-Encoding": "identity",
        "Connection": "close",
        "User-Agent": f"kvplan/{__version__}",
    }
    token = os.environ.get(TOKEN_VARIABLE, "")
    if token:
        if not token.isascii() or not token.isprintable():
            raise InputError(f"{TOKEN_VARIABLE} holds characters that no token has")
        headers["Authorization"] = f"Bearer {token}"
    return headers


def token_warning(parts: SplitResult) -> str | None:
    """What to say when the token would cross a network in the clear."""
    if os.environ.get(TOKEN_VARIABLE) and parts.scheme == "http" and parts.hostname not in _LOCAL:
        return f"the token in {TOKEN_VARIABLE} goes to {parts.hostname} unencrypted: use https"
    return None


def _read(response: http.client.HTTPResponse, where: str, deadline: float) -> bytes:
    body = bytearray()
    while chunk := response.read1(_CHUNK):
        body += chunk
        if time.monotonic() > deadline:
            raise TimeoutError
        if len(body) > MAX_PAGE_BYTES:
            raise SourceError(
                f"{where} is more than {MAX_PAGE_BYTES // MIB} MiB, which no metrics page is"
            )
    expected = response.getheader("Content-Length")
    if expected is not None and expected.isdigit() and len(body) < int(expected):
        raise http.client.IncompleteRead(bytes(body), int(expected) - len(body))
    return bytes(body)


def _origin(parts: SplitResult) -> tuple[str, str, int]:
    default = 443 if parts.scheme == "https" else 80
    return parts.scheme, (parts.hostname or "").lower(), parts.port or default


def _status_hint(status: int) -> str | None:
    if status in {http.client.UNAUTHORIZED, http.client.FORBIDDEN}:
        return f"Put a bearer token in the environment variable {TOKEN_VARIABLE}."
    if status == http.client.NOT_FOUND:
        return (
            "Metrics may be off (SGLang: --enable-metrics; llama-server: --metrics) or elsewhere "
            "(trtllm-serve: /prometheus/metrics)."
        )
    return None


def _reason(error: Exception) -> str:
    text = str(getattr(error, "strerror", None) or error) or type(error).__name__
    return _shown(text)


def _shown(text: str) -> str:
    safe = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
    return safe if len(safe) <= 200 else safe[:197] + "..."
