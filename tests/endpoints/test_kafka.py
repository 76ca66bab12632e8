"""The Kafka endpoint by frames: answers of each API as kafka-python's codec reads them (kafka.md 2 and 3)."""

from __future__ import annotations

import gzip
import json
import socket
import struct
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import UUID

import cramjam
import httpx
import pytest

from lading import testing
from tests.endpoints.kafka_frames import (
    NOW_MS,
    KafkaFrames,
    batch,
    fetch,
    message,
    one_batch,
    produce,
    record,
)

VECTORS = Path(__file__).parents[1] / "vectors"
FRAMES = json.loads((VECTORS / "kafka_requests.json").read_text())["frames"]
BATCHES = json.loads((VECTORS / "kafka_vectors.json").read_text())
NONE, OUT_OF_RANGE, CORRUPT, UNKNOWN_TOPIC, TOO_LARGE, BAD_TOPIC = 0, 1, 2, 3, 10, 17
BAD_ACKS, BAD_VERSION, TOPIC_EXISTS, BAD_PARTITIONS, BAD_FACTOR, BAD_ASSIGNMENT, BAD_CONFIG = 21, 35, 36, 37, 38, 39, 40
BAD_REQUEST, NO_SESSION, FENCED_EPOCH, UNKNOWN_EPOCH, BAD_CODEC, BAD_RECORD, UNKNOWN_ID = 42, 70, 74, 75, 76, 87, 100
UNKNOWN_PRODUCER = 49
_names = count(1)

Connect = Callable[[], KafkaFrames]


@pytest.fixture(scope="module")
def address(broker: testing.BrokerProcess) -> str:
    return broker.endpoints["kafka"]


@pytest.fixture
def connect(address: str) -> Iterator[Connect]:
    """Opens connections, closed at the end."""
    opened: list[KafkaFrames] = []

    def open_() -> KafkaFrames:
        opened.append(KafkaFrames(address))
        return opened[-1]

    yield open_
    for frames in opened:
        frames.close()


@pytest.fixture
def kafka(connect: Connect) -> KafkaFrames:
    return connect()


@pytest.fixture
def topic(kafka: KafkaFrames) -> str:
    """A new topic of two partitions."""
    name = f"kafka-{next(_names)}"
    assert created(kafka, name, 2).error_code == NONE
    return name


def created(kafka: KafkaFrames, name: str, partitions: int, **configs: str) -> Any:
    """The answer's row of a CreateTopics."""
    rows = [{"name": key.replace("__", "."), "value": value} for key, value in configs.items()]
    asked = {"name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": rows}
    return kafka.ask("CreateTopics", 7, topics=[asked], timeout_ms=1000, validate_only=False).topics[0]


def sent(kafka: KafkaFrames, topic: str, data: bytes | None, version: int = 9, **named: Any) -> Any:
    """The answer's row of a Produce."""
    return kafka.ask("Produce", version, **produce(topic, data, **named)).responses[0].partition_responses[0]


def fetched(kafka: KafkaFrames, topic: str | UUID, offset: int = 0, version: int = 12, **named: Any) -> Any:
    """The answer's row of a Fetch."""
    return kafka.ask("Fetch", version, **fetch(topic, offset, **named)).responses[0].partitions[0]


def end(kafka: KafkaFrames, topic: str, timestamp: int = -1, partition: int = 0) -> Any:
    """The answer's row of a ListOffsets."""
    part = {"partition_index": partition, "timestamp": timestamp, "current_leader_epoch": -1}
    answer = kafka.ask("ListOffsets", 7, isolation_level=1, topics=[{"name": topic, "partitions": [part]}])
    return answer.topics[0].partitions[0]


# -- ApiVersions, versions, framing


def test_versions_are_told_and_a_newer_question_is_answered_in_version_0(kafka: KafkaFrames) -> None:
    told = {row.api_key: (row.min_version, row.max_version) for row in kafka.ask("ApiVersions", 3).api_keys}
    # kafka.md 3.3: 0 and 3 of Produce, 4 of Fetch are what old librdkafka needs to send headers at all
    assert (told[0], told[1], told[2], told[3], told[18]) == ((0, 13), (4, 18), (1, 11), (0, 13), (0, 4))
    # KIP-848; KIP-714 is offered with a setting alone, as Kafka offers it with a plugin
    assert told[68] == told[69] == (0, 1)
    assert told.keys().isdisjoint((71, 72))
    kafka.send(struct.pack(">hhih", 18, 99, 7, -1))
    answer = kafka.answer()
    correlation, error, rows = struct.unpack_from(">ihi", answer)
    assert (correlation, error) == (7, BAD_VERSION)
    assert {struct.unpack_from(">hhh", answer, 10 + 6 * row) for row in range(rows)} == {
        (key, *bounds) for key, bounds in told.items()
    }
    assert kafka.ask("ApiVersions", 0).error_code == NONE


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(struct.pack(">hhih", 999, 0, 1, -1), id="unknown API"),
        pytest.param(struct.pack(">hhih", 3, 99, 1, -1), id="unknown version"),
        pytest.param(struct.pack(">hhih", 1, 3, 1, -1), id="Fetch of an old version"),
        pytest.param(struct.pack(">hhih", 0, 14, 1, -1) + bytes(64), id="Produce of a version to come"),
        pytest.param(struct.pack(">hhih", 3, 1, 1, 500), id="client id beyond the end"),
        pytest.param(struct.pack(">hhih", 3, 1, 1, -2) + bytes(8), id="client id of length -2"),
        pytest.param(struct.pack(">hhihi", 3, 1, 1, -1, 1 << 30), id="list beyond the end"),
        pytest.param(struct.pack(">hhih", 3, 9, 1, -1) + b"\xff" * 12, id="varint overflow"),
        pytest.param(b"", id="empty"),
        pytest.param(b"\0\3", id="half a head"),
    ],
)
def test_what_cannot_be_understood_closes_the_connection(kafka: KafkaFrames, connect: Connect, frame: bytes) -> None:
    kafka.ask("Metadata", 1, topics=[])
    kafka.send(frame)
    assert kafka.closed()
    assert connect().ask("ApiVersions", 0).error_code == NONE


