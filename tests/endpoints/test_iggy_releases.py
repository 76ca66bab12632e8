"""Iggy over TCP by the clients of each release: their captured requests, and answers in the shapes that they read.

The shapes are written out here by hand from docs/reference/protocols/iggy.md#releases.
"""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import httpx
import pytest

import lading
from lading import testing
from lading.broker.broker import Broker
from lading.broker.core.settings import BrokerSettings
from lading.dialects.iggy.classic.later_commands import LoginUser
from lading.endpoints.base.services import Services
from lading.endpoints.iggy.clients import Client
from lading.endpoints.iggy.handlers import IggyHandlers
from lading.model.errors import Reason, Refusal
from lading.runtime.metrics import Metrics
from lading.settings.endpoints import IggyTcpSettings
from lading.settings.settings import Address, Settings
from lading.testing import BrokerProcess
from tests.dialects.test_iggy_releases import captured
from tests.endpoints.frames import Frames, header, message, payloads, poll, to_partition

PING, STATS, ME, CLIENTS, USER, USERS, LOGIN, LOGOUT = 1, 10, 20, 22, 31, 32, 38, 39
POLL, SEND, FLUSH, GET_OFFSET, STORE_OFFSET = 100, 101, 102, 120, 121
GET_STREAM, STREAMS, CREATE_STREAM, GET_TOPIC, TOPICS, CREATE_TOPIC = 200, 201, 202, 300, 301, 302
GET_GROUP, GROUPS, CREATE_GROUP, DELETE_GROUP, JOIN, LEAVE = 600, 601, 602, 603, 604, 605
NEVER = (1 << 64) - 1

_names = (f"release{number}" for number in count(1))


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    """A broker of their own: later clients leave it to the server which id a stream gets."""
    with testing.broker() as running:
        yield running


def short(text: str) -> bytes:
    return struct.pack("<B", len(text)) + text.encode()


def long(text: str) -> bytes:
    return struct.pack("<I", len(text)) + text.encode()


def named(text: str) -> bytes:
    """An identifier."""
    return b"\2" + short(text)


def numbered(number: int) -> bytes:
    return struct.pack("<BBI", 1, 4, number)


def login(version: str | None) -> bytes:
    return short("iggy") + short("secret") + (b"" if version is None else long(version) + long(""))


class Reader:
    """Takes fields off a body in order."""

    def __init__(self, body: bytes) -> None:
        self.body, self.at = body, 0

    def take(self, form: str) -> tuple[int, ...]:
        values = struct.unpack_from("<" + form, self.body, self.at)
        self.at += struct.calcsize("<" + form)
        return values

    def text(self, form: str = "B") -> str:
        (size,) = self.take(form)
        self.at += size
        return self.body[self.at - size : self.at].decode()

    @property
    def is_done(self) -> bool:
        return self.at == len(self.body)


@pytest.fixture
def log_in(connect: Callable[[], Frames]) -> Callable[[str | None], Frames]:
    """A connection of a client that says this version."""

    def open_(version: str | None) -> Frames:
        frames = connect()
        assert frames.ask(LOGIN, login(version)) == (0, struct.pack("<I", 1))
        return frames

    return open_


@pytest.fixture
def made(log_in: Callable[[str | None], Frames]) -> tuple[Frames, str]:
    """A client of 0.6 and the name of its stream, which has a topic ``topic`` of three partitions."""
    frames, name = log_in("0.6.202"), next(_names)
    assert frames.ask(CREATE_STREAM, struct.pack("<I", 0) + short(name))[0] == 0
    assert frames.ask(CREATE_TOPIC, new_topic(name, "topic"))[0] == 0
    return frames, name


def new_topic(stream: str, name: str, partitions: int = 3, expiry_us: int = NEVER, size: int = 0) -> bytes:
    """A request to create a topic as 0.5 to 0.7 write it."""
    return named(stream) + struct.pack("<IIBQQB", 0, partitions, 1, expiry_us, size, 0) + short(name)


def poll_by_name(stream: str, partition: int = 1, kind: int = 1, value: int = 0, commit: int = 0) -> bytes:
    what = numbered(1) + named(stream) + named("topic")
    return b"\1" + what + struct.pack("<IBQIB", partition, kind, value, 10, commit)


