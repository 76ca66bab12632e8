"""Iggy polls: the five kinds, auto-commit, stored offsets, and where the real server's answer is not copied."""

from __future__ import annotations

from pathlib import Path

import pytest

from lading.broker.broker import Broker
from lading.broker.core.topology import Topic
from lading.broker.iggy.consumer import ConsumerRef, IggyConsumerKind
from lading.broker.iggy.poll import First, Last, Next, Offset, PollStart, Timestamp
from lading.model.errors import Reason, Refusal
from tests.broker.room import CONSUMER, GROUP, NOW, SECOND, append, fill, opened, payloads, topic_of


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return opened(tmp_path)


def poll(
    broker: Broker,
    topic: Topic,
    strategy: PollStart,
    count: int = 100,
    *,
    consumer: ConsumerRef = CONSUMER,
    member: int | None = None,
    partition: int = 0,
    commit: bool = False,
    max_bytes: int = 1 << 30,
) -> list[bytes]:
    polled = broker.poller.poll(
        topic, consumer, member, partition, strategy, count, commit, max_bytes=max_bytes, now_us=NOW
    )
    found = payloads(polled.reading)
    assert polled.count == len(found)
    return found


def numbers(first: int, end: int) -> list[bytes]:
    return [str(number).encode() for number in range(first, end)]


@pytest.fixture
def topic(broker: Broker) -> Topic:
    """Twenty messages in four chunks, a second between chunks, a microsecond between messages."""
    topic = topic_of(broker, 2)
    for start in range(0, 20, 5):
        append(broker, topic.partition(0), *numbers(start, start + 5), now_us=NOW + start * SECOND)
        broker.appender.flush()
    return topic


@pytest.mark.parametrize(
    ("strategy", "count", "first", "end"),
    [
        (Offset(0), 100, 0, 20),
        (Offset(1), 2, 1, 3),
        (Offset(4), 3, 4, 7),
        (Offset(19), 5, 19, 20),
        (Offset(20), 5, 0, 0),
        (Offset((1 << 64) - 1), 5, 0, 0),
        (First(), 1, 0, 1),
        (First(), 7, 0, 7),
        (Last(), 1, 19, 20),
        (Last(), 7, 13, 20),
        (Last(), 4_294_967_295, 0, 20),
        (Next(), 3, 0, 3),
        (Timestamp(NOW), 2, 0, 2),
        (Timestamp(NOW + 1), 2, 1, 3),
        (Timestamp(NOW + 4), 2, 4, 6),
        (Timestamp(NOW + 5), 2, 5, 7),
        (Timestamp(NOW + 5 * SECOND), 2, 5, 7),
        (Timestamp(NOW + 15 * SECOND + 4), 2, 19, 20),
        (Timestamp(NOW + 15 * SECOND + 5), 2, 0, 0),
        # the real server answers nothing here; see docs/reference/iggy-differences
        (Timestamp(0), 2, 0, 2),
    ],
)
def test_where_a_poll_begins(
    broker: Broker, topic: Topic, strategy: PollStart, count: int, first: int, end: int
) -> None:
    assert poll(broker, topic, strategy, count) == numbers(first, end)


def test_next_goes_on_after_the_stored_offset(broker: Broker, topic: Topic) -> None:
    assert poll(broker, topic, Next(), 2, commit=True) == numbers(0, 2)
    assert broker.poller.position(topic, CONSUMER, 0) == 1
    assert poll(broker, topic, Next(), 1) == numbers(2, 3)
    assert poll(broker, topic, Next(), 100, commit=True) == numbers(2, 20)
    assert poll(broker, topic, Next(), 100, commit=True) == []
    assert broker.poller.position(topic, CONSUMER, 0) == 19
    # auto-commit follows whatever was polled, also backwards
    assert poll(broker, topic, First(), 1, commit=True) == numbers(0, 1)
    assert poll(broker, topic, Next(), 1) == numbers(1, 2)
    other = ConsumerRef(IggyConsumerKind.CONSUMER, 44)
    assert broker.poller.position(topic, other, 0) is None
    assert poll(broker, topic, Next(), 1, consumer=other) == numbers(0, 1)


def test_stored_offsets_may_not_lie_past_the_last(broker: Broker, topic: Topic) -> None:
    broker.poller.store_position(topic, CONSUMER, None, 0, 3, now_us=NOW)
    assert poll(broker, topic, Next(), 2) == numbers(4, 6)
    for offset in (20, 99_999, (1 << 64) - 1):
        with pytest.raises(Refusal) as refused:
            broker.poller.store_position(topic, CONSUMER, None, 0, offset, now_us=NOW)
        assert refused.value.reason is Reason.INVALID_OFFSET
    assert broker.poller.position(topic, CONSUMER, 0) == 3