@pytest.mark.parametrize("length", [-1, -(1 << 31), (100 << 20) + 1, (1 << 31) - 1])
def test_a_length_that_cannot_be_closes_the_connection(kafka: KafkaFrames, length: int) -> None:
    kafka.socket.sendall(struct.pack(">i", length) + bytes(64))
    assert kafka.closed()


def test_answers_come_in_the_order_of_requests(kafka: KafkaFrames, topic: str) -> None:
    frames = [
        kafka.request("Produce", 9, **produce(topic, one_batch(b"first"))),
        kafka.request("Fetch", 12, **fetch(topic, 1, wait_ms=10_000)),
        kafka.request("Metadata", 9, topics=[]),
        kafka.request("Produce", 9, **produce(topic, one_batch(b"second"))),
        kafka.request("ApiVersions", 3),
    ]
    kafka.socket.sendall(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))
    began = time.monotonic()
    assert [kafka.answer()[:4] for _ in frames] == [frame[4:8] for frame in frames]
    # the second produce wakes the fetch that is in front of it
    assert time.monotonic() - began < 5


def test_a_frame_may_come_byte_by_byte(kafka: KafkaFrames) -> None:
    frame = kafka.request("Metadata", 9, topics=[])
    for byte in struct.pack(">i", len(frame)) + frame:
        kafka.socket.sendall(bytes((byte,)))
    assert kafka.answer()[:4] == frame[4:8]


# -- requests of five real clients


@pytest.mark.parametrize(
    "frame", [pytest.param(one, id=f"{one['client'].split()[0]} {one['api']} {one['version']}") for one in FRAMES]
)
def test_requests_of_real_clients_are_answered(
    frame: dict[str, Any], kafka: KafkaFrames, connect: Connect, full: bool
) -> None:
    served = {row.api_key: (row.min_version, row.max_version) for row in kafka.ask("ApiVersions", 0).api_keys}
    request = bytes.fromhex(frame["request_hex"])
    low, high = served.get(frame["api_key"], (0, -1))
    kafka.ask("Metadata", 4, topics=[{"name": "t1"}], allow_auto_topic_creation=True)
    kafka.send(request)
    if not low <= frame["version"] <= high:
        assert kafka.closed()
        return
    if frame["api"] == "SyncGroup":
        return  # answers when its leader does: the groups' own tests
    assert kafka.answer()[:4] == request[4:8]


# -- Produce


@pytest.mark.parametrize("version", range(3, 12))
def test_produce_and_fetch_in_every_version(kafka: KafkaFrames, topic: str, version: int) -> None:
    data = batch(record(0, b"value", b"key", [(b"a", b"1"), (b"a", None), (b"b", b"")]), 1)
    answer = sent(kafka, topic, data, version)
    assert (answer.index, answer.error_code, answer.base_offset, answer.log_append_time_ms) == (0, NONE, 0, -1)
    assert sent(kafka, topic, data, version).base_offset == 1
    for fetch_version in range(4, 13):
        row = fetched(kafka, topic, 1, fetch_version)
        assert (row.error_code, row.high_watermark, row.last_stable_offset) == (NONE, 2, 2)
        stored = bytes(row.records)
        # the offset and the leader epoch are the broker's; all the rest is as it was sent
        assert struct.unpack_from(">q", stored) == (1,)
        assert stored[8:12] == data[8:12] and stored[16:] == data[16:]


@pytest.mark.parametrize("version", range(13, 17))
def test_fetch_by_topic_id(kafka: KafkaFrames, topic: str, version: int) -> None:
    sent(kafka, topic, one_batch(b"x"))
    uuid = kafka.ask("Metadata", 12, topics=[{"name": topic, "topic_id": None}]).topics[0].topic_id
    assert len(bytes(fetched(kafka, uuid, 0, version).records)) == len(one_batch(b"x"))
    assert fetched(kafka, UUID(int=5), 0, version).error_code == UNKNOWN_ID


def test_old_produce_is_refused_in_its_own_version(kafka: KafkaFrames, topic: str) -> None:
    name = topic.encode()
    body = struct.pack(">hiih", 1, 1000, 1, len(name)) + name + struct.pack(">iii", 1, 0, 4) + bytes(4)
    for version, size in ((0, 14), (1, 18), (2, 26)):
        kafka.send(struct.pack(">hhih", 0, version, version, -1) + body)
        answer = kafka.answer()
        at = 4 + 4 + 2 + len(name) + 4
        assert struct.unpack_from(">ih", answer, at) == (0, BAD_VERSION)
        assert len(answer) == at + size
    assert end(kafka, topic).offset == 0


GOOD = record(0, b"value")


