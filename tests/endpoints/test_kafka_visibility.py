"""What Kafka consumers see of hidden and damaged messages and of those that other dialects wrote (visibility table)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from kafka.record import MemoryRecords

from lading import Headers, Producer, testing, u16
from tests.endpoints.kafka_frames import NOW_MS, KafkaFrames, batch, fetch, one_batch, produce, record

_names = count(1)


@pytest.fixture(scope="module")
def url(broker: testing.BrokerProcess) -> str:
    return f"http://{broker.endpoints['admin']}"


@pytest.fixture
def kafka(broker: testing.BrokerProcess) -> Iterator[KafkaFrames]:
    frames = KafkaFrames(broker.endpoints["kafka"])
    yield frames
    frames.close()


@pytest.fixture
def topic(kafka: KafkaFrames) -> str:
    name = f"seen-{next(_names)}"
    kafka.ask("Metadata", 4, topics=[{"name": name}], allow_auto_topic_creation=True)
    return name


def send(kafka: KafkaFrames, topic: str, data: bytes) -> None:
    row = kafka.ask("Produce", 9, **produce(topic, data)).responses[0].partition_responses[0]
    assert row.error_code == 0, row.error_message


class Seen(NamedTuple):
    """One batch."""

    base_offset: int
    end_offset: int
    producer_id: int
    records: list[Any]


def fetched(kafka: KafkaFrames, topic: str, offset: int = 0) -> bytes:
    row = kafka.ask("Fetch", 12, **fetch(topic, offset)).responses[0].partitions[0]
    assert row.error_code == 0
    return bytes(row.records or b"")


def batches(kafka: KafkaFrames, topic: str, offset: int = 0) -> list[Seen]:
    """What a consumer gets from ``offset`` on, as kafka-python takes it apart; every CRC must hold."""
    found = []
    for one in MemoryRecords(fetched(kafka, topic, offset)):
        assert one.validate_crc()
        end_offset = one.base_offset + one.last_offset_delta + 1
        found.append(Seen(one.base_offset, end_offset, one.producer_id, list(one)))
    return found


def values(found: list[Seen]) -> list[tuple[int, bytes]]:
    return [(one.offset, one.value) for held in found for one in held.records]


def hide(url: str, topic: str, first: int, end: int) -> None:
    document = {"first": first, "end": end, "state": "poisoned"}
    httpx.put(f"{url}/topics/default/{topic}/0/states", json=document).raise_for_status()


def test_batches_without_hidden_messages_go_as_they_lie(kafka: KafkaFrames, topic: str, url: str) -> None:
    for first in (0, 3, 6):
        send(kafka, topic, one_batch(*(b"%d" % number for number in range(first, first + 3))))
    hide(url, topic, 4, 5)
    found = batches(kafka, topic)
    assert values(found) == [(offset, b"%d" % offset) for offset in (0, 1, 2, 3, 5, 6, 7, 8)]
    assert [(one.base_offset, len(one.records)) for one in found] == [(0, 3), (3, 1), (5, 1), (6, 3)]
    hide(url, topic, 3, 6)
    assert values(batches(kafka, topic)) == [(offset, b"%d" % offset) for offset in (0, 1, 2, 6, 7, 8)]
    assert values(batches(kafka, topic, 4)) == [(offset, b"%d" % offset) for offset in (6, 7, 8)]


def test_an_empty_batch_moves_the_reader_on(kafka: KafkaFrames, topic: str, url: str) -> None:
    send(kafka, topic, one_batch(b"0", b"1", b"2", b"3"))
    hide(url, topic, 2, 4)
    found = batches(kafka, topic)
    assert values(found) == [(0, b"0"), (1, b"1")]
    last = fetched(kafka, topic, 2)
    # an empty batch with the true last offset delta, as compaction leaves one (kafka.md 2.1)
    base, delta, records = (
        struct.unpack_from(">q", last)[0],
        *struct.unpack_from(">i", last, 23),
        *struct.unpack_from(">i", last, 57),
    )
    assert (len(last), base + delta + 1, records) == (61, 4, 0)
    send(kafka, topic, one_batch(b"4"))
    assert values(batches(kafka, topic, 2)) == [(4, b"4")]


def test_what_a_batch_says_of_itself_outlives_hidden_messages(kafka: KafkaFrames, topic: str, url: str) -> None:
    headers = [(b"a", b"1"), (b"a", None), (b"\xc3\xa9", b"")]
    rows = [record(delta, b"v%d" % delta, b"k", headers, ms=delta) for delta in range(3)]
    send(kafka, topic, batch(b"".join(rows), 3, producer=(77, 0, 0)))
    hide(url, topic, 1, 2)
    found = batches(kafka, topic)
    assert [(one.offset, one.timestamp, one.key, one.value) for held in found for one in held.records] == [
        (0, NOW_MS, b"k", b"v0"),
        (2, NOW_MS + 2, b"k", b"v2"),
    ]
    assert {held.producer_id for held in found} == {77}
    stored = fetched(kafka, topic)
    assert stored.count(b"\x06\x02a\x021\x02a\x01\x04\xc3\xa9\x00") == 2


def test_messages_of_other_dialects_come_with_their_headers(
    kafka: KafkaFrames, topic: str, broker: testing.BrokerProcess
) -> None:
    headers = Headers([("text", "x"), ("delay", u16(12)), ("none", None), ("text", "y")])
    send(kafka, topic, one_batch(b"before"))
    with Producer(broker.url) as producer:
        for number in range(3):
            producer.send(topic, b"native %d" % number, key=b"key", headers=headers)
    send(kafka, topic, one_batch(b"after"))
    for _ in range(2):  # made, then kept
        found = batches(kafka, topic)
        assert [value for _, value in values(found)] == [b"before", b"native 0", b"native 1", b"native 2", b"after"]
        rows = [one for held in found for one in held.records]
        assert [offset for offset, _ in values(found)] == [0, 1, 2, 3, 4]
        plain = [(name, value) for name, value in rows[1].headers if not name.startswith("lading")]
        assert plain == [("text", b"x"), ("delay", struct.pack("<H", 12)), ("none", None), ("text", b"y")]
        assert len(rows[1].headers) == 5 and rows[1].key == b"key"


def test_damaged_messages_are_passed_over(tmp_path: Path) -> None:
    with testing.broker(tmp_path, durability="os") as running:
        kafka = KafkaFrames(running.endpoints["kafka"])
        kafka.ask("Metadata", 4, topics=[{"name": "t"}], allow_auto_topic_creation=True)
        frames = [kafka.request("Produce", 9, **produce("t", one_batch(b"value %d" % number))) for number in range(5)]
        # what arrives together shares a chunk
        kafka.socket.sendall(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))
        for _ in frames:
            kafka.answer()
        kafka.ask("Produce", 9, **produce("t", one_batch(b"value 5")))
    [segment] = tmp_path.rglob("*.log")
    data = bytearray(segment.read_bytes())
    data[data.index(b"value 2") + 1] ^= 0xFF
    segment.write_bytes(data)
    with testing.broker(tmp_path, durability="os") as running:
        kafka = KafkaFrames(running.endpoints["kafka"])
        seen: list[tuple[int, bytes]] = []
        offset = 0
        while offset < 6:
            found = batches(kafka, "t", offset)
            seen += [one for one in values(found) if one[0] >= offset]
            offset = found[-1].end_offset if found else 6
        assert [value for _, value in seen if value != b"value 2"] == [
            b"value 0",
            b"value 1",
            b"value 3",
            b"value 4",
            b"value 5",
        ]
        assert (2, b"value 2") not in seen or len(seen) == 6
