"""Channels of NSQ as share groups of the cluster: FIN accepts, REQ releases, TOUCH and a delay renew.

Each gateway is one member of a channel's group while it has subscribers, and delivers the acquired messages to them.
The number of attempts is the cluster's count of deliveries.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from threading import Thread
from typing import TYPE_CHECKING, Final, NoReturn

import numpy as np

from ..broker.channels import Channel, Channels, ChannelStart, Delivery, Page, Subscriber
from ..broker.core.pending_result import PendingResult
from ..broker.core.read import message_offsets
from ..dialects.nsq.limits import REQUEUE_MS_MAX
from ..model.errors import LadingError, Reason, Refusal
from ..runtime.clock import now_us as wall_us
from ..runtime.turns import Turns
from ..transports.kafka.share import ACCEPT, GAP, RELEASE, RENEW, Acknowledgement, AcquiredMessages
from .refusals import refuse
from .share_reader import ShareGroupReader

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..broker.channels.statistics import ChannelStatistics
    from ..broker.core.change import Change
    from ..broker.core.topology import Partition, Topic
    from ..transports.kafka.transport import KafkaTransport
    from .catalog_records import ChannelRecord, QueueRecord
    from .cluster import ClusterTopics
    from .due_dates import DueDates

LOG: Final = logging.getLogger("lading.store")
DELIVERIES_MAX: Final = 10
"""The highest count that Kafka allows (``group.share.max.delivery.count.limit``); after it Kafka gives a message up."""
LOCK_MS: Final = 60_000
"""The longest time that Kafka lets a member have a message without renewing it."""
CONFIGS: Final = {
    "share.delivery.count.limit": str(DELIVERIES_MAX),
    "share.record.lock.duration.ms": str(LOCK_MS),
    "share.isolation.level": "read_committed",
}
_STARTS: Final = {ChannelStart.KEPT: "earliest", ChannelStart.FIRST: "earliest", ChannelStart.END: "latest"}
_RENEWALS_A_LOCK: Final = 3
"""Renewals of a lock within its time: one that is late or lost does not let the cluster deliver the messages to
others.
"""


@dataclass(slots=True, eq=False)
class _HeldMessage:
    """A message that this gateway has: with a subscriber, deferred until ``due_us``, or waiting for a subscriber."""

    partition: Partition
    page: Page
    offset: int
    deliveries: int
    """The cluster's count of deliveries."""
    again: int = 0
    """Deliveries here that the cluster does not count."""
    owner: Subscriber | None = None
    delivered_us: int = 0
    due_us: int = 0
    """When the owner's time-out, or the delay, is over; 0 while it waits."""
    is_new: bool = False
    """Whether its publisher has delayed it, and no subscriber here has had it."""


def group_of(topic: str, channel: str) -> str:
    """Return the share group of a channel."""
    return f"nsq.{topic}.{channel}"


