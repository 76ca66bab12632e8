"""Channels of NSQ as share groups of the cluster: FIN accepts, REQ releases, TOUCH and a delay renew.

Each gateway is one member of the group of a channel that has subscribers there, and gives what it acquires to them.
The number of attempts is the cluster's count of deliveries.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn

import numpy as np

from ..broker.channels import Channel, Channels, ChannelStart, Delivery, Page, Subscriber
from ..broker.core.read import message_offsets
from ..model.errors import Reason, Refusal
from ..runtime.clock import now_us as wall_us
from ..transports.kafka.share import ACCEPT, GAP, RELEASE, RENEW, Acknowledgement, AcquiredMessages
from .refusals import refuse
from .share_reader import ShareGroupReader

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..broker.channels.statistics import ChannelStatistics
    from ..broker.core.change import Change
    from ..broker.core.topology import Partition, Topic
    from ..transports.kafka.transport import KafkaTransport
    from .cluster import ClusterTopics

LOG: Final = logging.getLogger("lading.store")
DELIVERIES_MAX: Final = 10
"""As many as Kafka lets a group count (``group.share.max.delivery.count.limit``); after them it gives a message up."""
LOCK_MS: Final = 60_000
"""The longest that Kafka lets a member have a message without renewing it."""
CONFIGS: Final = {
    "share.delivery.count.limit": str(DELIVERIES_MAX),
    "share.record.lock.duration.ms": str(LOCK_MS),
    "share.isolation.level": "read_committed",
}
_STARTS: Final = {ChannelStart.KEPT: "earliest", ChannelStart.FIRST: "earliest", ChannelStart.END: "latest"}
_RENEWALS_A_LOCK: Final = 3


@dataclass(slots=True, eq=False)
class _Held:
    """A message that this gateway has: with a subscriber, deferred until ``due_us``, or waiting for a subscriber."""

    partition: Partition
    page: Page
    offset: int
    deliveries: int
    """The cluster's count."""
    again: int = 0
    """Deliveries here that the cluster does not count."""
    owner: Subscriber | None = None
    delivered_us: int = 0
    due_us: int = 0
    """When the owner's time, or the delay, is over; 0 while it waits."""


def group_of(topic: str, channel: str) -> str:
    """Return the share group of a channel."""
    return f"nsq.{topic}.{channel}"


