"""A channel at a gateway: what it acquired goes to subscribers, and what they say becomes acknowledgements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from lading.broker.channels import Delivery, Subscriber
from lading.dialects.kafka.encode import ProducerSequence
from lading.dialects.kafka.messages import CODE
from lading.kafka_log import share_channels
from lading.kafka_log.catalog_records import ChannelRecord, QueueRecord
from lading.kafka_log.log import ClusterLog
from lading.kafka_log.share_channels import DELIVERIES_MAX, ClusterChannel
from lading.kafka_log.state_records import BlockPlace, BlockRecord, StateTable
from lading.model.errors import Reason, Refusal
from lading.model.state import State
from lading.transports.fitting import fill_missing_columns
from lading.transports.kafka.share import ACCEPT, GAP, RELEASE, RENEW, Acknowledgement, AcquiredMessages, to_run
from lading.transports.kafka.sizes import encode_records
from tests.kafka_log.test_cuts import make_batch

SECOND_US = 1_000_000
UUID = bytes(16)
RECORD = ChannelRecord("legs", "ch", 5)
PARTITION = 0


class NotedReader:
    """The thread of a channel, as the event loop sees it."""

    def __init__(self) -> None:
        self.wanted = 0
        self.settled: list[Acknowledgement] = []
        self.has_ended = False

    def want(self, count: int) -> None:
        self.wanted = count

    def settle(self, settled: Sequence[Acknowledgement]) -> None:
        self.settled += settled

    def end(self) -> None:
        self.has_ended = True

    def take(self) -> list[tuple[int, int]]:
        """Return (offset, kind) of what was settled since the last call."""
        taken, self.settled = [(one.first, one.kind) for one in self.settled], []
        return taken


class Owner:
    def __init__(self, reader: NotedReader) -> None:
        self.reader = reader
        self.is_topic_paused = False
        self.woken = 0
        self.changed: list[ChannelRecord] = []

    def is_paused(self, topic: object) -> bool:
        return self.is_topic_paused

    def find_date(self, now_us: int) -> int:
        return now_us

    def change_channel(self, channel: ClusterChannel, change: Callable[[ChannelRecord], ChannelRecord]) -> None:
        self.changed.append(change(RECORD))

    def start_reader(self, channel: ClusterChannel) -> NotedReader:
        return self.reader

    def wake(self, channel: ClusterChannel) -> None:
        self.woken += 1

    def count_out(self, count: int) -> None:
        return None


@pytest.fixture
def reader() -> NotedReader:
    return NotedReader()


@pytest.fixture
def channel(reader: NotedReader) -> ClusterChannel:
    topic: Any = SimpleNamespace(
        flat_name="legs",
        uuid=UUID,
        partitions=[SimpleNamespace(number=PARTITION, log=ClusterLog(("legs", PARTITION), UUID, 0, 10))],
    )
    return ClusterChannel(cast("Any", Owner(reader)), topic, "ch", ephemeral=False)


def subscribe(channel: ClusterChannel, ready: int) -> tuple[Subscriber, list[Delivery]]:
    taken: list[Delivery] = []
    subscriber = Subscriber(taken.append, timeout_us=60 * SECOND_US)
    channel.subscribe(subscriber)
    subscriber.set_ready(ready)
    return subscriber, taken


def acquire(
    channel: ClusterChannel, *ranges: tuple[int, int, int], count: int = 10, due_us: dict[int, int] | None = None
) -> None:
    """Take ranges of (first, last, deliveries) of a batch of ``count`` messages, some of which are due later."""
    ready = fill_missing_columns(make_batch([b"%d" % number for number in range(count)]))
    records = bytes(encode_records(ready, 1_000).encode(0, count, ProducerSequence(1, 0, 0), None))
    run = to_run("legs", PARTITION, records)
    assert run.dialect == CODE
    due_dates = {(PARTITION, offset): at_us for offset, at_us in (due_us or {}).items()}
    channel.on_acquired(cast("Any", channel)._reader, [AcquiredMessages(PARTITION, run, ranges, 30.0)], due_dates)


def list_taken(taken: list[Delivery]) -> list[tuple[int, int]]:
    found = [pair for one in taken for pair in zip(one.offsets.tolist(), one.attempts.tolist(), strict=True)]
    taken.clear()
    return found


def finish(channel: ClusterChannel, subscriber: Subscriber, *offsets: int) -> int:
    return channel.finish(subscriber, PARTITION, np.array(offsets, np.int64))


def test_a_channel_asks_for_what_its_subscribers_take(channel: ClusterChannel, reader: NotedReader) -> None:
    one, taken = subscribe(channel, 3)
    channel.pump(0)
    assert reader.wanted == 3
    acquire(channel, (0, 4, 1))
    channel.pump(0)
    # whole batches come: two wait, and nothing more is wanted
    assert list_taken(taken) == [(0, 1), (1, 1), (2, 1)] and reader.wanted == 0
    assert finish(channel, one, 0, 1) == 2 and reader.take() == [(0, ACCEPT), (1, ACCEPT)]
    channel.pump(0)
    assert list_taken(taken) == [(3, 1), (4, 1)] and one.in_flight == 3
    assert finish(channel, one, 2, 3, 9) == 2 and reader.take() == [(2, ACCEPT), (3, ACCEPT)]
    channel.pump(0)
    assert reader.wanted == 2


def test_two_subscribers_share_what_comes(channel: ClusterChannel) -> None:
    _, taken = subscribe(channel, 10)
    _, others = subscribe(channel, 10)
    acquire(channel, (0, 9, 1))
    channel.pump(0)
    mine, theirs = list_taken(taken), list_taken(others)
    assert sorted(mine + theirs) == [(number, 1) for number in range(10)] and mine and theirs


def test_a_requeued_message_goes_back_to_the_cluster(channel: ClusterChannel, reader: NotedReader) -> None:
    one, taken = subscribe(channel, 1)
    acquire(channel, (0, 0, 1))
    channel.pump(0)
    channel.requeue(one, PARTITION, 0, 0, now_us=0)
    assert reader.take() == [(0, RELEASE)] and one.in_flight == 0
    assert finish(channel, one, 0) == 0
    acquire(channel, (0, 0, 2))
    channel.pump(0)
    assert list_taken(taken) == [(0, 1), (0, 2)]


def test_a_delay_is_kept_by_renewing(channel: ClusterChannel, reader: NotedReader) -> None:
    one, _ = subscribe(channel, 1)
    acquire(channel, (0, 0, 1))
    channel.pump(0)
    channel.requeue(one, PARTITION, 0, 100 * SECOND_US, now_us=0)
    assert channel.statistics().deferred == 1
    for second in range(0, 100, 5):
        channel.expire(second * SECOND_US)
    # of a lock of 30 seconds at least every third
    renewals = reader.take()
    assert 9 <= len(renewals) <= 11 and set(renewals) == {(0, RENEW)}
    channel.expire(101 * SECOND_US)
    assert (0, RELEASE) in reader.take() and channel.statistics().deferred == 0


def test_a_time_out_releases_and_touch_puts_it_off(channel: ClusterChannel, reader: NotedReader) -> None:
    one, _ = subscribe(channel, 2)
    acquire(channel, (0, 1, 1))
    channel.pump(0)
    channel.expire(50 * SECOND_US)
    channel.touch(one, PARTITION, 1, now_us=50 * SECOND_US)
    channel.expire(61 * SECOND_US)
    assert [pair for pair in reader.take() if pair[1] != RENEW] == [(0, RELEASE)]
    assert (one.timed_out, one.in_flight) == (1, 1) and channel.is_in_flight(PARTITION, 1)
    with pytest.raises(Refusal) as refused:
        channel.touch(one, PARTITION, 0, now_us=0)
    assert refused.value.reason is Reason.NOT_IN_FLIGHT


def test_the_last_delivery_that_kafka_counts_is_repeated_here(channel: ClusterChannel, reader: NotedReader) -> None:
    one, taken = subscribe(channel, 1)
    acquire(channel, (0, 0, DELIVERIES_MAX - 1))
    for attempts in range(DELIVERIES_MAX - 1, DELIVERIES_MAX + 3):
        channel.pump(0)
        assert list_taken(taken) == [(0, attempts)]
        channel.requeue(one, PARTITION, 0, 0, now_us=0)
        assert reader.take() == []


def test_what_the_cluster_took_back_is_not_in_flight_any_more(channel: ClusterChannel, reader: NotedReader) -> None:
    one, _ = subscribe(channel, 2)
    acquire(channel, (0, 3, 1))
    channel.pump(0)
    channel.on_lost(cast("Any", reader), [PARTITION])
    assert finish(channel, one, 0) == 0 and one.in_flight == 0 and reader.take() == []
    channel.pump(0)
    assert reader.wanted == 2


def test_messages_that_are_gone_are_gaps(channel: ClusterChannel, reader: NotedReader) -> None:
    _, taken = subscribe(channel, 20)
    acquire(channel, (0, 11, 1))
    channel.pump(0)
    assert len(list_taken(taken)) == 10 and reader.take() == [(10, GAP), (11, GAP)]


def test_the_messages_of_a_subscriber_that_leaves_go_to_others(channel: ClusterChannel, reader: NotedReader) -> None:
    one, _ = subscribe(channel, 2)
    acquire(channel, (0, 1, 1))
    channel.pump(0)
    other, taken = subscribe(channel, 5)
    channel.leave(one)
    channel.pump(0)
    assert list_taken(taken) == [(0, 1), (1, 1)]
    channel.leave(other)
    assert reader.has_ended
    # it posts once more: its messages are the cluster's again
    late = cast("Any", reader)
    _, taken = subscribe(channel, 5)
    cast("Any", channel)._reader = NotedReader()
    channel.on_acquired(late, [], {})
    channel.on_lost(late, [PARTITION])
    channel.pump(0)
    assert taken == []


def test_what_a_share_group_cannot_do_is_refused(channel: ClusterChannel) -> None:
    plain = Subscriber(lambda delivery: None)
    for subscriber, more in ((Subscriber(lambda delivery: None, tag="t"), {}), (plain, {"ordered": True})):
        with pytest.raises(Refusal, match="not supported on a store of kafka://"):
            channel.subscribe(subscriber, **more)
    with pytest.raises(Refusal, match="share group"):
        channel.skip()
    assert share_channels.group_of("air.legs", "ch") == "nsq.air.legs.ch"


def test_a_paused_channel_keeps_what_it_has(channel: ClusterChannel, reader: NotedReader) -> None:
    owner = cast("Any", channel)._channels
    _, taken = subscribe(channel, 5)
    channel.pause()
    assert owner.changed == [replace(RECORD, is_paused=True)] and not channel.paused, "others decide it as well"
    channel.take_over(owner.changed[0], None)
    assert channel.paused
    acquire(channel, (0, 1, 1))
    channel.pump(0)
    assert taken == [] and reader.wanted == 0
    channel.expire(cast("Any", channel)._lock_us)
    assert reader.take() == [(0, RENEW), (1, RENEW)]
    channel.take_over(RECORD, None)
    owner.is_topic_paused = True
    channel.pump(0)
    assert taken == []
    owner.is_topic_paused = False
    channel.pump(0)
    assert list_taken(taken) == [(0, 1), (1, 1)]


def test_a_channel_that_nobody_reads_waits_for_no_pump(channel: ClusterChannel) -> None:
    """At the start of a gateway nothing pumps yet, and what waits then would keep all channels from being pumped."""
    channel.take_over(RECORD, None)
    assert cast("Any", channel)._channels.woken == 0


def test_an_emptied_channel_finishes_what_it_had(channel: ClusterChannel, reader: NotedReader) -> None:
    subscriber, taken = subscribe(channel, 2)
    acquire(channel, (0, 3, 1))
    channel.pump(0)
    assert list_taken(taken) == [(0, 1), (1, 1)]
    channel.take_over(replace(RECORD, topic_id=UUID.hex(), emptied=(3,)), None)
    assert sorted(reader.take()) == [(0, ACCEPT), (1, ACCEPT), (2, ACCEPT)]
    assert subscriber.in_flight == 0 and finish(channel, subscriber, 0) == 0
    channel.pump(0)
    assert list_taken(taken) == [(3, 1)]
    # also what comes later, at any gateway
    acquire(channel, (1, 2, 1), (4, 4, 1))
    assert sorted(reader.take()) == [(1, ACCEPT), (2, ACCEPT)]
    assert channel.statistics().skipped == 5
    # offsets of a topic that was deleted say nothing of the one that has its name now
    channel.take_over(replace(RECORD, topic_id="aa", emptied=(9,)), QueueRecord("legs", "aa", False, (9,)))
    acquire(channel, (5, 5, 1))
    assert reader.take() == []


def test_a_delayed_publication_waits_for_its_date(
    channel: ClusterChannel, reader: NotedReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share_channels, "wall_us", lambda: SECOND_US)
    _, taken = subscribe(channel, 5)
    acquire(channel, (0, 2, 1), due_us={1: 3 * SECOND_US, 2: SECOND_US})
    channel.pump(SECOND_US)
    # one is due, and another was due before
    assert list_taken(taken) == [(0, 1), (2, 1)] and channel.statistics().deferred == 1
    channel.expire(2 * SECOND_US)
    channel.pump(2 * SECOND_US)
    assert taken == []
    channel.expire(3 * SECOND_US)
    channel.pump(3 * SECOND_US)
    # it was not delivered before: its attempt is the first, and the cluster has not had it back
    assert list_taken(taken) == [(1, 1)] and channel.statistics().deferred == 0
    assert [kind for _, kind in reader.take() if kind == RELEASE] == []


def test_messages_that_are_not_available_are_finished_undelivered(channel: ClusterChannel, reader: NotedReader) -> None:
    table = StateTable()
    record = BlockRecord(UUID.hex(), 1, ((1, 3, int(State.POISONED)),))
    table.take([(BlockPlace("legs", PARTITION, 0), record)])
    cast("Any", channel.topic.partitions[PARTITION].log).show_states(table)
    _, taken = subscribe(channel, 5)
    acquire(channel, (0, 3, 1))
    channel.pump(0)
    assert list_taken(taken) == [(0, 1), (3, 1)] and reader.take() == [(1, ACCEPT), (2, ACCEPT)]
    assert channel.statistics().unavailable == 2