@pytest.mark.parametrize(
    ("data", "code"),
    [
        pytest.param(None, BAD_RECORD, id="null"),
        pytest.param(b"", BAD_RECORD, id="empty"),
        pytest.param(bytes(40), BAD_RECORD, id="zeros"),
        pytest.param(batch(GOOD, 1, magic=0), BAD_RECORD, id="magic 0"),
        pytest.param(batch(GOOD, 1, magic=1), BAD_RECORD, id="magic 1"),
        pytest.param(batch(GOOD, 1, magic=3), BAD_RECORD, id="magic 3"),
        pytest.param(batch(GOOD, 1)[:60], CORRUPT, id="cut in its head"),
        pytest.param(batch(GOOD, 1)[:-1], CORRUPT, id="cut in its records"),
        pytest.param(batch(GOOD, 1) * 2, BAD_RECORD, id="two batches"),
        pytest.param(batch(GOOD, 1, crc=1), CORRUPT, id="wrong CRC"),
        pytest.param(batch(GOOD, 1, length=-1), CORRUPT, id="negative length"),
        pytest.param(batch(GOOD, 1, length=(1 << 31) - 1), CORRUPT, id="2 GiB length"),
        pytest.param(batch(GOOD, 2), BAD_RECORD, id="more records than there are"),
        pytest.param(batch(GOOD, 0), BAD_RECORD, id="no records"),
        pytest.param(batch(GOOD, -1), BAD_RECORD, id="negative count"),
        pytest.param(batch(GOOD, (1 << 31) - 1), BAD_RECORD, id="2^31 records"),
        pytest.param(batch(GOOD * 2, 1), BAD_RECORD, id="fewer records than there are"),
        pytest.param(batch(GOOD, 1, last_delta=5), BAD_RECORD, id="last offset delta"),
        pytest.param(batch(record(3, b"x"), 1), BAD_RECORD, id="offset delta"),
        pytest.param(batch(GOOD + b"\0", 1), BAD_RECORD, id="bytes behind the records"),
        pytest.param(batch(GOOD, 1, attributes=32), BAD_RECORD, id="control batch"),
        pytest.param(batch(GOOD, 1, attributes=16), BAD_RECORD, id="transaction without a producer"),
        pytest.param(batch(GOOD, 1, producer=(5, 0, -1)), BAD_RECORD, id="producer without a sequence"),
        pytest.param(batch(GOOD, 1, attributes=5), BAD_CODEC, id="unknown codec"),
        pytest.param(batch(b"\x05\x00junk", 1, attributes=1), BAD_RECORD, id="no gzip"),
        pytest.param(batch(b"\x05\x00junk", 1, attributes=2), BAD_RECORD, id="no snappy"),
        pytest.param(batch(b"\x05\x00junk", 1, attributes=3), BAD_RECORD, id="no lz4"),
        pytest.param(batch(b"\x05\x00junk", 1, attributes=4), BAD_RECORD, id="no zstd"),
        pytest.param(batch(gzip.compress(GOOD), 2, attributes=1), BAD_RECORD, id="count that lies in gzip"),
        pytest.param(batch(b"\xff" * 20, 1), BAD_RECORD, id="varint overflow"),
        pytest.param(batch(b"\x7f" + GOOD[1:], 1), BAD_RECORD, id="negative record length"),
        pytest.param(batch(GOOD, 1, base_ms=1 << 60), 32, id="time beyond all"),
        pytest.param(one_batch(bytes(1_100_000)), TOO_LARGE, id="too large"),
        *(
            pytest.param(
                bytes.fromhex(one["batch_hex"]), CORRUPT if one["name"] == "bad_crc" else BAD_RECORD, id=one["name"]
            )
            for one in BATCHES["negative"]
            if "invalid_utf8" not in one["name"]
        ),
    ],
)
def test_batches_that_are_refused_append_nothing(kafka: KafkaFrames, topic: str, data: bytes | None, code: int) -> None:
    assert sent(kafka, topic, one_batch(b"before")).error_code == NONE
    # the second goes the short way of a place that is known
    for _ in range(2):
        answer = sent(kafka, topic, data)
        assert (answer.error_code, answer.base_offset) == (code, -1)
        assert answer.error_message
    assert end(kafka, topic).offset == 1


def test_a_decompression_bomb_is_refused(kafka: KafkaFrames, topic: str) -> None:
    bomb = bytes(cramjam.zstd.compress(bytes(300 << 20)))
    assert len(bomb) < 100_000
    assert sent(kafka, topic, batch(bomb, 1, attributes=4)).error_code == BAD_RECORD
    assert end(kafka, topic).offset == 0


@pytest.mark.parametrize("vector", [pytest.param(one, id=one["name"]) for one in BATCHES["vectors"]])
def test_batches_of_real_clients_are_taken_as_they_are(kafka: KafkaFrames, topic: str, vector: dict[str, Any]) -> None:
    data = bytes.fromhex(next(value for key, value in vector.items() if key.endswith("hex")))
    answer = sent(kafka, topic, data)
    # a transaction is begun by name first
    refused = UNKNOWN_PRODUCER if "transactional" in vector["name"] else TOO_LARGE if len(data) > 1_048_588 else NONE
    assert answer.error_code == refused, answer.error_message
    if not refused:
        assert bytes(fetched(kafka, topic, partition_bytes=4 << 20, max_bytes=4 << 20).records)[16:] == data[16:]


def test_acks(kafka: KafkaFrames, connect: Connect, topic: str) -> None:
    assert sent(kafka, topic, one_batch(b"1"), acks=1).error_code == NONE
    assert sent(kafka, topic, one_batch(b"2"), acks=2).error_code == BAD_ACKS
    # with acks 0 there is no answer, and a refused batch closes the connection
    kafka.send(kafka.request("Produce", 9, **produce(topic, one_batch(b"3"), acks=0)))
    assert kafka.ask("ApiVersions", 0).error_code == NONE
    kafka.send(kafka.request("Produce", 9, **produce(topic, one_batch(b"4", crc=1), acks=0)))
    assert kafka.closed()
    assert end(connect(), topic).offset == 2


