"""A broker on a store that is no directory of files: its logs lie in memory, and every sync takes its time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lading.broker.broker import Broker
from lading.broker.core.pending_append import Append
from lading.broker.core.settings import BrokerSettings
from lading.broker.core.states import list_states
from lading.broker.iggy.poll import Next
from lading.log.store import LocalLogStore, LogStore
from lading.model.errors import Reason
from lading.model.state import State
from lading.runtime.turns import finish
from tests.broker.channel_room import Reader
from tests.broker.memory_store import MemoryLog, MemoryStore
from tests.broker.room import GROUP, NOW, SECOND, append, block, payloads, read, topic_of
from tests.simulation.stepped_commit import SteppedCommit

OpenStore = Callable[[], LogStore]


@pytest.fixture(params=["local", "memory"])
def open_store(tmp_path: Path, request: pytest.FixtureRequest) -> OpenStore:
    """Opens the same store each time; both sync when they are told to."""
    logs: dict[Path, MemoryLog] = {}
    if request.param == "local":
        return lambda: LocalLogStore(tmp_path, SteppedCommit(), segment_bytes=1 << 20)
    return lambda: MemoryStore(tmp_path, logs)


@pytest.fixture
def broker(open_store: OpenStore) -> Iterator[Broker]:
    broker = Broker(open_store(), BrokerSettings(), now_us=NOW)
    yield broker
    broker.stop()


def settle(broker: Broker) -> None:
    """Write and sync what was appended."""
    broker.appender.flush()
    broker.commit.drain()


def test_messages_are_acknowledged_and_seen_when_they_last(broker: Broker) -> None:
    partition = topic_of(broker).partition(0)
    appends: list[Append] = []
    for number in range(3):
        appends.append(append(broker, partition, b"%d" % number))
        # the second and third wait for a sync of their own, together
        broker.appender.flush()
    assert [one.done for one in appends] == [False] * 3 and read(broker, partition).count == 0
    broker.commit.complete()
    assert [one.done for one in appends] == [True, False, False]
    assert payloads(read(broker, partition)) == [b"0"]
    broker.commit.complete()
    assert all(one.done and one.error is None for one in appends)
    assert payloads(read(broker, partition)) == [b"0", b"1", b"2"]


def test_what_waits_for_a_deleted_partition_fails(broker: Broker) -> None:
    partition = topic_of(broker).partition(0)
    waiting = append(broker, partition, b"late")
    broker.appender.flush()
    broker.at_once.delete_topic("s", "t")
    assert waiting.error is not None and waiting.error.reason is Reason.PARTITION_NOT_FOUND
    broker.commit.drain()


def test_transactions_show_all_or_nothing(broker: Broker) -> None:
    partition = topic_of(broker).partition(0)
    won, lost = (broker.native_transactions.begin(now_us=NOW) for _ in range(2))
    for transaction, payload in ((won, b"won"), (lost, b"lost")):
        data = block(payload, transaction=transaction)
        broker.native_appender.append(partition, memoryview(data), now_us=NOW)
    settle(broker)
    assert read(broker, partition).count == 0
    broker.native_transactions.abort([lost], now_us=NOW)
    broker.native_transactions.commit("key", [won], now_us=NOW)
    assert payloads(read(broker, partition)) == [b"won"]


def test_states_are_set_when_they_last(broker: Broker) -> None:
    partition = topic_of(broker).partition(0)
    append(broker, partition, b"0", b"1", b"2")
    settle(broker)
    told: list[object] = []
    broker.states.set_soon(partition, [(1, 2)], State.POISONED, now_us=NOW, done=told.append)
    broker.commit.drain()
    assert told == [None] and finish(list_states(partition, 0, 3)) == [(1, 2, State.POISONED)]


def test_channels_deliver_what_is_synced(broker: Broker) -> None:
    topic = topic_of(broker)
    channel = broker.channels.open(topic, "c")
    reader = Reader().subscribe(channel, 10)
    append(broker, topic.partition(0), b"0", b"1")
    broker.appender.flush()
    broker.channels.pump(NOW)
    assert reader.got == []
    broker.commit.drain()
    broker.channels.pump(NOW)
    assert reader.finish(0, 1) == 2 and reader.payloads() == [b"0", b"1"]


def test_the_next_owner_finds_everything(open_store: OpenStore) -> None:
    broker = Broker(open_store(), BrokerSettings(), now_us=NOW)
    topic = topic_of(broker)
    append(broker, topic.partition(0), *(b"%d" % number for number in range(5)))
    settle(broker)
    broker.groups.create(topic, 1)
    broker.groups.join(topic, 1, 77)
    broker.poller.poll(topic, GROUP, 77, 0, Next(), 3, True, max_bytes=1 << 20, now_us=NOW)
    broker.tick(NOW + SECOND)
    broker.stop()
    again = Broker(open_store(), BrokerSettings(), now_us=NOW + SECOND)
    topic = again.topology.topic("s", "t")
    assert payloads(read(again, topic.partition(0))) == [b"0", b"1", b"2", b"3", b"4"]
    assert again.poller.position(topic, GROUP, 0) == 2
    again.stop()
