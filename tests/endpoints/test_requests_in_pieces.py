"""Requests that a client writes in two pieces, with Nagle's algorithm on: none waits for a late acknowledgement.

The second piece stays in the client's system until the first is acknowledged, which a system that has nothing to answer
puts off by 40 ms. Clients that do so are the crate ``iggy`` and ``apache-iggy`` over TLS.
"""

from __future__ import annotations

import socket
import ssl
import struct
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from lading import testing
from tests.endpoints.authority import Authority
from tests.endpoints.current_frames import PING, READ, request

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems acknowledge as they like")

LATE_S = 0.04
"""Linux's least delay of an acknowledgement."""
WARM_UP, COUNTED = 40, 20
"""A system acknowledges the first pieces of a connection at once."""
KAFKA = struct.pack(">ihhih", 12, 18, 0, 7, -1) + b"\0\0"
"""ApiVersions 0: length, key, version, correlation id, no client id, and two bytes that nobody reads."""


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def take_turns(client: socket.socket, pieces: tuple[bytes, bytes]) -> float:
    """The shortest time from a first piece to its answer, in seconds."""
    taken_s = []
    for _ in range(WARM_UP + COUNTED):
        began_s = time.perf_counter()
        for piece in pieces:
            client.sendall(piece)
        assert client.recv(1 << 16)
        taken_s.append(time.perf_counter() - began_s)
    return min(taken_s[WARM_UP:])


def iggy(broker: testing.BrokerProcess, authority: Authority) -> tuple[socket.socket, bytes]:
    return connect(broker.endpoints["iggy_tcp"]), request(READ, code=PING)


def iggy_with_tls(broker: testing.BrokerProcess, authority: Authority) -> tuple[socket.socket, bytes]:
    context = ssl.create_default_context(cafile=authority.file)
    plain = connect(broker.endpoints["iggy_tcp.secure"])
    return context.wrap_socket(plain, server_hostname="localhost"), request(READ, code=PING)


def kafka(broker: testing.BrokerProcess, authority: Authority) -> tuple[socket.socket, bytes]:
    return connect(broker.endpoints["kafka"]), KAFKA


def nsq(broker: testing.BrokerProcess, authority: Authority) -> tuple[socket.socket, bytes]:
    client = connect(broker.endpoints["nsqd_tcp"])
    client.sendall(b"  V2")
    return client, b"PUB pieces\n" + struct.pack(">I", 5) + b"hello"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[testing.BrokerProcess]:
    secure = "endpoints.iggy_tcp.listeners.secure"
    settings = {
        "durability": "os", f"{secure}.address": testing.FREE_PORT, f"{secure}.tls.enabled": True,
        f"{secure}.tls.certificate": authority.sign("server"),
    }  # fmt: skip
    with testing.broker(settings=settings) as running:
        yield running


@pytest.mark.turns(3)
@pytest.mark.parametrize("face", [iggy, iggy_with_tls, kafka, nsq])
def test_a_second_piece_does_not_wait(
    broker: testing.BrokerProcess,
    authority: Authority,
    face: Callable[[testing.BrokerProcess, Authority], tuple[socket.socket, bytes]],
) -> None:
    client, whole = face(broker, authority)
    with client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
        half = len(whole) // 2
        # without the acknowledgement each of them takes longer
        assert take_turns(client, (whole[:half], whole[half:])) < LATE_S
