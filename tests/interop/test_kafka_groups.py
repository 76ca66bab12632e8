"""Groups on Apache's broker and ours: our members beside librdkafka's, members that come, go, die and fall asleep."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from lading import Consumer
from lading.model.errors import RemoteError
from tests.interop import kafka_broker
from tests.interop.kafka_clients import made, producer

# kafka.protocol reads its schemas in a way that importlib.resources wants no more
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.parametrize("kafka", ["apache", "lading"], indirect=True),
]

PARTITIONS = 6
TIMEOUT_S = 30.0
SESSION_S = 1.5
MEMBER = """
import sys, time
from confluent_kafka import Consumer, KafkaException
address, topic, group, strategy = sys.argv[1:]
consumer = Consumer({
    "bootstrap.servers": address, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False,
    "partition.assignment.strategy": strategy, "session.timeout.ms": 1500, "heartbeat.interval.ms": 300,
})
consumer.subscribe([topic])
while True:
    messages = [message for message in consumer.consume(20, 0.2) if not message.error()]
    if messages:
        for message in messages:
            print(message.value().decode(), flush=True)
        # refused while a rebalance goes on, which needs nothing of this loop
        for _ in range(200):
            try:
                consumer.commit(asynchronous=False)
                break
            except KafkaException:
                time.sleep(0.05)
"""
"""Another client's member: tells of each message before its position is stored."""


@contextmanager
def librdkafka(kafka: kafka_broker.RunningKafka, topic: str, strategy: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", MEMBER, kafka.address, topic, f"group-{topic}", strategy]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
        try:
            yield child
        finally:
            child.kill()


def ours(kafka: kafka_broker.RunningKafka, topic: str, **options: Any) -> Consumer:
    return Consumer(kafka.url, topic, group=f"group-{topic}", session_timeout_s=SESSION_S, **options)


def send(kafka: kafka_broker.RunningKafka, topic: str, low: int, high: int) -> None:
    sender = producer(kafka)
    for number in range(low, high):
        sender.produce(topic, value=b"%d" % number, partition=number % PARTITIONS)
    assert sender.flush(30) == 0


def read_until(consumer: Consumer, seen: list[int], enough: Callable[[], bool]) -> None:
    until = time.monotonic() + TIMEOUT_S
    while not enough():
        assert time.monotonic() < until, (len(seen), consumer.positions())
        seen += [int(message.payload or b"-1") for message in consumer.poll(50, 0.1)]


@pytest.mark.turns(3)
@pytest.mark.parametrize("strategy", ["range,roundrobin", "cooperative-sticky"])
def test_beside_librdkafka_and_after_it_died(kafka: kafka_broker.RunningKafka, strategy: str, full: bool) -> None:
    if not full and (strategy == "cooperative-sticky") == bool(kafka.secure):
        pytest.skip("one way on each broker; LADING_TEST_FULL=1 tries all")
    topic = made(kafka, PARTITIONS)
    send(kafka, topic, 0, 600)
    seen: list[int] = []
    with librdkafka(kafka, topic, strategy) as other:
        assert other.stdout is not None
        theirs = [int(other.stdout.readline())]
        with ours(kafka, topic) as consumer:
            # it leads, and gives us half of the partitions
            read_until(consumer, seen, lambda: len(consumer.positions()) == PARTITIONS // 2)
            mine = {number for _, number in consumer.positions()}
            send(kafka, topic, 600, 1200)
            wanted = {number for number in range(600, 1200) if number % PARTITIONS in mine}
            read_until(consumer, seen, lambda: wanted <= set(seen))
            assert not [number for number in seen if number >= 600 and number % PARTITIONS not in mine]
            other.kill()
            theirs += [int(line) for line in other.stdout]
            # now we lead
            send(kafka, topic, 1200, 1800)
            read_until(consumer, seen, lambda: set(theirs) | set(seen) == set(range(1800)))
    twice = [number for number, times in Counter(theirs + seen).items() if times > 1]
    # only messages whose position it had not stored yet can come twice
    assert len(twice) <= 20 and len(seen) == len(set(seen))
    with ours(kafka, topic, timeout_s=1.0) as consumer:
        assert [message.payload for message in consumer] == []
        assert sum(consumer.positions().values()) == 1800


@pytest.mark.turns(2)
def test_members_come_and_go_and_each_message_is_read_once(kafka: kafka_broker.RunningKafka) -> None:
    topic = made(kafka, PARTITIONS)
    send(kafka, topic, 0, 600)
    first: list[int] = []
    second: list[int] = []
    one = ours(kafka, topic)
    first += _some(one)
    assert first and len(one.positions()) == PARTITIONS
    # made while the first member reads, as another process would be
    other = _opened(lambda: ours(kafka, topic), lambda: first.extend(_some(one)))
    send(kafka, topic, 600, 1200)
    until = time.monotonic() + TIMEOUT_S
    while len(second) < 200 or len(first) < 200:
        assert time.monotonic() < until
        first += _some(one)
        second += _some(other)
    assert len(one.positions()) == len(other.positions()) == PARTITIONS // 2
    other.close()
    read_until(one, first, lambda: len(first) + len(second) >= 1200)
    one.close()
    assert sorted(first + second) == list(range(1200))


@pytest.mark.turns(2)
def test_a_member_that_does_not_read_loses_its_partitions_and_comes_back(kafka: kafka_broker.RunningKafka) -> None:
    topic = made(kafka, PARTITIONS)
    send(kafka, topic, 0, 60)
    asleep = ours(kafka, topic, reading_timeout_s=1.0, auto_commit=False)
    assert asleep.poll(5)
    seen: list[int] = []
    with ours(kafka, topic) as awake:
        read_until(awake, seen, lambda: sorted(set(seen)) == list(range(60)))
    # what it stored in between is where the sleeper goes on
    asleep.commit()
    assert asleep.poll(5, 0.5) == []
    assert len(asleep.positions()) == PARTITIONS and sum(asleep.positions().values()) == 60
    asleep.close()


def test_a_group_that_cannot_be_joined_says_why(kafka: kafka_broker.RunningKafka) -> None:
    topic = made(kafka)
    with pytest.raises(RemoteError, match="INVALID_SESSION_TIMEOUT"):
        Consumer(kafka.url, topic, group="g", session_timeout_s=0.01)
    with pytest.raises(RemoteError, match="INVALID_GROUP_ID"):
        Consumer(kafka.url, topic, group="")


def _some(consumer: Consumer) -> list[int]:
    return [int(message.payload or b"-1") for message in consumer.poll(20, 0.05)]


def _opened(make: Callable[[], Consumer], meanwhile: Callable[[], None]) -> Consumer:
    """What ``make`` gives in a thread, while ``meanwhile`` is called again and again."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        made_there = pool.submit(make)
        until = time.monotonic() + TIMEOUT_S
        while not made_there.done():
            assert time.monotonic() < until
            meanwhile()
        return made_there.result()
