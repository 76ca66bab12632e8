"""Retention: whole old segments go, by age and size, and nothing else does."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from lading.broker.broker import Broker
from lading.broker.core.settings import TopicSettings
from lading.broker.core.states import list_states
from lading.broker.core.topology import Partition
from lading.broker.core.upkeep import retention, rounds
from lading.broker.iggy.poll import Next
from lading.dialects.native import protocol as native_row
from lading.model.state import State
from lading.runtime.turns import ROWS_AT_ONCE, finish
from tests.broker.room import (
    CONSUMER,
    NOW,
    SECOND,
    append,
    append_block,
    block,
    enforce_retention,
    opened,
    payloads,
    read,
    topic_of,
)

SEGMENT = 1 << 16


def many(broker: Broker, partition: Partition, seconds: range) -> None:
    """A message of 10 kB a second."""
    for second in seconds:
        append(broker, partition, f"{second:05}".encode() * 2000, now_us=NOW + second * SECOND)
        broker.appender.flush()


def enforce(broker: Broker, now_us: int) -> int:
    """Two looks: the first marks what is due, the second deletes it."""
    return enforce_retention(broker, now_us) + enforce_retention(broker, now_us)


def first_second(broker: Broker, partition: Partition) -> int:
    return int(payloads(read(broker, partition, max_messages=1))[0][:5])


def test_nothing_goes_unless_set(tmp_path: Path) -> None:
    broker = opened(tmp_path, segment_bytes=SEGMENT)
    partition = topic_of(broker).partition(0)
    many(broker, partition, range(40))
    assert enforce(broker, NOW + 10**15) == 0
    assert read(broker, partition).count == 40


@pytest.mark.parametrize(
    ("policy", "stays"),
    [("compact", True), ("compact,delete", False), ("delete,compact", False), (None, False), ("none", True)],
)
def test_nothing_goes_where_the_last_message_of_a_key_is_to_stay(
    tmp_path: Path, policy: str | None, stays: bool
) -> None:
    broker = opened(tmp_path, segment_bytes=SEGMENT, retention_age_us=20 * SECOND)
    topic = topic_of(broker)
    topic.settings = TopicSettings(cleanup_policy=policy, retention_bytes=1)
    many(broker, topic.partition(0), range(40))
    assert (enforce(broker, NOW + 100 * SECOND) == 0) is stays


def test_age_takes_segments_whose_last_message_is_too_old(tmp_path: Path) -> None:
    broker = opened(tmp_path, segment_bytes=SEGMENT, retention_age_us=20 * SECOND)
    partition = topic_of(broker).partition(0)
    many(broker, partition, range(40))
    borders = [segment.base_offset for segment in partition.log.segments()]
    gone = enforce(broker, NOW + 40 * SECOND)
    # a message a second: offset = second; younger than 20 s is all from second 20 on
    assert gone == max(border for border in borders if border <= 20)
    assert first_second(broker, partition) == gone
    assert enforce(broker, NOW + 40 * SECOND) == 0


def test_size_keeps_at_least_what_is_set(tmp_path: Path) -> None:
    broker = opened(tmp_path, segment_bytes=SEGMENT, retention_bytes=3 * SEGMENT)
    partition = topic_of(broker).partition(0)
    many(broker, partition, range(60))
    before = partition.log.size_bytes
    enforce(broker, NOW)
    assert 3 * SEGMENT <= partition.log.size_bytes < before
    assert partition.log.size_bytes < 4.5 * SEGMENT


def test_a_topic_has_its_own_rule(tmp_path: Path) -> None:
    broker = opened(tmp_path, segment_bytes=SEGMENT, retention_age_us=1)
    broker.at_once.create_stream(None, "s", now_us=NOW)
    own = TopicSettings(retention_age_us=10**15)
    kept = broker.at_once.create_topic("s", None, "kept", 1, now_us=NOW, settings=own).partition(0)
    many(broker, kept, range(20))
    assert enforce(broker, NOW + 100 * SECOND) == 0


def test_a_consumer_that_was_overtaken_goes_on_at_the_first_message(tmp_path: Path) -> None:
    broker = opened(tmp_path, segment_bytes=SEGMENT, retention_age_us=5 * SECOND)
    topic = topic_of(broker)
    many(broker, topic.partition(0), range(40))
    broker.poller.store_position(topic, CONSUMER, None, 0, 2, now_us=NOW)
    enforce(broker, NOW + 40 * SECOND)
    first = topic.partition(0).log.first_offset
    assert first > 10
    polled = broker.poller.poll(topic, CONSUMER, None, 0, Next(), 1, True, max_bytes=1 << 20, now_us=NOW)
    assert payloads(polled.reading)[0][:5] == f"{first:05}".encode()
    assert broker.poller.position(topic, CONSUMER, 0) == first


def test_an_open_transaction_keeps_what_it_holds_back(tmp_path: Path) -> None:
    broker = opened(tmp_path, segment_bytes=SEGMENT, retention_age_us=5 * SECOND)
    partition = topic_of(broker).partition(0)
    many(broker, partition, range(10))
    one = broker.native_transactions.begin(now_us=NOW)
    noise = random.Random(2).randbytes
    append_block(broker, partition, block(noise(10_000), transaction=one), now_us=NOW + 10 * SECOND)
    many(broker, partition, range(11, 40))
    enforce(broker, NOW + 40 * SECOND)
    assert partition.log.first_offset <= 10
    broker.native_transactions.commit("key", [one], now_us=NOW)
    enforce(broker, NOW + 40 * SECOND)
    assert partition.log.first_offset > 20


@pytest.mark.parametrize("jump_us", [86_400 * SECOND, -86_400 * SECOND])
def test_a_clock_that_jumps_deletes_nothing(tmp_path: Path, jump_us: int) -> None:
    broker = opened(tmp_path, segment_bytes=SEGMENT, retention_age_us=3600 * SECOND, retention_check_us=SECOND)
    partition = topic_of(broker).partition(0)
    many(broker, partition, range(20))
    for tick in range(5):
        broker.tick(NOW + tick * SECOND, tick * SECOND)
    assert finish(list_states(partition, 0, 100)) == []
    for tick in range(5, 10):
        broker.tick(NOW + jump_us + tick * SECOND, tick * SECOND)
    assert partition.log.first_offset == 0
    many(broker, partition, range(20, 22))
    assert read(broker, partition).count == 22


def test_what_goes_is_marked_first_and_everybody_can_see_it(tmp_path: Path) -> None:
    broker = opened(tmp_path, segment_bytes=SEGMENT, retention_age_us=20 * SECOND, retention_check_us=SECOND)
    partition = topic_of(broker).partition(0)
    many(broker, partition, range(40))
    border = max(segment.base_offset for segment in partition.log.segments() if segment.base_offset <= 20)
    broker.states.set(partition, [(2, 4)], State.POISONED, now_us=NOW)
    assert enforce_retention(broker, NOW + 40 * SECOND) == 0
    marked = State.MARKED_FOR_DELETION
    assert finish(list_states(partition, 0, 100)) == [(0, 2, marked), (2, 4, State.POISONED), (4, border, marked)]
    assert read(broker, partition).count == 40
    assert read(broker, partition, reader=native_row.AVAILABLE).count == 40 - border
    assert broker.counters.retention_marked_messages == border - 2
    assert enforce_retention(broker, NOW + 40 * SECOND) == border
    assert finish(list_states(partition, 0, 100)) == []
    assert broker.counters.retention_deleted_offsets == border


def test_marks_come_as_long_before_as_the_topic_says_and_outlive_a_crash(tmp_path: Path) -> None:
    broker = opened(tmp_path, segment_bytes=SEGMENT)
    broker.at_once.create_stream(None, "s", now_us=NOW)
    own = TopicSettings(retention_age_us=100 * SECOND, retention_mark_us=50 * SECOND)
    topic = broker.at_once.create_topic("s", None, "t", 1, now_us=NOW, settings=own)
    many(broker, topic.partition(0), range(20))
    last = topic.partition(0).log.segments()[0].end_offset - 1
    assert enforce_retention(broker, NOW + (last + 50) * SECOND) == 0
    assert finish(list_states(topic.partition(0), 0, 100)) == []
    assert enforce_retention(broker, NOW + (last + 51) * SECOND) == 0
    broker.catalog.close()
    again = opened(tmp_path, segment_bytes=SEGMENT)
    partition = again.topology.topic("s", "t").partition(0)
    assert finish(list_states(partition, 0, 100)) == [(0, last + 1, State.MARKED_FOR_DELETION)]
    # not before it is due, however long it is marked
    assert enforce_retention(again, NOW + (last + 100) * SECOND) == 0
    assert enforce_retention(again, NOW + (last + 101) * SECOND) == last + 1


def test_what_is_available_again_is_marked_again_before_it_goes(tmp_path: Path) -> None:
    broker = opened(tmp_path, segment_bytes=SEGMENT, retention_bytes=SEGMENT)
    partition = topic_of(broker).partition(0)
    many(broker, partition, range(40))
    enforce_retention(broker, NOW)
    broker.states.set(partition, [(0, 1)], State.AVAILABLE, now_us=NOW)
    assert enforce_retention(broker, NOW) == 0
    assert finish(list_states(partition, 0, 1)) == [(0, 1, State.MARKED_FOR_DELETION)]
    assert enforce_retention(broker, NOW) > 0


def test_looking_ahead_says_what_goes_when_and_why(tmp_path: Path) -> None:
    broker = opened(tmp_path, segment_bytes=SEGMENT, retention_age_us=100 * SECOND)
    partition = topic_of(broker).partition(0)
    many(broker, partition, range(40))
    segments = partition.log.segments()
    assert retention.forecast(partition, broker.settings, NOW, 60 * SECOND) == []
    going = retention.forecast(partition, broker.settings, NOW, 110 * SECOND)
    # a message a second: what is at most 10 s old at its youngest
    assert [(one.first, one.end) for one in going] == [
        (one.base_offset, one.end_offset) for one in segments if one.end_offset <= 10
    ]
    assert {(one.why, one.marked, one.held) for one in going} == {("age", False, False)}
    assert going[0].due_us == NOW + (segments[0].end_offset - 1 + 100) * SECOND + 1
    enforce_retention(broker, NOW + 108 * SECOND)
    marked = [one for one in retention.forecast(partition, broker.settings, NOW, 10**12) if one.marked]
    assert marked and marked[0].first == 0
    # it says what will be deleted: every look finds gone what the look ahead promised
    due = retention.forecast(partition, broker.settings, NOW + 200 * SECOND, 0)
    enforce(broker, NOW + 200 * SECOND)
    assert partition.log.first_offset == due[-1].end


def test_looking_ahead_by_size(tmp_path: Path) -> None:
    broker = opened(tmp_path, segment_bytes=SEGMENT, retention_bytes=2 * SEGMENT)
    partition = topic_of(broker).partition(0)
    many(broker, partition, range(40))
    going = retention.forecast(partition, broker.settings, NOW, 0)
    assert {one.why for one in going} == {"size"}
    assert enforce(broker, NOW) == going[-1].end
    assert retention.forecast(partition, broker.settings, NOW, 10**15) == []


def test_others_have_their_turn_while_many_partitions_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One look at 10,000 partitions kept the loop for 19 ms, where nothing was to be deleted."""
    broker = opened(tmp_path, retention_age_us=20 * SECOND, retention_check_us=SECOND)
    topic, looked_at = topic_of(broker, 3 * ROWS_AT_ONCE), []

    def look(partition: Partition, *_: object) -> retention.Enforced:
        looked_at.append(partition.number)
        return retention.Enforced(0, 0)

    monkeypatch.setattr(retention, "enforce", look)
    # every turn is over at the first look at the clock
    monkeypatch.setattr(rounds, "ROUND_TURN_S", 0)
    broker.tick(NOW + SECOND)
    assert looked_at == list(range(ROWS_AT_ONCE))
    # those that are deleted meanwhile are left out; a tick goes on where the passes of the loop failed
    broker.at_once.delete_partitions(topic, ROWS_AT_ONCE // 2)
    broker.tick(NOW + SECOND)
    assert looked_at == list(range(2 * ROWS_AT_ONCE))
    broker.appender.flush()
    broker.appender.flush()
    assert looked_at == list(range(3 * ROWS_AT_ONCE - ROWS_AT_ONCE // 2))
    broker.stop()


def test_topics_without_limits_are_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = opened(tmp_path)
    topic_of(broker, name="kept")
    limited = topic_of(broker, name="limited")
    broker.at_once.alter_topic(limited, TopicSettings(retention_age_us=SECOND))
    looked_at = []

    def look(partition: Partition, *_: object) -> retention.Enforced:
        looked_at.append(partition)
        return retention.Enforced(0, 0)

    monkeypatch.setattr(retention, "enforce", look)
    enforce_retention(broker, NOW)
    assert looked_at == limited.partitions
    broker.stop()
