"""The proxy that fails: what a client sees of each fault, and that nothing else changes."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from lading.model.errors import LocalError
from lading.testing.broker_fixture import LadingBroker
from lading.testing.network_faults import FaultyProxy


@pytest.fixture
def echo() -> Iterator[str]:
    """A server that answers what it is sent."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        with connection, suppress(ConnectionError):
            while data := connection.recv(1 << 16):
                connection.sendall(data)

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield f"127.0.0.1:{listener.getsockname()[1]}"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


@pytest.fixture
def proxy(echo: str) -> Iterator[FaultyProxy]:
    with FaultyProxy() as running:
        running.start(echo)
        yield running


def connect(proxy: FaultyProxy) -> socket.socket:
    host, _, port = proxy.address.partition(":")
    return socket.create_connection((host, int(port)), 10)


def ask(connection: socket.socket, data: bytes) -> bytes:
    connection.sendall(data)
    found = b""
    while len(found) < len(data) and (more := connection.recv(1 << 16)):
        found += more
    return found


def test_bytes_pass_unchanged_and_an_end_is_passed_on(proxy: FaultyProxy) -> None:
    with connect(proxy) as connection:
        data = bytes(range(256)) * 4096
        sender = threading.Thread(target=connection.sendall, args=(data,))
        sender.start()
        found = b""
        while len(found) < len(data):
            found += connection.recv(1 << 16)
        sender.join(10)
        assert found == data
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""


def test_connections_are_dropped_and_refused(proxy: FaultyProxy) -> None:
    with connect(proxy) as connection:
        assert ask(connection, b"one") == b"one"
        assert proxy.drop_connections() == 1
        with pytest.raises(ConnectionError):
            assert connection.recv(1), "ended in order"
    proxy.refuse_connections(2)
    for _ in range(2):
        with pytest.raises(ConnectionError), connect(proxy) as connection:
            assert ask(connection, b"two"), "ended in order"
    with connect(proxy) as connection:
        assert ask(connection, b"three") == b"three"


def test_responses_are_delayed(proxy: FaultyProxy) -> None:
    with connect(proxy) as connection:
        ask(connection, b"one")
        with proxy.delaying(0.15):
            began = time.monotonic()
            assert ask(connection, b"two") == b"two"
            assert time.monotonic() - began >= 0.15
        assert ask(connection, b"three") == b"three"


def cuts(proxy: FaultyProxy, seed: int) -> list[bool]:
    found = []
    with proxy.cutting(0.5, seed=seed):
        for _ in range(12):
            try:
                with connect(proxy) as connection:
                    found.append(ask(connection, b"x") == b"")
            except ConnectionError:
                found.append(True)
    return found


def test_a_seed_cuts_the_same_again(proxy: FaultyProxy) -> None:
    first = cuts(proxy, 7)
    assert 0 < sum(first) < 12
    assert cuts(proxy, 7) == first != cuts(proxy, 8)


def test_a_broker_without_faults_says_so() -> None:
    with pytest.raises(LocalError, match="faults=True"):
        LadingBroker().faults("kafka")
