"""Where a share group begins to read: the texts are judged as Apache Kafka 4.3.1 judged them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lading.broker.broker import Broker
from lading.broker.channels import Channel, channels
from lading.broker.channels.channels import STORED_AT_ONCE
from lading.broker.core.topology import Topic
from lading.broker.kafka.share_start import DURATION_MAX_US, find_duration_us
from lading.model.errors import Refusal
from lading.runtime.turns import ROWS_AT_ONCE, Turns, finish
from tests.broker.channel_room import put
from tests.broker.room import NOW, SECOND, opened, topic_of

HOUR, DAY = 3_600 * SECOND, 86_400 * SECOND
TAKEN: list[tuple[str, int | None]] = [
    ("earliest", None),
    ("latest", None),
    ("by_duration:PT0S", 0),
    ("by_duration:PT1H", HOUR),
    ("by_duration:pt1h", HOUR),
    ("by_duration:P1D", DAY),
    ("by_duration:P1DT2H3M4.5S", DAY + 2 * HOUR + 184 * SECOND + 500_000),
    ("by_duration:PT1,5S", 1_500_000),
    ("by_duration:PT1.S", SECOND),
    ("by_duration:-PT-1H", HOUR),
    ("by_duration:+P+1D", DAY),
    ("by_duration:PT1H-59M", 60 * SECOND),
    ("by_duration:PT0.000001999S", 1),
    ("by_duration:PT0000000000000000000001H", HOUR),
    ("by_duration:P106751991167300D", DURATION_MAX_US),
    ("by_duration:PT9223372036854775807S", DURATION_MAX_US),
]
REFUSED = [
    "none", "Latest", "by_duration", "by_duration:", "BY_DURATION:PT1H", "by_duration: PT1H", "by_duration:P1W",
    "by_duration:P1Y", "by_duration:P", "by_duration:PT", "by_duration:P1DT", "by_duration:PT1H1H",
    "by_duration:PT3600", "by_duration:PT٣H", "by_duration:PT0.1234567891S", "by_duration:-PT1H",
    "by_duration:PT-1H", "by_duration:PT-0.5S", "by_duration:PT1H-61M", "by_duration:P106751991168000D",
    "by_duration:PT99999999999999999999S",
]  # fmt: skip


@pytest.mark.parametrize(("text", "duration_us"), TAKEN)
def test_starts_that_kafka_takes(text: str, duration_us: int | None) -> None:
    assert find_duration_us(text) == duration_us


@pytest.mark.parametrize("text", REFUSED)
def test_starts_that_kafka_refuses(text: str) -> None:
    with pytest.raises(ValueError, match="it takes"):
        find_duration_us(text)


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize(("start", "firsts"), [
    ("by_duration:PT1H", [1, 2, 0]),
    ("by_duration:PT2H", [0, 1, 0]),
    ("by_duration:PT0S", [2, 2, 0]),
    ("latest", [2, 2, 0]),
    ("earliest", [0, 0, 0]),
])  # fmt: skip
def test_a_group_begins_at_the_first_message_of_the_time(
    tmp_path: Path, start: str, firsts: list[int], isolation: str
) -> None:
    """The partitions have messages of 2 and 1 hours ago, of 3 and 2 hours ago, and none."""
    broker = opened(tmp_path)
    topic = topic_of(broker, 3)
    for number, hours in ((0, (2, 1)), (1, (3, 2))):
        for ago in hours:
            put(broker, topic.partition(number), b"x", now_us=NOW - ago * HOUR)
    configs = {"share.auto.offset.reset": start, "share.isolation.level": isolation}
    broker.kafka_configs.replace(32, "g", configs)
    channel = finish(broker.share_sessions.open_channel("g", topic))
    assert [lane.window.end for lane in channel.lanes] == firsts
    broker.stop()


def test_a_search_by_time_takes_turns(tmp_path: Path) -> None:
    """Another member may create the queue meanwhile; both read the same one."""
    broker = opened(tmp_path)
    topic = topic_of(broker, 40)
    broker.kafka_configs.replace(32, "g", {"share.auto.offset.reset": "by_duration:PT1H"})
    first = broker.share_sessions.open_channel("g", topic)
    next(first)
    channel = finish(broker.share_sessions.open_channel("g", topic))
    assert finish(first) is channel
    broker.stop()


def open_partly(broker: Broker, topic: Topic, turns_count: int) -> Turns[Channel]:
    """Return a queue that is being created, after so many turns."""
    opening = broker.share_sessions.open_channel("g", topic)
    for _ in range(turns_count):
        next(opening)
    return opening


def test_a_queue_of_many_partitions_is_created_in_turns(tmp_path: Path) -> None:
    """1,000 partitions took 48 to 82 ms in one pass; the queue does not exist before it is stored whole."""
    broker = opened(tmp_path)
    topic = topic_of(broker, 10 * ROWS_AT_ONCE)
    opening = broker.share_sessions.open_channel("g", topic)
    turns_count = sum(1 for _ in opening)
    assert turns_count >= 10 + 3
    for count in (1, turns_count // 2, turns_count - 1):
        broker.share_sessions.delete_topic("g", topic)
        opening = open_partly(broker, topic, count)
        assert broker.channels.find(topic, "g") is None
        opening.close()
        assert broker.channels.find(topic, "g") is None
    channel = finish(broker.share_sessions.open_channel("g", topic))
    broker.catalog.close()
    again = opened(tmp_path)
    found = again.channels.find(again.topology.topic("s", "t"), "g")
    assert found is not None and len(found.lanes) == len(channel.lanes)
    again.stop()


def test_two_members_that_create_one_queue_in_turns_read_the_same(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    topic = topic_of(broker, 5 * ROWS_AT_ONCE)
    first, second = open_partly(broker, topic, 2), open_partly(broker, topic, 3)
    channel = finish(second)
    channel.seek(0, 0)
    put(broker, topic.partition(0), b"x")
    stored = broker.catalog.positions("channel")
    assert finish(first) is channel
    assert broker.catalog.positions("channel") == stored, "positions of the queue are not those of its beginning again"
    broker.stop()


def test_partitions_that_come_while_a_queue_is_created_are_read(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    topic = topic_of(broker, 5 * ROWS_AT_ONCE)
    opening = open_partly(broker, topic, 3)
    broker.at_once.add_partitions(topic, 7)
    channel = finish(opening)
    assert [lane.partition for lane in channel.lanes] == topic.partitions
    broker.stop()


def test_a_topic_that_is_deleted_while_its_queue_is_created_has_none(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    topic = topic_of(broker, 5 * ROWS_AT_ONCE)
    opening = open_partly(broker, topic, 3)
    broker.at_once.delete_topic(topic.stream.id, topic.id)
    with pytest.raises(Refusal, match="was deleted"):
        finish(opening)
    assert broker.channels.find(topic, "g") is None
    broker.stop()


def test_positions_of_many_partitions_are_stored_in_several_ticks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One tick stored all that had moved: 1,000 partitions took 30 ms of the loop."""
    # the bound by count, on a machine that is never too slow for it
    monkeypatch.setattr(channels, "STORING_S", 60.0)
    broker = opened(tmp_path)
    topic = topic_of(broker, 2 * STORED_AT_ONCE + 1)
    channel = finish(broker.share_sessions.open_channel("g", topic))
    for lane in channel.lanes:
        lane.changed = True
    changed_counts = []
    for number in range(1, 4):
        broker.tick(NOW + number * SECOND)
        changed_counts.append(sum(lane.changed for lane in channel.lanes))
        # the first ones move again: the others have their turn before them
        channel.lanes[0].changed = True
    assert changed_counts == [STORED_AT_ONCE + 1, 2, 1]
    broker.stop()
