"""The current generation over TCP as bytes: what is refused and how, and that nothing a client sends hangs it."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Callable, Iterator

import pytest
import xxhash

from lading.model.kinds import Kind
from lading.testing import BrokerProcess
from tests.dialects.iggy_current import batch, frame, parse_batches
from tests.endpoints.current_frames import (
    CREATE_STREAM,
    CREATE_TOPIC,
    GET_STREAM,
    INCOMPATIBLE,
    INVALID_BODY_SIZE,
    INVALID_OPERATION,
    LOGIN,
    LOGOUT,
    MALFORMED_LOGIN,
    NO_SESSION,
    PING,
    POLL,
    READ,
    REGISTER,
    SEND,
    poll,
    request,
    sent,
)
from tests.endpoints.frames import Frames

GET_TOPIC, GET_TOPICS, GET_GROUP, GET_OFFSET, DESCRIBE_OPTIONS = 300, 301, 600, 120, 13
UPDATE_TOPIC, DELETE_PARTITIONS, DELETE_SEGMENTS, CREATE_GROUP, JOIN, LEAVE, DELETE_OFFSET = (
    133,
    137,
    138,
    139,
    148,
    149,
    162,
)


class Talk:
    """A connection of the current generation."""

    def __init__(self, address: str) -> None:
        host, port = address.split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=20)

    def read(self) -> bytes:
        """One reply; empty where the broker has closed."""
        data, wanted = b"", 256
        while len(data) < wanted:
            part = self.socket.recv(wanted - len(data))
            if not part:
                assert not data
                return b""
            data += part
            if len(data) == 256:
                (wanted,) = struct.unpack_from("<I", data, 48)
        return data

    def ask(self, *arguments: object, **named: object) -> tuple[int, bytes]:
        """Status and body."""
        self.socket.sendall(request(*arguments, **named))  # type: ignore[arg-type]
        reply = self.read()
        assert reply[60] == 8, "an eviction"
        return struct.unpack_from("<I", reply, 216)[0], reply[256:]

    def evicted(self) -> int:
        """Why the broker sends the client away; it closes behind that."""
        reply = self.read()
        assert reply[60] == 13
        assert self.read() == b""
        return reply[255]


@pytest.fixture
def talk(broker: BrokerProcess) -> Iterator[Callable[..., Talk]]:
    found: list[Talk] = []

    def open_(*, login: bool = True) -> Talk:
        one = Talk(broker.endpoints["iggy_tcp"])
        found.append(one)
        if login:
            assert one.ask(REGISTER, LOGIN)[0] == 0
        return one

    yield open_
    for one in found:
        one.socket.close()


@pytest.fixture
def topic(talk: Callable[..., Talk]) -> bytes:
    """Stream and topic as a request names them; the topic has one partition."""
    one = talk()
    name = b"current-%d" % random.getrandbits(40)
    where = b"\x02" + bytes((len(name),)) + name
    assert one.ask(CREATE_STREAM, bytes((len(name),)) + name)[1][:4] == bytes(4)
    assert one.ask(CREATE_TOPIC, where + struct.pack("<I", 1) + b"\x05topic")[1][:4] == bytes(4)
    return where + b"\x02\x05topic"


def test_both_generations_on_one_port(talk: Callable[..., Talk], broker: BrokerProcess) -> None:
    """One byte at a time: what tells them apart may arrive in pieces."""
    current = talk(login=False)
    for byte in request(READ, code=PING):
        current.socket.sendall(bytes((byte,)))
    assert struct.unpack_from("<I", current.read(), 216) == (0,)
    assert Frames(broker.endpoints["iggy_tcp"]).ask(1) == (0, b"")


def test_before_a_login(talk: Callable[..., Talk]) -> None:
    one = talk(login=False)
    assert one.ask(READ, code=PING) == (0, b"")
    assert one.ask(READ, b"\x02\x01s", code=GET_STREAM) == (40, b"")
    one.socket.sendall(request(CREATE_STREAM, b"\x01s"))
    assert one.evicted() == NO_SESSION


def test_a_logout_ends_what_the_login_began(talk: Callable[..., Talk]) -> None:
    one = talk()
    assert one.ask(READ, code=201)[0] == 0
    assert one.ask(LOGOUT) == (0, b"")
    assert one.ask(READ, code=201) == (40, b"")


@pytest.mark.parametrize(
    ("reason", "data"),
    [
        (INCOMPATIBLE, request(REGISTER, struct.pack("<I", 10 << 10) + LOGIN[4:])),
        (INCOMPATIBLE, request(REGISTER, struct.pack("<I", 12 << 10 | 3) + LOGIN[4:])),
        (INCOMPATIBLE, request(REGISTER, struct.pack("<I", 13 << 10) + LOGIN[4:])),
        (MALFORMED_LOGIN, request(REGISTER, struct.pack("<I", 12 << 10 | 2) + LOGIN[4:])),
        (MALFORMED_LOGIN, request(REGISTER, LOGIN[:-1])),
        (INVALID_OPERATION, request(0)),
        (INVALID_OPERATION, request(64)),
        (INVALID_OPERATION, request(READ, code=PING, client=bytes(16))),
        (INVALID_BODY_SIZE, request(READ, code=PING, size=255)),
        (INVALID_BODY_SIZE, request(READ, code=PING, size=(64 << 20) + 1)),
        (INVALID_BODY_SIZE, request(READ, code=PING, size=0xFFFF_FFFF)),
        (INVALID_BODY_SIZE, request(READ, code=PING, kind=8)),
    ],
)
def test_who_is_sent_away_is_told_why(talk: Callable[..., Talk], reason: int, data: bytes) -> None:
    other, one = talk(), talk(login=False)
    one.socket.sendall(data)
    assert one.evicted() == reason
    assert other.ask(READ, code=PING) == (0, b"")


def test_a_newer_patch_of_the_protocol_is_taken(talk: Callable[..., Talk]) -> None:
    assert talk(login=False).ask(REGISTER, struct.pack("<I", 11265) + LOGIN[4:])[0] == 0


def test_requests_that_cannot_be_understood(talk: Callable[..., Talk]) -> None:
    one = talk()
    assert one.ask(READ, code=999) == (3, b"")
    assert one.ask(READ, b"left over", code=PING) == (4, b"")
    assert one.ask(CREATE_STREAM, b"\x09short") == (4, b"")
    assert one.ask(CREATE_STREAM, b"\x01s", checksum=1) == (4, b"")
    name = b"\x06sealed"
    assert one.ask(CREATE_STREAM, name, checksum=xxhash.xxh3_64_intdigest(name))[0] == 0
    assert one.ask(146, b"\x05token" + bytes(8)) == (0, struct.pack("<III", 1, 0, 5))
    assert one.ask(READ, code=PING) == (0, b"")


def test_a_batch_that_is_refused_leaves_nothing(talk: Callable[..., Talk], topic: bytes) -> None:
    one = talk()
    good = batch([frame(b"hello")])
    assert one.ask(SEND, sent(topic, good[:-1])) == (4, b"")
    assert one.ask(SEND, sent(topic, good, count=2)) == (4, b"")
    assert one.ask(SEND, sent(topic, good[:40] + bytes(8) + good[48:])) == (4039, b"")
    assert one.ask(SEND, sent(topic, good, partition=7)) == (20, b"")
    assert one.ask(SEND, b"\xff\xff\xff\xff") == (4, b"")
    assert one.ask(READ, poll(topic), code=POLL)[1][16:] == b""
    assert one.ask(SEND, sent(topic, good))[0] == 0
    assert [message.payload for message in parse_batches(one.ask(READ, poll(topic), code=POLL)[1][16:])] == [b"hello"]


def test_what_is_missing_is_told_as_the_real_server_tells_it(talk: Callable[..., Talk], topic: bytes) -> None:
    """Codes of the Go client's specifications: in the header, where clients look at once."""
    one, stream = talk(), topic[: 2 + topic[1]]
    nowhere, no_topic = b"\x02\x02no" + topic[len(stream) :], stream + b"\x02\x02no"
    segments = struct.pack("<II", 0, 1)
    assert one.ask(DELETE_SEGMENTS, nowhere + segments) == (1009, b"")
    assert one.ask(DELETE_SEGMENTS, no_topic + segments) == (2010, b"")
    assert one.ask(DELETE_SEGMENTS, topic + struct.pack("<II", 7, 1)) == (3007, b"")
    assert one.ask(DELETE_SEGMENTS, topic + segments) == (0, bytes(4))
    assert one.ask(READ, b"\x02\x02no", code=GET_TOPICS) == (0, bytes(4))
    group = b"\x02\x02no"
    assert one.ask(READ, nowhere + group, code=GET_GROUP) == (1009, b"")
    assert one.ask(READ, no_topic + group, code=GET_GROUP) == (2010, b"")
    assert one.ask(READ, topic + group, code=GET_GROUP) == (0, b"")
    reader, partition = b"\x01\x01\x04" + bytes(4), b"\x01" + bytes(4)
    assert one.ask(READ, reader + nowhere + partition, code=GET_OFFSET) == (0, b"")
    assert one.ask(DELETE_OFFSET, reader + nowhere + partition + b"\0") == (20, b"")
    # stream and topic are there, so that the group is what is missing
    assert one.ask(DELETE_OFFSET, b"\x02" + group + topic + partition + b"\0")[0] == 5000


