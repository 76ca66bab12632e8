"""Ports of a server that is started again: the system gives them to nobody while it is away."""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from lading.testing.broker_fixture import LadingBroker
from lading.testing.held_ports import PortHolder, choose_datagram_address

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ports are held under Linux only")

IP_LOCAL_PORT_RANGE = 51
"""Linux 6.3 and later: the ports that the system chooses from for one socket; linux/in.h."""


def take(port: int, server: tuple[str, int] | None = None) -> socket.socket:
    """Return a socket for which the system chose ``port``, the only one it may choose; OSError if it does not."""
    taken = socket.socket()
    try:
        try:
            taken.setsockopt(socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE, struct.pack("=I", port << 16 | port))
        except OSError:
            pytest.skip("needs Linux 6.3, which narrows the range of ports for one socket")
        if server is None:
            taken.bind(("127.0.0.1", 0))
        else:
            taken.connect(server)
        assert taken.getsockname()[1] == port
    except BaseException:
        taken.close()
        raise
    return taken


@pytest.fixture
def server() -> Iterator[tuple[str, int]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()


def listen(port: int) -> socket.socket:
    """As a server that is started again does it."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen()
    return listener


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def test_a_held_port_is_given_to_the_server_and_to_nobody_else(ports: PortHolder, server: tuple[str, int]) -> None:
    port = port_of(ports.hold())
    for _ in range(3):
        for place in (None, server):
            with pytest.raises(OSError):
                take(port, place)
        listener = listen(port)
        with socket.create_connection(("127.0.0.1", port)), listener.accept()[0]:
            listener.close()


@pytest.mark.parametrize("connects", [False, True])
def test_a_port_that_nobody_holds_is_taken(server: tuple[str, int], connects: bool) -> None:
    """What the test above shows is the holder's doing."""
    with PortHolder() as holder:
        port = port_of(holder.hold())
    with take(port, server if connects else None), pytest.raises(OSError):
        listen(port)


def test_ports_for_datagrams_are_below_those_of_the_system() -> None:
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        lowest = int(file.read().split()[0])
    assert all(1024 < port_of(choose_datagram_address()) < lowest for _ in range(20))


@pytest.mark.turns(2, part=1)
def test_a_broker_comes_back_though_others_look_for_ports(server: tuple[str, int]) -> None:
    with LadingBroker() as broker, ExitStack() as taken:
        before = broker.process.endpoints
        with broker.outage(crash=True):
            for name, address in before.items():
                if name == "iggy_quic":
                    continue
                for place in (None, server):
                    with pytest.raises(OSError):
                        taken.enter_context(take(port_of(address), place))
        assert broker.process.endpoints == before


@pytest.mark.turns(2, part=0)
def test_a_broker_with_more_listeners_comes_back() -> None:
    with LadingBroker(settings={"endpoints.iggy_tcp.listeners.old.address": "127.0.0.1:0"}) as broker:
        before = dict(broker.process.endpoints)
        assert "iggy_tcp.old" in before
        broker.restart()
        assert broker.process.endpoints == before