@pytest.mark.turns(3)
@pytest.mark.parametrize("client", ["iggy-py_0.1.0", "iggy-py_0.2.0", "iggy-py_0.2.7", "iggy-py_0.4.0"])
def test_the_captured_conversation_of_each_client(client: str) -> None:
    """As it was recorded: log in, ask for what is not there, create, send, poll; what it sends comes back."""
    requests = captured(client)
    with testing.broker() as running:
        frames = Frames(running.endpoints["iggy_tcp"])
        order = ["login_user", "ping", "get_stream", "create_stream", "get_topic", "create_topic", "send_messages"]
        for name in order:
            if name in requests:
                status, body = frames.ask(*requests[name])
                assert status == 0, name
                assert name not in ("get_stream", "get_topic") or body == b""
        status, body = frames.ask(*requests["poll_messages"])
        assert status == 0
        assert struct.unpack_from("<IQI", body) == (1, 1, 2)
        texts = [b"0|hello", b"0|world"] if client == "iggy-py_0.2.0" else [b"hello", b"world"]
        assert payloads(body[12:]) == texts
        # the poll committed its offset
        assert frames.ask(*requests["poll_messages"]) == (0, struct.pack("<IQI", 1, 1, 0))
        frames.close()


def test_whoever_logs_in_is_let_in_and_may_ping_before(connect: Callable[[], Frames]) -> None:
    frames = connect()
    assert frames.ask(PING) == (0, b"")
    for version in (None, "0.5.0", "0.6.202"):
        assert frames.ask(LOGIN, login(version)) == (0, struct.pack("<I", 1))
    assert frames.ask(USER, numbered(1)) == frames.ask(USER, named("iggy"))
    details = Reader(frames.ask(USER, numbered(1))[1])
    assert details.take("I") == (1,)
    assert details.take("Q")[0] > 1_600_000_000_000_000
    assert (details.take("B"), details.text(), details.take("B")) == ((1,), "iggy", (1,))
    users = Reader(frames.ask(USERS)[1])
    assert users.take("IQB")[::2] == (1, 1)
    assert (users.text(), users.is_done) == ("iggy", True)
    assert frames.ask(USER, named("nobody")) == (0, b"")
    assert frames.ask(LOGOUT) == (0, b"")
    assert frames.ask(LOGIN, b"\x04iggy\x09short") == (3, b"")


def test_the_log_says_once_that_nobody_is_asked_for_a_password(
    broker: BrokerProcess, connect: Callable[[], Frames]
) -> None:
    for _ in range(2):
        assert connect().ask(LOGIN, login("0.6.202"))[0] == 0
    lines = broker.log_file.read_text().splitlines()
    assert ["endpoints.iggy_tcp: " in line for line in lines if "any name and password" in line] == [True]


@pytest.mark.parametrize(
    ("here", "is_open", "is_let_in"),
    [("127.0.0.1", False, True), ("::1", False, True), ("192.0.2.1", False, False), ("192.0.2.1", True, True)],
)
def test_without_users_only_this_machine_logs_in(tmp_path: Path, here: str, is_open: bool, is_let_in: bool) -> None:
    """A listener that others reach is not even started, unless its setting opens it to all: this is the second lock."""
    settings = Settings(data=tmp_path)
    listener = IggyTcpSettings(allow_unauthenticated=is_open)
    broker = Broker.open(tmp_path, BrokerSettings(durability="os"), now_us=1)
    with ThreadPoolExecutor(1) as workers:
        handlers = IggyHandlers(Services(broker, settings, Metrics(), workers), "iggy_tcp", listener, 1)
        reached = Address(here, 8090)
        client = Client("192.0.2.7:5", 1, reached)
        try:
            assert handlers.log_in(LoginUser("a", "b", "0.6.202"), client) is None
            assert client.user_id == 1
        except Refusal as refusal:
            assert refusal.reason is Reason.UNAUTHENTICATED
    broker.stop()
    assert (client.user is not None) == is_let_in
    assert (client.release.name == "0.6.60") == is_let_in


