"""Clients of QUIC that do what none should: memory stays bounded, others are served, nothing is lost."""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aioquic.buffer import Buffer  # type: ignore[attr-defined]
from aioquic.quic.packet import QuicPacketType, pull_quic_header

from lading import testing
from tests.endpoints.frames import poll
from tests.endpoints.quic_client import QuicClient
from tests.endpoints.quic_frames import ME, OK, PING, POLL, TOPIC, QuicFrames, frame, sending

REQUEST_BYTES_MAX = 2 << 20
STREAMS_MAX = 128
GROWTH_BYTES_MAX = 64 << 20
"""What a broker may need more than before, with all that its allocator keeps."""

Connect = Callable[[], QuicFrames]


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.BrokerProcess]:
    """With small bounds and a topic."""
    settings = {
        "endpoints.iggy_quic.request_bytes_max": REQUEST_BYTES_MAX,
        "connections.receive_bytes_max": 16 << 20,
        "connections.first_request_timeout_ms": 4_000,
    }
    with testing.broker(settings=settings) as running:
        client = QuicFrames(running.endpoints["iggy_quic"])
        client.create_topic(100)
        client.close()
        yield running


@pytest.fixture
def connect(broker: testing.BrokerProcess) -> Iterator[Connect]:
    """Opens connections, closed at the end, when a bystander has been served too."""
    bystander = QuicFrames(broker.endpoints["iggy_quic"])
    bystander.send_message(b"before", 100)
    opened = [bystander]

    def open_() -> QuicFrames:
        opened.append(QuicFrames(broker.endpoints["iggy_quic"]))
        # from now on a half request has a minute, however busy the machine is
        assert opened[-1].ask(PING) == (0, b"")
        return opened[-1]

    yield open_
    bystander.send_message(b"after", 100)
    assert bystander.poll(100)[-2:] == [b"before", b"after"]
    for client in opened:
        client.close()


def memory_bytes(broker: testing.BrokerProcess) -> int:
    """What the broker has in memory."""
    with open(f"/proc/{broker.pid}/statm") as file:
        return int(file.read().split()[1]) * 4096


@pytest.mark.turns(2, part=0)
def test_streams_that_are_reset(connect: Connect) -> None:
    client = connect()
    for turn in range(5 * STREAMS_MAX):
        stream = client.send(sending(b"x" * 5_000, 1)[:4_000], end=False)
        client.step(0)
        client.quic.reset_stream(stream, 7)
        if turn % 100 == 0:
            client.send_message(b"%d" % turn, 1)
    client.send_message(b"last", 1)
    assert client.poll(1) == [*(b"%d" % turn for turn in range(0, 5 * STREAMS_MAX, 100)), b"last"]


