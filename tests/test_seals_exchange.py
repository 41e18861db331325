"""One bounded exchange: which addresses, how long, how much, and which failure is whose."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seal_samples import Server, serving

from prereg.errors import SealError, UnreachableError
from prereg.seals.exchange import exchange, require_address


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    with serving(Server()) as found:
        yield found


@pytest.mark.parametrize(
    "address",
    [
        "file:///etc/hostname",
        "ftp://example.org/",
        "example.org",
        "http://",
        "http://exa mple.org/",
        "http://example.org:99999/",
        "http://[::1/",
        "http://example.org/\nHost: other",
        "javascript:alert(1)",
        "",
    ],
)
def test_only_web_addresses_are_asked(address: str) -> None:
    with pytest.raises(SealError, match=r"not an address"):
        require_address(address)


@pytest.mark.parametrize("address", ["https://ada@example.org/", "https://ada:secret@example.org/"])
def test_no_password_goes_on_record(address: str) -> None:
    with pytest.raises(SealError) as caught:
        require_address(address)
    assert "secret" not in caught.value.text()


@given(st.text(max_size=60))
def test_whatever_is_given_is_an_address_or_one_clear_refusal(text: str) -> None:
    try:
        assert require_address(text).startswith(("http://", "https://", "HTTP", "Http", "hTTP"))
    except SealError as error:
        assert "\n" not in error.found


def test_a_server_that_is_down_is_owed(server: Server) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(UnreachableError, match="cannot be reached"):
        exchange(f"http://127.0.0.1:{port}/", b"x")


@pytest.mark.parametrize("status", ["500", "503", "429"])
def test_a_server_out_of_order_is_owed(status: str, server: Server) -> None:
    server.mood = status
    with pytest.raises(UnreachableError, match=f"out of order: HTTP {status}"):
        exchange(server.address, b"x")


def test_a_reply_that_breaks_off_is_owed(server: Server) -> None:
    server.mood = "cut"
    with pytest.raises(UnreachableError):
        exchange(f"{server.address}/digest", b"x" * 32)


def test_a_server_that_says_nothing_is_given_up() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        begun = time.monotonic()
        with pytest.raises(UnreachableError, match=r"no whole reply within 0\.3 s"):
            exchange(f"http://127.0.0.1:{silent.getsockname()[1]}/", b"x", timeout_s=0.3)
    assert time.monotonic() - begun < 25


def test_a_server_that_never_ends_is_given_up(server: Server) -> None:
    server.mood = "drip"  # a byte every tenth of a second: never silent for long
    with pytest.raises(UnreachableError, match=r"no whole reply within 0\.4 s"):
        exchange(f"{server.address}/digest", b"x" * 32, timeout_s=0.4)


def test_the_limit_of_size_is_exact(server: Server) -> None:
    server.mood = "huge"
    assert len(exchange(server.address, b"x", limit_bytes=1_000_000)) == 1_000_000
    with pytest.raises(SealError, match="more than 999,999 bytes"):
        exchange(server.address, b"x", limit_bytes=999_999)


def test_a_redirect_is_told_and_not_followed(server: Server) -> None:
    server.mood = "elsewhere"
    with pytest.raises(SealError, match="sends us elsewhere"):
        exchange(server.address, b"x")
    assert len(server.questions) == 1
