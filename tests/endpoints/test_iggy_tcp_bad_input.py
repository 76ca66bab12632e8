"""Bad input over TCP: an intact frame gets its error and the connection stays; lost framing gets a status and a close.

In every case the data and all other connections live on, and no memory is taken for what is only claimed.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from lading.testing import BrokerProcess
from tests.endpoints.frames import HEAD, Frames, header, message, payloads, poll, to_partition
from tests.endpoints.health import Health

SEND, POLL, PING = 101, 100, 1
FRAME_BYTES_MAX = 10 * 1024 * 1024 + 100 * 1024 + 100 * 1024 * 264
KIB_100 = 100 * 1024


def rss_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def values(total: int) -> bytes:
    """Headers whose values have ``total`` bytes in sum."""
    sizes = [255] * (total // 255) + ([total % 255] if total % 255 else [])
    return b"".join(header(b"k%d" % at, 1, b"v" * size) for at, size in enumerate(sizes))


BAD_MESSAGES: dict[str, tuple[int, bytes]] = {
    "no message": (4009, b""),
    "empty payload": (4024, message(b"")),
    "empty key": (4018, message(b"x", header(b"", 2, b"v"))),
    "key of 256 bytes": (4018, message(b"x", header(b"k" * 256, 2, b"v"))),
    "empty value": (4019, message(b"x", header(b"k", 2, b""))),
    "value of 256 bytes": (4019, message(b"x", header(b"k", 2, b"v" * 256))),
    "key that is no UTF-8": (4018, message(b"x", header(b"\xff\xfe", 2, b"v"))),
    "the same key twice": (4018, message(b"x", header(b"k", 2, b"1") + header(b"k", 2, b"2"))),
    "unknown kind 0": (3, message(b"x", header(b"k", 0, b"v"))),
    "unknown kind 16": (3, message(b"x", header(b"k", 16, b"v"))),
    "header block over the limit": (4017, message(b"x", values(KIB_100 + 1))),
    "header values over the limit in sum": (
        4017,
        message(b"x", values(KIB_100)) + message(b"x", header(b"k", 1, b"v")),
    ),
    "payload over the limit": (4022, message(b"x" * (10 * 1024 * 1024 + 1))),
    "payloads over the limit in sum": (4022, message(b"x" * (10 * 1024 * 1024)) + message(b"x")),
    "headers longer than the frame": (3, bytes(16) + struct.pack("<I", 4_000_000_000) + b"xxxx"),
    "payload longer than the frame": (3, bytes(16) + struct.pack("<II", 0, 4_000_000_000) + b"x"),
    "cut inside a message": (3, message(b"hello")[:-2]),
    "header lengths that do not add up": (3, message(b"x", header(b"k", 2, b"value")[:-1])),
    "one good message, then half of one": (3, message(b"good") + message(b"bad")[:-1]),
}


@pytest.mark.parametrize("name", BAD_MESSAGES)
def test_refused_send_appends_nothing_and_the_connection_stays(frames: Frames, topic: bytes, name: str) -> None:
    code, messages = BAD_MESSAGES[name]
    assert frames.ask(SEND, topic + to_partition(1) + messages) == (code, b"")
    assert frames.ask(SEND, topic + to_partition(1) + message(b"after")) == (0, b"")
    assert payloads(frames.ask(POLL, poll(topic))[1]) == [b"after"]


def test_limits_are_exact(frames: Frames, topic: bytes) -> None:
    """At the limit a send is taken (iggy.md M: 100 KiB and 10 MiB are exact)."""
    largest = message(b"x" * (10 * 1024 * 1024), values(KIB_100))
    assert frames.ask(SEND, topic + to_partition(1) + largest) == (0, b"")
    assert [len(payload) for payload in payloads(frames.ask(POLL, poll(topic))[1])] == [10 * 1024 * 1024]
    long_key = message(b"x", header(b"k" * 255, 2, b"v" * 255))
    assert frames.ask(SEND, topic + to_partition(1) + long_key) == (0, b"")


BAD_REQUESTS: dict[str, tuple[int, int, bytes]] = {
    "unknown command": (3, 7777, b"whatever"),
    "a command of a later generation (snapshot)": (3, 11, bytes(8)),
    "ping with a payload": (3, PING, b"x"),
    "poll cut short": (3, POLL, bytes(3)),
    "poll of no messages": (
        4009,
        POLL,
        struct.pack("<BI", 1, 1) + b"\1\4\1\0\0\0" * 2 + struct.pack("<IBQIB", 1, 1, 0, 0, 0),
    ),
    "unknown consumer kind": (
        3,
        POLL,
        struct.pack("<BI", 9, 1) + b"\1\4\1\0\0\0" * 2 + struct.pack("<IBQIB", 1, 1, 0, 1, 0),
    ),
    "unknown strategy": (
        3,
        POLL,
        struct.pack("<BI", 1, 1) + b"\1\4\1\0\0\0" * 2 + struct.pack("<IBQIB", 1, 6, 0, 1, 0),
    ),
    "identifier of an unknown kind": (3, 200, b"\3\4\1\0\0\0"),
    "identifier longer than the frame": (3, 200, b"\2\xffab"),
    "numeric identifier of 3 bytes": (3, 200, b"\1\3\1\0\0"),
    "name that is no UTF-8": (1013, 202, struct.pack("<I", 4_000_000) + b"\xff\xff"),
    "name with a slash": (1013, 202, struct.pack("<I", 4_000_000) + b"a/b"),
    "empty name": (1013, 202, struct.pack("<I", 4_000_000)),
    "name of 256 bytes": (1013, 202, struct.pack("<I", 4_000_000) + b"n" * 256),
    "stream id 0": (1014, 202, bytes(4) + b"name"),
    "missing stream": (1009, 200, b"\1\4\xff\xff\xff\0"),
    "missing stream by name": (1010, 200, b"\2\4nope"),
    "send to a missing stream": (1009, SEND, b"\1\4\xff\xff\xff\0\1\4\1\0\0\0" + to_partition(1) + message(b"x")),
    "send without partitioning": (3, SEND, b"\1\4\1\0\0\0\1\4\1\0\0\0"),
    "client id 0": (101, 21, bytes(4)),
    "kill": (3, 0, b""),
}


@pytest.mark.parametrize("name", BAD_REQUESTS)
def test_refused_request_keeps_the_connection(frames: Frames, name: str) -> None:
    status, code, payload = BAD_REQUESTS[name]
    assert frames.ask(code, payload) == (status, b"")
    assert frames.ask(PING) == (0, b"")


@pytest.mark.parametrize(
    ("length", "status"), [(0, 3), (3, 3), (FRAME_BYTES_MAX + 1, 4022), (1 << 31, 4022), (0xFFFF_FFFF, 4022)]
)
def test_lost_framing_gets_a_status_and_a_close(
    broker: BrokerProcess, connect: Callable[[], Frames], length: int, status: int
) -> None:
    other, frames = connect(), connect()
    before = rss_bytes(broker.pid)
    frames.socket.sendall(struct.pack("<II", length, SEND) + bytes(64))
    assert frames.answer() == (status, b"")
    assert frames.closed()
    assert rss_bytes(broker.pid) - before < 16 << 20
    assert other.ask(PING) == (0, b"")


def test_the_status_arrives_though_the_client_goes_on_sending(frames: Frames) -> None:
    frames.socket.sendall(struct.pack("<II", 0xFFFF_FFFF, SEND) + bytes(4 << 20))
    assert frames.answer() == (4022, b"")
    assert frames.closed()


def test_answers_before_lost_framing_still_come(frames: Frames, topic: bytes) -> None:
    good = topic + to_partition(1) + message(b"kept")
    frames.socket.sendall(HEAD.pack(4 + len(good), SEND) + good + HEAD.pack(1, PING))
    assert frames.answer() == (0, b"")
    assert frames.answer() == (3, b"")
    assert frames.closed()


def test_a_large_claim_takes_memory_only_as_it_arrives(broker: BrokerProcess, connect: Callable[[], Frames]) -> None:
    """Fifty connections claim 30 MiB each and send a little: a server that allocates what is claimed takes 1.5 GiB."""
    before = rss_bytes(broker.pid)
    claims = [connect() for _ in range(50)]
    for frames in claims:
        frames.socket.sendall(HEAD.pack(30 << 20, SEND) + bytes(100_000))
    assert connect().ask(PING) == (0, b"")
    assert rss_bytes(broker.pid) - before < 64 << 20


def test_a_truncated_frame_harms_nobody(connect: Callable[[], Frames], topic: bytes) -> None:
    other = connect()
    for size in (1, 3, 5, 9, 40):
        cut = connect()
        request = topic + to_partition(1) + message(b"lost", header(b"k", 2, b"v"))
        cut.socket.sendall((HEAD.pack(4 + len(request), SEND) + request)[:size])
        cut.close()
    assert payloads(other.ask(POLL, poll(topic))[1]) == []


def test_half_closed_connections_are_answered(frames: Frames, topic: bytes) -> None:
    request = topic + to_partition(1) + message(b"last words")
    frames.send(SEND, request)
    frames.send(POLL, poll(topic))
    frames.socket.shutdown(1)
    assert frames.answer() == (0, b"")
    assert payloads(frames.answer()[1]) == [b"last words"]
    assert frames.closed()


def test_one_byte_at_a_time(frames: Frames, topic: bytes) -> None:
    request = topic + to_partition(1) + message(b"slow", header(b"k", 2, b"v"))
    for byte in HEAD.pack(4 + len(request), SEND) + request:
        frames.socket.sendall(bytes([byte]))
    assert frames.answer() == (0, b"")


def test_pipelined_requests_are_answered_in_order(frames: Frames, topic: bytes) -> None:
    for number in range(200):
        frames.send(SEND, topic + to_partition(1) + message(b"%d" % number))
        frames.send(POLL, poll(topic, offset=number, count=1))
    for number in range(200):
        assert frames.answer() == (0, b"")
        assert payloads(frames.answer()[1]) == [b"%d" % number]


def test_a_reader_that_does_not_read_costs_bounded_memory(
    broker: BrokerProcess, connect: Callable[[], Frames], topic: bytes
) -> None:
    frames = connect()
    for _ in range(16):
        assert frames.ask(SEND, topic + to_partition(1) + message(b"x" * (1 << 20))) == (0, b"")
    before = rss_bytes(broker.pid)
    slow = [connect() for _ in range(20)]
    for reader in slow:
        for _ in range(40):
            reader.send(POLL, poll(topic))
    assert frames.ask(PING) == (0, b"")
    # 20 readers asked for 12.5 GiB; what is on its way to them points into the log
    assert rss_bytes(broker.pid) - before < 128 << 20
    assert len(payloads(slow[0].answer()[1])) == 16


@pytest.mark.turns(2, part=0)
def test_mutated_frames(broker: BrokerProcess, connect: Callable[[], Frames], topic: bytes, full: bool) -> None:
    """Seeded mutations of a group member's requests: an answer or a close each time, and everything else lives on."""
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    body = message(b"payload", header(b"carrier", 2, b"UA") + header(b"delay", 6, bytes(4)))
    originals = [
        (SEND, topic + to_partition(2) + body * 3),
        (POLL, poll(topic, partition=2)),
        (200, topic[:6]),
        (300, topic),
        (120, struct.pack("<BI", 1, 1) + topic + struct.pack("<I", 1)),
        (121, struct.pack("<BI", 1, 1) + topic + struct.pack("<IQ", 1, 0)),
        (602, topic + struct.pack("<I", 1)),
        (604, topic + struct.pack("<I", 1)),
        (605, topic + struct.pack("<I", 1)),
    ]
    watcher = connect()
    assert watcher.ask(SEND, topic + to_partition(1) + message(b"kept")) == (0, b"")
    frames, health = connect(), Health(broker)
    group = topic + struct.pack("<I", 1)
    assert frames.ask(602, group) == frames.ask(604, group) == (0, b"")
    rounds = 20_000 if full else 400
    for _ in range(rounds):
        code, payload = chance.choice(originals)
        frame = bytearray(HEAD.pack(4 + len(payload), code) + payload)
        for _ in range(chance.randint(1, 4)):
            frame[chance.randrange(8, len(frame))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        if chance.random() < 0.2:
            del frame[chance.randrange(8, len(frame)) :]
            frame[:4] = struct.pack("<I", len(frame) - 4)
        frames.socket.sendall(frame)
        status, answer = frames.answer()
        assert status == 0 or answer == b"", f"seed {seed}"
        health.check(frame)
    health.close()
    assert payloads(watcher.ask(POLL, poll(topic, count=1))[1])[:1] == [b"kept"], f"seed {seed}"
    print(f"{rounds} mutated frames, each answered")
