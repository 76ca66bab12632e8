"""Appends of a gateway: numbers of its own at once, Kafka's offsets when the cluster acknowledges."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest

from lading.broker.core.counters import Counters
from lading.broker.core.pending_append import Append
from lading.broker.core.settings import TopicSettings
from lading.broker.core.topology import Partition, Stream, Topic
from lading.dialects.kafka import errors
from lading.kafka_log.appender import ClusterAppender
from lading.kafka_log.log import ClusterLog
from lading.kafka_log.producers import OutgoingMessages, ProduceOutcome, Producers
from lading.log.group_commit import WriteOnly
from lading.log.interface import InPlace, WriteResult
from lading.model.errors import LadingError, LimitExceeded, Reason, Refusal
from lading.transports.kafka.cluster import kafka_error


class NotedProducers:
    """Threads that do nothing but note what they got."""

    def __init__(self) -> None:
        self.sent: list[OutgoingMessages] = []
        self.outcome: ProduceOutcome
        self.resumed = 0
        self.forgotten: list[tuple[str, int]] = []

    def submit(self, place: tuple[str, int], messages: Sequence[OutgoingMessages], outcome: ProduceOutcome) -> None:
        self.sent += messages
        self.outcome = outcome

    def resume(self, place: tuple[str, int], outcome: ProduceOutcome) -> None:
        self.resumed += 1

    def forget(self, place: tuple[str, int], outcome: ProduceOutcome) -> None:
        self.forgotten.append(place)


@pytest.fixture
def producers() -> NotedProducers:
    return NotedProducers()


@pytest.fixture
def appender(producers: NotedProducers) -> ClusterAppender:
    return ClusterAppender(WriteOnly(), Counters(), 1 << 20, cast("Producers", producers))


@pytest.fixture
def partition() -> Partition:
    topic = Topic(Stream(1, "air", 0), 1, "legs", bytes(16), 0, TopicSettings())
    return Partition(topic, 0, cast("Any", ClusterLog(("air.legs", 0), bytes(16), 0, 0)))


def append(appender: ClusterAppender, partition: Partition, count: int, source: object = None) -> Append:
    def write(array: Any, at: int, base_offset: int) -> WriteResult:
        array[at : at + count] = base_offset
        return WriteResult(count, count, 1, 2)

    return appender.append(partition, 3, 0, 16, write, source)


def test_kafkas_offset_replaces_the_number_before_anybody_is_called_back(
    appender: ClusterAppender, producers: NotedProducers, partition: Partition
) -> None:
    appends = [append(appender, partition, count) for count in (2, 3)]
    assert [(one.base_offset, one.done) for one in appends] == [(0, False), (2, False)]
    offsets: list[int] = []
    for one in appends:
        one.add_done_callback(lambda done: offsets.append(done.base_offset))
    appender.flush()
    assert [(one.first, one.messages_count) for one in producers.sent] == [(0, 2), (2, 3)]
    # another gateway's messages are at 100 to 106
    producers.outcome.acknowledge(0, 2, 98)
    assert offsets == [98] and partition.log.high_watermark == 100
    producers.outcome.acknowledge(2, 5, 107)
    assert offsets == [98, 107] and partition.log.high_watermark == 110
    assert not partition.pending


def test_one_batch_of_several_appends_gives_each_its_offset(
    appender: ClusterAppender, producers: NotedProducers, partition: Partition
) -> None:
    appends = [append(appender, partition, count) for count in (2, 3, 1)]
    appender.flush()
    producers.outcome.acknowledge(0, 4, 50)
    # the second has one message more, in the next batch
    assert [one.done for one in appends] == [True, False, False]
    producers.outcome.acknowledge(4, 6, 90)
    assert [(one.base_offset, one.error) for one in appends] == [(50, None), (52, None), (91, None)]


def test_messages_that_lie_in_a_receive_buffer_are_copied(
    appender: ClusterAppender, producers: NotedProducers, partition: Partition
) -> None:
    buffer = np.zeros(100, np.uint8)
    append(appender, partition, 1)
    append(appender, partition, 4, InPlace(buffer, 60))
    buffer[:] = 9
    appender.flush()
    assert producers.sent[1].array[producers.sent[1].start : producers.sent[1].end].tolist() == [1, 1, 1, 1]


def test_a_refused_message_fails_its_own_append_alone(
    appender: ClusterAppender, producers: NotedProducers, partition: Partition
) -> None:
    lost: list[int] = []
    appender.on_lost = lambda _partition, number: lost.append(number)
    first, large, last = (append(appender, partition, 1) for _ in range(3))
    appender.flush()
    producers.outcome.acknowledge(0, 1, 10)
    producers.outcome.refuse(1, 2, LimitExceeded("message 0 is too large; send less"))
    assert (first.error, last.done) == (None, False)
    assert isinstance(large.error, Refusal) and "too large" in str(large.error)
    # a writer that repeats the block must not be told that it is there
    assert lost == [1]
    producers.outcome.acknowledge(2, 3, 11)
    assert (last.base_offset, last.error) == (11, None)


def test_after_a_failure_nothing_of_the_partition_passes_it(
    appender: ClusterAppender, producers: NotedProducers, partition: Partition
) -> None:
    appends = [append(appender, partition, 1) for _ in range(3)]
    appender.flush()
    late = append(appender, partition, 1)
    producers.outcome.acknowledge(0, 1, 10)
    producers.outcome.fail(1, LadingError("no leader"))
    assert [one.error is None for one in appends] == [True, False, False]
    assert late.error is not None and late.error.reason is Reason.READ_ONLY and "no leader" in str(late.error)
    assert producers.resumed == 1 and appender._counters.unsynced_bytes == 0
    # what comes afterwards is sent again
    appender.flush()
    again = append(appender, partition, 1)
    appender.flush()
    assert producers.sent[-1].first == again.base_offset == 4
    producers.outcome.acknowledge(4, 5, 30)
    assert (again.base_offset, again.error) == (30, None)


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (
            errors.TOPIC_AUTHORIZATION_FAILED,
            r"cluster refused \(a send: .*lacks a right.*\); mend that before you send again$",
        ),
        (errors.LEADER_NOT_AVAILABLE, r"did not acknowledge \(a send: LEADER_NOT_AVAILABLE.*\); send again$"),
    ],
)
def test_only_what_may_pass_is_to_be_sent_again(
    appender: ClusterAppender,
    producers: NotedProducers,
    partition: Partition,
    code: int,
    sentence: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    waiting = append(appender, partition, 1)
    appender.flush()
    for _ in range(2):
        producers.outcome.fail(0, kafka_error("a send", code))
    assert re.search(sentence, str(waiting.error)), str(waiting.error)
    # clients of Iggy get a code alone
    assert [record.message for record in caplog.records] == [str(waiting.error)]


def test_a_repeated_block_gets_the_offset_of_the_first(
    appender: ClusterAppender, producers: NotedProducers, partition: Partition
) -> None:
    first = append(appender, partition, 2)
    waiting = appender.follow(partition, 0, 2, 2, duplicate=True)
    appender.flush()
    producers.outcome.acknowledge(0, 2, 40)
    assert (first.base_offset, waiting.base_offset, waiting.end_offset) == (40, 40, 42)
    later = appender.follow(partition, 0, 2, 2, duplicate=True)
    assert later.done and (later.base_offset, later.error) == (40, None)


def test_what_waits_for_a_deleted_partition_fails(
    appender: ClusterAppender, producers: NotedProducers, partition: Partition
) -> None:
    waiting = append(appender, partition, 1)
    appender.flush()
    appender.on_partition_deleted(partition)
    # a topic of the same name must not get what still waits
    assert producers.forgotten == [("air.legs", 0)]
    assert waiting.error is not None and waiting.error.reason is Reason.PARTITION_NOT_FOUND
    # the cluster may report afterwards what it did
    producers.outcome.acknowledge(0, 1, 7)