def test_clients_without_a_login_stay_those_of_0_0_40(frames: Frames) -> None:
    topic = numbered(900) + numbered(1)
    assert frames.ask(CREATE_STREAM, struct.pack("<I", 900) + b"stream without a length") == (0, b"")
    assert frames.ask(CREATE_TOPIC, numbered(900) + struct.pack("<II", 1, 1) + b"topic") == (0, b"")
    assert frames.ask(USERS) == (3, b"")
    assert frames.ask(37) == (3, b"")
    assert frames.ask(SEND, topic + to_partition(1) + message(b"x")) == (0, b"")
    assert payloads(frames.ask(POLL, poll(topic))[1]) == [b"x"]


def test_what_is_missing_is_nothing_since_0_6_10_and_an_error_before(log_in: Callable[[str | None], Frames]) -> None:
    new, old = log_in("0.6.10"), log_in("0.6.9")
    requests = [
        (GET_STREAM, named("nowhere"), 1010),
        (GET_TOPIC, named("nowhere") + named("topic"), 1010),
        (GET_GROUP, named("nowhere") + named("topic") + named("group"), 1010),
        (USER, named("nobody"), 20),
    ]
    for code, payload, status in requests:
        assert new.ask(code, payload) == (0, b"")
        answer = old.ask(code, payload)
        assert (answer[0], Reader(answer[1]).text("I").strip() != "") == (status, True)
    # to ask for what a stream that is not there holds is an error for both
    assert new.ask(TOPICS, named("nowhere")) == old.ask(TOPICS, named("nowhere"))
    assert new.ask(TOPICS, named("nowhere"))[0] == 1010


@pytest.mark.parametrize(
    ("version", "has_words"),
    [("0.5.0", True), ("0.6.10", True), ("0.6.59", True), ("0.6.60", False), ("0.6.202", False), (None, False)],
)
def test_errors_have_words_for_clients_that_read_them(
    version: str | None, has_words: bool, log_in: Callable[[str | None], Frames]
) -> None:
    """Length u32 and text: the crates 0.3.0 to 0.6.51 read it, others take it for their next answer."""
    status, body = log_in(version).ask(DELETE_GROUP, named("nowhere") + named("topic") + named("group"))
    words = Reader(body)
    assert status == 1010
    assert body == b"" if not has_words else ("'nowhere'" in words.text("I") and words.is_done)


def test_a_silent_client_gets_words_once_it_is_known_to_read_them(log_in: Callable[[str | None], Frames]) -> None:
    name = next(_names)
    requests = {
        (named(name) + struct.pack("<III", 0, 1, 0) + short("one")): False,
        (named(name) + struct.pack("<IIBIQB", 0, 1, 1, 0, 0, 0) + short("one")): True,
    }
    for request, has_words in requests.items():
        frames = log_in(None)
        assert frames.ask(CREATE_TOPIC, request)[0] == 1010
        status, body = frames.ask(TOPICS, named(name))
        assert (status, body != b"") == (1010, has_words)


def test_what_was_created_is_answered(log_in: Callable[[str | None], Frames]) -> None:
    frames, name = log_in("0.6.202"), next(_names)
    status, created = frames.ask(CREATE_STREAM, struct.pack("<I", 0) + short(name))
    assert status == 0
    stream = Reader(created)
    ident, made_us, topics, size, messages = stream.take("IQIQQ")
    assert (stream.text(), stream.is_done, topics, size, messages) == (name, True, 0, 0, 0)
    assert made_us > 1_600_000_000_000_000
    assert frames.ask(GET_STREAM, numbered(ident)) == (0, created)
    status, body = frames.ask(CREATE_TOPIC, new_topic(name, "Topic One", 2, 3_600_000_000, 1000))
    assert status == 0
    topic = Reader(body)
    number, topic_us, partitions, expiry, compression, bound, replication, size, messages = topic.take("IQIQBQBQQ")
    assert (number, partitions, expiry, compression, bound, replication) == (1, 2, 3_600_000_000, 1, 1000, 1)
    assert (topic.text(), size, messages) == ("topic.one", 0, 0)
    for expected in (1, 2):
        partition, partition_us, segments, offset, _, messages = topic.take("IQIQQQ")
        assert (partition, partition_us, segments, offset, messages) == (expected, topic_us, 1, 0, 0)
    assert topic.is_done
    got = frames.ask(GET_TOPIC, numbered(ident) + named("topic.one"))
    assert got == (0, body)


