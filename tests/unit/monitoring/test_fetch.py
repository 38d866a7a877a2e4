"""Fetching from a real server: pages, and servers that are slow, broken or hostile."""

from __future__ import annotations

import time

import pytest
from web_server import (
    cut_short,
    dripping,
    dripping_headers,
    endless,
    garbage,
    redirect,
    serving,
    silent,
    text,
)

from kvplan.errors import InputError, SourceError
from kvplan.monitoring.fetch import (
    MAX_PAGE_BYTES,
    TOKEN_VARIABLE,
    Unreachable,
    check_url,
    fetch,
    token_warning,
)


def test_a_page() -> None:
    with serving({"/metrics": text("up 1\n")}) as home:
        assert fetch(f"{home}/metrics").text == "up 1\n"


def test_a_redirect_on_the_same_server_is_followed() -> None:
    with serving({"/a": redirect("/b"), "/b": text("up 1\n")}) as home:
        assert fetch(f"{home}/a").url == f"{home}/b"


@pytest.mark.parametrize(
    "target",
    [
        "http://127.0.0.1:9/metrics",
        "http://169.254.169.254/latest/meta-data/",
        "https://127.0.0.1/metrics",
        "//localhost/metrics",
    ],
)
def test_a_redirect_to_another_place_is_refused(target: str) -> None:
    with serving({"/a": redirect(target)}) as home:
        with pytest.raises(SourceError, match="redirects to another place") as caught:
            fetch(f"{home}/a")
        assert not isinstance(caught.value, Unreachable)


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://x/y", "gopher://x"])
def test_a_redirect_to_no_web_page_is_refused(target: str) -> None:
    with serving({"/a": redirect(target)}) as home, pytest.raises(InputError, match="http"):
        fetch(f"{home}/a")


def test_redirects_in_a_circle() -> None:
    with serving({"/a": redirect("/a")}) as home, pytest.raises(SourceError, match="more than 3"):
        fetch(f"{home}/a")


@pytest.mark.parametrize("answer", [dripping, dripping_headers, silent])
def test_a_slow_server_is_given_up_in_time(answer: object) -> None:
    started = time.monotonic()
    with serving({"/m": answer}) as home:  # type: ignore[dict-item]
        with pytest.raises(Unreachable, match=r"did not answer within 0\.5 s"):
            fetch(f"{home}/m", timeout=0.5)
        assert time.monotonic() - started < 3


def test_a_page_without_end_is_cut() -> None:
    with serving({"/m": endless}) as home, pytest.raises(SourceError, match="more than 16 MiB"):
        fetch(f"{home}/m", timeout=20)


def test_a_page_of_the_limit_is_read_and_one_byte_more_is_not() -> None:
    page = {"/at": text(b"#" * MAX_PAGE_BYTES), "/over": text(b"#" * (MAX_PAGE_BYTES + 1))}
    with serving(page) as home:
        assert len(fetch(f"{home}/at").text) == MAX_PAGE_BYTES
        with pytest.raises(SourceError, match="more than 16 MiB"):
            fetch(f"{home}/over")


@pytest.mark.parametrize("answer", [cut_short, garbage])
def test_a_broken_answer(answer: object) -> None:
    with serving({"/m": answer}) as home, pytest.raises(Unreachable, match="cannot be read"):  # type: ignore[dict-item]
        fetch(f"{home}/m", timeout=5)


def test_nobody_listens() -> None:
    with pytest.raises(Unreachable, match="cannot be read: Connection refused"):
        fetch("http://127.0.0.1:9/metrics", timeout=5)


@pytest.mark.parametrize(("status", "hint"), [(401, TOKEN_VARIABLE), (404, "--enable-metrics")])
def test_an_error_of_the_server(status: int, hint: str) -> None:
    with serving({"/m": text("no", status)}) as home:
        with pytest.raises(Unreachable, match=f"status {status}") as caught:
            fetch(f"{home}/m")
        assert hint in (caught.value.hint or "")


def test_binary_and_compressed_pages_are_refused() -> None:
    pages = {"/b": text(b"\xff\xfe\x00"), "/z": text(b"x", Content_Encoding="gzip")}
    with serving(pages) as home:
        with pytest.raises(SourceError, match="not UTF-8"):
            fetch(f"{home}/b")
        with pytest.raises(SourceError, match="compressed"):
            fetch(f"{home}/z")


def test_the_token_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []

    def answer(handler: object) -> None:
        seen.append(handler.headers.get("Authorization"))  # type: ignore[attr-defined]
        text("up 1\n")(handler)  # type: ignore[arg-type]

    with serving({"/m": answer}) as home:  # type: ignore[dict-item]
        fetch(f"{home}/m")
        monkeypatch.setenv(TOKEN_VARIABLE, "secret")
        fetch(f"{home}/m")
        assert seen == [None, "Bearer secret"]
        assert token_warning(check_url(home, "--url")) is None
        assert "unencrypted" in (token_warning(check_url("http://gpu7/metrics", "--url")) or "")
        assert token_warning(check_url("https://gpu7/metrics", "--url")) is None
        monkeypatch.setenv(TOKEN_VARIABLE, "a\r\nX-Evil: 1")
        with pytest.raises(InputError, match="no token has"):
            fetch(f"{home}/m")


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with serving({"/m": text("up 1\n")}) as home:
        assert fetch(f"{home}/m").text == "up 1\n"


def test_certificates_are_verified() -> None:
    """A plain server at an https address: the handshake fails, and nothing is sent."""
    with (
        serving({"/m": text("up 1\n")}) as home,
        pytest.raises(Unreachable, match="cannot be read"),
    ):
        fetch(home.replace("http://", "https://") + "/m", timeout=3)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("metrics", "is not an http or https URL"),
        ("file:///etc/passwd", "is not an http or https URL"),
        ("http:///metrics", "is not an http or https URL"),
        ("http://user:secret@host/metrics", "a password in a URL"),
        ("http://host:99999/metrics", "is not a URL"),
        ("http://host:0/metrics", "port 0"),
        ("http://[::1/metrics", "is not a URL"),
        ("http://host/a b", "characters that no URL has"),
        ("http://host/\r\nX: y", "characters that no URL has"),
    ],
)
def test_addresses_that_cannot_be(url: str, why: str) -> None:
    with pytest.raises(InputError, match=why) as caught:
        check_url(url, "--url")
    assert "secret" not in str(caught.value)
