"""Iggy over TCP: caches, groups across connections, hidden states, limits of an answer, many connections."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
import zlib
from collections.abc import Callable

import httpx

from lading import testing
from lading.testing import BrokerProcess
from tests.endpoints.frames import Frames, message, payloads, poll, to_partition

ME, SEND, POLL = 20, 101, 100
GROUP_CREATE, GROUP_GET, JOIN, LEAVE = 602, 600, 604, 605
ONE = struct.pack("<I", 1)


def group_poll(topic: bytes, count: int = 10) -> bytes:
    """A poll of group 1: next, with auto-commit."""
    return struct.pack("<BI", 2, 1) + topic + struct.pack("<IBQIB", 1, 5, 0, count, 1)


def members(frames: Frames, topic: bytes) -> dict[int, list[int]]:
    """Partitions by client id of group 1."""
    status, body = frames.ask(GROUP_GET, topic + ONE)
    assert status == 0
    found, at = {}, 12
    while at < len(body):
        client, count = struct.unpack_from("<II", body, at)
        found[client] = list(struct.unpack_from(f"<{count}I", body, at + 8))
        at += 8 + 4 * count
    return found


def eventually(holds: Callable[[], bool]) -> bool:
    """Whether something becomes true within ten seconds: the end of a connection is seen a little later."""
    deadline = time.monotonic() + 10
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_a_refused_send_does_not_overtake_those_before_it(frames: Frames, topic: bytes) -> None:
    for partition in (1, 9, 1, 9, 1):
        frames.send(SEND, topic + to_partition(partition) + message(b"x"))
    assert [frames.answer()[0] for _ in range(5)] == [0, 3007, 0, 3007, 0]


def test_a_port_may_be_used_towards_several_endpoints() -> None:
    with testing.broker(settings={"endpoints.iggy_tcp.listeners.other.address": "127.0.0.1:0"}) as broker:
        names = ("iggy_tcp", "iggy_tcp.other")
        first, second = (Frames(broker.endpoints[name]) for name in names)
        address = ("127.0.0.1", 0)
        for name, client in zip(names, (first, second), strict=True):
            client.close()
            client.socket = socket.socket()
            # the kernel does the same where a process has many connections; set before it chooses a port, as it then
            # takes none on which any connection of before still rests
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            client.socket.settimeout(10)
            client.socket.bind(address)
            host, port = broker.endpoints[name].rsplit(":", 1)
            client.socket.connect((host, int(port)))
            address = client.socket.getsockname()
        with contextlib.closing(first), contextlib.closing(second):
            ids = [struct.unpack_from("<I", one.ask(ME)[1])[0] for one in (first, second)]
            client_id = zlib.crc32("{}:{}".format(*address).encode())
            assert ids == [client_id, client_id + 1]


def test_a_cached_route_does_not_outlive_its_topic(frames: Frames, topic: bytes) -> None:
    request = topic + to_partition(2) + message(b"first life")
    assert frames.ask(SEND, request) == (0, b"")
    assert payloads(frames.ask(POLL, poll(topic, partition=2))[1]) == [b"first life"]
    assert frames.ask(303, topic) == (0, b"")
    assert frames.ask(SEND, request) == (2010, b"")
    assert frames.ask(POLL, poll(topic, partition=2)) == (2010, b"")
    assert frames.ask(302, topic[:6] + struct.pack("<II", 1, 1) + b"topic") == (0, b"")
    assert frames.ask(SEND, request) == (3007, b"")
    assert frames.ask(402, topic + ONE) == (0, b"")
    assert frames.ask(SEND, topic + to_partition(2) + message(b"second life")) == (0, b"")
    assert payloads(frames.ask(POLL, poll(topic, partition=2))[1]) == [b"second life"]


def test_by_turns_and_by_key_over_all_partitions(frames: Frames, topic: bytes) -> None:
    for number in range(4):
        assert frames.ask(SEND, topic + b"\1\0" + message(b"%d" % number)) == (0, b"")
    assert payloads(frames.ask(POLL, poll(topic, partition=1))[1]) == [b"0", b"2"]
    assert payloads(frames.ask(POLL, poll(topic, partition=2))[1]) == [b"1", b"3"]
    for _ in range(3):
        assert frames.ask(SEND, topic + b"\3\2k1" + message(b"keyed")) == (0, b"")
    found = [payloads(frames.ask(POLL, poll(topic, partition=number))[1]) for number in (1, 2)]
    assert sorted(len(one) for one in found) == [2, 5]


def test_a_member_that_disconnects_leaves_its_groups(connect: Callable[[], Frames], topic: bytes) -> None:
    watcher, one, two, three = connect(), connect(), connect(), connect()
    assert watcher.ask(GROUP_CREATE, topic + ONE) == (0, b"")
    for member in (one, two, three):
        assert member.ask(JOIN, topic + ONE) == (0, b"")
    assert sorted(map(len, members(watcher, topic).values())) == [0, 1, 1]
    # the member without a partition polls nothing, and stays
    assert three.ask(POLL, group_poll(topic)) == (0, bytes(4))
    one.close()
    assert eventually(lambda: len(members(watcher, topic)) == 2)
    assert sorted(members(watcher, topic).values()) == [[1], [2]]
    # a connection that breaks off inside a frame leaves too
    two.socket.sendall(b"\xff\0\0")
    two.close()
    assert eventually(lambda: list(members(watcher, topic).values()) == [[1, 2]])
    assert three.ask(LEAVE, topic + ONE) == (0, b"")
    assert members(watcher, topic) == {}


def test_a_group_goes_on_where_its_members_stopped(connect: Callable[[], Frames], topic: bytes) -> None:
    watcher, one, two = connect(), connect(), connect()
    for number in range(6):
        assert watcher.ask(SEND, topic + to_partition(number % 2 + 1) + message(b"%d" % number)) == (0, b"")
    assert watcher.ask(GROUP_CREATE, topic + ONE) == (0, b"")
    assert one.ask(JOIN, topic + ONE) == (0, b"")
    seen = [payloads(one.ask(POLL, group_poll(topic, 2))[1]) for _ in range(2)]
    assert seen == [[b"0", b"2"], [b"1", b"3"]]
    assert two.ask(JOIN, topic + ONE) == (0, b"")
    one.close()
    assert eventually(lambda: list(members(watcher, topic).values()) == [[1, 2]])
    rest = [payloads(two.ask(POLL, group_poll(topic, 2))[1]) for _ in range(2)]
    assert rest == [[b"4"], [b"5"]]


def test_a_topic_may_hide_what_is_not_available(broker: BrokerProcess, connect: Callable[[], Frames]) -> None:
    url = f"http://{broker.endpoints['admin']}"
    assert httpx.post(f"{url}/streams/hiding", json={"id": 4_000_000}).status_code == 201
    admin = f"{url}/topics/hiding/messages"
    assert httpx.post(admin, json={"settings": {"hide_states": True}}).status_code == 201
    frames = connect()
    place = b"\2\6hiding\2\x08messages"
    for number in range(5):
        assert frames.ask(SEND, place + to_partition(1) + message(b"%d" % number)) == (0, b"")
    assert httpx.put(f"{admin}/0/states", json={"offsets": [1, 2, 4], "state": "poisoned"}).status_code == 200
    assert payloads(frames.ask(POLL, poll(place))[1]) == [b"0", b"3"]
    # nobody is stuck before the hidden ones: next goes on behind them
    following = struct.pack("<BI", 1, 9) + place + struct.pack("<IBQIB", 1, 5, 0, 1, 1)
    seen = [payloads(frames.ask(POLL, following)[1]) for _ in range(3)]
    assert seen == [[b"0"], [b"3"], []]


def test_an_answer_has_a_byte_cap_but_one_message_always_goes() -> None:
    with testing.broker(endpoints__iggy_tcp__answer_bytes_max=65536) as broker:
        frames = Frames(broker.endpoints["iggy_tcp"])
        topic = b"\1\4\1\0\0\0" * 2
        assert frames.ask(202, ONE + b"s") == (0, b"")
        assert frames.ask(302, topic[:6] + ONE + ONE + b"t") == (0, b"")
        for size in (30_000, 30_000, 30_000, 200_000, 10):
            assert frames.ask(SEND, topic + to_partition(1) + message(b"x" * size)) == (0, b"")
        sizes, offset = [], 0
        while found := payloads(frames.ask(POLL, poll(topic, offset=offset))[1]):
            sizes.append([len(payload) for payload in found])
            offset += len(found)
        assert [size for one in sizes for size in one] == [30_000, 30_000, 30_000, 200_000, 10]
        assert all(len(one) == 1 or sum(one) < 2 * 65536 for one in sizes)


def test_connections_over_the_cap_are_closed_and_others_live_on() -> None:
    with testing.broker(endpoints__iggy_tcp__connections_max=3) as broker:
        held = [Frames(broker.endpoints["iggy_tcp"]) for _ in range(3)]
        assert [frames.ask(1) for frames in held] == [(0, b"")] * 3
        assert Frames(broker.endpoints["iggy_tcp"]).closed()
        held.pop().close()
        fresh = []

        def admitted() -> bool:
            fresh.append(Frames(broker.endpoints["iggy_tcp"]))
            try:
                return fresh[-1].ask(1) == (0, b"")
            except OSError:
                return False

        assert eventually(admitted)
        assert [frames.ask(1) for frames in held] == [(0, b"")] * 2


def test_two_hundred_connections_send_and_read(
    broker: BrokerProcess, connect: Callable[[], Frames], topic: bytes
) -> None:
    many = [connect() for _ in range(200)]
    for number, frames in enumerate(many):
        frames.send(SEND, topic + to_partition(1) + message(b"%d" % number))
    assert [frames.answer() for frames in many] == [(0, b"")] * 200
    found = payloads(many[0].ask(POLL, poll(topic))[1])
    assert sorted(map(int, found)) == list(range(200))


def test_a_flood_of_commands_lets_others_have_their_turn(connect: Callable[[], Frames]) -> None:
    flood, other = connect(), connect()
    assert other.ask(1) == (0, b"")
    count = 2_000
    flood.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    flood.socket.sendall(struct.pack("<II", 4, 10) * count)
    size_bytes = 8 + len(flood.answer()[1])
    # all of it lies in the server: whoever asks now does not wait for the rest
    assert other.ask(1) == (0, b"")
    flood.socket.setblocking(False)
    got_bytes = size_bytes
    with contextlib.suppress(BlockingIOError):
        while data := flood.socket.recv(1 << 12):
            got_bytes += len(data)
    assert got_bytes < count * size_bytes
