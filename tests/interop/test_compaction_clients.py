"""Compacted topics under real clients: what they keep, while others read."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from lading import testing

pytest.importorskip("kafka")

KEYS = 100


def test_a_topic_of_kafka_python_shrinks_to_the_last_record_of_each_key_while_it_is_read(
    tmp_path: Path, full: bool
) -> None:
    from kafka import KafkaConsumer, KafkaProducer
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
        assert sum(path.stat().st_size for path in (tmp_path / "data" / "topics").rglob("*.log")) < 1 << 20