def test_a_request_of_many_partitions_has_one_answer(kafka: KafkaFrames, topic: str) -> None:
    parts = [{"index": index, "records": one_batch(b"x")} for index in (0, 1, 7)]
    rows = [{"name": topic, "partition_data": parts}, {"name": "nowhere", "partition_data": parts[:1]}]
    answer = kafka.ask("Produce", 9, acks=-1, timeout_ms=1000, topic_data=rows)
    told = [(one.name, row.index, row.error_code) for one in answer.responses for row in one.partition_responses]
    assert told == [(topic, 0, NONE), (topic, 1, NONE), (topic, 7, UNKNOWN_TOPIC), ("nowhere", 0, UNKNOWN_TOPIC)]


def test_large_compressed_batches_keep_their_order(kafka: KafkaFrames, topic: str) -> None:
    values = [bytes((number,)) * 40_000 for number in range(8)]
    packed = [batch(gzip.compress(record(0, value) + bytes(0), 0), 1, attributes=1) for value in values]
    frames = [kafka.request("Produce", 9, **produce(topic, one)) for one in packed]
    kafka.socket.sendall(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))
    assert [kafka.answer()[:4] for _ in frames] == [frame[4:8] for frame in frames]
    assert bytes(fetched(kafka, topic).records)[61:].count(b"\x1f\x8b") == 8
    stored = bytes(fetched(kafka, topic).records)
    at, seen = 0, []
    while at < len(stored):
        (size,) = struct.unpack_from(">i", stored, at + 8)
        seen.append(gzip.decompress(stored[at + 61 : at + 12 + size])[-2])
        at += 12 + size
    assert seen == list(range(8))


def test_large_answers_go_out_whole_and_in_order_also_to_who_hangs_up(kafka: KafkaFrames, topic: str) -> None:
    values = [bytes((number,)) * 700_000 for number in range(8)]
    assert [sent(kafka, topic, one_batch(value)).error_code for value in values] == [NONE] * 8
    room = {"max_bytes": 8 << 20, "partition_bytes": 8 << 20}
    frames = [kafka.request("Fetch", 12, **fetch(topic, offset, **room)) for offset in range(8)]
    frames.insert(3, kafka.request("Metadata", 9, topics=[]))
    kafka.socket.sendall(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))
    answers = [kafka.answer() for _ in frames]
    assert [answer[:4] for answer in answers] == [frame[4:8] for frame in frames]
    del answers[3]
    for offset, answer in enumerate(answers):
        decoded = message("FetchResponse").decode(answer, version=12, header=True)
        stored = bytes(decoded.responses[0].partitions[0].records)
        seen = [number for number in range(8) if values[number] in stored]
        # as many whole batches as an answer of 4 MiB has room for
        assert seen == list(range(offset, min(offset + 5, 8)))
    kafka.send(frames[0])
    # the answer has begun: now no more is asked
    begun = kafka.receive(4)
    kafka.socket.shutdown(socket.SHUT_WR)
    assert begun + kafka.receive(struct.unpack(">i", begun)[0]) == struct.pack(">i", len(answers[0])) + answers[0]
    assert kafka.closed()