def test_topics_without_bounds_say_never(made: tuple[Frames, str]) -> None:
    frames, name = made
    topic = Reader(frames.ask(GET_TOPIC, named(name) + named("topic"))[1])
    assert topic.take("IQIQBQB")[3:] == (NEVER, 1, NEVER, 1)
    topics = Reader(frames.ask(TOPICS, named(name))[1])
    assert topics.take("IQIQBQBQQ")[2:4] == (3, NEVER)
    assert (topics.text(), topics.is_done) == ("topic", True)
    streams = Reader(frames.ask(STREAMS)[1])
    found = []
    while not streams.is_done:
        streams.take("IQIQQ")
        found.append(streams.text())
    assert name in found


def test_a_silent_login_is_told_by_how_it_creates_a_topic(log_in: Callable[[str | None], Frames]) -> None:
    first, fourth, name = log_in(None), log_in(None), next(_names)
    assert first.ask(CREATE_STREAM, struct.pack("<I", 0) + short(name)) == (0, b"")
    seconds = struct.pack("<I", 60)
    assert first.ask(CREATE_TOPIC, named(name) + struct.pack("<II", 0, 1) + seconds + short("one")) == (0, b"")
    bounded = struct.pack("<IIB", 0, 1, 1) + seconds + struct.pack("<QB", 1000, 0) + short("four")
    assert fourth.ask(CREATE_TOPIC, named(name) + bounded) == (0, b"")
    topic = Reader(first.ask(GET_TOPIC, named(name) + named("one"))[1])
    assert topic.take("IQIIQQ")[2:4] == (1, 60)
    assert topic.text() == "one"
    topic = Reader(fourth.ask(GET_TOPIC, named(name) + named("four"))[1])
    assert topic.take("IQIIBQBQQ")[2:7] == (1, 60, 1, 1000, 1)
    assert topic.text() == "four"
    assert len(first.ask(STATS)[1]) == len(fourth.ask(STATS)[1]) - 4


def test_offsets_by_name_of_the_consumer(made: tuple[Frames, str]) -> None:
    frames, name = made
    where = named(name) + named("topic")
    for text in (b"a", b"b", b"c"):
        assert frames.ask(SEND, where + to_partition(2) + message(text)) == (0, b"")
    consumer = b"\1" + named("some consumer") + where + struct.pack("<I", 2)
    assert frames.ask(GET_OFFSET, consumer) == (0, b"")
    assert frames.ask(STORE_OFFSET, consumer + struct.pack("<Q", 1)) == (0, b"")
    assert frames.ask(GET_OFFSET, consumer) == (0, struct.pack("<IQQ", 2, 2, 1))
    other = b"\1" + named("another") + where + struct.pack("<I", 2)
    assert frames.ask(GET_OFFSET, other) == (0, b"")
    status, body = frames.ask(POLL, consumer[:-4] + struct.pack("<IBQIB", 2, 5, 0, 10, 0))
    assert struct.unpack_from("<IQI", body) == (2, 2, 1)
    assert (status, payloads(body[12:])) == (0, [b"c"])
    assert frames.ask(FLUSH, where + struct.pack("<IB", 2, 1)) == (0, b"")
    assert frames.ask(FLUSH, where + struct.pack("<IB", 9, 1)) == (3007, b"")


