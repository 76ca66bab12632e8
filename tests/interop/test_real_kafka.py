"""Apache's broker and ours: what other clients wrote is read exactly, what we write they read, losses are seen."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterator
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import lading
from lading import Consumer, Producer, u16
from lading.model.errors import (
    CorruptError,
    DataLoss,
    LimitExceeded,
    LocalError,
    Refusal,
    RemoteError,
    Unreachable,
)
from lading.transports.kafka.transport import KafkaTransport
from tests.interop import kafka_broker
from tests.interop.kafka_clients import fresh_name, made, producer, read_all, wait_until_known

confluent = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
admin_of = pytest.importorskip("confluent_kafka.admin")

# kafka.protocol reads its schemas in a way that importlib.resources wants no more
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.parametrize("kafka", ["apache", "lading"], indirect=True),
]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
READ_TIMEOUT_S = 20.0


@pytest.fixture
def transport(kafka: kafka_broker.RunningKafka) -> Iterator[KafkaTransport]:
    """Our client."""
    opened = KafkaTransport(kafka.url)
    yield opened
    opened.close()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.turns(4)
def test_what_librdkafka_wrote_is_read_exactly(kafka: kafka_broker.RunningKafka, codec: str) -> None:
    topic = made(kafka, 2)
    sender = producer(kafka, **{"compression.type": codec})
    want = []
    for number in range(1000):
        key = None if number % 7 == 0 else b"k%d" % number
        value = None if number % 5 == 0 else b"payload %d " % number * 8
        headers = [("carrier", b"UA"), ("delay", struct.pack(">i", number - 500)), ("carrier", b"DL"), ("via", None)]
        headers = [*headers, ("", b"")] if number % 2 else []
        sender.produce(topic, value=value, key=key, headers=headers, partition=number % 2)
        want.append((key, headers, value))
    assert sender.flush(30) == 0
    table = lading.read_arrow(kafka.url, topic)
    table.validate(full=True)
    rows = [
        (row["key"], [(header["key"], header["value"]) for header in row["headers"]], row["payload"])
        for row in table.to_pylist()
    ]
    assert rows == want[0::2] + want[1::2]
    typed = lading.read_arrow(kafka.url, topic, columns="partition, offset, carrier string, delay int be")
    assert typed.column("carrier").to_pylist() == [None] * 500 + ["DL"] * 500
    assert typed.column("delay").to_pylist() == [None] * 500 + [number - 500 for number in range(1, 1000, 2)]
    late = lading.read_arrow(kafka.url, topic, columns="offset", where="header('delay') IS NOT NULL", limit=3)
    assert late.column("offset").to_pylist() == [0, 1, 2]


@pytest.mark.parametrize("compression", [None, "lz4"])
def test_what_we_write_others_read(kafka: kafka_broker.RunningKafka, compression: Any) -> None:
    topic = made(kafka)
    with Producer(kafka.url, compression=compression) as sender:
        for number in range(300):
            headers: list[Any] = [("carrier", "UA"), ("delay", u16(number)), ("via", None), ("via", b"\xff")]
            sender.send(topic, None if number % 3 == 0 else b"p" * number, key=b"k", headers=headers)
    found = read_all(kafka, topic, 300)
    for number, message in enumerate(found):
        shown = [("carrier", b"UA"), ("delay", number.to_bytes(2, "little")), ("via", None), ("via", b"\xff")]
        assert message.headers()[:4] == shown
        assert [name for name, _ in message.headers()[4:]] == ["lading-carrier"]
        assert (message.key(), message.value()) == (b"k", None if number % 3 == 0 else b"p" * number)
    assert len(found) == 300
    with_kinds = list(Consumer(kafka.url, topic, timeout_s=0))
    assert [message.headers["delay"] for message in with_kinds] == list(range(300))
    assert [header.key for header in with_kinds[0].headers] == ["carrier", "delay", "via", "via"]


@pytest.mark.turns(2)
def test_arrow_in_and_out(kafka: kafka_broker.RunningKafka) -> None:
    topic = fresh_name()
    table = pa.table(
        {
            "carrier": [("UA", "DL", None)[at % 3] for at in range(20_000)],
            "delay": pa.array(range(20_000), pa.int32()),
            "payload": [b"x" * 100] * 20_000,
        }
    )
    assert lading.write_arrow(table, kafka.url, topic, headers=["carrier", "delay"], partitions=3) == 20_000
    back = lading.read_arrow(kafka.url, topic, columns="carrier string, delay int, payload")
    assert back.sort_by("delay").to_pylist() == table.sort_by("delay").select(back.schema.names).to_pylist()


def test_aborted_transactions_and_control_records_are_left_out(kafka: kafka_broker.RunningKafka) -> None:
    topic = made(kafka)
    sender = producer(kafka, **{"transactional.id": topic})
    sender.init_transactions(30)
    for number in range(6):
        sender.begin_transaction()
        for part in range(3):
            sender.produce(topic, value=b"%d.%d" % (number, part))
        sender.flush(30)
        (sender.abort_transaction if number % 2 else sender.commit_transaction)(30)
    sender.begin_transaction()
    sender.produce(topic, value=b"open")
    sender.flush(30)
    payloads = lading.read_arrow(kafka.url, topic).column("payload").to_pylist()
    assert payloads == [b"%d.%d" % (number, part) for number in (0, 2, 4) for part in range(3)]
    by_one = [message.offset for message in Consumer(kafka.url, topic, timeout_s=0, max_bytes=1)]
    assert by_one == [0, 1, 2, 8, 9, 10, 16, 17, 18]
    sender.abort_transaction(30)


@pytest.mark.turns(2)
def test_gaps_of_compaction_are_no_loss(kafka: kafka_broker.RunningKafka, transport: KafkaTransport) -> None:
    if not kafka.secure:
        pytest.skip("this broker does not compact")
    settings = {"min_cleanable_dirty_ratio": "0.01", "segment_ms": "100", "max_compaction_lag_ms": "200"}
    topic = made(kafka, 1, cleanup_policy="compact", delete_retention_ms="100", **settings)
    sender = producer(kafka)
    for number in range(400):
        sender.produce(topic, key=b"k%d" % (number % 4), value=b"%d" % number)
    sender.flush(30)
    until = time.monotonic() + READ_TIMEOUT_S
    rows = 0
    while time.monotonic() < until:
        # the active segment rolls with the next message
        sender.produce(topic, key=b"roll", value=b"")
        sender.flush(10)
        rows = lading.read_arrow(kafka.url, topic).num_rows
        if rows < 400:
            break
        time.sleep(0.3)
    if rows >= 400:
        pytest.skip("the broker did not compact in time")
    last = {row["key"]: row["payload"] for row in lading.read_arrow(kafka.url, topic).to_pylist()}
    assert {last[b"k%d" % key] for key in range(4)} == {b"396", b"397", b"398", b"399"}


def test_messages_deleted_by_retention_are_a_loss(kafka: kafka_broker.RunningKafka) -> None:
    topic = made(kafka)
    sender = producer(kafka)
    for number in range(10):
        sender.produce(topic, value=b"%d" % number)
    sender.flush(30)
    admin = admin_of.AdminClient({"bootstrap.servers": kafka.address})
    place = confluent.TopicPartition(topic, 0, 6)
    admin.delete_records([place])[confluent.TopicPartition(topic, 0)].result(20)
    assert lading.read_arrow(kafka.url, topic).column("offset").to_pylist() == [6, 7, 8, 9]
    with pytest.raises(DataLoss, match="offsets 2 to 5 were deleted"):
        lading.read_arrow(kafka.url, topic, start=2)
    assert lading.read_arrow(kafka.url, topic, start=2, on_loss="skip").column("offset").to_pylist() == [6, 7, 8, 9]
    with pytest.raises(DataLoss, match="no offset 50"):
        list(Consumer(kafka.url, topic, start=50, timeout_s=0))


def test_a_topic_that_was_made_again_is_a_loss(kafka: kafka_broker.RunningKafka) -> None:
    topic = made(kafka)
    old, new = (pa.table({"payload": [f"{word} {number}" for number in range(60)]}) for word in ("old", "new"))
    lading.write_arrow(old.slice(0, 30), kafka.url, topic)
    consumers = [
        Consumer(kafka.url, topic, start={0: 0}, on_loss=on_loss, timeout_s=10) for on_loss in ("fail", "skip")
    ]
    for consumer in consumers:
        assert [next(consumer).payload for _ in range(30)][-1] == b"old 29"
    admin = admin_of.AdminClient({"bootstrap.servers": kafka.address})
    admin.delete_topics([topic])[topic].result(30)
    until = time.monotonic() + READ_TIMEOUT_S
    while topic in admin.list_topics(timeout=10).topics and time.monotonic() < until:
        time.sleep(0.1)
    admin.create_topics([admin_of.NewTopic(topic, 1)])[topic].result(30)
    wait_until_known(admin, topic)
    # more than were read: the offset that both would go on from is there again
    lading.write_arrow(new, kafka.url, topic)
    with pytest.raises(DataLoss, match="was deleted and created again"):
        next(consumers[0])
    assert [next(consumers[1]).payload for _ in range(60)] == [b"new %d" % number for number in range(60)]
    for consumer in consumers:
        consumer.close()


def test_places_by_time(kafka: kafka_broker.RunningKafka, transport: KafkaTransport) -> None:
    topic = made(kafka)
    now_ms = int(time.time() * 1000)
    sender = producer(kafka)
    for number in range(10):
        sender.produce(topic, value=b"", timestamp=now_ms - 1000 + 10 * number)
    sender.flush(30)
    first_us = (now_ms - 1000) * 1000
    places = [transport.offset_at(topic, 0, first_us + late_us) for late_us in (0, 1, 10_000, 10_001, 1_000_000)]
    assert places == [0, 1, 1, 2, 10]


def test_times_before_1970(kafka: kafka_broker.RunningKafka, transport: KafkaTransport) -> None:
    times_us = [-5_000_000, -1_000, 0, -86_400_000_000 * 36_500, -1, 7_000]
    topic = made(kafka, retention_ms="-1")
    sender = producer(kafka)
    sender.produce(topic, value=b"theirs", timestamp=-5000)
    assert sender.flush(30) == 0
    rows = pa.table({"payload": [b"ours"] * 6, "timestamp": pa.array(times_us, pa.timestamp("us", "UTC"))})
    assert lading.write_arrow(rows, kafka.url, topic) == 6
    read = lading.read_arrow(kafka.url, topic, columns="timestamp")
    # what is finer than Kafka's milliseconds is cut, towards the past: for that alone no carrier is added
    assert read["timestamp"].cast(pa.int64()).to_pylist() == [-5_000_000, *(one // 1000 * 1000 for one in times_us)]
    found = {message.offset(): message.timestamp()[1] for message in read_all(kafka, topic, 7)}
    assert found == {0: -5000, **{at: time_us // 1000 for at, time_us in enumerate(times_us, 1)}}
    assert [transport.offset_at(topic, 0, time_us) for time_us in (-9_000_000, -1_000, -2_000)] == [0, 0, 0]


def test_errors_say_what_to_do(kafka: kafka_broker.RunningKafka, transport: KafkaTransport) -> None:
    topic = made(kafka, 1, max_message_bytes="100000")
    with pytest.raises(LocalError, match=f"did you mean .*'{topic}'"):
        transport.topic(f"{topic}x")
    with pytest.raises(Refusal, match="TOPIC_ALREADY_EXISTS"):
        transport.create_topic(topic)
    with pytest.raises(Unreachable, match="no Kafka broker reachable"):
        lading.read_arrow("kafka://127.0.0.1:1", topic)
    with Producer(kafka.url) as sender:
        # what is small enough when it is compressed is taken
        sender.send(topic, b"x" * 200_000)
    with Producer(kafka.url) as sender:
        sender.send(topic, Random(17).randbytes(200_000))
        with pytest.raises(LimitExceeded, match=r"max\.message\.bytes"):
            sender.flush()
    # a batch larger than the topic takes is halved until it fits
    rows = pa.table({"payload": [b"x" * 1000] * 2000})
    assert lading.write_arrow(rows, kafka.url, topic) == 2000
    assert lading.read_arrow(kafka.url, topic, columns="offset").num_rows == 1 + 2000


def test_a_broken_connection_neither_loses_nor_doubles(
    kafka: kafka_broker.RunningKafka, transport: KafkaTransport
) -> None:
    topic = made(kafka)
    rows = pa.RecordBatch.from_pydict({"payload": [b"x" * 1000] * 3000})
    for _ in range(4):
        transport.send(topic, 0, rows)
        for connection in transport._cluster._sockets.values():
            assert connection._socket is not None
            connection._socket.shutdown(2)
    assert lading.read_arrow(kafka.url, topic, columns="offset").num_rows == 12_000


@pytest.mark.turns(2)
def test_a_reader_of_several_partitions_waits_without_asking_again(
    kafka: kafka_broker.RunningKafka, transport: KafkaTransport
) -> None:
    topic = made(kafka, 3)
    consumer = Consumer(transport, topic)
    # what a first poll asks besides is asked by then, on a busy machine too
    assert consumer.poll(1, 1.0) == []
    (connection,) = [each for each in transport._cluster._sockets.values() if each.open and each._correlation > 5]
    before = connection._correlation
    assert consumer.poll(1, 1.5) == []
    # three long polls of half a second, each with a look at the three partitions
    assert connection._correlation - before <= 16
    timer = threading.Timer(0.3, lambda: _send_one(kafka, topic))
    timer.start()
    begun = time.monotonic()
    assert [message.partition for message in consumer.poll(1, 20)] == [2]
    assert time.monotonic() - begun < 10
    timer.join()
    consumer.close()


def _send_one(kafka: kafka_broker.RunningKafka, topic: str) -> None:
    sender = producer(kafka)
    sender.produce(topic, value=b"x", partition=2)
    assert sender.flush(30) == 0


def test_tls_and_a_password(kafka: kafka_broker.RunningKafka) -> None:
    if not kafka.secure:
        pytest.skip("this broker has no TLS and no passwords")
    topic, url = made(kafka), f"kafka://{kafka.secure}"
    access: dict[str, Any] = {"ca_file": str(kafka.ca_file), "username": kafka_broker.USER}
    with Producer(url, **access, password=kafka_broker.PASSWORD) as sender:
        sender.send(topic, b"secret")
    found = lading.read_arrow(url, topic, **access, password=kafka_broker.PASSWORD)
    assert found.column("payload").to_pylist() == [b"secret"]
    with pytest.raises(RemoteError, match="refused the user 'ann'") as refused:
        lading.read_arrow(url, topic, **access, password="wrong horse")
    assert "horse" not in str(refused.value)
    with pytest.raises(Unreachable, match="certificate"):
        lading.read_arrow(url, topic, tls=True, username="ann", password="x")
    with pytest.raises((CorruptError, Unreachable)):
        lading.read_arrow(url, topic, timeout_s=5)
