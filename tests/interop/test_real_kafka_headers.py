"""Profiles and dead letters at a real Kafka broker; the dead letters are written by librdkafka."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from lading import Consumer
from lading.pipeline.dead_letter_redrive import ForeignDeadLetters
from lading.pipeline.profile import read_profile

from . import kafka_broker, shared_kafka

COUNT = 50


@pytest.mark.timeout(180)
def test_profile_and_redrive(kafka: kafka_broker.RunningKafka, tmp_path: Path) -> None:
    orders, letters = (f"{name}{shared_kafka.PROCESS}-{tmp_path.name}" for name in ("orders", "letters"))
    admin = AdminClient({"bootstrap.servers": kafka.address})
    made = admin.create_topics([NewTopic(orders, 2, 1), NewTopic(letters, 1, 1)])
    for created in made.values():
        created.result(30)
    producer = Producer({"bootstrap.servers": kafka.address})
    for number in range(COUNT):
        headers: list[tuple[str, Any]] = [
            ("carrier", b"UA"), ("via", b"ORD"), ("via", None), ("__streams.errors.topic", orders.encode()),
            ("__streams.errors.partition", b"%d" % (number % 2)), ("__streams.errors.offset", b"%d" % (number // 2)),
            ("__streams.errors.exception", b"java.lang.IllegalStateException"), ("__streams.errors.message", b"no"),
        ]  # fmt: skip
        producer.produce(letters, b"%d" % number, key=b"k", headers=headers, timestamp=1_700_000_000_000 + number)
    assert producer.flush(30) == 0
    profile = {row["key"]: row for row in read_profile(kafka.url, letters).rows()}
    assert (profile["via"]["duplicates"], profile["via"]["nulls"]) == (COUNT, COUNT)
    assert profile["__streams.errors.offset"]["proposed"] == {"type": "bigint", "required": True}
    dead = ForeignDeadLetters(kafka.url, letters, tmp_path / "state")
    assert dead.redrive("origin_partition = 1", max_replays=0).sent == COUNT // 2
    done = dead.redrive(max_replays=0)
    assert (done.sent, done.already) == (COUNT // 2, COUNT // 2)
    with Consumer(kafka.url, orders, start="earliest", timeout_s=0) as consumer:
        found = {message.payload: message for message in consumer}
    assert found.keys() == {b"%d" % number for number in range(COUNT)}
    for number in range(COUNT):
        message = found[b"%d" % number]
        assert (message.partition, message.offset, message.key) == (number % 2, number // 2, b"k")
        assert message.timestamp_us == (1_700_000_000_000 + number) * 1000
        assert [(key, value) for key, _, value in message.headers] == [
            ("carrier", b"UA"),
            ("via", b"ORD"),
            ("via", None),
        ]