class ClusterChannel(Channel):
    """One channel of a topic at this gateway."""

    def __init__(self, owner: ClusterChannels, topic: Topic, name: str, *, ephemeral: bool) -> None:
        super().__init__(owner, topic, name, ephemeral=ephemeral)
        self._channels = owner
        self._held: dict[tuple[int, int], _Held] = {}
        self._ready: deque[_Held] = deque()
        self._reader: ShareGroupReader | None = None
        self._soonest_us = 0
        self._renewed_us = 0
        self._lock_us = LOCK_MS * 1000
        self._next = 0

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
        """Give everything back to the cluster."""
        reader, self._reader = self._reader, None
        self._held.clear()
        self._ready.clear()
        if reader is not None:
            reader.end()

    def close(self) -> None:
        """End, as the topic or the process does."""
        self._stop()

    # -- what the cluster gives

    def on_acquired(self, reader: ShareGroupReader, found: Sequence[AcquiredMessages]) -> None:
        """Take messages; those that have gone from their batches are acknowledged as gaps."""
        if reader is not self._reader:
            # an earlier one, which gave back what it had
            return
        gaps: list[Acknowledgement] = []
        for acquired in found:
            if acquired.partition >= len(self.topic.partitions):
                continue
            self._lock_us = min(self._lock_us, int(acquired.lock_s * 1e6)) or self._lock_us
            partition = self.topic.partitions[acquired.partition]
            for first, last, deliveries in acquired.ranges:
                offsets = message_offsets(acquired.run, first, last + 1)
                page = Page(acquired.run, first, last + 1, offsets)
                present = offsets.tolist()
                if len(present) <= last - first:
                    missing = sorted(set(range(first, last + 1)) - set(present))
                    gaps += [Acknowledgement(acquired.partition, one, one, GAP) for one in missing]
                for offset in present:
                    held = _Held(partition, page, offset, deliveries)
                    self._held[acquired.partition, offset] = held
                    self._ready.append(held)
        if gaps:
            self._settle(gaps)
        self.wake()

    def on_lost(self, reader: ShareGroupReader, partitions: Sequence[int]) -> None:
        """Forget messages that the cluster gives to others now; a FIN of one is refused as not in flight."""
        if reader is not self._reader:
            return
        lost = set(partitions)
        self._ready = deque(one for one in self._ready if one.partition.number not in lost)
        for key, one in list(self._held.items()):
            if key[0] in lost:
                self._release(one)
                del self._held[key]
        self.wake()

    def _settle(self, settled: Sequence[Acknowledgement]) -> None:
        if self._reader is not None:
            self._reader.settle(settled)

    # -- what subscribers say

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
        """Begin a message's time anew."""
        one = self._require(subscriber, partition, offset)
        one.due_us = min(now_us + subscriber.timeout_us, one.delivered_us + subscriber.timeout_max_us)
        self._soonest_us = min(self._soonest_us, one.due_us)

    def is_in_flight(self, partition: int, offset: int) -> bool:
        """Return whether a message is with a subscriber here."""
        one = self._held.get((partition, offset))
        return one is not None and one.owner is not None

    def _require(self, subscriber: Subscriber, partition: int, offset: int) -> _Held:
        one = self._held.get((partition, offset))
        if one is None or one.owner is not subscriber:
            raise Refusal(
                Reason.NOT_IN_FLIGHT,
                f"message {offset} of partition {partition} is not with this client; settle it before its time-out",
            )
        return one

    def _release(self, one: _Held) -> None:
        """Take a message from its subscriber, if it has one."""
        if one.owner is not None:
            one.owner.in_flight -= 1
            self._counts.in_flight -= 1
            one.owner = None
        elif one.due_us:
            self._counts.deferred -= 1
        one.due_us = 0

    def _give_back(self, one: _Held) -> None:
        """Have a message delivered again: by the cluster, or here if the cluster would give it up after that."""
        if one.deliveries < DELIVERIES_MAX - 1:
            del self._held[one.partition.number, one.offset]
            self._settle([Acknowledgement(one.partition.number, one.offset, one.offset, RELEASE)])
        else:
            self._ready.append(one)

    # -- delivering

    def pump(self, now_us: int) -> int | None:
        """Deliver what is here, and ask the cluster for what subscribers take beyond it."""
        if self.deleted:
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
        """Deliver the next messages of one page, as many as the subscriber takes; those of others wait for them."""
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
        """Whether time may change something here."""
        return bool(self.subscribers)

    def expire(self, now_us: int) -> None:
        """Take back messages whose time or delay is over, and renew the others before the cluster takes them."""
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
                self._release(one)
                self._give_back(one)
            self.wake()
        if self._held and now_us - self._renewed_us >= self._lock_us // _RENEWALS_A_LOCK:
            self._renewed_us = now_us
            self._settle([Acknowledgement(number, at, at, RENEW) for number, at in self._held])

    def statistics(self) -> ChannelStatistics:
        """Return the counts at this gateway; ``depth`` is of messages that it has."""
        self._counts.depth = len(self._ready)
        return self._counts

    # -- what operators ask

    def _set(
        self, *, paused: bool | None = None, skipping: bool | None = None, ordered: bool | None = None
    ) -> NoReturn:
        refuse("channel settings")

    def empty(self) -> NoReturn:
        """Refuse."""
        refuse("channel settings")

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

    def bind(
        self,
        cluster: ClusterTopics,
        open_transport: Callable[[], KafkaTransport],
        post: Callable[[Callable[[], None]], None],
        look_again: Callable[[], None],
    ) -> None:
        """Take what channels need; called before the first."""
        self.cluster, self.open_transport, self.post, self.look_again = cluster, open_transport, post, look_again
        self._readers = []

    def load(self, topics: Sequence[Topic]) -> None:
        """Load nothing: channels come with the catalog topic."""

    def prepare(self, topic: Topic, name: str, start: ChannelStart) -> Change[None] | None:
        """Return what creates the share group of a channel that the cluster does not have."""
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

    def take_over(self, topic: Topic, names: Collection[str]) -> None:
        """Have the channels of a topic as the catalog topic has them."""
        channels = self._channels.setdefault(topic, {})
        for name in names:
            if name not in channels:
                channels[name] = ClusterChannel(self, topic, name, ephemeral=False)
        for name in [name for name in channels if name not in names]:
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
        """Count messages that go to subscribers."""
        self._counters.messages_out += count

    def delete(self, channel: Channel) -> None:
        """Refuse."""
        refuse("channel settings")

    def on_topic_deleted(self, topic: Topic) -> None:
        """Close the channels of a topic."""
        for channel in self._channels.pop(topic, {}).values():
            self._close(channel, f"topic {topic.flat_name!r} was deleted")

    def _close(self, channel: Channel, reason: str) -> None:
        super()._close(channel, reason)
        if isinstance(channel, ClusterChannel):
            channel.close()

    def on_topic_resized(self, topic: Topic) -> None:
        """Do nothing: the group's coordinator assigns the new partitions."""

    def is_paused(self, topic: Topic) -> bool:
        """Return False."""
        return False

    def set_paused(self, topic: Topic, paused: bool) -> None:
        """Refuse."""
        refuse("channel settings")

    def empty_topic(self, topic: Topic) -> None:
        """Refuse."""
        refuse("channel settings")

    def topic_depth(self, topic: Topic) -> int:
        """Return 0: the cluster keeps messages for channels, however many there are."""
        return 0

    def store(self, now_us: int) -> None:
        """Store nothing: the cluster has what is acknowledged."""

    def store_marked(self) -> bool:
        """Return False, as for ``store``."""
        return False

    def confirm(self, channel: Channel) -> None:
        """Do nothing, as for ``store``."""

    def end_readers(self, timeout_s: float) -> None:
        """Give back what this gateway has, at its end."""
        for channels in self._channels.values():
            for channel in channels.values():
                if isinstance(channel, ClusterChannel):
                    channel.close()
        for reader in self._readers:
            reader.join(timeout_s)
