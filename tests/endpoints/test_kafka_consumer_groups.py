"""Consumer groups of the newer protocol (KIP-848) as clients see them: confluent-kafka, and raw requests."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from lading.testing import BrokerProcess

TIMEOUT_S = 40.0


def produce(address: str, topic: str, partitions_count: int, each: int) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, partitions_count)])[topic].result(20)
    producer = Producer({"bootstrap.servers": address})
    for partition in range(partitions_count):
        for number in range(each):
            producer.produce(topic, f"{partition}-{number}".encode(), partition=partition)
    assert producer.flush(TIMEOUT_S) == 0


@contextmanager
def consuming(address: str, group: str, topics: Sequence[str], **options: Any) -> Iterator[Consumer]:
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": group, "group.protocol": "consumer", "auto.offset.reset": "earliest"}
        | {name.replace("_", "."): value for name, value in options.items()}
    )  # fmt: skip
    consumer.subscribe(list(topics))
    try:
        yield consumer
    finally:
        consumer.close()


def take(consumers: Sequence[Consumer], count: int) -> list[set[bytes]]:
    """What each gets, until all have ``count`` together."""
    found: list[set[bytes]] = [set() for _ in consumers]
    until = time.monotonic() + TIMEOUT_S
    while sum(map(len, found)) < count:
        assert time.monotonic() < until, (found, [one.assignment() for one in consumers])
        for consumer, values in zip(consumers, found, strict=True):
            for message in consumer.consume(100, 0.05):
                assert message.error() is None, message.error()
                value = message.value()
                assert isinstance(value, bytes)
                values.add(value)
    return found


def wait_for_shares(consumers: Sequence[Consumer], *counts: int) -> None:
    until = time.monotonic() + TIMEOUT_S
    while sorted(len(one.assignment()) for one in consumers) != sorted(counts):
        assert time.monotonic() < until, [one.assignment() for one in consumers]
        for consumer in consumers:
            consumer.poll(0.05)


def test_two_members_share_a_topic_and_one_takes_over(broker: BrokerProcess) -> None:
    address = broker.endpoints["kafka"]
    produce(address, "newer_groups", 4, 5)
    with consuming(address, "newer", ["newer_groups"], enable_auto_commit=False) as one:
        assert take([one], 20) == [{f"{partition}-{n}".encode() for partition in range(4) for n in range(5)}]
        with consuming(address, "newer", ["newer_groups"], enable_auto_commit=False) as two:
            wait_for_shares([one, two], 2, 2)
            # the newcomer reads its partitions from the start: nothing was committed
            assert len(take([two], 10)[0]) == 10
            two.commit(asynchronous=False)
        wait_for_shares([one], 4)
        one.commit(offsets=[TopicPartition("newer_groups", 0, 5)], asynchronous=False)
    committed = Consumer({"bootstrap.servers": address, "group.id": "newer"})
    found = committed.committed([TopicPartition("newer_groups", number) for number in range(4)], 20)
    committed.close()
    assert [place.offset for place in found].count(5) == 3


def test_a_pattern_finds_topics_that_come_later(broker: BrokerProcess) -> None:
    address = broker.endpoints["kafka"]
    produce(address, "found-1", 1, 3)
    produce(address, "hidden-1", 1, 3)
    # a new topic is noticed at the next heartbeat
    with consuming(address, "patterns", ["^found-[0-9]+$"]) as consumer:
        assert take([consumer], 3) == [{b"0-0", b"0-1", b"0-2"}]
        produce(address, "found-2", 1, 4)
        assert b"0-3" in take([consumer], 4)[0]
        assert {place.topic for place in consumer.assignment()} == {"found-1", "found-2"}