def test_responses_that_nobody_wants(connect: Connect) -> None:
    client = connect()
    for _ in range(4):
        first = client.quic.get_next_available_stream_id() // 4
        client.run_until(lambda: client.quic._remote_max_streams_bidi > first + STREAMS_MAX // 2)  # noqa: B023
        for _ in range(STREAMS_MAX // 2):
            client.quic.stop_stream(client.send(frame(ME)), 7)
        assert client.ask(PING) == (0, b"")


def test_streams_without_a_byte_and_what_is_not_one_request(connect: Connect) -> None:
    client = connect()
    two = sending(b"one of two", 2) * 2
    huge = struct.pack("<II", 0xFFFF_FFFF, PING)
    wrong = [b"", b"\x04", frame(PING)[:-1], frame(PING) + b"\0", two, huge, b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 1000]
    for data in wrong:
        with pytest.raises(ConnectionResetError):
            client.answer(client.send(data))
        assert client.ask(PING) == (0, b"")
    assert client.poll(2) == []


@pytest.mark.turns(2, part=1)
def test_a_request_that_is_too_long(connect: Connect) -> None:
    client = connect()
    fits = b"x" * (REQUEST_BYTES_MAX - len(sending(b"", 3)))
    client.send_message(fits, 3)
    stream = client.send(sending(fits + b"y", 3))
    with pytest.raises(ConnectionResetError):
        client.answer(stream)
    assert client.stopped, "it is told to send no more of it"
    endless = client.send(b"x", end=False)
    client.quic.send_stream_data(endless, b"x" * (3 * REQUEST_BYTES_MAX))
    client.run_until(lambda: endless in client.resets)
    assert client.poll(3) == [fits]


def test_a_client_that_moves_stays_the_same_client(connect: Connect) -> None:
    client = connect()
    _, before = client.ask(ME)
    for number in range(3):
        half = client.send(sending(b"%d" % number, 4)[:20], end=False)
        client.step(0)
        client.migrate()
        client.quic.send_stream_data(half, sending(b"%d" % number, 4)[20:], end_stream=True)
        assert client.answer(half) == OK
        assert client.ask(ME) == (0, before)
    assert client.poll(4) == [b"0", b"1", b"2"]


@pytest.mark.turns(2, part=1)
def test_ten_thousand_streams(broker: testing.BrokerProcess, connect: Connect) -> None:
    before = memory_bytes(broker)
    client = connect()
    streams = [client.send(frame(PING)[:-1], end=False) for _ in range(10_000)]
    until_s = time.monotonic() + 2
    while time.monotonic() < until_s:
        client.step()
    other = connect()
    assert other.ask(PING) == (0, b"")
    for stream in streams[:STREAMS_MAX]:
        client.quic.send_stream_data(stream, frame(PING)[-1:], end_stream=True)
    client.run_until(lambda: all(map(client.is_over, streams[:STREAMS_MAX])))
    assert memory_bytes(broker) < before + GROWTH_BYTES_MAX


@pytest.mark.turns(2, part=0)
def test_more_streams_than_allowed_end_the_connection(connect: Connect) -> None:
    client = connect()
    client.quic._remote_max_streams_bidi = 1 << 20
    for _ in range(10_000):
        client.send(frame(PING)[:-1], end=False)
    with pytest.raises(ConnectionError, match="closed: 0x4 "):
        client.run_until(lambda: False)


def test_streams_of_one_direction_end_the_connection(connect: Connect) -> None:
    client = connect()
    assert client.ask(PING) == (0, b"")
    client.quic._remote_max_streams_uni = 1
    stream = client.quic.get_next_available_stream_id(is_unidirectional=True)
    client.quic.send_stream_data(stream, frame(PING), end_stream=True)
    with pytest.raises(ConnectionError, match="closed: 0x4 "):
        client.run_until(lambda: False)


def test_a_byte_far_ahead_takes_no_memory(broker: testing.BrokerProcess, connect: Connect) -> None:
    """aioquic by itself would take what lies before it, and double the window each time."""
    before = memory_bytes(broker)
    client = connect()
    for _ in range(20):
        stream = client.send(b"", end=False)
        sender = client.quic._streams[stream].sender
        client.quic._streams[stream].max_stream_data_remote = client.quic._remote_max_data = 1 << 40
        sender._buffer_start = sender._buffer_stop = 40_000
        client.quic.send_stream_data(stream, b"x")
    client.run_until(lambda: client.quic._loss.bytes_in_flight == 0)
    assert client.ask(PING) == (0, b"")
    stream = client.send(b"", end=False)
    sender = client.quic._streams[stream].sender
    client.quic._streams[stream].max_stream_data_remote = 1 << 40
    sender._buffer_start = sender._buffer_stop = (1 << 20) + 1
    client.quic.send_stream_data(stream, b"x")
    with pytest.raises(ConnectionError, match="closed: 0x3 "):
        client.run_until(lambda: False)
    assert memory_bytes(broker) < before + GROWTH_BYTES_MAX


@pytest.mark.turns(2, part=0)
def test_half_requests_do_not_use_up_memory(broker: testing.BrokerProcess, connect: Connect) -> None:
    before = memory_bytes(broker)
    clients = [connect() for _ in range(3)]
    for client in clients:
        for _ in range(20):
            client.send(sending(b"x" * REQUEST_BYTES_MAX)[: REQUEST_BYTES_MAX - 1], end=False)
    until_s = time.monotonic() + 60
    while time.monotonic() < until_s and not any(client.resets for client in clients):
        for client in clients:
            client.step(0)
    assert any(client.resets for client in clients), "120 MiB do not fit into 16"
    other = connect()
    other.send_message(b"y" * 100_000, 6)
    assert memory_bytes(broker) < before + (16 << 20) + GROWTH_BYTES_MAX
    for client in clients:
        client.close()
    until_s = time.monotonic() + 40
    while True:
        # their goodbyes may be lost, then their memory is free when they have been silent for long enough
        try:
            other.send_message(b"y" * (1 << 20), 6)
            break
        except ConnectionResetError:
            assert time.monotonic() < until_s


@pytest.mark.turns(2, part=1)
def test_a_peer_that_stops_reading(broker: testing.BrokerProcess, connect: Connect) -> None:
    client, other = connect(), connect()
    for _ in range(4):
        other.send_message(b"x" * (1 << 20), 7)
    before = memory_bytes(broker)
    for _ in range(100):
        client.send(frame(POLL, poll(TOPIC, partition=7)))
    client.is_reading = False
    until_s = time.monotonic() + 3
    while time.monotonic() < until_s:
        client.step(0.01)
        other.step(0.01)
    assert other.ask(PING) == (0, b"")
    assert memory_bytes(broker) < before + GROWTH_BYTES_MAX, "a hundred answers would be 400 MiB"


def test_packets_of_dead_connections(broker: testing.BrokerProcess, connect: Connect) -> None:
    kept: list[bytes] = []
    client = connect()
    plain = client.socket

    class Keeping:
        def __getattr__(self, name: str) -> Any:
            return getattr(plain, name)

        def sendto(self, data: bytes, address: tuple[str, int]) -> None:
            kept.append(data)
            plain.sendto(data, address)

    client.socket = Keeping()  # type: ignore[assignment]
    client.send_message(b"once", 8)
    client.quic.close()
    client.flush()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as replay:
        for data in kept * 200:
            replay.sendto(data, client.address)
    assert connect().poll(8) == [b"once"]


def test_other_versions_are_told_which_there_are(broker: testing.BrokerProcess, connect: Connect) -> None:
    host, _, port = broker.endpoints["iggy_quic"].rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as raw:
        raw.settimeout(10)
        raw.connect((host, int(port)))
        head = b"\xc0\xfa\xce\xb0\x0c\x08" + b"d" * 8 + b"\x08" + b"s" * 8
        raw.send(head + bytes(1200 - len(head)))
        told = raw.recv(2000)
        header = pull_quic_header(Buffer(data=told), host_cid_length=8)
        assert header.packet_type is QuicPacketType.VERSION_NEGOTIATION
        assert (header.destination_cid, header.source_cid) == (b"s" * 8, b"d" * 8)
        assert 1 in header.supported_versions
        # neither a short datagram nor an answer like this one gets one
        raw.send(head)
        raw.send(told + bytes(1200))
        raw.settimeout(0.3)
        with pytest.raises(TimeoutError):
            raw.recv(2000)


def test_a_megabyte_of_garbage(broker: testing.BrokerProcess, connect: Connect) -> None:
    before = memory_bytes(broker)
    client = connect()
    chance = random.Random(3)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as raw:
        left = 1 << 20
        while left > 0:
            data = bytearray(chance.randbytes(chance.choice((0, 1, 8, 20, 100, 1199, 1200, 1500, 9000))))
            if len(data) > 20 and chance.random() < 0.5:
                # as far as the header goes a first datagram
                data[:6] = b"\xc0\0\0\0\1\x08"
                data[14:15] = b"\x08"
            raw.sendto(data, client.address)
            left -= max(len(data), 1)
            if chance.random() < 0.1:
                assert client.ask(PING) == (0, b"")
    assert memory_bytes(broker) < before + GROWTH_BYTES_MAX


def test_damaged_datagrams_of_a_connection(connect: Connect) -> None:
    client = connect()
    chance = random.Random(4)
    plain = client.socket

    class Damaging:
        def __getattr__(self, name: str) -> Any:
            return getattr(plain, name)

        def sendto(self, data: bytes, address: tuple[str, int]) -> None:
            damaged = bytearray(data)
            damaged[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            plain.sendto(damaged[: chance.randrange(1, len(data) + 1)], address)
            plain.sendto(damaged, address)
            plain.sendto(data, address)

    client.socket = Damaging()  # type: ignore[assignment]
    for number in range(50):
        client.send_message(b"%d" % number, 9)
    assert client.poll(9) == [b"%d" % number for number in range(50)]


@pytest.mark.turns(2, part=1)
def test_made_up_addresses_do_not_keep_clients_out(broker: testing.BrokerProcess, connect: Connect) -> None:
    before = memory_bytes(broker)
    hellos = []
    for _ in range(500):
        hello = QuicClient(broker.endpoints["iggy_quic"], connect=False)
        hello.quic.connect(hello.address, now=time.monotonic())
        hellos += [(data, hello.address) for data, _ in hello.quic.datagrams_to_send(now=time.monotonic())]
        hello.socket.close()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as raw:
        # made before, which may take longer than the four seconds for which the first of them hang
        for data, address in hellos:
            # nobody reads what comes to this port
            raw.sendto(data, address)
    client = connect()
    client.send_message(b"real", 10)
    assert client.quic._retry_count == 1, "while handshakes hang, an address has to be shown"
    assert client.poll(10) == [b"real"]
    assert memory_bytes(broker) < before + GROWTH_BYTES_MAX


@pytest.mark.turns(2, part=0)
def test_silent_handshakes_end(broker: testing.BrokerProcess, connect: Connect) -> None:
    half = QuicFrames(broker.endpoints["iggy_quic"], connect=False)
    half.quic.connect(half.address, now=time.monotonic())
    half.flush()
    client = connect()
    until_s = time.monotonic() + 15
    while "first request is not whole" not in broker.log_file.read_text():
        assert time.monotonic() < until_s
        client.step()
    assert client.ask(PING) == (0, b"")
