"""The metrics of mirrors and pipelines: few threads, one deadline for all of a request, and no traceback."""

from __future__ import annotations

import socket
import struct
import threading
import urllib.request
from contextlib import ExitStack

import pytest

from lading.model.address import Address
from lading.runtime import status_server
from lading.runtime.status_server import CONNECTIONS_MAX, StatusPage, serve_status

PAGES = {"/metrics": lambda: StatusPage(b"up 1\n" * 200_000, "text/plain")}
PURPOSE = "a test"


def test_clients_that_drip_hold_few_threads_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_server, "REQUEST_TIMEOUT_S", 0.5)
    threads_count = threading.active_count()
    with serve_status(Address("127.0.0.1", 0), PURPOSE, PAGES) as address, ExitStack() as peers:
        slow = [
            peers.enter_context(socket.create_connection((address.host, address.port), timeout=10))
            for _ in range(2 * CONNECTIONS_MAX)
        ]
        for peer in slow:
            peer.sendall(b"GET /metrics HTTP/1.1\r\nhost")
        # one that comes later has its page
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as response:
            assert len(response.read()) == 1_000_000
        assert threading.active_count() - threads_count <= CONNECTIONS_MAX + 2
        # each byte began a new time-out: the last of these ends for its deadline, while it sends
        last = slow[-1]
        last.settimeout(0.02)
        sent_count = 0
        with pytest.raises(ConnectionError):
            while sent_count < 500:
                sent_count += last.send(b"a")
                try:
                    if not last.recv(1):
                        raise ConnectionResetError
                except TimeoutError:
                    continue


def test_a_client_whose_request_has_arrived_is_not_ended_for_slow_ones() -> None:
    """Each of hundreds of slow connections ended the oldest one: a scrape got nothing as long as they came again."""
    rendering, filled = threading.Event(), threading.Event()

    def render() -> StatusPage:
        rendering.set()
        assert filled.wait(20)
        return StatusPage(b"up 1\n", "text/plain")

    with serve_status(Address("127.0.0.1", 0), PURPOSE, {"/metrics": render}) as address, ExitStack() as peers:
        place = (address.host, address.port)
        honest = peers.enter_context(socket.create_connection(place, timeout=20))
        honest.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert rendering.wait(20)
        slow = [peers.enter_context(socket.create_connection(place, timeout=20)) for _ in range(2 * CONNECTIONS_MAX)]
        for peer in slow[:CONNECTIONS_MAX]:
            # sends nothing, and is ended for a later one
            assert peer.recv(1) == b""
        filled.set()
        received = b""
        while data := honest.recv(4096):
            received += data
        assert received.startswith(b"HTTP/1.0 200") and received.endswith(b"up 1\n")


def test_a_client_that_leaves_writes_no_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    earlier = set(threading.enumerate())
    with serve_status(Address("127.0.0.1", 0), PURPOSE, PAGES) as address:
        for _ in range(3):
            peer = socket.create_connection((address.host, address.port), timeout=10)
            peer.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert peer.recv(10) == b"HTTP/1.0 2"
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()
        urllib.request.urlopen(f"http://{address}/metrics", timeout=10).close()
    # the threads of the clients that left are daemons: they end by their own
    for thread in set(threading.enumerate()) - earlier:
        thread.join(5)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET / HTTP/1.0", b" 200 "),
        (b"GET / HTTP/1.1\r\nhost: a", b" 200 "),
        (b"GET / HTTP/1.1", b" 400 "),
        (b"GET / HTTP/1.1\r\nhost: a\r\nHost: a", b" 400 "),
        (b"GET /metrics HTTP/1.1", b" 400 "),
    ],
)
def test_a_request_of_http_1_1_has_one_host(head: bytes, status: bytes) -> None:
    """RFC 9112 3.2."""
    with (
        serve_status(Address("127.0.0.1", 0), PURPOSE, PAGES) as address,
        socket.create_connection((address.host, address.port), timeout=10) as peer,
    ):
        peer.sendall(head + b"\r\n\r\n")
        assert status in peer.recv(100)