def test_a_group_is_left_once(talk: Callable[..., Talk], topic: bytes) -> None:
    one, group = talk(), topic + b"\x02\x01g"
    assert one.ask(CREATE_GROUP, topic + b"\x01g")[1][:4] == bytes(4)
    assert one.ask(JOIN, group)[1] == one.ask(LEAVE, group)[1] == bytes(4)
    # a member is not found: the result section of a metadata operation
    assert one.ask(LEAVE, group) == (0, struct.pack("<III", 1, 0, 5006))


def test_more_partitions_than_there_are_cannot_be_deleted(talk: Callable[..., Talk], topic: bytes) -> None:
    one = talk()
    assert one.ask(DELETE_PARTITIONS, topic + struct.pack("<I", 3)) == (2019, b"")
    assert struct.unpack_from("<I", one.ask(READ, topic, code=GET_TOPIC)[1], 12) == (1,)


def option(key: bytes, value: bytes, kind: int = 2) -> bytes:
    return b"\x02" + struct.pack("<I", len(key)) + key + bytes((kind,)) + struct.pack("<I", len(value)) + value


def test_options_may_be_text_and_are_kept(talk: Callable[..., Talk], topic: bytes) -> None:
    """apache-iggy 0.9 sends options as the texts that its caller gave."""
    one, stream = talk(), topic[: 2 + topic[1]]
    given = option(b"segment_size", b"128 MiB") + option(b"enforce_fsync", b"true")
    given += option(b"durability", b"replicated") + option(b"max_topic_size", b"2000000001")
    assert one.ask(CREATE_TOPIC, stream + struct.pack("<I", 2) + b"\x04kept" + given)[1][:4] == bytes(4)
    body = one.ask(READ, stream + b"\x02\x04kept", code=GET_TOPIC)[1]
    assert option(b"segment_size", struct.pack("<Q", 128 << 20), int(Kind.UINT64)) in body
    assert option(b"enforce_fsync", b"\x01", int(Kind.BOOL)) in body
    assert option(b"durability", b"replicated") in body
    # bounded by topic, though each partition keeps half of it
    assert struct.unpack_from("<Q", body, 25) == (2_000_000_001,)
    for wrong in (b"many", b"128 parsecs", b"1e9"):
        bad = stream + struct.pack("<I", 1) + b"\x03bad" + option(b"segment_size", wrong)
        assert one.ask(CREATE_TOPIC, bad) == (4042, b"")
    described = one.ask(READ, b"\x01", code=DESCRIBE_OPTIONS)[1]
    assert b"\x0adurability" in described
    assert b"consumer_offset_durability" in described


