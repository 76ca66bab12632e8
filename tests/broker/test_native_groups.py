"""Native groups: generations, silence, and positions that a late member cannot spoil."""

from __future__ import annotations

from pathlib import Path

import pytest

from lading.broker.broker import Broker
from lading.broker.core.topology import Topic
from lading.broker.native.groups import Assignment
from lading.model.errors import Reason, Refusal
from tests.broker.room import NOW, SECOND, fill, opened, topic_of


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return opened(tmp_path, session_timeout_us=10 * SECOND)


@pytest.fixture
def topic(broker: Broker) -> Topic:
    return topic_of(broker, 3)


def places(assignment: Assignment) -> list[tuple[str, int]]:
    return [(topic, number) for _, topic, number in assignment.partitions]


def reason(act: object) -> Reason:
    with pytest.raises(Refusal) as refused:
        act()  # type: ignore[operator]
    return refused.value.reason


def test_members_share_partitions_and_every_change_is_a_generation(broker: Broker, topic: Topic) -> None:
    groups = broker.native_groups
    one = groups.join("g", "one", [topic], now_us=NOW)
    assert one == Assignment(1, [("s", "t", 0), ("s", "t", 1), ("s", "t", 2)])
    assert groups.join("g", "one", [topic], now_us=NOW) == one
    two = groups.join("g", "two", [topic], now_us=NOW)
    assert (two.generation, places(two)) == (2, [("t", 1)])
    assert places(groups.heartbeat("g", "one", now_us=NOW)) == [("t", 0), ("t", 2)]
    assert reason(lambda: groups.heartbeat("g", "one", generation=1, now_us=NOW)) is Reason.STALE_GENERATION
    broker.at_once.add_partitions(topic, 1)
    assert groups.heartbeat("g", "two", now_us=NOW) == Assignment(3, [("s", "t", 1), ("s", "t", 3)])
    groups.leave("g", "one", now_us=NOW)
    groups.leave("g", "one", now_us=NOW)
    assert groups.heartbeat("g", "two", now_us=NOW).generation == 4
    assert len(groups.heartbeat("g", "two", now_us=NOW).partitions) == 4


def test_members_may_read_different_topics(broker: Broker, topic: Topic) -> None:
    other = topic_of(broker, 2, "u")
    groups = broker.native_groups
    groups.join("g", "one", [topic], now_us=NOW)
    both = groups.join("g", "two", [topic, other], now_us=NOW)
    assert places(both) == [("t", 1), ("u", 0), ("u", 1)]
    broker.at_once.delete_topic("s", "t")
    assert places(groups.heartbeat("g", "two", now_us=NOW)) == [("u", 0), ("u", 1)]
    assert places(groups.heartbeat("g", "one", now_us=NOW)) == []


def test_a_catalog_that_cannot_be_written_delays_a_generation_and_no_change_of_topics(
    broker: Broker, topic: Topic
) -> None:
    topic_of(broker, 2, "u")
    groups = broker.native_groups
    for member in ("one", "two"):
        groups.join("g", member, [topic, broker.topology.topic("s", "u")], now_us=NOW)

    def partitions_of(generation: int) -> list[list[tuple[str, int]]]:
        found = [groups.heartbeat("g", one, generation=generation, now_us=NOW) for one in ("one", "two")]
        return [places(one) for one in found]

    # refuses the next write; the catalog repairs itself with the one after it
    broker.catalog._db.execute("PRAGMA query_only = ON")
    broker.at_once.delete_partitions(topic, 1)
    assert partitions_of(2) == [[("t", 0), ("u", 0)], [("t", 1), ("u", 1)]]
    broker.tick(NOW)
    assert partitions_of(3) == [[("t", 0), ("u", 0)], [("t", 1), ("u", 1)]]
    broker.catalog._db.execute("PRAGMA query_only = ON")
    broker.at_once.delete_topic("s", "t")
    assert [one.name for one in broker.topology.stream("s").list_topics()] == [
        "u"
    ] and broker.counters.failed_maintenance == 2
    assert partitions_of(3) == [[("u", 0)], [("u", 1)]]
    for at in range(2):
        broker.tick(NOW + at * SECOND)
        assert partitions_of(4) == [[("u", 0)], [("u", 1)]]


def test_a_silent_member_leaves(broker: Broker, topic: Topic) -> None:
    groups = broker.native_groups
    groups.join("g", "one", [topic], now_us=NOW)
    groups.join("g", "two", [topic], now_us=NOW)
    groups.heartbeat("g", "one", now_us=NOW + 9 * SECOND)
    broker.tick(NOW + 10 * SECOND)
    assert reason(lambda: groups.heartbeat("g", "two", now_us=NOW)) is Reason.GROUP_MEMBER_NOT_FOUND
    assert len(groups.heartbeat("g", "one", now_us=NOW + 10 * SECOND).partitions) == 3
    broker.tick(NOW + 21 * SECOND)
    assert reason(lambda: groups.heartbeat("g", "one", now_us=NOW)) is Reason.GROUP_MEMBER_NOT_FOUND
    assert reason(lambda: groups.heartbeat("other", "one", now_us=NOW)) is Reason.GROUP_NOT_FOUND


def test_a_position_needs_the_generation_of_now(broker: Broker, topic: Topic) -> None:
    groups = broker.native_groups
    partition = topic.partition(0)
    fill(broker, partition, 5)
    # a reader that works alone has no generation
    groups.store_position("alone", partition, 2, 1, None, now_us=NOW)
    found = groups.position("alone", partition)
    assert found is not None
    assert (found.offset, found.epoch) == (2, 1)
    first = groups.join("g", "one", [topic], now_us=NOW).generation
    groups.store_position("g", partition, 3, 1, first, now_us=NOW)
    groups.join("g", "two", [topic], now_us=NOW)
    for generation in (first, None, 99):
        store = lambda generation=generation: groups.store_position("g", partition, 4, 1, generation, now_us=NOW)  # noqa: E731
        assert reason(store) is Reason.STALE_GENERATION
    groups.store_position("g", partition, 4, 1, first + 1, now_us=NOW)
    assert groups.position("g", partition) is not None
    assert groups.position("g", topic.partition(1)) is None
    past = lambda: groups.store_position("g", partition, 6, 1, first + 1, now_us=NOW)  # noqa: E731
    assert reason(past) is Reason.INVALID_OFFSET
    # equal names of other protocols share nothing
    assert all(key.protocol == "native" for key in partition.positions)


def test_a_generation_is_never_used_again(tmp_path: Path, broker: Broker, topic: Topic) -> None:
    fill(broker, topic.partition(0), 5)
    groups = broker.native_groups
    before = groups.join("g", "one", [topic], now_us=NOW).generation
    groups.store_position("g", topic.partition(0), 4, 1, before, now_us=NOW)
    broker.stop()
    again = opened(tmp_path)
    groups = again.native_groups
    found = again.topology.topic("s", "t")
    position = groups.position("g", found.partition(0))
    assert position is not None
    assert position.offset == 4
    assert reason(lambda: groups.heartbeat("g", "one", now_us=NOW)) is Reason.GROUP_MEMBER_NOT_FOUND
    store = lambda: groups.store_position("g", found.partition(0), 5, 1, before, now_us=NOW)  # noqa: E731
    groups.join("g", "two", [found], now_us=NOW)
    assert reason(store) is Reason.STALE_GENERATION
    again.stop()
