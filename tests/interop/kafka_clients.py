"""Topics of a real Kafka broker, written and read by librdkafka."""

from __future__ import annotations

import time
from itertools import count
from typing import Any

import pytest

from tests.interop import kafka_broker, shared_kafka

confluent = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
admin_of = pytest.importorskip("confluent_kafka.admin")

READ_TIMEOUT_S = 20.0
READ_COMMITTED = confluent.IsolationLevel.READ_COMMITTED
_numbers = count(1)


def fresh_name() -> str:
    """A name that no other topic has."""
    return f"real-{shared_kafka.PROCESS}-{next(_numbers)}"


def made(kafka: kafka_broker.RunningKafka, partitions: int = 1, **settings: str) -> str:
    """A new topic."""
    name = fresh_name()
    admin = admin_of.AdminClient({"bootstrap.servers": kafka.address})
    config = {key.replace("_", "."): value for key, value in settings.items()}
    admin.create_topics([admin_of.NewTopic(name, partitions, 1, config=config)])[name].result(20)
    wait_until_known(admin, name)
    return name


def wait_until_known(admin: Any, topic: str) -> None:
    """Waits until a topic that was created is told of: a real controller answers before its brokers have heard."""
    until = time.monotonic() + READ_TIMEOUT_S
    while topic not in admin.list_topics(timeout=READ_TIMEOUT_S).topics:
        assert time.monotonic() < until, f"{topic} was created and is not known"


def producer(kafka: kafka_broker.RunningKafka, **options: Any) -> Any:
    settings = {"bootstrap.servers": kafka.address, "enable.idempotence": True, "linger.ms": 20}
    return confluent.Producer({**settings, **options})


def read_all(kafka: kafka_broker.RunningKafka, topic: str, rows: int, timeout_s: float = READ_TIMEOUT_S) -> list[Any]:
    """What confluent's consumer reads, from the beginning each time."""
    facts = {
        "bootstrap.servers": kafka.address, "group.id": topic, "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }  # fmt: skip
    consumer = confluent.Consumer(facts)
    consumer.subscribe([topic])
    found: list[Any] = []
    until = time.monotonic() + timeout_s
    try:
        while len(found) < rows and time.monotonic() < until:
            found += consumer.consume(rows - len(found), 1.0)
    finally:
        consumer.close()
    return found


def wait_until_stable(kafka: kafka_broker.RunningKafka, topic: str, end: int) -> None:
    """Waits until readers of what is committed may read partition 0 of a topic up to ``end``.

    A commit or an abort is answered once it is certain; its mark reaches the partitions afterwards (KIP-98, 4.2).
    """
    admin = admin_of.AdminClient({"bootstrap.servers": kafka.address})
    partition = confluent.TopicPartition(topic, 0)
    until = time.monotonic() + READ_TIMEOUT_S
    while True:
        asked = admin.list_offsets({partition: admin_of.OffsetSpec.latest()}, isolation_level=READ_COMMITTED)
        stable = asked[partition].result(20).offset
        if stable == end:
            return
        assert time.monotonic() < until, f"the last stable offset of {topic} is {stable}, not {end}"
