"""Several datagrams at a time: what arrives is what was given, with the kernel's cutting and without."""

from __future__ import annotations

import asyncio
import random
import socket

import pytest

from lading.endpoints.io import datagrams
from lading.endpoints.io.datagrams import SEGMENTED_BYTES_MAX, SEGMENTS_MAX, DatagramSocket, NetworkAddress

UNKNOWN_OPTION = 9_999


@pytest.mark.parametrize("option", [datagrams.UDP_SEGMENT, UNKNOWN_OPTION])
def test_datagrams_arrive_as_they_were_given(option: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datagrams, "UDP_SEGMENT", option)
    chance = random.Random(7)
    one, two = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    for receiver in (one, two):
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(10)
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    sizes = [1200] * 60 + [300] + [1200] * 10 + [1] + [1472] * 70 + [20, 21, 20]
    given = [(chance.randbytes(size), receiver.getsockname()) for receiver in (one, two) for size in sizes]

    async def send() -> None:
        listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        listener.bind(("127.0.0.1", 0))
        sender = DatagramSocket(listener, lambda _data, _address: None)
        # a part at a time, so that no receiver's buffer overflows
        for start in range(0, len(given), 40):
            sender.send(given[start : start + 40])
            await asyncio.sleep(0)
        sender.close()
        sender.send(given)

    asyncio.run(send())
    for receiver in (one, two):
        wanted = [data for data, address in given if address == receiver.getsockname()]
        assert [receiver.recv(4096) for _ in wanted] == wanted
        receiver.close()


def test_what_is_received_is_given_on_with_its_sender() -> None:
    taken: list[tuple[bytes, NetworkAddress]] = []
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.bind(("127.0.0.1", 0))

    async def receive() -> None:
        listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        listener.bind(("127.0.0.1", 0))
        done = asyncio.Event()

        def take(data: bytes, address: NetworkAddress) -> None:
            taken.append((data, address))
            if len(taken) == 100:
                done.set()

        server = DatagramSocket(listener, take)
        for number in range(100):
            client.sendto(b"%d" % number, listener.getsockname())
        await asyncio.wait_for(done.wait(), 10)
        server.close()

    asyncio.run(receive())
    assert taken == [(b"%d" % number, client.getsockname()) for number in range(100)]
    client.close()


def test_what_one_message_may_hold() -> None:
    here, there = ("127.0.0.1", 1), ("127.0.0.1", 2)
    several = [(b"x" * 1200, here)] * 70 + [(b"x" * 10, here)] * 2 + [(b"x" * 1200, there)]
    runs = list(datagrams._group(several))
    assert [len(run) for run in runs] == [SEGMENTED_BYTES_MAX // 1200, 70 - SEGMENTED_BYTES_MAX // 1200 + 1, 1, 1]
    assert [datagram for run in runs for datagram in run] == several
    assert max(map(len, datagrams._group([(b"x", here)] * 1_000))) == SEGMENTS_MAX
    assert [len(run) for run in datagrams._group([(b"x" * 65_500, here)] * 2)] == [1, 1]


def test_datagrams_that_take_long_leave_the_rest_for_the_next_pass() -> None:
    """As those of new clients do: 32 of them took a tenth of a second in one pass."""
    now_s, passes = 0.0, [0]

    async def receive() -> None:
        listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        listener.bind(("127.0.0.1", 0))

        def take(data: bytes, address: NetworkAddress) -> None:
            nonlocal now_s
            now_s += datagrams.PASS_S / 2
            passes[-1] += 1

        server = DatagramSocket(listener, take, lambda: now_s)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            for _ in range(10):
                client.sendto(b"x", listener.getsockname())
            async with asyncio.timeout(10):
                while sum(passes) < 10:
                    passes.append(0)
                    await asyncio.sleep(0)
        server.close()

    asyncio.run(receive())
    assert max(passes) == 2