def anonymous_bytes(broker: testing.BrokerProcess) -> int:
    lines = Path(f"/proc/{broker.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))


def test_readers_that_do_not_read_cost_little_memory_and_keep_what_is_deleted_meanwhile(
    broker: testing.BrokerProcess, kafka: KafkaFrames, connect: Connect, topic: str
) -> None:
    values = [bytes((number,)) * 700_000 for number in range(5)]
    assert [sent(kafka, topic, one_batch(value)).error_code for value in values] == [NONE] * 5
    frame = kafka.request("Fetch", 12, **fetch(topic, 0, max_bytes=8 << 20, partition_bytes=8 << 20))
    before_bytes = anonymous_bytes(broker)
    readers = [connect() for _ in range(16)]
    for reader in readers:
        # twelve answers of 3.5 MB each, of which the kernel holds some
        reader.socket.sendall(12 * (struct.pack(">i", len(frame)) + frame))
    begun = [struct.unpack(">i", reader.receive(4))[0] for reader in readers]
    [row] = kafka.ask(
        "DeleteRecords", 2, topics=[{"name": topic, "partitions": [{"partition_index": 0, "offset": 5}]}]
    ).topics
    assert (row.partitions[0].error_code, row.partitions[0].low_watermark) == (NONE, 5)
    assert anonymous_bytes(broker) - before_bytes < 48 << 20
    for reader, size in zip(readers, begun, strict=True):
        answer = reader.receive(size)
        assert all(value in answer for value in values)


def test_append_time(kafka: KafkaFrames) -> None:
    name = f"kafka-{next(_names)}"
    created(kafka, name, 1, message__timestamp__type="LogAppendTime")
    before_ms = time.time_ns() // 1_000_000
    assert sent(kafka, name, one_batch(b"x", b"y")).error_code == NONE
    stored = bytes(fetched(kafka, name).records)
    attributes, _, _, max_ms = struct.unpack_from(">hiqq", stored, 21)
    assert attributes & 8 and before_ms <= max_ms <= time.time_ns() // 1_000_000
    from kafka.record import MemoryRecords

    [one] = MemoryRecords(stored)
    assert one.validate_crc() and [held.timestamp for held in one] == [max_ms, max_ms]


def test_a_latest_time_that_lies_is_corrected(kafka: KafkaFrames, topic: str) -> None:
    data = batch(record(0, b"x", ms=5) + record(1, b"y", ms=-5), 2, max_ms=NOW_MS + 999_999)
    assert sent(kafka, topic, data).error_code == NONE
    from kafka.record import MemoryRecords

    [one] = MemoryRecords(bytes(fetched(kafka, topic).records))
    assert one.validate_crc() and one.max_timestamp == NOW_MS + 5


# -- Fetch


def test_a_fetch_waits_for_what_comes(kafka: KafkaFrames, connect: Connect, topic: str) -> None:
    other = connect()
    kafka.send(kafka.request("Fetch", 12, **fetch(topic, 0, wait_ms=20_000)))
    began = time.monotonic()
    assert sent(other, topic, one_batch(b"x")).error_code == NONE
    assert b"x" in kafka.answer()
    assert time.monotonic() - began < 5
    kafka.send(kafka.request("Fetch", 12, **fetch(topic, 1, wait_ms=20_000, min_bytes=200)))
    for _ in range(4):
        sent(other, topic, one_batch(b"more"))
    assert kafka.answer().count(b"more") >= 3
    assert time.monotonic() - began < 10


def test_a_fetch_ends_when_its_time_is_over(kafka: KafkaFrames, topic: str) -> None:
    began = time.monotonic()
    row = fetched(kafka, topic, 0, wait_ms=150)
    assert (row.error_code, len(row.records or b"")) == (NONE, 0)
    assert 0.1 < time.monotonic() - began < 5


def test_a_fetch_does_not_wait_where_its_own_limits_hold_back_what_there_is(kafka: KafkaFrames, topic: str) -> None:
    for _ in range(4):
        sent(kafka, topic, one_batch(bytes(1000)))
    began = time.monotonic()
    row = fetched(kafka, topic, 0, wait_ms=20_000, min_bytes=3000, partition_bytes=2500)
    assert 2000 < len(row.records) < 2500
    assert time.monotonic() - began < 10


def test_limits_are_kept_by_whole_batches_and_the_first_always_comes(kafka: KafkaFrames, topic: str) -> None:
    data = one_batch(bytes(1000))
    for _ in range(10):
        sent(kafka, topic, data)
    assert len(fetched(kafka, topic).records) == 10 * len(data)
    assert len(fetched(kafka, topic, partition_bytes=1).records) == len(data)
    assert len(fetched(kafka, topic, max_bytes=0).records) == len(data)
    assert len(fetched(kafka, topic, partition_bytes=3 * len(data) + 5).records) == 3 * len(data)
    assert len(fetched(kafka, topic, 4, max_bytes=2 * len(data)).records) == 2 * len(data)
    sent(kafka, topic, data, partition=1)
    fields = fetch(topic, 0, max_bytes=len(data) + 5)
    fields["topics"][0]["partitions"] += fetch(topic, 0, partition=1)["topics"][0]["partitions"]
    rows = kafka.ask("Fetch", 12, **fields).responses[0].partitions
    assert [len(row.records or b"") for row in rows] == [len(data), 0]


def test_a_fetch_from_inside_a_batch_gets_the_whole_batch(kafka: KafkaFrames, topic: str) -> None:
    sent(kafka, topic, one_batch(b"0"))
    data = one_batch(b"1", b"2", b"3")
    sent(kafka, topic, data)
    assert bytes(fetched(kafka, topic, 2).records)[16:] == data[16:]


@pytest.mark.parametrize(
    ("offset", "code"), [(-1, OUT_OF_RANGE), (2, OUT_OF_RANGE), (1 << 62, OUT_OF_RANGE), (1, NONE)]
)
def test_offsets_out_of_range(kafka: KafkaFrames, topic: str, offset: int, code: int) -> None:
    sent(kafka, topic, one_batch(b"x"))
    row = fetched(kafka, topic, offset, wait_ms=10 if code == NONE else 10_000)
    # without an end of the log, as from Apache Kafka 4.3.1
    assert (row.error_code, row.high_watermark) == (code, 1 if code == NONE else -1)


def test_epochs_of_leaders(kafka: KafkaFrames, topic: str) -> None:
    sent(kafka, topic, one_batch(b"x"))
    epoch = kafka.ask("Metadata", 9, topics=[{"name": topic}]).topics[0].partitions[0].leader_epoch
    assert fetched(kafka, topic, 0, epoch=epoch).error_code == NONE
    assert fetched(kafka, topic, 0, epoch=epoch - 1).error_code == FENCED_EPOCH
    assert fetched(kafka, topic, 0, epoch=epoch + 1).error_code == UNKNOWN_EPOCH
    part = {"partition": 0, "current_leader_epoch": epoch, "leader_epoch": epoch}
    told = kafka.ask("OffsetForLeaderEpoch", 4, topics=[{"topic": topic, "partitions": [part]}])
    row = told.topics[0].partitions[0]
    assert (row.error_code, row.leader_epoch, row.end_offset) == (NONE, epoch, 1)
    # epoch 0 stands in positions behind control records of older versions: what they have read is there
    sent(kafka, topic, one_batch(b"y"))
    kafka.ask("DeleteRecords", 2, topics=[{"name": topic, "partitions": [{"partition_index": 0, "offset": 1}]}])
    assert epoch == 1
    for asked, known, end in ((0, 0, 2), (-1, -1, -1), (epoch + 1, -1, -1)):
        part = {"partition": 0, "current_leader_epoch": epoch, "leader_epoch": asked}
        told = kafka.ask("OffsetForLeaderEpoch", 4, topics=[{"topic": topic, "partitions": [part]}])
        row = told.topics[0].partitions[0]
        assert (row.error_code, row.leader_epoch, row.end_offset) == (NONE, known, end)


def test_sessions_are_declined(kafka: KafkaFrames, topic: str) -> None:
    assert kafka.ask("Fetch", 12, **fetch(topic, 0, session_epoch=0)).session_id == 0
    answer = kafka.ask("Fetch", 12, **fetch(topic, 0, session_id=9, session_epoch=3))
    assert (answer.error_code, answer.responses) == (NO_SESSION, [])


# -- topics, offsets, configs


def test_metadata_makes_topics_and_says_what_there_is(kafka: KafkaFrames) -> None:
    name = f"kafka-{next(_names)}"
    asked = [{"name": name, "topic_id": None}]
    answer = kafka.ask("Metadata", 12, topics=asked, allow_auto_topic_creation=False)
    assert answer.topics[0].error_code == UNKNOWN_TOPIC
    row = kafka.ask("Metadata", 12, topics=asked, allow_auto_topic_creation=True).topics[0]
    assert (row.error_code, row.name, len(row.partitions), row.partitions[0].leader_id) == (NONE, name, 1, 1)
    assert sent(kafka, name, one_batch(b"at once")).error_code == NONE
    everything = kafka.ask("Metadata", 12, topics=None)
    assert name in [one.name for one in everything.topics]
    assert [(one.node_id, one.host) for one in everything.brokers] == [(1, "127.0.0.1")]
    for version in range(13):
        assert kafka.ask("Metadata", version, topics=[{"name": name, "topic_id": None}]).topics[0].name == name
    bad = [{"name": "bad name!", "topic_id": None}]
    assert kafka.ask("Metadata", 12, topics=bad).topics[0].error_code == BAD_TOPIC
    [node] = kafka.ask("DescribeCluster", 0).brokers
    assert node.broker_id == 1


def test_topics_are_made_as_asked(kafka: KafkaFrames, topic: str) -> None:
    def code(**changed: Any) -> int:
        fields = {"name": f"kafka-{next(_names)}", "num_partitions": 1, "replication_factor": 1, "assignments": []}
        rows = [{**fields, "configs": [], **changed}]
        found: int = kafka.ask("CreateTopics", 7, topics=rows, timeout_ms=1000, validate_only=True).topics[0].error_code
        return found

    def config(name: str, value: str | None) -> int:
        return code(configs=[{"name": name, "value": value}])

    assert code() == NONE
    assert code(name=topic) == TOPIC_EXISTS
    assert [code(name=name) for name in ("", ".", "..", "a b", "x" * 250)] == [BAD_TOPIC] * 5
    assert [code(num_partitions=number) for number in (0, -2, 1 << 30)] == [BAD_PARTITIONS] * 3
    assert (code(replication_factor=3), code(replication_factor=-1)) == (BAD_FACTOR, NONE)
    assigned = [{"partition_index": 0, "broker_ids": [1]}]
    assert code(assignments=assigned, num_partitions=-1, replication_factor=-1) == NONE
    assigned = [{"partition_index": 0, "broker_ids": [2]}]
    assert code(assignments=assigned, num_partitions=-1, replication_factor=-1) == BAD_ASSIGNMENT
    policies = ("compact", "compact,delete", "delete", "compact,keep", "")
    assert [config("cleanup.policy", text) for text in policies] == [NONE, NONE, NONE, BAD_CONFIG, NONE]
    assert (config("retention.ms", "soon"), config("no.such", "1"), config("retention.ms", "-1")) == (
        BAD_CONFIG,
        BAD_CONFIG,
        NONE,
    )
    assert end(kafka, topic).offset == 0


def test_configs_are_told_changed_and_obeyed(kafka: KafkaFrames) -> None:
    name = f"kafka-{next(_names)}"
    assert created(kafka, name, 1, max__message__bytes="2000", retention__ms="60000").error_code == NONE

    def told() -> dict[str, tuple[str, bool]]:
        resources = [{"resource_type": 2, "resource_name": name, "configuration_keys": None}]
        [row] = kafka.ask("DescribeConfigs", 4, resources=resources).results
        assert row.error_code == NONE
        return {one.name: (one.value, one.config_source == 1) for one in row.configs}

    def alter(key: str, value: str | None, operation: int = 0) -> int:
        configs = [{"name": key, "config_operation": operation, "value": value}]
        resources = [{"resource_type": 2, "resource_name": name, "configs": configs}]
        [row] = kafka.ask("IncrementalAlterConfigs", 1, resources=resources).responses
        code: int = row.error_code
        return code

    assert told()["max.message.bytes"] == ("2000", True)
    assert told()["retention.ms"] == ("60000", True)
    assert told()["retention.bytes"] == ("-1", False)
    assert told()["cleanup.policy"] == ("delete", False)
    assert sent(kafka, name, one_batch(bytes(3000))).error_code == TOO_LARGE
    assert alter("max.message.bytes", "4000") == NONE
    assert sent(kafka, name, one_batch(bytes(3000))).error_code == NONE
    assert alter("max.message.bytes", None, operation=1) == NONE
    assert told()["max.message.bytes"] == ("1048588", False)
    assert alter("retention.ms", "x") == BAD_CONFIG
    # a list: set, appended to and subtracted from
    changes = ((0, "compact"), (2, "delete"), (3, "compact"), (3, "compact"), (2, "compact"), (1, None))
    seen = []
    for operation, text in changes:
        assert alter("cleanup.policy", text, operation) == NONE
        seen.append(told()["cleanup.policy"])
    # in the order that they were named in, as Apache Kafka keeps it
    kept, both, default = ("compact", True), ("compact,delete", True), ("delete", False)
    assert seen == [kept, both, default, default, ("delete,compact", True), default]
    assert alter("retention.ms", "1", operation=2) == BAD_CONFIG
    # Apache Kafka 4 takes the empty list: nothing is deleted, nothing compacted
    assert alter("cleanup.policy", "delete", operation=3) == NONE
    assert told()["cleanup.policy"] == ("", True)
    assert alter("cleanup.policy", "delete", operation=2) == NONE
    assert told()["cleanup.policy"] == ("delete", False)
    # what a tool copies or ends although there is none of it
    assert alter("remote.log.delete.on.disable", None, operation=1) == NONE
    assert [alter("remote.storage.enable", text) for text in ("false", "true")] == [NONE, BAD_CONFIG]
    assert [alter("compression.type", text) for text in ("lz4", "rar")] == [NONE, BAD_CONFIG]
    assert told()["compression.type"] == ("lz4", True)
    assert alter("compression.type", None, operation=1) == NONE
    assert told()["compression.type"] == ("producer", False)
    # Kafka Streams asks for these where it divides a stream anew
    wanted = {"segment__bytes": "52428800", "cleanup__policy": "delete", "retention__ms": "-1"}
    made = created(kafka, f"{name}-repartition", 1, **wanted)
    assert made.error_code == NONE
    assert {row.name: row.value for row in made.configs}["segment.bytes"] == "52428800"
    assert [alter("segment.bytes", text) for text in ("1000000", "x")] == [NONE, BAD_CONFIG]
    assert [alter("preallocate", text) for text in ("true", "1")] == [NONE, BAD_CONFIG]
    assert (told()["segment.bytes"], told()["preallocate"]) == (("1000000", True), ("true", True))
    throttled = "leader.replication.throttled.replicas"
    assert [alter(throttled, "0:1", operation) for operation in (2, 2)] == [NONE, NONE]
    assert told()[throttled] == ("0:1", True)
    assert alter(throttled, "0:" + "1" * 20_000) == BAD_CONFIG
    # all that a request does not name goes back to its default
    resources = [{"resource_type": 2, "resource_name": name, "configs": [{"name": "segment.ms", "value": "5"}]}]
    assert kafka.ask("AlterConfigs", 2, resources=resources).responses[0].error_code == NONE
    assert (told()["segment.ms"], told()["cleanup.policy"]) == (("5", True), ("delete", False))
    # segment.bytes has an effect, and is described with what applies to all topics
    assert told()["segment.bytes"] == (str(256 << 20), False)
    assert not {"preallocate", throttled} & told().keys()


@pytest.mark.parametrize("codec", [0, 1], ids=["plain", "gzip"])
def test_a_compacted_topic_takes_no_record_without_a_key(kafka: KafkaFrames, codec: int) -> None:
    """Kafka's LogValidator: the whole batch is refused, and the response names the records (KIP-467)."""
    name = f"kafka-{next(_names)}"
    assert created(kafka, name, 1, cleanup__policy="compact,delete").error_code == NONE

    def send(keys: list[bytes | None]) -> Any:
        records = b"".join(record(number, b"v", key) for number, key in enumerate(keys))
        data = gzip.compress(records) if codec else records
        return sent(kafka, name, batch(data, len(keys), attributes=codec))

    told = send([b"k", None, b"", None])
    assert (told.error_code, [row.batch_index for row in told.record_errors]) == (BAD_RECORD, [1, 3])
    # an empty key is a key
    assert send([b"k", b""]).error_code == NONE
    assert end(kafka, name).offset == 2


def test_a_broker_describes_where_it_listens(kafka: KafkaFrames, address: str) -> None:
    resources = [{"resource_type": 4, "resource_name": "1", "configuration_keys": None}]
    [row] = kafka.ask("DescribeConfigs", 4, resources=resources).results
    # 4 is STATIC_BROKER_CONFIG
    found = {one.name: (one.value, one.read_only, one.config_source) for one in row.configs}
    assert found["advertised.listeners"] == found["listeners"] == (f"PLAINTEXT://{address}", True, 4)


def test_throttles_of_a_broker_may_end(kafka: KafkaFrames) -> None:
    def alter(key: str, operation: int) -> int:
        configs = [{"name": key, "config_operation": operation, "value": "1" if operation == 0 else None}]
        resources = [{"resource_type": 4, "resource_name": "1", "configs": configs}]
        code: int = kafka.ask("IncrementalAlterConfigs", 1, resources=resources).responses[0].error_code
        return code

    assert alter("leader.replication.throttled.rate", 1) == NONE
    # Kafka 4.3.1 keeps a throttle of the broker that reassigns nothing, too
    assert alter("leader.replication.throttled.rate", 0) == NONE
    assert alter("num.partitions", 1) == BAD_REQUEST


def test_topics_grow_and_go(kafka: KafkaFrames, topic: str) -> None:
    def grow(to: int) -> int:
        rows = [{"name": topic, "count": to, "assignments": None}]
        code: int = kafka.ask("CreatePartitions", 3, topics=rows, timeout_ms=1000).results[0].error_code
        return code

    assert (grow(2), grow(4)) == (BAD_PARTITIONS, NONE)
    assert sent(kafka, topic, one_batch(b"x"), partition=3).error_code == NONE
    gone = kafka.ask("DeleteTopics", 6, topics=[{"name": topic, "topic_id": None}], timeout_ms=1000).responses
    assert [(row.name, row.error_code) for row in gone] == [(topic, NONE)]
    assert sent(kafka, topic, one_batch(b"x")).error_code == UNKNOWN_TOPIC
    gone = kafka.ask("DeleteTopics", 5, topic_names=[topic], timeout_ms=1000).responses
    assert gone[0].error_code == UNKNOWN_TOPIC


def test_offsets_by_end_and_by_time(kafka: KafkaFrames, topic: str) -> None:
    assert (end(kafka, topic).offset, end(kafka, topic, -2).offset, end(kafka, topic, -3).offset) == (0, 0, -1)
    sent(kafka, topic, batch(record(0, b"a") + record(1, b"b", ms=10), 2))
    sent(kafka, topic, batch(record(0, b"c", ms=50) + record(1, b"d", ms=20), 2))
    assert (end(kafka, topic).offset, end(kafka, topic, -2).offset) == (4, 0)
    late = end(kafka, topic, -3)
    assert (late.offset, late.timestamp) == (2, NOW_MS + 50)
    found = [(end(kafka, topic, NOW_MS + ms).offset, end(kafka, topic, NOW_MS + ms).timestamp) for ms in (0, 1, 11, 51)]
    assert found == [(0, NOW_MS), (1, NOW_MS + 10), (2, NOW_MS + 50), (-1, -1)]
    assert end(kafka, topic, partition=9).error_code == UNKNOWN_TOPIC


def test_a_control_record_is_no_message_of_its_time(kafka: KafkaFrames, topic: str) -> None:
    told = kafka.ask("InitProducerId", 4, transactional_id=topic, transaction_timeout_ms=60_000)
    named = {
        "transactional_id": topic,
        "producer_id": told.producer_id,
        "producer_epoch": told.producer_epoch,
    }
    parts = [{"name": topic, "partitions": [0]}]
    assert kafka.ask("AddPartitionsToTxn", 3, **_v3(named), v3_and_below_topics=parts).results_by_topic_v3_and_below
    data = batch(record(0, b"x"), 1, attributes=16, producer=(told.producer_id, told.producer_epoch, 0))
    assert sent(kafka, topic, data).error_code == NONE
    assert kafka.ask("EndTxn", 3, **named, committed=True).error_code == NONE
    # but it is what was written last, and a batch of its log's epoch
    assert end(kafka, topic, -3).offset == 1
    batches = fetched(kafka, topic, 0).records
    second = 12 + int.from_bytes(batches[8:12], "big")
    epoch = kafka.ask("Metadata", 9, topics=[{"name": topic}]).topics[0].partitions[0].leader_epoch
    assert [int.from_bytes(batches[at + 12 : at + 16], "big") for at in (0, second)] == [epoch, epoch]
    late_ms = time.time_ns() // 1_000_000 + 3_600_000
    sent(kafka, topic, one_batch(b"late", base_ms=late_ms))
    # offset 1 is the control record, written now
    assert end(kafka, topic, NOW_MS + 1).offset == 2
    assert (end(kafka, topic).offset, end(kafka, topic, -3).offset) == (3, 2)


def _v3(named: dict[str, Any]) -> dict[str, Any]:
    return {f"v3_and_below_{name}": value for name, value in named.items()}


def test_records_are_deleted_from_the_front(kafka: KafkaFrames, topic: str) -> None:
    for value in (b"a", b"b", b"c"):
        sent(kafka, topic, one_batch(value))

    def delete(offset: int) -> tuple[int, int]:
        parts = [{"partition_index": 0, "offset": offset}]
        asked = [{"name": topic, "partitions": parts}]
        row = kafka.ask("DeleteRecords", 2, topics=asked, timeout_ms=1000).topics[0].partitions[0]
        return row.error_code, row.low_watermark

    assert (delete(9), delete(2)) == ((OUT_OF_RANGE, -1), (NONE, 2))
    assert fetched(kafka, topic, 0).error_code == OUT_OF_RANGE
    row = fetched(kafka, topic, 2)
    assert (row.error_code, row.log_start_offset) == (NONE, 2)
    assert (delete(-1), end(kafka, topic, -2).offset) == ((NONE, 3), 3)


# -- the endpoint as a whole


def test_metrics_count_what_went_through(kafka: KafkaFrames, topic: str, broker: testing.BrokerProcess) -> None:
    def figure(name: str) -> float:
        text = httpx.get(f"http://{broker.endpoints['admin']}/metrics").text
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))

    names = ('lading_messages_in_total{endpoint="kafka"}', 'lading_messages_out_total{endpoint="kafka"}')
    produced = 'lading_requests_total{command="Produce",endpoint="kafka",status="0"}'
    before = [figure(name) for name in (*names, produced)]
    sent(kafka, topic, one_batch(b"1", b"2", b"3"))
    fetched(kafka, topic)
    assert [figure(name) - old for name, old in zip((*names, produced), before, strict=True)] == [3, 3, 1]
    assert figure('lading_connections{endpoint="kafka"}') >= 1


