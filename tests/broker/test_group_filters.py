"""Filters of groups: which messages a channel, a share group and a Kafka client get, and to whom no filter applies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lading.broker.broker import Broker
from lading.broker.core.topology import Topic
from lading.broker.group_filters import GroupFilters
from lading.broker.iggy.consumer import ConsumerRef, IggyConsumerKind
from lading.broker.iggy.poll import Next
from lading.broker.share_sessions import ACCEPT
from lading.log.group_filter_table import GroupFilterKey
from lading.model.errors import FilterError, Refusal, SettingError
from tests.broker.channel_room import Reader, put
from tests.broker.room import NOW, opened, payloads, topic_of
from tests.broker.test_share_sessions import open_session, settle, take

TENANTS = [[("tenant", b"a" if number % 10 == 0 else b"b")] for number in range(100)]
ONE_IN_TEN = [number for number in range(100) if number % 10 == 0]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    running = opened(tmp_path / "data")
    yield running
    running.stop()


@pytest.fixture
def topic(broker: Broker) -> Topic:
    topic = topic_of(broker)
    put(broker, topic.partition(0), *[b"%d" % number for number in range(100)], headers=TENANTS)
    return topic


def set_filter(broker: Broker, key: GroupFilterKey, where: str, *client_ids: str, topic: Topic | None = None) -> None:
    broker.group_filters.set(key, broker.group_filters.parse(where), client_ids, topic)


def of_kafka(name: str) -> GroupFilterKey:
    return GroupFilterKey("kafka", b"", name)


def read_channel(broker: Broker, topic: Topic, name: str) -> list[int]:
    """Subscribe, finish all that comes, and return the offsets of it."""
    reader = Reader()
    channel = broker.channels.open(topic, name)
    channel.subscribe(reader.subscriber)
    reader.subscriber.ready = 1_000
    while broker.channels.pump(NOW) is not None or channel.lanes[0].waits:
        broker.channels.pump(NOW + 1_000_000)
    offsets = [offset for _, offset, _, _ in reader.got]
    for delivery in reader.deliveries:
        channel.finish(reader.subscriber, 0, delivery.offsets)
    channel.leave(reader.subscriber)
    return offsets


def test_a_channel_delivers_what_its_filter_selects_and_passes_over_the_rest(broker: Broker, topic: Topic) -> None:
    broker.channels.open(topic, "some")
    broker.channels.open(topic, "all")
    set_filter(broker, GroupFilterKey("nsq", topic.uuid, "some"), "tenant = 'a'", topic=topic)
    assert read_channel(broker, topic, "some") == ONE_IN_TEN
    channel = broker.channels.open(topic, "some")
    assert (channel.lanes[0].window.first, channel.statistics().filtered) == (100, 90)
    broker.channels.open(topic, "all").seek(0, 0)
    assert read_channel(broker, topic, "all") == list(range(100))


def test_messages_that_wait_are_held_against_a_filter_that_comes_later(broker: Broker, topic: Topic) -> None:
    channel = broker.channels.open(topic, "c")
    reader = Reader()
    channel.subscribe(reader.subscriber)
    reader.subscriber.ready = 1
    broker.channels.pump(NOW)
    assert [offset for _, offset, _, _ in reader.got] == [0]
    set_filter(broker, GroupFilterKey("nsq", topic.uuid, "c"), "tenant = 'a'", topic=topic)
    reader.subscriber.ready = 1_000
    broker.channels.pump(NOW + 1_000_000)
    assert [offset for _, offset, _, _ in reader.got] == ONE_IN_TEN
    broker.group_filters.remove(GroupFilterKey("nsq", topic.uuid, "c"), topic)
    put(broker, topic.partition(0), b"more")
    broker.channels.pump(NOW + 2_000_000)
    broker.channels.pump(NOW + 3_000_000)
    assert reader.got[-1][1:3] == (100, b"more")


def test_a_share_group_takes_what_its_filter_selects(broker: Broker, topic: Topic) -> None:
    set_filter(broker, of_kafka("g"), "tenant = 'a'")
    session = open_session(broker, topic)
    assert [offset for offset, _ in take(broker, session, 1_000)] == ONE_IN_TEN
    settle(broker, session, ACCEPT, *ONE_IN_TEN)
    channel = broker.channels.open(topic, "g")
    assert channel.lanes[0].window.first == 100
    # of another share group nothing is kept
    broker.group_filters.remove(of_kafka("g"))
    channel.seek(0, 0)
    assert len(take(broker, session, 1_000)) == 100


def test_a_filter_is_there_again_after_a_restart_and_gone_with_its_channel(tmp_path: Path) -> None:
    broker = opened(tmp_path / "data")
    topic = topic_of(broker)
    put(broker, topic.partition(0), *[b"%d" % number for number in range(100)], headers=TENANTS)
    broker.channels.open(topic, "c")
    key = GroupFilterKey("nsq", topic.uuid, "c")
    set_filter(broker, key, "tenant = 'a'", topic=topic)
    set_filter(broker, of_kafka("k"), "tenant = 'b'", "worker-1")
    broker.stop()
    broker = opened(tmp_path / "data")
    (topic,) = [one for one in broker.topology.topics() if one.uuid == key.topic]
    found = broker.group_filters.find_for_client("worker-1")
    assert found is not None
    assert found.condition.text == "tenant = 'b'"
    assert read_channel(broker, topic, "c") == ONE_IN_TEN
    broker.channels.delete(broker.channels.open(topic, "c"))
    assert broker.group_filters.find(key) is None
    broker.channels.open(topic, "c").seek(0, 0)
    assert len(read_channel(broker, topic, "c")) == 100
    broker.stop()
    broker = opened(tmp_path / "data")
    assert broker.group_filters.find(key) is None
    broker.stop()


@pytest.mark.parametrize("commits", [True, False])
def test_an_iggy_group_gets_what_its_filter_selects(broker: Broker, topic: Topic, commits: bool) -> None:
    group = broker.groups.create(topic, 7, "readers")
    broker.groups.join(topic, 7, 1)
    consumer = ConsumerRef(IggyConsumerKind.GROUP, group.id)
    key = GroupFilterKey("iggy", topic.uuid, "readers")
    set_filter(broker, key, "tenant = 'a'", topic=topic)

    def poll(count: int) -> list[int]:
        polled = broker.poller.poll(topic, consumer, 1, 0, Next(), count, commits, max_bytes=1 << 20, now_us=NOW)
        got = [int(payload) for payload in payloads(polled.reading)]
        assert len(got) == polled.count
        if got and not commits:
            broker.poller.store_position(topic, consumer, 1, 0, got[-1], now_us=NOW)
        return got

    assert (poll(3), poll(3)) == (ONE_IN_TEN[:3], ONE_IN_TEN[3:6])
    assert poll(100) == ONE_IN_TEN[6:]
    stored = broker.poller.position(topic, consumer, 0)
    assert stored == (99 if commits else 90)
    assert poll(100) == []
    # the next poll begins after what the last one looked at, with the position stored or not
    put(broker, topic.partition(0), b"100", headers=[[("tenant", b"b")]])
    assert poll(100) == []
    put(broker, topic.partition(0), b"101", headers=[[("tenant", b"a")]])
    assert poll(100) == [101]
    other = broker.groups.create(topic, 8, "others")
    broker.groups.join(topic, 8, 1)
    everything = broker.poller.poll(
        topic, ConsumerRef(IggyConsumerKind.GROUP, other.id), 1, 0, Next(), 1_000, True, max_bytes=1 << 20, now_us=NOW
    )
    assert everything.count == 102
    broker.groups.delete(topic, 7)
    assert broker.group_filters.find(key) is None
    assert not broker.poller.filtered.conditions


@pytest.mark.parametrize(
    ("client_id", "is_filtered"),
    [
        ("shop", True), ("consumer-shop-1", True), ("consumer-shop-12", True), ("mine", True),
        ("consumer-shop-1-1", False), ("consumer-shop", False), ("shop-1", False), ("rdkafka", False), ("", False),
    ],
)  # fmt: skip
def test_which_clients_of_kafka_are_of_a_group(broker: Broker, client_id: str, is_filtered: bool) -> None:
    set_filter(broker, of_kafka("shop"), "a = 1", "mine")
    assert (broker.group_filters.find_for_client(client_id) is not None) is is_filtered


def test_a_group_with_the_name_of_a_client_leaves_that_clients_readers_alone(broker: Broker) -> None:
    set_filter(broker, of_kafka("rdkafka"), "a = 1", "mine")
    assert broker.group_filters.find_for_client("rdkafka") is None
    assert broker.group_filters.find_for_client("mine") is not None


def test_a_member_of_another_group_suspends_a_filter_for_good(tmp_path: Path) -> None:
    broker = opened(tmp_path / "data")
    filters = broker.group_filters
    set_filter(broker, of_kafka("shop"), "a = 1", "mine")
    filters.note_member("shop", "mine")
    filters.note_member("other", "theirs")
    assert filters.find_for_client("mine") is not None
    filters.note_member("other", "mine")
    assert filters.find_for_client("mine") is None
    assert filters.find_for_client("shop") is None
    broker.stop()
    broker = opened(tmp_path / "data")
    assert broker.group_filters.find_for_client("mine") is None
    found = broker.group_filters.find(of_kafka("shop"))
    assert found is not None
    assert found.suspended_by == "other"
    set_filter(broker, of_kafka("shop"), "a = 1", "others")
    assert broker.group_filters.find_for_client("others") is not None
    assert broker.group_filters.find_for_client("mine") is None
    broker.stop()


def test_what_cannot_be_a_filter_is_refused(broker: Broker, topic: Topic) -> None:
    filters: GroupFilters = broker.group_filters
    for where in ("a = ", "state = 'poisoned'", " OR ".join(["a = 1"] * 100)):
        with pytest.raises(FilterError):
            filters.parse(where)
    set_filter(broker, of_kafka("shop"), "a = 1", "mine")
    for client_id in ("rdkafka", "", "kgo", "aiokafka-0.14.0", "mine", "shop"):
        with pytest.raises(SettingError):
            set_filter(broker, of_kafka("other"), "a = 1", client_id)
    with pytest.raises(SettingError):
        set_filter(broker, GroupFilterKey("nsq", topic.uuid, "c"), "a = 1", "mine", topic=topic)
    with pytest.raises(SettingError, match="one of the filter of group 'shop'"):
        set_filter(broker, of_kafka("mine"), "a = 1")
    with pytest.raises(Refusal):
        filters.remove(of_kafka("other"))