def test_an_update_changes_no_option_that_a_topic_has_for_good(talk: Callable[..., Talk], topic: bytes) -> None:
    """UPDATABLE_TOPIC_OPTION_KEYS of Iggy's own crate: its compression, expiry and size, and no other one."""
    one, stream, named = talk(), topic[: 2 + topic[1]], b"\x02\x04good"
    assert one.ask(CREATE_TOPIC, stream + struct.pack("<I", 1) + b"\x04good")[1][:4] == bytes(4)

    def update(given: bytes) -> tuple[int, bytes]:
        return one.ask(UPDATE_TOPIC, stream + named + b"\x04good" + given)

    assert update(option(b"compression_algorithm", b"gzip"))[0] == 0
    for lasting in (b"segment_size", b"enforce_fsync", b"durability"):
        assert update(option(lasting, b"2 MiB")) == (4041, b"")
    body = one.ask(READ, stream + named, code=GET_TOPIC)[1]
    assert option(b"compression_algorithm", b"gzip") in body
    assert option(b"segment_size", b"2 MiB") not in body


def test_a_topic_is_no_smaller_than_a_segment(talk: Callable[..., Talk], topic: bytes) -> None:
    """Iggy's validate_topic_size_floor: InvalidTopicSize, by the topic's own segments if it has some; 0 is no bound."""
    one, stream = talk(), topic[: 2 + topic[1]]

    def create(name: bytes, **given: int) -> tuple[int, bytes]:
        block = b"".join(option(key.encode(), b"%d" % value) for key, value in given.items())
        return one.ask(CREATE_TOPIC, stream + struct.pack("<I", 1) + bytes([len(name)]) + name + block)

    assert create(b"tiny", max_topic_size=4563) == (1019, b"")
    assert create(b"tiny", max_topic_size=(8 << 20) - 1, segment_size=8 << 20) == (1019, b"")
    assert create(b"small", max_topic_size=8 << 20, segment_size=8 << 20)[1][:4] == bytes(4)
    assert create(b"unbounded", max_topic_size=0)[1][:4] == bytes(4)