@pytest.mark.turns(2, part=1)
def test_fetches_are_answered_when_the_broker_stops(tmp_path: Path) -> None:
    with testing.broker(tmp_path) as running:
        kafka = KafkaFrames(running.endpoints["kafka"])
        created(kafka, "t", 1)
        kafka.send(kafka.request("Fetch", 12, **fetch("t", 0, wait_ms=60_000)))
        stopping = Thread(target=running.stop)
        began = time.monotonic()
        stopping.start()
        assert len(kafka.answer()) > 20 and kafka.closed()
        stopping.join()
        assert time.monotonic() - began < 30


@pytest.mark.turns(2, part=0)
def test_limits_of_connections_and_automatic_topics_are_settings(tmp_path: Path) -> None:
    with testing.broker(
        tmp_path,
        endpoints__kafka__connections_max=1,
        endpoints__kafka__auto_create=False,
        endpoints__kafka__advertised="broker.example:19092",
    ) as running:
        kafka = KafkaFrames(running.endpoints["kafka"])
        answer = kafka.ask("Metadata", 4, topics=[{"name": "t"}], allow_auto_topic_creation=True)
        assert answer.topics[0].error_code == UNKNOWN_TOPIC
        assert [(one.host, one.port) for one in answer.brokers] == [("broker.example", 19092)]
        assert KafkaFrames(running.endpoints["kafka"]).closed()
