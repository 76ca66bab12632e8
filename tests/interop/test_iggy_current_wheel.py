"""A client nobody here wrote: the published package apache-iggy 0.9.0, which speaks the current generation."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import count
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, Producer

import lading
from lading import testing
from lading.testing import BrokerProcess
from tests.endpoints.frames import Frames
from tests.interop import wheels
from tests.interop.iggy_current import CallError, CurrentClient, Header

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

EVERY_KIND: list[Header] = [
    (2, b"a raw", 1, b"\x00\xff"),
    (2, b"b string", 2, "grüße".encode()),
    (2, b"c bool", 3, b"\x01"),
    (2, b"d int8", 4, b"\x80"),
    (2, b"e int128", 8, (-5).to_bytes(16, "little", signed=True)),
    (2, b"f uint64", 12, (1 << 63).to_bytes(8, "little")),
    (2, b"g float32", 14, struct.pack("<f", 0.5)),
    (2, b"h float64", 15, struct.pack("<d", -0.1)),
    (12, (7).to_bytes(8, "little"), 2, b"a key that is a number"),
]
FIRST: tuple[str, int] = ("partition_id", 0)
_names = (f"current{number}" for number in count(1))


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with testing.broker() as running:
        yield running


@pytest.fixture(scope="module")
def client(broker: BrokerProcess) -> Iterator[CurrentClient]:
    try:
        found = CurrentClient(broker.endpoints["iggy_tcp"])
    except wheels.Unavailable as error:
        pytest.skip(str(error))
    yield found
    found.close()


@pytest.fixture
def stream(client: CurrentClient) -> str:
    """A stream with a topic of two partitions."""
    name = next(_names)
    client.call("create_stream", name)
    client.call("create_topic", name, "topic", 2)
    return name


def test_messages_come_back_as_they_were_sent(client: CurrentClient, stream: str) -> None:
    messages = [(b"one", EVERY_KIND, 1), (b"two", [], (1 << 128) - 1), (b"three", EVERY_KIND[:1], None)]
    assert client.send(stream, "topic", FIRST, messages)[0][2:] == [0, 0]
    polled = client.poll(stream, "topic")
    assert [(one["offset"], one["payload"]) for one in polled] == [(0, b"one"), (1, b"two"), (2, b"three")]
    assert [one["id"] for one in polled[:2]] == [1, (1 << 128) - 1]
    assert sorted(polled[0]["headers"]) == sorted(EVERY_KIND)
    assert polled[2]["headers"] == EVERY_KIND[:1]
    assert polled[0]["timestamp"] == polled[2]["timestamp"] > 0
    assert polled[0]["timestamp"] - polled[0]["origin_timestamp"] < 60_000_000


def test_polls_begin_where_they_are_told(client: CurrentClient, stream: str) -> None:
    for number in range(3):
        client.send(stream, "topic", FIRST, [(b"%d" % (3 * number + one), [], None) for one in range(3)])

    def payloads(*start: object, count: int = 2, **how: object) -> list[bytes]:
        return [one["payload"] for one in client.poll(stream, "topic", start=start, count=count, **how)]  # type: ignore[arg-type]

    assert payloads("First") == [b"0", b"1"]
    assert payloads("Offset", 2, count=3) == [b"2", b"3", b"4"]
    assert payloads("Last") == [b"7", b"8"]
    assert payloads("Offset", 9) == []
    fourth = client.poll(stream, "topic", start=("Offset", 3), count=1)[0]
    assert payloads("Timestamp", fourth["timestamp"]) == [b"3", b"4"]
    by_name = {"consumer": ("Single", "reader"), "commit": True}
    assert [payloads("Next", count=4, **by_name) for _ in range(3)] == [
        [b"0", b"1", b"2", b"3"],
        [b"4", b"5", b"6", b"7"],
        [b"8"],
    ]


def test_streams_topics_and_partitions(client: CurrentClient) -> None:
    name = next(_names)
    assert client.call("get_stream", name) is None
    client.call("create_stream", name)
    with pytest.raises(CallError, match="already exists"):
        client.call("create_stream", name)
    client.call("create_topic", name, "first", 3)
    with pytest.raises(CallError, match="already exists"):
        client.call("create_topic", name, "first", 1)
    client.call("create_topic", name, "second", 1)
    assert [one["name"] for one in client.call("get_topics", name)] == ["first", "second"]
    assert [one["id"] for one in client.call("get_topics", name)] == [0, 1]
    client.call("create_partitions", name, "first", 2)
    client.call("delete_partitions", name, "first", 1)
    assert client.call("get_topic", name, "first")["partitions_count"] == 4
    client.send(name, "first", FIRST, [(b"gone", [], None)])
    client.call("purge_topic", name, "first")
    assert client.poll(name, "first") == []
    client.send(name, "first", FIRST, [(b"kept", [], None)])
    assert [one["offset"] for one in client.poll(name, "first", start=("Next",))] == [1]
    client.call("delete_topic", name, "second")
    assert client.call("get_topic", name, "second") is None
    assert name in [one["name"] for one in client.call("get_streams")]
    client.call("delete_stream", name)
    with pytest.raises(CallError, match="not found"):
        client.call("delete_stream", name)


def test_what_is_asked_of_the_server(client: CurrentClient) -> None:
    stats = client.call("get_stats")
    assert stats["process_id"] > 0
    assert stats["streams_count"] >= 0
    assert {one["key"] for one in client.call("describe_options", "topic")} >= {"message_expiry", "max_topic_size"}
    assert [one["username"] for one in client.call("get_users")] == ["anyone"]
    assert client.call("get_user", 0)["username"] == "anyone"
    client.call("ping")


def test_who_creates_the_first_user_goes_on_as_the_administrator() -> None:
    with testing.broker() as broker:
        try:
            first = CurrentClient(broker.endpoints["iggy_tcp"])
        except wheels.Unavailable as error:
            pytest.skip(str(error))
        first.call("create_user", "other", "password")
        assert [one["username"] for one in first.call("get_users")] == ["anyone", "other"]
        first.close()


def test_what_is_missing_is_said(client: CurrentClient, stream: str) -> None:
    with pytest.raises(CallError, match="not found"):
        client.send(stream, "topic", ("partition_id", 9), [(b"x", [], None)])
    with pytest.raises(CallError, match="not found"):
        client.poll(stream, "topic", partition=9)
    with pytest.raises(CallError, match="not found"):
        client.poll(stream, "nothing")


def test_a_key_names_the_partition(client: CurrentClient, stream: str) -> None:
    """XXH32 of the key modulo the partitions, whoever computes it."""
    places = [client.send(stream, "topic", ("messages_key", key), [(b"x", [], None)])[0][2] for key in ("a", "abc")]
    assert places == [0x550D7456 % 2, 0x32D153FF % 2]
    balanced = {client.send(stream, "topic", ("balanced",), [(b"x", [], None)])[0][2] for _ in range(4)}
    assert balanced == {0, 1}


def test_a_group_shares_the_partitions(client: CurrentClient, broker: BrokerProcess, stream: str) -> None:
    for partition in range(2):
        client.send(stream, "topic", ("partition_id", partition), [(b"%d" % partition, [], None)] * 2)
    client.call("create_consumer_group", stream, "topic", "readers")
    with pytest.raises(CallError, match="already exists"):
        client.call("create_consumer_group", stream, "topic", "readers")
    other = CurrentClient(broker.endpoints["iggy_tcp"])
    try:
        for one in (client, other):
            one.call("join_consumer_group", stream, "topic", "readers")
        assert client.call("get_consumer_group", stream, "topic", "readers")["members_count"] == 2
        how = {"partition": None, "start": ("Next",), "consumer": ("Group", "readers"), "commit": True}
        seen = [one.poll(stream, "topic", **how) for one in (client, other) for _ in range(2)]  # type: ignore[arg-type]
        assert sorted((one["partition"], one["offset"]) for polled in seen for one in polled) == [
            (0, 0), (0, 1), (1, 0), (1, 1),
        ]  # fmt: skip
    finally:
        other.close()
    client.call("leave_consumer_group", stream, "topic", "readers")
    assert client.call("get_consumer_group", stream, "topic", "readers")["members_count"] == 0
    client.call("delete_consumer_group", stream, "topic", "readers")
    assert client.call("get_consumer_group", stream, "topic", "readers") is None


def test_the_high_level_consumer_goes_on_where_it_stopped(client: CurrentClient, stream: str) -> None:
    client.send(stream, "topic", FIRST, [(b"%d" % number, [], None) for number in range(4)])
    found = client.call("consume", stream, "topic", "high", 4)
    assert [one["offset"] for one in found] == [0, 1, 2, 3]


def test_the_first_generation_reads_it(client: CurrentClient, broker: BrokerProcess, stream: str) -> None:
    """The same kinds, order and ids; the key that is no text comes by carrier, which plain clients see as a header."""
    client.send(stream, "topic", FIRST, [(b"hello", EVERY_KIND[:-1], 42)])
    with httpx.Client(base_url=f"http://{broker.endpoints['iggy_http']}", timeout=20) as http:
        found = http.get(f"/streams/{stream}/topics/topic/messages", params={"partition_id": 1, "count": 10}).json()
    (row,) = found
    assert (row["id"], row["state"], row["checksum"]) == (42, "available", 907060870)
    assert set(row["headers"]) == {key.decode() for _, key, _, _ in EVERY_KIND[:-1]}
    assert row["headers"]["f uint64"] == {"kind": "uint64", "value": "AAAAAAAAAIA="}


def test_what_the_first_generation_wrote_is_read(client: CurrentClient, broker: BrokerProcess, stream: str) -> None:
    frames = Frames(broker.endpoints["iggy_tcp"])
    header = struct.pack("<I", 5) + b"key 1" + b"\x0c" + struct.pack("<I", 8) + (123456).to_bytes(8, "little")
    message = (7).to_bytes(16, "little") + struct.pack("<I", len(header)) + header + struct.pack("<I", 5) + b"hello"
    where = b"\x02" + bytes((len(stream),)) + stream.encode() + b"\x02\x05topic" + b"\x02\x04" + struct.pack("<I", 1)
    assert frames.ask(101, where + message + message) == (0, b"")
    polled = client.poll(stream, "topic")
    assert [(one["offset"], one["id"], one["payload"]) for one in polled] == [(0, 7, b"hello"), (1, 7, b"hello")]
    assert polled[0]["headers"] == [(2, b"key 1", 12, (123456).to_bytes(8, "little"))]
    assert polled[1]["timestamp"] == polled[0]["timestamp"] + 1


def test_kafka_writes_and_reads(client: CurrentClient, broker: BrokerProcess, stream: str) -> None:
    """A message without an id shows the same one at every poll, and no other has it."""
    name = f"{stream}.topic"
    producer = Producer({"bootstrap.servers": broker.endpoints["kafka"]})
    for payload in (b"one", b"two"):
        producer.produce(name, payload, headers=[("h", b"v")], partition=0)
    assert producer.flush(20) == 0
    first, again = client.poll(stream, "topic"), client.poll(stream, "topic")
    assert [one["payload"] for one in first] == [b"one", b"two"]
    assert (2, b"h", 1, b"v") in first[0]["headers"]
    assert len({one["id"] for one in first} - {0}) == 2
    assert first == again
    client.send(stream, "topic", FIRST, [(b"three", EVERY_KIND[:2], None)])
    consumer = Consumer(
        {"bootstrap.servers": broker.endpoints["kafka"], "group.id": stream, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([name])
    found: dict[bytes | None, dict[str, Any]] = {}
    for _ in range(60):
        if (record := consumer.poll(1)) is not None and record.error() is None:
            headers: Any = record.headers() or ()
            found[record.value()] = dict(headers)
        if len(found) == 3:
            break
    consumer.close()
    assert set(found) == {b"one", b"two", b"three"}
    assert found[b"three"]["a raw"] == b"\x00\xff"
    assert found[b"three"]["b string"] == "grüße".encode()


def test_the_batch_model_has_kinds_and_key_kinds(client: CurrentClient, broker: BrokerProcess, stream: str) -> None:
    client.send(stream, "topic", FIRST, [(b"hello", EVERY_KIND, 5)])
    (message,) = lading.Consumer(broker.url, f"{stream}.topic", end="latest")
    assert (message.payload, message.offset) == (b"hello", 0)
    assert sorted((header.key, header.kind, header.value) for header in message.headers) == sorted(
        (key.decode() if key_kind == 2 else f"\\k{key_kind}:{key.hex()}", kind, value)
        for key_kind, key, kind, value in EVERY_KIND
    )


def test_what_the_python_client_writes_is_read(client: CurrentClient, broker: BrokerProcess, stream: str) -> None:
    """Duplicates, nulls and empty values have no form in a frame: they come by carrier and are whole again."""
    headers = [lading.Header("a", 1, None), lading.Header("a", 1, b""), lading.Header("b", 12, bytes(8))]
    with lading.Producer(broker.url) as producer:
        producer.send(f"{stream}.topic", b"hello", headers=headers)
    (polled,) = [one for number in range(2) for one in client.poll(stream, "topic", partition=number)]
    assert polled["payload"] == b"hello"
    assert (2, b"b", 12, bytes(8)) in polled["headers"]