def test_groups_by_name(made: tuple[Frames, str]) -> None:
    frames, name = made
    where = named(name) + named("topic")
    status, body = frames.ask(CREATE_GROUP, where + struct.pack("<I", 0) + short("readers"))
    group = Reader(body)
    assert (status, group.take("III"), group.text(), group.is_done) == (0, (1, 3, 0), "readers", True)
    assert frames.ask(CREATE_GROUP, where + struct.pack("<I", 0) + short("readers")) == (5001, b"")
    assert frames.ask(GET_GROUP, where + named("other")) == (0, b"")
    poll_as_group = b"\2" + named("readers") + where + struct.pack("<IBQIB", 0, 5, 0, 10, 1)
    assert frames.ask(POLL, poll_as_group) == (5006, b"")
    assert frames.ask(JOIN, where + named("readers")) == (0, b"")
    group = Reader(frames.ask(GET_GROUP, where + named("readers"))[1])
    assert group.take("III") == (1, 3, 1)
    assert group.text() == "readers"
    client, partitions, *numbers = group.take("IIIII")
    assert (partitions, numbers, group.is_done) == (3, [1, 2, 3], True)
    assert frames.ask(SEND, where + to_partition(2) + message(b"to the group")) == (0, b"")
    told = [frames.ask(POLL, poll_as_group)[1] for _ in range(3)]
    assert [struct.unpack_from("<IQI", body) for body in told] == [(1, 0, 0), (2, 0, 1), (3, 0, 0)]
    me = Reader(frames.ask(ME)[1])
    assert me.take("IIB") == (client, 1, 1)
    assert me.text("I").startswith("127.0.0.1:")
    stream_id, topic_id, group_id = me.take("IIII")[1:]
    assert (topic_id, group_id, me.is_done) == (1, 1, True)
    assert (
        frames.ask(GET_GROUP, numbered(stream_id) + numbered(1) + numbered(1))[1]
        == frames.ask(GET_GROUP, where + named("readers"))[1]
    )
    assert frames.ask(LEAVE, where + named("readers")) == (0, b"")
    assert frames.ask(DELETE_GROUP, where + named("readers")) == (0, b"")
    assert frames.ask(POLL, poll_as_group) == (5000, b"")
    # another group of the name is another one, though routes are remembered
    assert frames.ask(CREATE_GROUP, where + struct.pack("<I", 7) + short("readers"))[0] == 0
    assert frames.ask(POLL, poll_as_group) == (5006, b"")


def test_clients_are_listed_in_the_shape_of_who_asks(log_in: Callable[[str | None], Frames], frames: Frames) -> None:
    new = log_in("0.6.202")
    listed, seen = Reader(new.ask(CLIENTS)[1]), {}
    while not listed.is_done:
        ident, user, transport = listed.take("IIB")
        address = listed.text("I")
        assert ident == zlib.crc32(address.encode())
        seen[ident] = user, transport, *listed.take("I")
    mine, theirs = (struct.unpack_from("<I", one.ask(ME)[1])[0] for one in (new, frames))
    assert seen[mine] == (1, 1, 0)
    assert seen[theirs] == (0, 1, 0)
    old = Reader(frames.ask(CLIENTS)[1])
    ident, transport = old.take("IB")
    assert ident == zlib.crc32(old.text("I").encode())


def test_stats_say_what_later_releases_read(log_in: Callable[[str | None], Frames]) -> None:
    stats = Reader(log_in("0.6.202").ask(STATS)[1])
    stats.take("Iff" + "Q" * 8 + "IIIIQII")
    texts = [stats.text("I") for _ in range(5)]
    assert all(texts)
    assert (stats.take("II"), stats.is_done) == ((0, 0), True)


def test_partition_0_is_the_first_where_a_client_names_none(made: tuple[Frames, str]) -> None:
    frames, name = made
    assert frames.ask(SEND, named(name) + named("topic") + to_partition(1) + message(b"x")) == (0, b"")
    assert frames.ask(POLL, poll_by_name(name, partition=0)) == frames.ask(POLL, poll_by_name(name, partition=1))


def test_keys_mean_partitions_by_the_hash_of_the_release(
    made: tuple[Frames, str], connect: Callable[[], Frames]
) -> None:
    """xxHash32 of ``abc`` is 32D153FF, MurmurHash3 of ``k1`` is 2 modulo 3 (iggy.md A2)."""
    frames, name = made
    where = named(name) + named("topic")
    assert frames.ask(SEND, where + b"\3\3abc" + message(b"new")) == (0, b"")
    assert connect().ask(SEND, where + b"\3\2k1" + message(b"old")) == (0, b"")
    found = [payloads(frames.ask(POLL, poll_by_name(name, number))[1][12:]) for number in (1, 2, 3)]
    expected: list[list[bytes]] = [[], [], []]
    expected[(0x32D153FF % 3 or 3) - 1].append(b"new")
    expected[2 - 1].append(b"old")
    assert found == expected


