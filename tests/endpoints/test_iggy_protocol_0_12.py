"""Protocol 0.12 of the current Iggy over TCP as bytes, laid out by hand from the crate's source (iggy-current.md V)."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable, Iterator

import pytest

from lading.testing import BrokerProcess
from tests.dialects.iggy_current import batch, frame, parse_batches
from tests.endpoints.current_frames import (
    CREATE_STREAM,
    CREATE_TOPIC,
    GET_STREAM,
    LOGIN,
    PING,
    POLL,
    READ,
    REGISTER,
    SEND,
    poll,
    request,
    sent,
)
from tests.endpoints.test_iggy_current import Talk

GET_TOPIC, CLUSTER, OPTIONS, ROUTE, DEFERRED, CANCEL, FETCH, BIND, USERS = 300, 12, 13, 105, 106, 108, 109, 15, 32
UPDATE_RESOURCE, METADATA_CHANGES = 150, 17
TOPIC, STREAM, USER = 1, 2, 3
NOT_UPDATABLE, NOT_RESETTABLE, UNSUPPORTED, INVALID_VALUE = 4103, 4104, 4041, 4042
SECOND_US = 1_000_000


def login(version: int) -> bytes:
    """A login with the secret that it has since 0.12, behind the versions."""
    head = struct.pack("<I", version) + LOGIN[4:15]
    return head + bytes(range(32)) + LOGIN[15:]


@pytest.fixture
def talk(broker: BrokerProcess) -> Iterator[Callable[..., Talk]]:
    found: list[Talk] = []

    def open_(version: int = 12 << 10 | 2) -> Talk:
        one = Talk(broker.endpoints["iggy_tcp"])
        found.append(one)
        # the checksum of a request is a number that the client draws
        status, answer = one.ask(REGISTER, login(version), checksum=random.getrandbits(64))
        assert (status, answer[:4], struct.unpack_from("<I", answer, 16)[0]) == (0, bytes(4), version)
        return one

    yield open_
    for one in found:
        one.socket.close()


@pytest.fixture
def topic(talk: Callable[..., Talk]) -> bytes:
    """Stream and topic as a request names them; the topic has two partitions."""
    one = talk()
    name = b"later-%d" % random.getrandbits(40)
    where = b"\x02" + bytes((len(name),)) + name
    assert one.ask(CREATE_STREAM, bytes((len(name),)) + name, checksum=7)[1][:4] == bytes(4)
    assert one.ask(CREATE_TOPIC, where + struct.pack("<I", 2) + b"\x05topic")[1][:4] == bytes(4)
    return where + b"\x02\x05topic"


def text_option(key: bytes, value: bytes) -> bytes:
    return b"\x02" + struct.pack("<I", len(key)) + key + b"\x02" + struct.pack("<I", len(value)) + value


def number_option(key: bytes, value: int) -> bytes:
    return b"\x02" + struct.pack("<I", len(key)) + key + b"\x0c" + struct.pack("<IQ", 8, value)


def options_of(block: bytes) -> dict[bytes, bytes]:
    found, at = {}, 0
    while at < len(block):
        (size,) = struct.unpack_from("<I", block, at + 1)
        key = block[at + 5 : at + 5 + size]
        at += 5 + size
        (size,) = struct.unpack_from("<I", block, at + 1)
        found[key] = block[at + 5 : at + 5 + size]
        at += 5 + size
    return found


def take_topic(body: bytes) -> tuple[bytes, dict[bytes, bytes], list[tuple[int, ...]]]:
    """Name, own options and partitions of the answer to GetTopic: number, offset, messages and history of each."""
    (count,) = struct.unpack_from("<I", body, 12)
    name = body[33 : 33 + body[32]]
    at = 33 + len(name)
    (size,) = struct.unpack_from("<I", body, at)
    own = options_of(body[at + 4 : at + 4 + size])
    at += 4 + size
    (size,) = struct.unpack_from("<I", body, at)
    assert b"segment_size" in options_of(body[at + 4 : at + 4 + size])
    at += 4 + size
    partitions: list[tuple[int, ...]] = []
    for _ in range(count):
        number, _, _, last, _, messages, incarnation, owner, _ = struct.unpack_from("<IQIQQQQQQ", body, at)
        assert body[at + 64 : at + 68] == b"\x01\x00\x01\x00"
        partitions.append((number, last, messages, incarnation, owner))
        at += 68
    assert at == len(body)
    return name, own, partitions


def deferred(topic: bytes, wait_us: int, count: int = 100, count_min: int = 1, partition: int = 0) -> bytes:
    where = b"\x01\x01\x04" + struct.pack("<I", 1) + topic + b"\x01" + struct.pack("<IBQIB", partition, 1, 0, count, 0)
    return where + struct.pack("<QIIQ", wait_us, count_min, 1 << 20, wait_us + 2 * SECOND_US)


def fetch(
    topic: bytes, targets: list[tuple[int, int, int]], count: int = 100, wait_us: int = 0, commit: int = 0
) -> bytes:
    """``targets``: partition, strategy and its value."""
    head = b"\x01\x01\x04" + struct.pack("<I", 1) + topic
    head += struct.pack("<QQIIIBI", wait_us, wait_us + 2 * SECOND_US, 1, count, 1 << 20, commit, len(targets))
    return head + b"".join(
        struct.pack("<IBQIQQ", number, kind, value, 1 << 20, 0, 0) for number, kind, value in targets
    )


def sections_of(body: bytes) -> list[tuple[int, int, int, int, int]]:
    """Partition, status, messages, next offset and bytes of each section; the bytes fill the rest of the body."""
    (count,) = struct.unpack_from("<I", body)
    rows = []
    for at in range(4, 4 + 56 * count, 56):
        partition, status, _, messages, _, _, _, following, size = struct.unpack_from("<IIQIQQQQI", body, at)
        rows.append((partition, status, messages, following, size))
    assert 4 + 56 * count + sum(row[4] for row in rows) == len(body)
    return rows


def test_a_poll_says_the_history_of_its_partition(talk: Callable[..., Talk], topic: bytes) -> None:
    one = talk()
    for partition in (0, 1):
        assert one.ask(SEND, sent(topic, batch([frame(b"x"), frame(b"y", delta=1)]), 2, partition), checksum=9)[0] == 0
    status, body = one.ask(READ, poll(topic), code=POLL)
    assert (status, struct.unpack_from("<IQI", body)) == (0, (0, 1, 2))
    incarnation, owner, _ = struct.unpack_from("<QQQ", body, 16)
    assert [message.payload for message in parse_batches(body[40:])] == [b"x", b"y"]
    name, own, partitions = take_topic(one.ask(READ, topic, code=GET_TOPIC)[1])
    assert (name, own) == (b"topic", {})
    assert partitions == [(number, 1, 2, incarnation, owner) for number in (0, 1)]
    route = struct.unpack("<QQIIB", one.ask(READ, topic + struct.pack("<I", 1), code=ROUTE)[1])
    assert (route[0], route[3], route[4]) == (incarnation, 2, 0)
    assert one.ask(READ, topic + struct.pack("<I", 2), code=ROUTE) == (3007, b"")


def test_earlier_patches_list_no_members(talk: Callable[..., Talk], topic: bytes) -> None:
    later, earlier = talk(), talk(12 << 10)
    known = later.ask(READ, topic, code=GET_TOPIC)[1]
    assert len(earlier.ask(READ, topic, code=GET_TOPIC)[1]) == len(known) - 2 * 4


def test_blocks_have_derived_options(talk: Callable[..., Talk], topic: bytes) -> None:
    one = talk()
    stream = topic[: 2 + topic[1]]
    body = one.ask(READ, stream, code=GET_STREAM)[1]
    name_at = 4 + 8 + 4 + 8 + 8
    assert body[name_at + 1 : name_at + 1 + body[name_at]] == stream[2:]
    assert body[name_at + 1 + body[name_at] :][:8] == bytes(8)
    assert one.ask(READ, code=USERS)[1].endswith(bytes(8))
    nodes = one.ask(READ, code=CLUSTER)[1]
    assert struct.unpack_from("<I", nodes, 15) == (1,)
    assert nodes[19:24] == b"\x00" + struct.pack("<I", len("lading"))
    described = one.ask(READ, b"\x01", code=OPTIONS)[1]
    flags = {key: described[described.index(key) + len(key) + 1] for key in (b"message_expiry", b"segment_size")}
    assert flags == {b"message_expiry": 3, b"segment_size": 0}


def test_a_patch_changes_what_it_names(talk: Callable[..., Talk], topic: bytes) -> None:
    one = talk()
    bound = number_option(b"message_expiry", 3_600_000_000)
    renamed = topic[:-6] + b"\x07renamed"

    def patch(where: bytes, reset: list[bytes], options: bytes, kind: int = TOPIC) -> bytes:
        names = bytes((len(reset),)) + b"".join(bytes((len(key),)) + key for key in reset)
        return one.ask(UPDATE_RESOURCE, bytes((kind,)) + where + names + options)[1]

    assert patch(topic, [], bound) == bytes(4)
    assert patch(topic, [], text_option(b"name", b"renamed")) == bytes(4)
    assert take_topic(one.ask(READ, renamed, code=GET_TOPIC)[1])[:2] == (
        b"renamed",
        {b"message_expiry": struct.pack("<Q", 3_600_000_000)},
    )
    assert patch(renamed, [b"message_expiry"], b"") == bytes(4)
    assert take_topic(one.ask(READ, renamed, code=GET_TOPIC)[1])[1] == {}
    stream = topic[: 2 + topic[1]]
    assert patch(stream, [], text_option(b"name", stream[2:] + b"-2"), STREAM) == bytes(4)
    other = b"\x02" + bytes((stream[1] + 2,)) + stream[2:] + b"-2"
    assert one.ask(READ, other, code=GET_STREAM)[0] == 0
    assert patch(other, [], text_option(b"name", stream[2:]), STREAM) == bytes(4)


@pytest.mark.parametrize(
    ("kind", "reset", "options", "code"),
    [
        (TOPIC, [], b"", 4),
        (TOPIC, [b"message_expiry"], number_option(b"message_expiry", 1), 4),
        (TOPIC, [], number_option(b"segment_size", 1 << 30), NOT_UPDATABLE),
        (TOPIC, [], number_option(b"colour", 1), UNSUPPORTED),
        (TOPIC, [b"segment_size"], b"", NOT_RESETTABLE),
        (TOPIC, [b"colour"], b"", UNSUPPORTED),
        (TOPIC, [], number_option(b"name", 1), INVALID_VALUE),
        (STREAM, [b"name"], b"", NOT_RESETTABLE),
        (STREAM, [], text_option(b"encryption_key", b"secret"), UNSUPPORTED),
        (USER, [], text_option(b"status", b"asleep"), INVALID_VALUE),
        (9, [], text_option(b"name", b"x"), 4),
    ],
)
def test_a_patch_that_cannot_be_is_refused(
    talk: Callable[..., Talk], topic: bytes, kind: int, reset: list[bytes], options: bytes, code: int
) -> None:
    one = talk()
    where = topic if kind == TOPIC else topic[: 2 + topic[1]]
    names = bytes((len(reset),)) + b"".join(bytes((len(key),)) + key for key in reset)
    assert one.ask(UPDATE_RESOURCE, bytes((kind,)) + where + names + options) == (code, b"")
    assert one.ask(READ, topic, code=GET_TOPIC)[0] == 0


def test_a_deferred_poll_waits_for_messages(talk: Callable[..., Talk], topic: bytes) -> None:
    one, other = talk(), talk()
    one.socket.sendall(request(READ, deferred(topic, 400_000), code=DEFERRED))
    # it waits: what another connection sends meanwhile ends that
    assert other.ask(SEND, sent(topic, batch([frame(b"x")]), 1, 0))[0] == 0
    reply = one.read()
    assert struct.unpack_from("<IQI", reply, 256) == (0, 0, 1)
    began_s = time.monotonic()
    status, body = one.ask(READ, deferred(topic, 200_000, partition=1), code=DEFERRED)
    assert (status, struct.unpack_from("<IQI", body)) == (0, (1, 0, 0))
    assert time.monotonic() - began_s >= 0.2
    assert one.ask(READ, deferred(topic, 0, count=1, count_min=2), code=DEFERRED) == (4009, b"")
    assert one.ask(READ, deferred(topic, 0)[:-1], code=DEFERRED) == (4, b"")
    assert one.ask(READ, code=PING) == (0, b"")


def test_a_long_wait_is_cut_so_that_other_requests_go_on(talk: Callable[..., Talk], topic: bytes) -> None:
    one = talk()
    one.socket.settimeout(5)
    one.socket.sendall(request(READ, deferred(topic, 60 * SECOND_US), code=DEFERRED) + request(READ, code=PING))
    assert struct.unpack_from("<IQI", one.read(), 256) == (0, 0, 0)
    assert len(one.read()) == 256


def test_a_log_of_metadata_is_said_to_be_none(talk: Callable[..., Talk]) -> None:
    one = talk()
    assert one.ask(READ, bytes(48), code=METADATA_CHANGES) == (5, b"")
    assert one.ask(READ, code=PING) == (0, b"")


def test_one_fetch_reads_several_partitions(talk: Callable[..., Talk], topic: bytes) -> None:
    one = talk()
    for partition, payloads in ((0, [b"a", b"b"]), (1, [b"c"])):
        assert (
            one.ask(
                SEND,
                sent(topic, batch([frame(one, delta=at) for at, one in enumerate(payloads)]), len(payloads), partition),
            )[0]
            == 0
        )
    offset, following = 1, 5
    status, body = one.ask(READ, fetch(topic, [(0, offset, 1), (1, offset, 0)]), code=FETCH)
    assert status == 0
    rows = sections_of(body)
    assert [row[:4] for row in rows] == [(0, 0, 1, 2), (1, 0, 1, 1)]
    assert [message.payload for message in parse_batches(body[4 + 2 * 56 :])] == [b"b", b"c"]
    # a number of messages holds for all of them; what is missing has its code, and the others come
    assert [row[:3] for row in sections_of(one.ask(READ, fetch(topic, [(0, 1, 0), (1, 1, 0)], 2), code=FETCH)[1])] == [
        (0, 0, 2)
    ]
    missing = sections_of(one.ask(READ, fetch(topic, [(7, 1, 0), (1, 1, 0)]), code=FETCH)[1])
    assert [row[:3] for row in missing] == [(7, 3007, 0), (1, 0, 1)]
    # by position, stored as it reads
    for expected in (2, 0):
        rows = sections_of(one.ask(READ, fetch(topic, [(0, following, 0)], commit=1), code=FETCH)[1])
        assert [row[:4] for row in rows] == [(0, 0, expected, 2)]


@pytest.mark.parametrize("targets", [[], [(0, 1, 0), (0, 1, 0)], [(0, 9, 0)]])
def test_a_fetch_that_cannot_be_is_refused(
    talk: Callable[..., Talk], topic: bytes, targets: list[tuple[int, int, int]]
) -> None:
    one = talk()
    assert one.ask(READ, fetch(topic, targets), code=FETCH) == (4, b"")
    huge = fetch(topic, [(0, 1, 0)])[:-37] + struct.pack("<I", 0xFFFF_FFFF)
    assert one.ask(READ, huge, code=FETCH) == (4, b"")
    assert one.ask(READ, code=PING) == (0, b"")


def test_a_cancel_has_no_reply_and_a_session_is_bound_to_one_connection(
    talk: Callable[..., Talk], broker: BrokerProcess
) -> None:
    one = talk()
    one.socket.sendall(request(READ, code=CANCEL))
    assert one.ask(READ, code=PING) == (0, b"")
    # a client that is told so logs in again
    assert Talk(broker.endpoints["iggy_tcp"]).ask(READ, login(12 << 10 | 2)[:15] + bytes(64), code=BIND) == (40, b"")