def test_offset_0_of_an_empty_partition_skips_nothing(broker: Broker, topic: Topic) -> None:
    broker.poller.store_position(topic, CONSUMER, None, 1, 0, now_us=NOW)
    with pytest.raises(Refusal):
        broker.poller.store_position(topic, CONSUMER, None, 1, 1, now_us=NOW)
    assert poll(broker, topic, Next(), partition=1) == []
    fill(broker, topic.partition(1), 2)
    assert poll(broker, topic, Next(), partition=1) == numbers(0, 2)


def test_what_a_poll_refuses(broker: Broker, topic: Topic) -> None:
    bare = topic_of(broker, 0, "bare")
    for reason, target, number, count in (
        (Reason.INVALID_COUNT, topic, 0, 0),
        (Reason.PARTITION_NOT_FOUND, topic, 8, 1),
        (Reason.PARTITION_NOT_FOUND, topic, -1, 1),
        (Reason.NO_PARTITIONS, bare, 0, 1),
    ):
        with pytest.raises(Refusal) as refused:
            poll(broker, target, First(), count, partition=number)
        assert refused.value.reason is reason


def test_an_answer_is_bounded_in_bytes_by_whole_chunks(broker: Broker) -> None:
    topic = topic_of(broker)
    for number in range(50):
        append(broker, topic.partition(0), f"{number:04}".encode() * 2500)
        broker.appender.flush()
    found = poll(broker, topic, First(), 1000, max_bytes=100_000)
    assert 5 <= len(found) <= 11
    assert poll(broker, topic, First(), 1000, max_bytes=1) == found[:1]
    everything: list[bytes] = []
    while part := poll(broker, topic, Next(), 1000, max_bytes=100_000, commit=True):
        everything += part
    assert [int(one[:4]) for one in everything] == list(range(50))


def test_messages_that_are_gone_are_passed_over(tmp_path: Path) -> None:
    broker = opened(tmp_path, segment_bytes=1 << 16)
    topic = topic_of(broker)
    for start in range(40):
        append(broker, topic.partition(0), *(b"x" * 10_000 for _ in range(2)), now_us=NOW + start * SECOND)
        broker.appender.flush()
    log = topic.partition(0).log
    log.truncate_before(log.segments()[2].base_offset)
    first = log.first_offset
    assert first > 0
    for strategy in (Offset(0), First(), Next(), Timestamp(0), Last()):
        polled = broker.poller.poll(topic, CONSUMER, None, 0, strategy, 1000, False, max_bytes=1 << 30, now_us=NOW)
        assert polled.reading is not None
        assert (polled.reading.first_offset, polled.reading.end_offset) == (first, 80)
    assert poll(broker, topic, Last(), 3) == [b"x" * 10_000] * 3
    broker.stop()


def test_a_group_takes_its_partitions_in_turn(broker: Broker) -> None:
    topic = topic_of(broker, 3)
    for partition in topic.partitions:
        fill(broker, partition, 2, prefix=f"p{partition.number}-")
    broker.groups.create(topic, 1)
    broker.groups.join(topic, 1, 70)
    seen = [poll(broker, topic, Next(), 1, consumer=GROUP, member=70, commit=True, partition=99)[0] for _ in range(6)]
    assert seen == [b"p0-0", b"p1-0", b"p2-0", b"p0-1", b"p1-1", b"p2-1"]
    assert [poll(broker, topic, Next(), 1, consumer=GROUP, member=70) for _ in range(3)] == [[], [], []]
    # consumers and groups of the same number are apart
    assert broker.poller.position(topic, CONSUMER, 0) is None
    assert broker.poller.position(topic, GROUP, 0) == 1


def test_a_group_stores_for_the_partition_its_member_polled_last(broker: Broker) -> None:
    topic = topic_of(broker, 2)
    for partition in topic.partitions:
        fill(broker, partition, 5)
    broker.groups.create(topic, 1)
    broker.groups.join(topic, 1, 70)
    with pytest.raises(Refusal) as refused:
        broker.poller.store_position(topic, GROUP, 70, 0, 0, now_us=NOW)
    assert refused.value.reason is Reason.PARTITION_NOT_FOUND
    poll(broker, topic, Next(), 1, consumer=GROUP, member=70)
    poll(broker, topic, Next(), 1, consumer=GROUP, member=70)
    broker.poller.store_position(topic, GROUP, 70, 0, 3, now_us=NOW)
    assert (broker.poller.position(topic, GROUP, 0), broker.poller.position(topic, GROUP, 1)) == (None, 3)
    broker.groups.join(topic, 1, 71)
    # partition 1 is another member's now
    with pytest.raises(Refusal) as refused:
        broker.poller.store_position(topic, GROUP, 70, 0, 0, now_us=NOW)
    assert refused.value.reason is Reason.PARTITION_NOT_FOUND


