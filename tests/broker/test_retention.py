"""Retention: whole old segments go, by age and size, and nothing else does."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from lading.broker.broker import Broker
from lading.broker.poll import Next
from lading.broker.settings import TopicSettings
from lading.broker.topology import Partition
from tests.broker.room import CONSUMER, NOW, SECOND, append, append_block, block, opened, payloads, read, topic_of

SEGMENT = 1 << 16


def many(broker: Broker, partition: Partition, seconds: range) -> None:
    """A message of 10 kB a second."""
    for second in seconds:
        append(broker, partition, f"{second:05}".encode() * 2000, now_us=NOW + second * SECOND)
        broker.flush()


def first_second(broker: Broker, partition: Partition) -> int:
    return int(payloads(read(broker, partition, max_messages=1))[0][:5])


def test_nothing_goes_unless_set(tmp_path: Path) -> None:
    broker = opened(tmp_path, segment_bytes=SEGMENT)
    partition = topic_of(broker).partition(0)
    many(broker, partition, range(40))
    assert broker.enforce_retention(NOW + 10**15) == 0
    assert read(broker, partition).count == 40


def test_age_takes_segments_whose_last_message_is_too_old(tmp_path: Path) -> None:
    broker = opened(tmp_path, segment_bytes=SEGMENT, retention_age_us=20 * SECOND)
    partition = topic_of(broker).partition(0)
    many(broker, partition, range(40))
    borders = [segment.base_offset for segment in partition.log.segments()]
    gone = broker.enforce_retention(NOW + 40 * SECOND)
    # a message a second: offset = second; younger than 20 s is all from second 20 on
    assert gone == max(border for border in borders if border <= 20)
    assert first_second(broker, partition) == gone
    assert broker.enforce_retention(NOW + 40 * SECOND) == 0


def test_size_keeps_at_least_what_is_set(tmp_path: Path) -> None:
    broker = opened(tmp_path, segment_bytes=SEGMENT, retention_bytes=3 * SEGMENT)
    partition = topic_of(broker).partition(0)
    many(broker, partition, range(60))
    before = partition.log.size_bytes
    broker.enforce_retention(NOW)
    assert 3 * SEGMENT <= partition.log.size_bytes < before
    assert partition.log.size_bytes < 4.5 * SEGMENT


def test_a_topic_has_its_own_rule(tmp_path: Path) -> None:
    broker = opened(tmp_path, segment_bytes=SEGMENT, retention_age_us=1)
    broker.create_stream(None, "s", now_us=NOW)
    own = TopicSettings(retention_age_us=10**15)
    kept = broker.create_topic("s", None, "kept", 1, now_us=NOW, settings=own).partition(0)
    many(broker, kept, range(20))
    assert broker.enforce_retention(NOW + 100 * SECOND) == 0


def test_a_consumer_that_was_overtaken_goes_on_at_the_first_message(tmp_path: Path) -> None:
    broker = opened(tmp_path, segment_bytes=SEGMENT, retention_age_us=5 * SECOND)
    topic = topic_of(broker)
    many(broker, topic.partition(0), range(40))
    broker.store_position(topic, CONSUMER, None, 0, 2, now_us=NOW)
    broker.enforce_retention(NOW + 40 * SECOND)
    first = topic.partition(0).log.first_offset
    assert first > 10
    polled = broker.poll(topic, CONSUMER, None, 0, Next(), 1, True, max_bytes=1 << 20, now_us=NOW)
    assert payloads(polled.reading)[0][:5] == f"{first:05}".encode()
    assert broker.position(topic, CONSUMER, 0) == first


def test_an_open_transaction_keeps_what_it_holds_back(tmp_path: Path) -> None:
    broker = opened(tmp_path, segment_bytes=SEGMENT, retention_age_us=5 * SECOND)
    partition = topic_of(broker).partition(0)
    many(broker, partition, range(10))
    one = broker.begin(now_us=NOW)
    noise = random.Random(2).randbytes
    append_block(broker, partition, block(noise(10_000), transaction=one), now_us=NOW + 10 * SECOND)
    many(broker, partition, range(11, 40))
    broker.enforce_retention(NOW + 40 * SECOND)
    assert partition.log.first_offset <= 10
    broker.commit("key", [one], now_us=NOW)
    broker.enforce_retention(NOW + 40 * SECOND)
    assert partition.log.first_offset > 20


@pytest.mark.parametrize("jump_us", [86_400 * SECOND, -86_400 * SECOND])
def test_a_clock_that_jumps_deletes_nothing(tmp_path: Path, jump_us: int) -> None:
    broker = opened(tmp_path, segment_bytes=SEGMENT, retention_age_us=3600 * SECOND, retention_check_us=SECOND)
    partition = topic_of(broker).partition(0)
    many(broker, partition, range(20))
    for tick in range(5):
        broker.tick(NOW + tick * SECOND, tick * SECOND)
    for tick in range(5, 10):
        broker.tick(NOW + jump_us + tick * SECOND, tick * SECOND)
    assert partition.log.first_offset == 0
    many(broker, partition, range(20, 22))
    assert read(broker, partition).count == 22
