"""States, and the table of who sees what."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lading.broker.broker import Broker
from lading.broker.core.settings import TopicSettings
from lading.broker.core.states import list_states
from lading.broker.core.topology import Partition
from lading.broker.iggy.poll import Last, Next
from lading.dialects.iggy.classic import protocol as iggy_row
from lading.dialects.kafka import protocol as kafka_row
from lading.dialects.native import protocol as native_row
from lading.dialects.protocols import VISIBILITY
from lading.model.errors import Reason, Refusal
from lading.model.protocol import VisibilityRule
from lading.model.ranges import ranges_of
from lading.model.state import State
from lading.runtime.turns import finish
from tests.broker.room import CONSUMER, NOW, append_block, block, fill, opened, payloads, read, rows, topic_of


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return opened(tmp_path)


@pytest.fixture
def partition(broker: Broker) -> Partition:
    partition = topic_of(broker).partition(0)
    fill(broker, partition, 10)
    return partition


def test_states_are_set_by_ranges_and_found_again(tmp_path: Path, broker: Broker, partition: Partition) -> None:
    broker.states.set(partition, [(1, 3), (5, 6)], State.POISONED, now_us=NOW)
    broker.states.set(partition, [(2, 3)], State.UNAVAILABLE, now_us=NOW)
    expected = [(1, 2, 20), (2, 3, 10), (5, 6, 20)]
    assert finish(list_states(partition, 0, 1 << 62)) == expected
    assert finish(list_states(partition, 2, 5)) == [(2, 3, 10)]
    assert finish(list_states(partition, 7, 7)) == []
    broker.catalog.close()
    again = opened(tmp_path)
    found = again.topology.topic("s", "t").partition(0)
    assert finish(list_states(found, 0, 100)) == expected
    again.states.set(found, [(1, 3)], State.AVAILABLE, now_us=NOW)
    assert finish(list_states(found, 0, 100)) == [(5, 6, 20)]
    again.stop()


@pytest.mark.parametrize(
    ("reason", "ranges", "state"),
    [
        (Reason.INVALID_STATE, [(0, 1)], 2),
        (Reason.INVALID_STATE, [(0, 1)], 0),
        (Reason.INVALID_OFFSET, [(0, 1), (9, 11)], 20),
        (Reason.INVALID_OFFSET, [(3, 3)], 20),
        (Reason.INVALID_OFFSET, [(4, 2)], 20),
        (Reason.INVALID_OFFSET, [(-1, 2)], 20),
    ],
)
def test_what_cannot_be_set_is_refused_as_a_whole(
    broker: Broker, partition: Partition, reason: Reason, ranges: list[tuple[int, int]], state: int
) -> None:
    with pytest.raises(Refusal) as refused:
        broker.states.set(partition, ranges, state, now_us=NOW)
    assert refused.value.reason is reason
    assert finish(list_states(partition, 0, 100)) == []


def test_single_offsets_become_ranges() -> None:
    assert ranges_of([5, 1, 2, 2, 9, 3]) == [(1, 4), (5, 6), (9, 10)]
    assert ranges_of([]) == []


@pytest.mark.parametrize("reader", VISIBILITY, ids=lambda rule: rule.name)
def test_who_sees_messages_that_are_not_available(broker: Broker, partition: Partition, reader: VisibilityRule) -> None:
    """The rows of design.md Log's table: shown with their state to Iggy polls, raw readers and Kafka readers
    of a topic that shows them, hidden from the others."""
    broker.states.set(partition, [(0, 2), (4, 5)], State.POISONED, now_us=NOW)
    shown = reader in (
        iggy_row.SHOWING, native_row.ALL_STATES, kafka_row.COMMITTED_SHOWING, kafka_row.UNCOMMITTED_SHOWING,
    )  # fmt: skip
    reading = read(broker, partition, reader=reader)
    offsets = [offset for offset, _ in rows(reading)]
    assert offsets == (list(range(10)) if shown else [2, 3, 5, 6, 7, 8, 9])
    assert reading.count == len(offsets)
    assert reading.end_offset == 10
    assert list(reading.hidden) == ([(0, 2, 20), (4, 5, 20)] if shown else [])
    part = read(broker, partition, reader=reader, max_messages=3)
    assert part.count == 3
    assert part.end_offset == (3 if shown else 6)


def test_every_reader_has_a_row_of_its_own_and_only_uncommitted_sees_open_transactions() -> None:
    assert len({rule.name for rule in VISIBILITY}) == len(VISIBILITY) == 9
    assert [rule for rule in VISIBILITY if rule.open_transactions] == [
        kafka_row.UNCOMMITTED,
        kafka_row.UNCOMMITTED_SHOWING,
    ]


def test_the_page_says_what_the_table_says() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "visibility.md"
    said = re.findall(r"^\| `(\w+)` \| (\w+) \| (\w+) \| ([\w ]+) \|", page.read_text(), re.MULTILINE)
    assert said == [
        (rule.name, "yes" if rule.open_transactions else "no", rule.aborted.value, rule.states.value)
        for rule in VISIBILITY
    ]


def test_a_topic_may_hide_states_from_iggy_polls(broker: Broker) -> None:
    broker.at_once.create_stream(None, "h", now_us=NOW)
    topic = broker.at_once.create_topic("h", None, "t", 1, now_us=NOW, settings=TopicSettings(hide_states=True))
    fill(broker, topic.partition(0), 6)
    broker.states.set(topic.partition(0), [(0, 2), (4, 5)], State.UNAVAILABLE, now_us=NOW)

    def poll(strategy: Next | Last, count: int) -> list[bytes]:
        polled = broker.poller.poll(topic, CONSUMER, None, 0, strategy, count, True, max_bytes=1 << 20, now_us=NOW)
        return payloads(polled.reading)

    assert poll(Next(), 1) == [b"2"]
    assert poll(Next(), 9) == [b"3", b"5"]
    assert poll(Next(), 9) == []
    assert poll(Last(), 2) == [b"3", b"5"]


def test_hiding_moves_nobody_back(broker: Broker, partition: Partition) -> None:
    topic = partition.topic
    broker.poller.store_position(topic, CONSUMER, None, 0, 4, now_us=NOW)
    broker.states.set(partition, [(0, 3)], State.UNAVAILABLE, now_us=NOW)
    broker.states.set(partition, [(0, 3)], State.AVAILABLE, now_us=NOW)
    polled = broker.poller.poll(topic, CONSUMER, None, 0, Next(), 1, False, max_bytes=1 << 20, now_us=NOW)
    assert payloads(polled.reading) == [b"5"]


def test_all_of_a_partition_may_be_hidden(broker: Broker, partition: Partition) -> None:
    append_block(broker, partition, block(b"native"))
    broker.states.set(partition, [(0, 11)], State.MARKED_FOR_DELETION, now_us=NOW)
    reading = read(broker, partition, reader=native_row.AVAILABLE)
    assert (reading.count, reading.end_offset, reading.pieces) == (0, 11, [])
