"""Compacted topics under real clients: what they keep, while others read."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from lading import testing
from tests.interop import kafka_broker
from tests.interop.kafka_clients import made, producer, read_all

pytest.importorskip("kafka")

KEYS = 100
PATIENCE_S = 90.0


@pytest.mark.turns(2)
@pytest.mark.parametrize("kafka", ["apache", "lading"], indirect=True)
def test_apache_and_we_keep_the_same_records(kafka: kafka_broker.RunningKafka) -> None:
    """The cleaner looks every 15 seconds on both sides, and takes what lies before the last segment."""
    name = made(
        kafka,
        cleanup_policy="compact",
        segment_ms="500",
        min_cleanable_dirty_ratio="0.01",
        delete_retention_ms="600000",
    )
    offsets: dict[bytes, int] = {}

    def send(sender: Any, key: bytes, value: bytes | None) -> None:
        headers = [("h", b"1"), ("h", None)]
        sender.produce(name, key=key, value=value, headers=headers, on_delivery=lambda _, message: note(key, message))

    def note(key: bytes, message: Any) -> None:
        offsets[key] = message.offset()

    plain = producer(kafka, **{"compression.type": "lz4"})
    transactional = producer(kafka, **{"transactional.id": name})
    transactional.init_transactions()
    for number in range(300):
        send(plain, b"k%d" % (number % 7), b"%d" % number)
    send(plain, b"gone", b"0")
    assert plain.flush(30) == 0
    transactional.begin_transaction()
    send(transactional, b"k1", b"committed")
    send(transactional, b"tx", b"committed")
    transactional.commit_transaction()
    wanted = dict(offsets)
    transactional.begin_transaction()
    send(transactional, b"k2", b"aborted")
    send(transactional, b"never", b"aborted")
    assert transactional.flush(30) == 0
    transactional.abort_transaction()
    offsets.clear()
    send(plain, b"gone", None)
    assert plain.flush(30) == 0
    wanted |= offsets
    # two more segments: the last one is never cleaned
    for key in (b"end", b"end of all"):
        time.sleep(1.0)
        send(plain, key, b"0")
        assert plain.flush(30) == 0
        wanted[key] = offsets[key]
    values = {b"k%d" % key: b"%d" % max(n for n in range(300) if n % 7 == key) for key in range(7)}
    values |= {b"k1": b"committed", b"tx": b"committed", b"end": b"0", b"end of all": b"0"}
    expected = [(offset, key, values.get(key)) for key, offset in sorted(wanted.items(), key=lambda row: row[1])]
    until = time.monotonic() + PATIENCE_S
    found: list[Any] = []
    while found != expected and time.monotonic() < until:
        time.sleep(1.0)
        messages = read_all(kafka, name, len(expected) + 1, timeout_s=6.0)
        found = [(message.offset(), message.key(), message.value()) for message in messages]
    assert found == expected
    assert all(message.headers() == [("h", b"1"), ("h", None)] for message in messages)


def test_a_topic_of_kafka_python_shrinks_to_the_last_record_of_each_key_while_it_is_read(
    tmp_path: Path, full: bool
) -> None:
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import KafkaAdminClient, NewTopic

    count = 100_000 if full else 20_000
    settings = {"compaction.check_ms": 200}
    with testing.broker(tmp_path / "data", settings=settings) as broker:
        address = broker.endpoints["kafka"]
        configs = {
            "cleanup.policy": "compact", "segment.bytes": "262144", "segment.ms": "1000",
            "min.cleanable.dirty.ratio": "0.1",
        }  # fmt: skip
        admin = KafkaAdminClient(bootstrap_servers=address)
        admin.create_topics([NewTopic("latest-fares", 1, 1, topic_configs=configs)])
        admin.close()
        seen: dict[bytes, int] = {}
        offsets: list[int] = []

        def follow() -> None:
            consumer = KafkaConsumer("latest-fares", bootstrap_servers=address, auto_offset_reset="earliest")
            until = time.monotonic() + 90
            while seen.get(b"end") is None and time.monotonic() < until:
                for records in consumer.poll(200).values():
                    for record in records:
                        seen[record.key] = int(record.value)
                        offsets.append(record.offset)
            consumer.close()

        reader = threading.Thread(target=follow)
        reader.start()
        producer = KafkaProducer(bootstrap_servers=address, linger_ms=5)
        for number in range(count):
            producer.send("latest-fares", key=b"%d" % (number % KEYS), value=b"%d" % number)
        producer.send("latest-fares", key=b"end", value=b"0")
        producer.flush()
        producer.close()
        reader.join(100)
        assert offsets == sorted(set(offsets))
        # whatever was removed ahead of the reader, the last record of each key was not
        expected = {b"%d" % (number % KEYS): number for number in range(count - KEYS, count)} | {b"end": 0}
        assert seen == expected
        left: list[tuple[bytes, int]] = []
        until = time.monotonic() + 60
        while len(left) != KEYS + 1 and time.monotonic() < until:
            consumer = KafkaConsumer(
                "latest-fares", bootstrap_servers=address, auto_offset_reset="earliest", consumer_timeout_ms=1000
            )
            left = [(record.key, record.offset) for record in consumer]
            consumer.close()
        # the offsets are those of the appends
        assert left == [(b"%d" % (number % KEYS), number) for number in range(count - KEYS, count)] + [(b"end", count)]
        # a consumer whose position was removed continues with the next record
        consumer = KafkaConsumer(bootstrap_servers=address, consumer_timeout_ms=5000, max_poll_records=1)
        partition = TopicPartition("latest-fares", 0)
        consumer.assign([partition])
        for offset in (0, count // 2, count - KEYS - 1, count - KEYS + 5):
            consumer.seek(partition, offset)
            assert next(consumer).offset == max(offset, count - KEYS)
        consumer.close()
        assert sum(path.stat().st_size for path in (tmp_path / "data" / "topics").rglob("*.log")) < 1 << 20
