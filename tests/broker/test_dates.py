"""Time is counted and dates are kept: what happens to both when the machine's clock is set."""

from __future__ import annotations

import os
from pathlib import Path

from lading.broker.broker import Broker
from lading.broker.core.settings import BrokerSettings
from lading.log.group_commit import SyncNow
from tests.broker.channel_room import Reader, channels_of, put
from tests.broker.room import NOW, SECOND, append, enforce_retention, fill, opened, topic_of

DAY = 86_400 * SECOND
YEAR_2200 = 7_258_118_400 * SECOND


def test_a_message_that_was_put_off_is_due_by_date_after_a_restart(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    topic = topic_of(broker)
    broker.tick(NOW, NOW)
    put(broker, topic.partition(0), b"later")
    channel = channels_of(broker).open(topic, "c")
    reader = Reader()
    channel.subscribe(reader.subscriber)
    reader.subscriber.set_ready(1)
    channels_of(broker).pump(NOW)
    # the clock is set ahead by a day, then ten minutes are asked for
    broker.tick(NOW, NOW + DAY)
    channel.requeue(reader.subscriber, 0, reader.got[0][1], 600 * SECOND, now_us=NOW)
    broker.stop()
    started = NOW + DAY + 60 * SECOND
    again = Broker.open(tmp_path, BrokerSettings(), now_us=started, commit=SyncNow())
    channel = channels_of(again).open(again.topology.topic("s", "t"), "c")
    reader = Reader()
    channel.subscribe(reader.subscriber)
    reader.subscriber.set_ready(1)
    for seconds, count in ((100, 0), (500, 0), (560, 1)):
        again.tick(started + seconds * SECOND, started + seconds * SECOND)
        channels_of(again).pump(started + seconds * SECOND)
        assert len(reader.got) == count, seconds
    again.stop()


def test_a_transaction_of_before_is_ended_after_a_restart_by_date(tmp_path: Path) -> None:
    broker = opened(tmp_path, transaction_timeout_us=600 * SECOND)
    topic_of(broker)
    broker.tick(NOW, NOW - DAY)
    broker.native_transactions.begin(now_us=NOW)
    broker.stop()
    started = NOW - DAY + 60 * SECOND
    again = Broker.open(tmp_path, BrokerSettings(), now_us=started, commit=SyncNow())
    again.tick(started, started)
    assert again.counters.transactions_open == 1
    again.tick(started + 600 * SECOND, started + 600 * SECOND)
    assert again.counters.transactions_open == 0
    again.stop()


def test_messages_and_topics_have_the_date_that_the_clock_says(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    partition = topic_of(broker).partition(0)
    broker.tick(NOW, NOW + DAY)
    assert partition.log.append_time_us(NOW + 1) == NOW + DAY + 1
    assert topic_of(broker, name="later").created_us == NOW + DAY
    # times in a log never fall
    broker.tick(NOW + SECOND, NOW - DAY)
    assert partition.log.append_time_us(NOW + SECOND) == NOW + DAY + 1
    broker.stop()


def test_one_message_dated_2200_does_not_switch_retention_off(tmp_path: Path) -> None:
    broker = opened(tmp_path, retention_age_us=7 * DAY, segment_bytes=4096)
    partition = topic_of(broker).partition(0)
    fill(broker, partition, 10, prefix="x" * 300)
    append(broker, partition, b"of the year 2200", now_us=YEAR_2200)
    broker.appender.flush()
    for _ in range(3):
        fill(broker, partition, 10, prefix="x" * 300)
    assert partition.log.segments_count > 2
    for path in tmp_path.glob("topics/*/0/*.log"):
        os.utime(path, ns=(NOW * 1000, NOW * 1000))
    broker.tick(NOW, NOW)
    assert enforce_retention(broker, NOW + 6 * DAY) == 0
    enforce_retention(broker, NOW + 8 * DAY)
    assert enforce_retention(broker, NOW + 8 * DAY) + broker.counters.retention_deleted_offsets > 0
    assert partition.log.first_offset >= 11
    broker.stop()