def test_sends_may_follow_each_other_without_a_wait(talk: Callable[..., Talk], topic: bytes) -> None:
    one = talk()
    for number in range(200):
        one.socket.sendall(request(SEND, sent(topic, batch([frame(b"%d" % number)]))))
    one.socket.sendall(request(READ, poll(topic, 1000), code=POLL))
    offsets = [struct.unpack_from("<Q", one.read(), 256 + 16)[0] for _ in range(200)]
    assert offsets == list(range(200))
    polled = parse_batches(one.read()[272:])
    assert [message.payload for message in polled] == [b"%d" % number for number in range(200)]


def test_a_large_batch(talk: Callable[..., Talk], topic: bytes) -> None:
    one = talk()
    data = batch([frame(bytes(10 << 20), delta=0), frame(b"end", delta=1)])
    assert one.ask(SEND, sent(topic, data, count=2))[0] == 0
    polled = parse_batches(one.ask(READ, poll(topic), code=POLL)[1][16:])
    assert [len(message.payload) for message in polled][:1] == [10 << 20]


def test_no_request_hangs_the_session(talk: Callable[..., Talk], topic: bytes) -> None:
    """Requests with bytes changed, cut or made up: each is answered, or ends its connection; others are served."""
    rng = random.Random(20)
    good = [
        (READ, GET_STREAM, topic[: 2 + topic[1]]),
        (READ, POLL, poll(topic)),
        (READ, 600, topic + b"\x02\x01g"),
        (SEND, 0, sent(topic, batch([frame(b"x", [(2, b"k", 2, b"v")])]))),
        (CREATE_TOPIC, 0, topic[: 2 + topic[1]] + struct.pack("<I", 1) + b"\x01t" + b"\x02\x01\0\0\0k\x02\x01\0\0\0v"),
        (161, 0, b"\x01\x01\x04" + bytes(4) + topic + b"\x01" + bytes(4) + bytes(8) + b"\0"),
        (REGISTER, 0, LOGIN),
    ]
    other = talk()
    for _ in range(150):
        one = talk()
        operation, code, body = rng.choice(good)
        data = bytearray(body)
        for _ in range(rng.randint(1, 4)):
            if data:
                data[rng.randrange(len(data))] = rng.randrange(256)
        if rng.random() < 0.3:
            data = data[: rng.randrange(len(data) + 1)]
        if rng.random() < 0.1:
            operation, code = rng.randrange(256), rng.randrange(700)
        one.socket.sendall(request(operation, bytes(data), code=code))
        reply = one.read()
        assert reply[60] in (8, 13)
        one.socket.close()
    assert other.ask(READ, code=PING) == (0, b"")
