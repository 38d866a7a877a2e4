"""A real HTTP server on this machine for tests: pages, and servers that behave badly."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def serving(answers: dict[str, Answer]) -> Iterator[str]:
    """A server that answers by path; its address without a slash at the end."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = answers.get(self.path.partition("?")[0])
            try:
                if answer is None:
                    self.send_error(404)
                else:
                    answer(self)
            except (BrokenPipeError, ConnectionResetError):  # the client has seen enough
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            """Be quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def text(body: str | bytes, status: int = 200, **headers: str) -> Answer:
    """Answer with a page."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        data = body.encode() if isinstance(body, str) else body
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(data)

    return answer


def changing(page: Callable[[], str]) -> Answer:
    """Answer with what the page is at that moment."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        text(page())(handler)

    return answer


def redirect(target: str, status: int = 302) -> Answer:
    """Send the client elsewhere."""
    return text("", status, Location=target)


def endless(handler: BaseHTTPRequestHandler) -> None:
    """A page without end."""
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(b"# x\n" * 16_384)


def dripping(handler: BaseHTTPRequestHandler) -> None:
    """A byte now and then, for ever: each one resets a timeout of a single read."""
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(b"#")
        handler.wfile.flush()
        time.sleep(0.05)


def dripping_headers(handler: BaseHTTPRequestHandler) -> None:
    """The same before the page has even begun."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while True:
        handler.wfile.write(b"x")
        handler.wfile.flush()
        time.sleep(0.05)


def silent(_: BaseHTTPRequestHandler) -> None:
    """No answer at all."""
    time.sleep(5)


def cut_short(handler: BaseHTTPRequestHandler) -> None:
    """Less than was promised."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b"# HELP\n")


def garbage(handler: BaseHTTPRequestHandler) -> None:
    """Not HTTP."""
    handler.wfile.write(b"\x00\x01\x02 this is no HTTP\r\n\r\n")
    handler.close_connection = True