OFFSET_BITS = (1 << 62) - 1


def test_a_message_without_an_id_has_the_same_one_for_every_reader(
    broker: BrokerProcess,
    made: tuple[Frames, str],
    log_in: Callable[[str | None], Frames],
    connect: Callable[[], Frames],
) -> None:
    """Polled by 0.0.40, by 0.6, by 0.8 with its zero-copy messages and over HTTP, each time the same."""
    frames, name = made
    with lading.Producer(broker.url) as producer:
        for text in (b"a", b"b"):
            producer.send(f"{name}.topic", text, partition=0)
    where = named(name) + named("topic")
    ids = set()
    for _ in range(2):
        classic = connect().ask(POLL, poll(where, count=1))[1][4:]
        later = frames.ask(POLL, poll_by_name(name))[1][16:]
        flagged = b"\1" + numbered(1) + where + struct.pack("<BIBQIB", 1, 0, 1, 0, 1, 0)
        zero_copy = log_in("0.8.0").ask(POLL, flagged)[1][16:]
        url = f"http://{broker.endpoints['iggy_http']}/streams/{name}/topics/topic/messages?count=2"
        documents = httpx.get(url).json()
        ids |= {classic[17:33], later[17:33], zero_copy[8:24], documents[0]["id"].to_bytes(16, "little")}
    (found,) = ids
    assert uuid.UUID(bytes=found[::-1]).version == 8
    first, second = (document["id"] for document in documents)
    # offset in the last 62 bits and, XOR, in the first 48: clients that read numbers as doubles tell them apart
    assert second & OFFSET_BITS == (first & OFFSET_BITS) + 1
    assert (first ^ second) >> 80 == 1
    assert float(first) != float(second)


@pytest.fixture(scope="module")
def headers_only() -> Iterator[BrokerProcess]:
    """A broker whose clients are of 0.0.30."""
    with testing.broker(settings={"endpoints.iggy_tcp.release": "0.0.30"}) as running:
        yield running


def test_clients_of_0_0_30_get_neither_state_nor_checksum(headers_only: BrokerProcess) -> None:
    """The worked example of iggy.md A4: 102 bytes, offset, time, id, headers, payload."""
    frames = Frames(headers_only.endpoints["iggy_tcp"])
    assert frames.ask(202, struct.pack("<I", 1) + b"stream") == (0, b"")
    assert frames.ask(302, numbered(1) + struct.pack("<II", 1, 1) + b"topic") == (0, b"")
    headers = (
        header(b"key 1", 2, b"value1") + header(b"key-2", 3, b"\1") + header(b"key_3", 12, struct.pack("<Q", 123456))
    )
    assert len(headers) == 57
    where = numbered(1) + numbered(1)
    for number in (1, 2):
        assert frames.ask(SEND, where + to_partition(1) + message(b"hello", headers, number)) == (0, b"")
    status, body = frames.ask(POLL, poll(where))
    assert (status, len(body), body[:4]) == (0, 4 + 2 * 102, struct.pack("<I", 2))
    for number in (1, 2):
        each = body[4 + 102 * (number - 1) :][:102]
        offset, time_us, low, high = struct.unpack_from("<QQQQ", each)
        assert (offset, low, high) == (number - 1, number, 0)
        assert time_us > 1_600_000_000_000_000
        assert each[32:] == struct.pack("<I", 57) + headers + struct.pack("<I", 5) + b"hello"
    assert frames.ask(POLL, poll(where, offset=2)) == (0, bytes(4))
    # a login does not change what the listener is for
    assert frames.ask(LOGIN, login("0.6.202")) == (0, struct.pack("<I", 1))
    assert frames.ask(POLL, poll(where))[1] == body
    frames.close()