def test_who_may_poll_as_a_group(broker: Broker, topic: Topic) -> None:
    def reason(group: int, member: int | None) -> Reason:
        with pytest.raises(Refusal) as refused:
            poll(broker, topic, Next(), consumer=ConsumerRef(IggyConsumerKind.GROUP, group), member=member)
        return refused.value.reason

    broker.groups.create(topic, 1)
    assert reason(9, 70) is Reason.GROUP_NOT_FOUND
    assert reason(1, 70) is Reason.GROUP_MEMBER_NOT_FOUND
    assert reason(1, None) is Reason.GROUP_MEMBER_NOT_FOUND
    # reading a stored offset asks for neither
    assert broker.poller.position(topic, ConsumerRef(IggyConsumerKind.GROUP, 9), 0) is None


def test_a_member_without_partitions_polls_nothing(broker: Broker) -> None:
    topic = topic_of(broker, 1)
    fill(broker, topic.partition(0), 2)
    broker.groups.create(topic, 1)
    broker.groups.join(topic, 1, 70)
    broker.groups.join(topic, 1, 71)
    assert poll(broker, topic, Next(), consumer=GROUP, member=71, commit=True) == []
    broker.groups.leave_all(70)
    assert poll(broker, topic, Next(), consumer=GROUP, member=71, commit=True) == numbers(0, 2)


def test_positions_survive_a_restart(tmp_path: Path, broker: Broker, topic: Topic) -> None:
    broker.groups.create(topic, 1)
    broker.groups.join(topic, 1, 70)
    poll(broker, topic, Next(), 7, commit=True)
    poll(broker, topic, Next(), 3, consumer=GROUP, member=70, commit=True)
    broker.stop()
    again = opened(tmp_path)
    found = again.topology.topic("s", "t")
    assert (again.poller.position(found, CONSUMER, 0), again.poller.position(found, GROUP, 0)) == (6, 2)
    assert again.groups.get(found, 1).members == []
    assert poll(again, found, Next(), 2) == numbers(7, 9)
    again.groups.delete(found, 1)
    assert again.poller.position(found, GROUP, 0) is None
    again.stop()
    last = opened(tmp_path)
    assert last.groups.of_topic(last.topology.topic("s", "t")) == []
    assert last.poller.position(last.topology.topic("s", "t"), GROUP, 0) is None
    last.stop()


def test_positions_reach_the_catalog_within_their_time(tmp_path: Path, broker: Broker, topic: Topic) -> None:
    broker.poller.store_position(topic, CONSUMER, None, 0, 5, now_us=NOW)
    broker.tick(NOW + 99_999)
    assert broker.counters.positions_written == 0
    broker.tick(NOW + 100_000)
    assert broker.counters.positions_written == 1
    # a second process may look: what was written is committed
    import sqlite3

    with sqlite3.connect(tmp_path / "catalog.sqlite") as db:
        rows = db.execute("SELECT protocol, partition, consumer, offset FROM positions").fetchall()
    assert rows == [("iggy", 0, "consumer/1", 5)]


def test_a_large_read_before_does_not_unbound_a_small_one(broker: Broker) -> None:
    topic = topic_of(broker)
    for number in range(50):
        append(broker, topic.partition(0), f"{number:04}".encode() * 2500)
        broker.appender.flush()
    assert len(poll(broker, topic, First(), 1000)) == 50
    assert len(poll(broker, topic, First(), 1000, max_bytes=100_000)) <= 11
    assert len(poll(broker, topic, Offset(20), 1000, max_bytes=1)) == 1


def test_a_member_may_name_the_partition_that_it_polls(broker: Broker) -> None:
    """Clients that ask which partitions are theirs poll one of them, store for any, and are refused another's."""
    topic = topic_of(broker, 2)
    for partition in topic.partitions:
        fill(broker, partition, 3)
    broker.groups.create(topic, None, "readers")
    for member in (1, 2):
        broker.groups.join(topic, "readers", member)
    how = {"max_bytes": 1 << 20, "now_us": NOW, "names_partition": True}
    mine = broker.poller.poll(topic, GROUP, 2, 1, Next(), 2, True, **how)  # type: ignore[arg-type]
    assert (mine.partition, mine.count) == (topic.partitions[1], 2)
    with pytest.raises(Refusal) as refused:
        broker.poller.poll(topic, GROUP, 2, 0, Next(), 2, True, **how)  # type: ignore[arg-type]
    assert refused.value.reason is Reason.STALE_GENERATION
    broker.poller.store_position(topic, GROUP, 2, 0, 2, now_us=NOW, names_partition=True)
    assert [broker.poller.position(topic, GROUP, number) for number in range(2)] == [2, 1]
    assert [broker.poller.delete_position(topic, GROUP, 0) for _ in range(2)] == [True, False]
    assert broker.poller.position(topic, GROUP, 0) is None