class ClusterChannel(Channel):
    """One channel of a topic at this gateway."""

    def __init__(self, owner: ClusterChannels, topic: Topic, name: str, *, ephemeral: bool) -> None:
        super().__init__(owner, topic, name, ephemeral=ephemeral)
        self._channels = owner
        self._held: dict[tuple[int, int], _HeldMessage] = {}
        self._ready: deque[_HeldMessage] = deque()
        self._reader: ShareGroupReader | None = None
        self._soonest_us = 0
        self._renewed_us = 0
        self._lock_us = LOCK_MS * 1000
        self._next = 0
        self._emptied: Sequence[int] = ()
        """The offset in each partition before which messages are finished, and not delivered."""

    # -- subscribers

    def subscribe(self, subscriber: Subscriber, partition: int | None = None, *, ordered: bool = False) -> None:
        """Read all partitions; Refusal for what a share group cannot do."""
        if partition is not None or ordered:
            refuse("ordered channels")
        if subscriber.tag or subscriber.header_filter is not None or subscriber.sample_percent:
            refuse("channel filters")
        self.subscribers[subscriber] = None
        subscriber.on_credit = self.wake
        if self._reader is None:
            self._reader = self._channels.start_reader(self)
        self.wake()

    def leave(self, subscriber: Subscriber) -> None:
        """Remove a subscriber: what it had goes to others."""
        if subscriber not in self.subscribers:
            return
        del self.subscribers[subscriber]
        subscriber.on_credit = None
        mine = [one for one in self._held.values() if one.owner is subscriber]
        subscriber.in_flight -= len(mine)
        self._counts.in_flight -= len(mine)
        for one in mine:
            one.owner, one.due_us = None, 0
            one.again -= 1
        self._ready.extendleft(reversed(mine))
        if not self.subscribers:
            self._stop()
        self.wake()

    def _stop(self) -> None:
        """Release all messages to the cluster."""
        reader, self._reader = self._reader, None
        self._held.clear()
        self._ready.clear()
        if reader is not None:
            reader.end()

    def close(self) -> None:
        """Close the channel with its topic or the process."""
        self._stop()

    # -- messages from the cluster

    def on_acquired(self, reader: ShareGroupReader, found: Sequence[AcquiredMessages], due_dates: DueDates) -> None:
        """Take messages; those that are missing in their batches are acknowledged as gaps."""
        if reader is not self._reader:
            # an earlier reader, which released its messages
            return
        settled: list[Acknowledgement] = []
        for acquired in found:
            if acquired.partition >= len(self.topic.partitions):
                continue
            self._lock_us = min(self._lock_us, int(acquired.lock_s * 1e6)) or self._lock_us
            partition = self.topic.partitions[acquired.partition]
            for first, last, deliveries in acquired.ranges:
                offsets = message_offsets(acquired.run, first, last + 1)
                page = Page(acquired.run, first, last + 1, offsets)
                present = offsets.tolist()
                ranges = partition.log.unavailable_ranges(first, last + 1)
                hidden = {offset for low, end, _ in ranges for offset in range(low, end)}
                if len(present) <= last - first:
                    missing = sorted(set(range(first, last + 1)) - set(present))
                    settled += [Acknowledgement(acquired.partition, one, one, GAP) for one in missing]
                for offset in present:
                    if self._is_emptied(acquired.partition, offset):
                        settled.append(Acknowledgement(acquired.partition, offset, offset, ACCEPT))
                        self._counts.skipped += 1
                        continue
                    if offset in hidden:
                        settled.append(Acknowledgement(acquired.partition, offset, offset, ACCEPT))
                        self._counts.unavailable += 1
                        continue
                    held = _HeldMessage(partition, page, offset, deliveries)
                    self._held[acquired.partition, offset] = held
                    if (acquired.partition, offset) not in due_dates:
                        self._ready.append(held)
                    else:
                        self._keep_back(held, due_dates[acquired.partition, offset])
        if settled:
            self._settle(settled)
        self.wake()

    def _keep_back(self, held: _HeldMessage, due_date_us: int) -> None:
        """Keep a message that its publisher has delayed, for at most nsqd's longest delay."""
        now_us = wall_us()
        left_us = min(due_date_us - self._channels.find_date(now_us), REQUEUE_MS_MAX * 1000)
        if left_us <= 0:
            self._ready.append(held)
            return
        held.due_us, held.is_new = now_us + left_us, True
        self._soonest_us = min(self._soonest_us, held.due_us)
        self._counts.deferred += 1

    def _is_emptied(self, partition: int, offset: int) -> bool:
        return partition < len(self._emptied) and offset < self._emptied[partition]

    def on_lost(self, reader: ShareGroupReader, partitions: Sequence[int]) -> None:
        """Drop messages that the cluster delivers to others now; a FIN of one is refused as not in flight."""
        if reader is not self._reader:
            return
        lost = set(partitions)
        self._forget([key for key in self._held if key[0] in lost])
        self.wake()

    def _forget(self, keys: Collection[tuple[int, int]]) -> None:
        """Drop messages; a FIN of one is refused as not in flight."""
        gone = {id(self._held[key]) for key in keys}
        self._ready = deque(one for one in self._ready if id(one) not in gone)
        for key in keys:
            self._release(self._held.pop(key))

    def _settle(self, settled: Sequence[Acknowledgement]) -> None:
        if self._reader is not None:
            self._reader.settle(settled)

    # -- commands of subscribers

    def finish(self, subscriber: Subscriber, partition: int, offsets: NDArray[np.int64]) -> int:
        """Accept messages from the front as far as the subscriber has them; return how many."""
        settled: list[Acknowledgement] = []
        for offset in offsets.tolist():
            one = self._held.get((partition, offset))
            if one is None or one.owner is not subscriber:
                break
            self._release(one)
            del self._held[partition, offset]
            settled.append(Acknowledgement(partition, offset, offset, ACCEPT))
        if settled:
            subscriber.finished += len(settled)
            self._counts.finished += len(settled)
            self._settle(settled)
            self.wake()
        return len(settled)

    def requeue(self, subscriber: Subscriber, partition: int, offset: int, delay_us: int, *, now_us: int) -> None:
        """Give a message back, after a delay for which this gateway keeps it."""
        one = self._require(subscriber, partition, offset)
        self._release(one)
        subscriber.requeued += 1
        self._counts.requeued += 1
        if delay_us > 0:
            one.due_us = now_us + delay_us
            self._soonest_us = min(self._soonest_us, one.due_us)
            self._counts.deferred += 1
        else:
            self._give_back(one)
        self.wake()

    def touch(self, subscriber: Subscriber, partition: int, offset: int, *, now_us: int) -> None:
        """Restart a message's time-out."""
        one = self._require(subscriber, partition, offset)
        one.due_us = min(now_us + subscriber.timeout_us, one.delivered_us + subscriber.timeout_max_us)
        self._soonest_us = min(self._soonest_us, one.due_us)

    def is_in_flight(self, partition: int, offset: int) -> bool:
        """Return whether a subscriber here has a message."""
        one = self._held.get((partition, offset))
        return one is not None and one.owner is not None

    def _require(self, subscriber: Subscriber, partition: int, offset: int) -> _HeldMessage:
        one = self._held.get((partition, offset))
        if one is None or one.owner is not subscriber:
            raise Refusal(
                Reason.NOT_IN_FLIGHT,
                f"message {offset} of partition {partition} is not with this client; settle it before its time-out",
            )
        return one

    def _release(self, one: _HeldMessage) -> None:
        """Take a message from its subscriber, if it has one."""
        if one.owner is not None:
            one.owner.in_flight -= 1
            self._counts.in_flight -= 1
            one.owner = None
        elif one.due_us:
            self._counts.deferred -= 1
        one.due_us, one.is_new = 0, False

    def _give_back(self, one: _HeldMessage) -> None:
        """Have a message delivered again: by the cluster, or here if the cluster would then give it up."""
        if one.deliveries < DELIVERIES_MAX - 1:
            del self._held[one.partition.number, one.offset]
            self._settle([Acknowledgement(one.partition.number, one.offset, one.offset, RELEASE)])
        else:
            self._ready.append(one)

    # -- delivering

    def pump(self, now_us: int) -> int | None:
        """Deliver the messages that are here, and request as many more from the cluster as subscribers can take."""
        if self.deleted:
            return None
        if self.paused or self._channels.is_paused(self.topic):
            # keep the messages here by renewing them
            if self._reader is not None:
                self._reader.want(0)
            return None
        while self._ready and (subscriber := self._find_subscriber()) is not None:
            self._deliver(subscriber, now_us)
        if self._reader is not None:
            credit = sum(max(one.credit, 0) for one in self.subscribers)
            self._reader.want(0 if self._ready else credit)
        return None

    def _find_subscriber(self) -> Subscriber | None:
        """Return the next subscriber that takes a message."""
        subscribers = list(self.subscribers)
        for step in range(len(subscribers)):
            one = subscribers[(self._next + step) % len(subscribers)]
            if one.credit > 0:
                self._next = (self._next + step + 1) % len(subscribers)
                return one
        return None

    def _deliver(self, subscriber: Subscriber, now_us: int) -> None:
        """Deliver the next messages of one page, as many as the subscriber takes; other subscribers' messages wait."""
        first = self._ready.popleft()
        given, others = [first], len(self.subscribers)
        count = max(subscriber.credit if others == 1 else min(subscriber.credit, -(-len(self._ready) // others)), 1)
        while len(given) < count and self._ready:
            one = self._ready[0]
            if one.page is not first.page or one.offset <= given[-1].offset:
                break
            given.append(self._ready.popleft())
        due_us = now_us + subscriber.timeout_us
        for one in given:
            one.owner, one.delivered_us, one.due_us = subscriber, now_us, due_us
            one.again += 1
        self._soonest_us = min(self._soonest_us, due_us) if self._soonest_us > now_us else self._soonest_us
        subscriber.in_flight += len(given)
        subscriber.delivered += len(given)
        self._counts.in_flight += len(given)
        self._counts.delivered += len(given)
        offsets = np.array([one.offset for one in given], np.int64)
        attempts = np.array([one.deliveries + one.again - 1 for one in given], np.int64)
        self._channels.count_out(len(given))
        subscriber.on_delivery(Delivery(first.partition, first.page, offsets, attempts))

    @property
    def is_in_use(self) -> bool:
        """Whether a time-out or delay may end here."""
        return bool(self.subscribers)

    def expire_in_turns(self, clock: Callable[[], int]) -> Turns[None]:
        """Do what ``expire`` does, and yield once."""
        self.expire(clock())
        yield

    def expire(self, now_us: int) -> None:
        """Take back messages whose time-out or delay is over, and renew the others before the cluster takes them."""
        if now_us >= self._soonest_us:
            self._soonest_us = now_us + self._lock_us
            for one in list(self._held.values()):
                if not one.due_us:
                    continue
                if one.due_us > now_us:
                    self._soonest_us = min(self._soonest_us, one.due_us)
                    continue
                if one.owner is not None:
                    one.owner.timed_out += 1
                    self._counts.timed_out += 1
                is_new = one.is_new
                self._release(one)
                if is_new:
                    self._ready.append(one)
                else:
                    self._give_back(one)
            self.wake()
        if self._held and now_us - self._renewed_us >= self._lock_us // _RENEWALS_A_LOCK:
            self._renewed_us = now_us
            self._settle([Acknowledgement(number, at, at, RENEW) for number, at in self._held])

    def statistics(self) -> ChannelStatistics:
        """Return the counts at this gateway; ``depth`` counts its own messages."""
        self._counts.depth = len(self._ready)
        return self._counts

    # -- operators

    def take_over(self, record: ChannelRecord, queue: QueueRecord | None) -> None:
        """Apply the settings in the catalog topic, and finish the messages that were emptied."""
        self.paused = record.is_paused
        topic_id = self.topic.uuid.hex()
        bounds = [one.emptied for one in (record, queue) if one is not None and one.topic_id == topic_id]
        emptied = [max(ends) for ends in zip_longest(*bounds, fillvalue=0)]
        if emptied != self._emptied:
            self._emptied = emptied
            keys = [key for key in self._held if self._is_emptied(*key)]
            self._forget(keys)
            self._counts.skipped += len(keys)
            self._settle([Acknowledgement(number, offset, offset, ACCEPT) for number, offset in keys])
        if self.subscribers:
            # not at the start: a channel that waits before the endpoints pump would prevent later pumps
            self.wake()

    def _set(self, *, paused: bool | None = None, skipping: bool | None = None, ordered: bool | None = None) -> None:
        if paused is None:
            refuse("channel settings")
        self._channels.change_channel(self, lambda record: replace(record, is_paused=paused))

    def empty(self) -> int:
        """Finish all messages that the cluster has now, at all gateways; returns 0, as their number is unknown."""
        self._channels.empty_channel(self)
        return 0

    def seek(self, partition: int, offset: int) -> NoReturn:
        """Refuse."""
        refuse("channel settings")


class ClusterChannels(Channels):
    """The channels of all topics, as the catalog topic has them."""

    cluster: ClusterTopics
    open_transport: Callable[[], KafkaTransport]
    post: Callable[[Callable[[], None]], None]
    look_again: Callable[[], None]
    _readers: list[ShareGroupReader]
    _paused: set[Topic]
    _unconfirmed: list[PendingResult[None]]

    def bind(
        self,
        cluster: ClusterTopics,
        open_transport: Callable[[], KafkaTransport],
        post: Callable[[Callable[[], None]], None],
        look_again: Callable[[], None],
    ) -> None:
        """Set the components that channels need; called before the first channel."""
        self.cluster, self.open_transport, self.post, self.look_again = cluster, open_transport, post, look_again
        self._readers = []
        self._paused, self._unconfirmed = set(), []

    def find_date(self, now_us: int) -> int:
        """Return the date of a time of the event loop."""
        return self._catalog.dates.of(now_us)

    def load(self, topics: Sequence[Topic]) -> None:
        """Load nothing: channels come with the catalog topic."""

    def prepare(self, topic: Topic, name: str, start: ChannelStart) -> Change[None] | None:
        """Return the change that creates the share group of a channel that the cluster does not have."""
        if self.find(topic, name) is not None:
            return None
        return self._create(topic, name, start)

    def _create(self, topic: Topic, name: str, start: ChannelStart) -> Change[None]:
        if self._rules.is_ephemeral(name):
            refuse("ephemeral channels")

        def find_configs(is_first: bool) -> dict[str, str]:
            at = _STARTS[start] if is_first or start is not ChannelStart.KEPT else _STARTS[ChannelStart.END]
            return {**CONFIGS, "share.auto.offset.reset": at}

        group, now_us = group_of(topic.flat_name, name), self._catalog.dates.of(wall_us())
        yield partial(self.cluster.put_channel, topic.flat_name, name, group, now_us, find_configs)
        yield self.look_again

    def open(self, topic: Topic, name: str, *, start: ChannelStart = ChannelStart.KEPT) -> Channel:
        """Return the channel; ``prepare`` creates it."""
        found = self.find(topic, name)
        if found is None:
            raise Refusal(
                Reason.STOPPING, f"channel {name!r} of topic {topic.flat_name!r} is not there yet; retry later"
            )
        return found

    def take_over(self, topic: Topic, records: Mapping[str, ChannelRecord], queue: QueueRecord | None = None) -> None:
        """Make the channels of a topic the same as in the catalog topic."""
        if queue is not None and queue.is_paused and queue.topic_id == topic.uuid.hex():
            self._paused.add(topic)
        else:
            self._paused.discard(topic)
        channels = self._channels.setdefault(topic, {})
        for name, record in records.items():
            channel = channels.get(name)
            if channel is None:
                channel = channels[name] = ClusterChannel(self, topic, name, ephemeral=False)
            assert isinstance(channel, ClusterChannel), "all are made here"
            channel.take_over(record, queue)
        for name in [name for name in channels if name not in records]:
            self._close(channels.pop(name), f"channel {name!r} of topic {topic.flat_name!r} was deleted")

    def start_reader(self, channel: ClusterChannel) -> ShareGroupReader:
        """Begin to read a channel."""
        topic = channel.topic.flat_name
        reader = ShareGroupReader(
            self.open_transport, self.post, group_of(topic, channel.name), topic, channel.topic.uuid, channel
        )
        reader.start()
        self._readers = [one for one in self._readers if one.is_alive()]
        self._readers.append(reader)
        return reader

    def count_out(self, count: int) -> None:
        """Count messages sent to subscribers."""
        self._counters.messages_out += count

    # -- changes by operators: made in the cluster, and applied here afterwards

    def take_unconfirmed(self) -> list[PendingResult[None]]:
        """Return the changes that the cluster has not confirmed, each once."""
        unconfirmed, self._unconfirmed = self._unconfirmed, []
        return unconfirmed

    def _change(self, change: Callable[[], None]) -> None:
        """Make a change in the cluster in a thread, then apply it here."""
        pending: PendingResult[None] = PendingResult()
        self._unconfirmed.append(pending)

        def make() -> None:
            try:
                change()
                self.look_again()
            except LadingError as error:
                refusal = error if isinstance(error, Refusal) else Refusal(Reason.STOPPING, f"{error}; retry later")
                self.post(partial(pending.refuse, refusal))
            except Exception as error:
                LOG.exception("a change of a channel failed")
                self.post(partial(pending.refuse, Refusal(Reason.STOPPING, f"{error!r}; retry later")))
            else:
                self.post(partial(pending.finish, None))

        Thread(target=make, name="lading-channel", daemon=True).start()

    def change_channel(self, channel: Channel, change: Callable[[ChannelRecord], ChannelRecord]) -> None:
        """Change the settings of a channel at all gateways."""
        self._change(partial(self.cluster.change_channel, channel.topic.flat_name, channel.name, change))

    def empty_channel(self, channel: Channel) -> None:
        """Finish for a channel all messages that its topic has now."""
        topic = channel.topic

        def empty() -> None:
            ends = self.cluster.list_ends(topic.flat_name, len(topic.partitions))
            self.cluster.change_channel(
                topic.flat_name, channel.name,
                lambda record: replace(record, topic_id=topic.uuid.hex(), emptied=ends),
            )  # fmt: skip

        self._change(empty)

    def delete(self, channel: Channel) -> None:
        """Delete the channel with its share group; its subscribers are closed."""
        topic, name = channel.topic.flat_name, channel.name

        def delete() -> None:
            self.cluster.delete_channel(topic, name)
            self.look_again()
            self.cluster.finish_channel_deletion(topic, name, group_of(topic, name))

        self._change(delete)

    def on_topic_deleted(self, topic: Topic) -> None:
        """Close the channels of a topic."""
        self._paused.discard(topic)
        for channel in self._channels.pop(topic, {}).values():
            self._close(channel, f"topic {topic.flat_name!r} was deleted")

    def _close(self, channel: Channel, reason: str) -> None:
        super()._close(channel, reason)
        if isinstance(channel, ClusterChannel):
            channel.close()

    def on_topic_resized(self, topic: Topic) -> None:
        """Do nothing: the group's coordinator assigns the new partitions."""

    def is_paused(self, topic: Topic) -> bool:
        """Return whether the topic's channels are paused."""
        return topic in self._paused

    def set_paused(self, topic: Topic, paused: bool) -> None:
        """Pause all channels of a topic, or let them deliver again."""
        self._change_queue(topic, lambda record: replace(record, is_paused=paused))

    def _change_queue(self, topic: Topic, change: Callable[[QueueRecord], QueueRecord]) -> None:
        self._change(partial(self.cluster.change_queue, topic.flat_name, topic.uuid.hex(), change))

    def empty_topic(self, topic: Topic) -> None:
        """Have a topic's first channel skip all present messages. If there are channels, the topic itself has no
        messages.
        """
        if self._channels.get(topic):
            if topic in self._paused:
                refuse("paused queues")
            return

        def empty() -> None:
            ends = self.cluster.list_ends(topic.flat_name, len(topic.partitions))
            self.cluster.change_queue(topic.flat_name, topic.uuid.hex(), lambda record: replace(record, emptied=ends))

        self._change(empty)

    def topic_depth(self, topic: Topic) -> int:
        """Return 0: the cluster keeps messages for the channels, whatever their number."""
        return 0

    def store(self, now_us: int) -> None:
        """Store nothing: the cluster has what was acknowledged."""

    def store_marked(self) -> bool:
        """Return False, as for ``store``."""
        return False

    def confirm(self, channel: Channel) -> None:
        """Do nothing, as for ``store``."""

    def end_readers(self, timeout_s: float) -> None:
        """Release the messages of this gateway, at its end."""
        for channels in self._channels.values():
            for channel in channels.values():
                if isinstance(channel, ClusterChannel):
                    channel.close()
        for reader in self._readers:
            reader.join(timeout_s)
