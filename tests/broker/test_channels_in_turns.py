"""Channels of many partitions are created in turns, and begin as those that are created at once do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lading.broker.broker import Broker
from lading.broker.channels import ChannelStart
from lading.broker.core.change import Change, complete
from lading.broker.core.topology import Topic
from lading.model.errors import Reason, Refusal
from tests.broker.channel_room import Reader, put
from tests.broker.room import NOW, opened, topic_of

PARTITIONS = 50


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = opened(tmp_path)
    yield made
    made.stop()


@pytest.fixture
def topic(broker: Broker) -> Topic:
    """A topic with a message in its first and its last partition."""
    topic = topic_of(broker, PARTITIONS)
    put(broker, topic.partition(0), b"first")
    put(broker, topic.partition(PARTITIONS - 1), b"last")
    return topic


def prepare(broker: Broker, topic: Topic, name: str, start: ChannelStart = ChannelStart.KEPT) -> Change[None]:
    change = broker.channels.prepare(topic, name, start)
    assert change is not None
    return change


def take(broker: Broker, topic: Topic, name: str) -> list[bytes]:
    """Return what a subscriber of a channel gets, which leaves again."""
    channel = broker.channels.find(topic, name)
    assert channel is not None
    reader = Reader().subscribe(channel, 100)
    while (due_us := broker.channels.pump(NOW)) is not None:
        assert due_us <= NOW + 3_000
        broker.channels.pump(due_us)
    payloads = sorted(reader.payloads())
    channel.leave(reader.subscriber)
    return payloads


@pytest.mark.parametrize("start", list(ChannelStart))
def test_a_channel_begins_where_one_begins_that_is_created_at_once(
    broker: Broker, topic: Topic, start: ChannelStart
) -> None:
    for name in ("one", "two"):
        change = prepare(broker, topic, name, start)
        next(change)
        assert broker.channels.find(topic, name) is None
        complete(change)
        assert broker.channels.prepare(topic, name, start) is None
    other = topic_of(broker, PARTITIONS, "other")
    put(broker, other.partition(0), b"first")
    put(broker, other.partition(PARTITIONS - 1), b"last")
    for name in ("one", "two"):
        broker.channels.open(other, name, start=start)
    for number in (1, PARTITIONS - 2):
        for either in (topic, other):
            put(broker, either.partition(number), b"new")
    for name in ("one", "two"):
        wanted = take(broker, other, name)
        assert take(broker, topic, name) == wanted and wanted[-2:] == [b"new", b"new"]


def test_what_a_topic_keeps_is_given_to_one_channel(broker: Broker, topic: Topic) -> None:
    slow = prepare(broker, topic, "slow")
    for _ in range(2):
        next(slow)
    complete(prepare(broker, topic, "quick"))
    complete(slow)
    assert (take(broker, topic, "quick"), take(broker, topic, "slow")) == ([b"first", b"last"], [])


def test_what_a_topic_drops_meanwhile_is_not_delivered(broker: Broker, topic: Topic) -> None:
    change = prepare(broker, topic, "c")
    for _ in range(2):
        next(change)
    broker.channels.empty_topic(topic)
    put(broker, topic.partition(0), b"new")
    complete(change)
    assert take(broker, topic, "c") == [b"new"]


def test_messages_that_arrive_meanwhile_are_delivered(broker: Broker, topic: Topic) -> None:
    change = prepare(broker, topic, "c")
    for number in range(3):
        next(change)
        put(broker, topic.partition(number), b"new")
    complete(change)
    assert take(broker, topic, "c") == [b"first", b"last", *[b"new"] * 3]


def test_a_channel_of_a_topic_that_is_deleted_meanwhile_is_refused(broker: Broker, topic: Topic) -> None:
    change = prepare(broker, topic, "c")
    next(change)
    broker.at_once.delete_topic("s", "t")
    with pytest.raises(Refusal) as raised:
        complete(change)
    assert raised.value.reason is Reason.TOPIC_NAME_NOT_FOUND


def test_a_channel_is_stored_as_one_that_is_created_at_once(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    topic = topic_of(broker, PARTITIONS)
    put(broker, topic.partition(3), b"first")
    complete(prepare(broker, topic, "c"))
    broker.stop()
    again = opened(tmp_path)
    (found,) = again.topology.list_topics()
    assert take(again, found, "c") == [b"first"]
    again.stop()
