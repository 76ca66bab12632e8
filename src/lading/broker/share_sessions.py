"""Share sessions (KIP-932): the partitions that a member of a share group reads, and the messages that it has of each.

The queue of a group in a topic is the channel of the group's name: NSQ's clients and members of the group take messages
from it in turn. A member is a subscriber of each partition by itself, which takes messages only while a request of it
asks for some.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..dialects import codes
from ..log.kafka_config_table import KafkaConfigTable
from ..model.chunk_table import BASE_OFFSET, BODY_END, BODY_START, LAST_OFFSET
from ..model.errors import Reason, Refusal
from ..runtime.turns import TurnCounter, Turns, finish
from .channels import Channel, Channels, ChannelStart, Delivery, Subscriber
from .channels.partition_dispatcher import LOOKAHEAD_MAX, NO_LIMIT, PartitionDispatcher
from .core.callbacks import ignore
from .core.offsets_for_times import offset_at
from .core.topology import Topic
from .kafka.assignors import Place
from .kafka.epoch_groups import GROUP_CONFIG_KIND
from .kafka.share_group_coordinator import ShareGroupCoordinator
from .kafka.share_start import EARLIEST, LATEST, find_duration_us

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
EPOCH_MAX: Final = (1 << 31) - 1
SESSIONS_MAX: Final = 2_000
"""Limit of sessions, the default of Apache Kafka (``group.share.max.share.sessions``)."""
READERS_MAX: Final = 100_000
"""Partitions of all sessions together: each takes about a kilobyte."""
PARTITIONS_AT_ONCE: Final = 16
"""Partitions that are opened in one turn: finding a message by its time reads a chunk, which takes up to a
millisecond."""
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
"""Kinds of acknowledgements."""
MS_US: Final = 1_000
NEVER_US: Final = 1 << 62


class ShareGroupConfig(NamedTuple):
    """The configs of a share group that have an effect on its queues, with Apache Kafka's defaults."""

    start: str = LATEST
    """A text of ``share.auto.offset.reset``."""
    attempts_max: int = 5
    locks_max: int = 2_000
    """Messages of a partition that members have at the same time."""
    lock_us: int = 30_000_000
    """The time for which a member holds the lock on a message."""
    allows_renewal: bool = True
    is_uncommitted: bool = True


class AcknowledgementBatch(NamedTuple):
    """Acknowledgements of the messages from ``first`` to ``last``: of one kind, or of one kind for each."""

    first: int
    last: int
    kinds: list[int]


class ShareWait:
    """The wait of a session for a message: ending it ends the waits of thousands of partitions at once."""

    __slots__ = ("is_over",)

    def __init__(self) -> None:
        self.is_over = False


class ShareSubscriber(Subscriber):
    """A subscriber that takes messages of a partition only while fewer than ``locks_max`` are with subscribers."""

    def __init__(self, lane: PartitionDispatcher, take: Callable[[Delivery], None], name: str) -> None:
        super().__init__(take, timeout_max_us=NEVER_US, name=name)
        self.lane = lane
        self.locks_max = NO_LIMIT
        self.wait: ShareWait | None = None
        """The wait on whose behalf it takes messages, if there is one; after the end of the wait it takes none."""

    @property
    def credit(self) -> int:
        """Return how many more messages it takes now."""
        if self.wait is not None and self.wait.is_over:
            return 0
        return min(super().credit, self.locks_max - self.lane.in_flight)


class ShareReader:
    """A member as a subscriber of one partition of a channel."""

    def __init__(self, channel: Channel, number: int, member: str, on_delivery: Callable[[], None]) -> None:
        self.channel = channel
        self.number = number
        self.deliveries: list[Delivery] = []
        self.is_new = True
        """Whether no response has named the partition yet."""
        self.on_delivery = on_delivery
        """Called when it has taken messages: by the session that reads the partition now."""
        self._room_bytes = self._wanted_bytes = 0
        self._last_base = -1
        """First offset of the last chunk that is counted: the next messages of it add nothing."""
        self.subscriber = ShareSubscriber(channel.lanes[number], self._take, member)
        channel.subscribe(self.subscriber, number)

    @property
    def place(self) -> Place:
        """The partition."""
        return self.channel.topic.uuid, self.number

    @property
    def lane(self) -> PartitionDispatcher:
        """The channel's state of the partition."""
        return self.subscriber.lane

    @property
    def is_lost(self) -> bool:
        """Whether the channel, or the partition, was deleted; another one may have its number since."""
        lanes = self.channel.lanes
        return self.channel.deleted or self.number >= len(lanes) or lanes[self.number] is not self.lane

    def _take(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)
        self._room_bytes -= self._measure_batches(delivery)
        if self._room_bytes <= 0:
            self.subscriber.ready = 0
        self.on_delivery()

    def _measure_batches(self, delivery: Delivery) -> int:
        """Return the bytes that messages add to a response, which holds their batches whole."""
        chunks = delivery.page.run.chunks
        held = chunks[np.unique(np.searchsorted(chunks[:, LAST_OFFSET], delivery.offsets))]
        if self._last_base == held[0, BASE_OFFSET]:
            held = held[1:]
        if len(held):
            self._last_base = int(held[-1, BASE_OFFSET])
        return int((held[:, BODY_END] - held[:, BODY_START]).sum())

    @property
    def taken_bytes(self) -> int:
        """Bytes of the messages taken since ``want``."""
        return self._wanted_bytes - self._room_bytes

    def configure(self, config: ShareGroupConfig) -> None:
        """Take messages as the group's configs say."""
        self.subscriber.timeout_us, self.subscriber.locks_max = config.lock_us, config.locks_max

    def want(self, count: int, size_bytes: int = 1, wait: ShareWait | None = None) -> None:
        """Take ``count`` messages more than it has, until they have about ``size_bytes``; 0 to take no more.

        None is taken after the end of ``wait``.
        """
        self.subscriber.wait = wait
        self._room_bytes = self._wanted_bytes = size_bytes
        self._last_base = -1
        self.subscriber.ready = self.subscriber.in_flight + count if count > 0 else 0

    def take_rest(self, now_us: int) -> None:
        """Take what else there is of the record batch that the last message is in, whatever was wanted."""
        last = self.deliveries[-1]
        if last.page.run.dialect != codes.KAFKA:
            # no client has made a batch of these
            return
        ends, offset = last.page.run.chunks[:, LAST_OFFSET], int(last.offsets[-1])
        count = int(ends[np.searchsorted(ends, offset)]) - offset
        if count > 0:
            self.want(count, NO_LIMIT)
            self.channel.dispatch(self.number, now_us)
            self.want(0)

    def close(self) -> None:
        """Release the messages that it has, so that others get them."""
        self.subscriber.ready = 0
        self.channel.leave(self.subscriber)
        self.subscriber.on_delivery = self.subscriber.on_closed = ignore
        self.on_delivery = ignore


class ShareSession:
    """A member's session: its epoch, its partitions, and what it takes of them.

    ``take`` takes what is there. If that is nothing, ``wait`` has ``on_ready`` called when there is something.
    """

    def __init__(self, group: str, member: str) -> None:
        self.group = group
        self.member = member
        self.epoch = INITIAL_EPOCH
        self.readers: dict[Place, ShareReader] = {}
        self.forgotten: dict[Place, ShareReader] = {}
        """Readers of partitions that the session no longer reads, but still has messages of."""
        self.client: object = None
        """The connection with which the session ends."""
        self.on_ready: Callable[[], None] = ignore
        self.is_closed = False
        """Whether it reads nothing any more, because it was closed or its member has opened another session."""
        self._turn = 0
        self._wait: ShareWait | None = None

    def advance(self) -> None:
        """Begin the next epoch."""
        self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1

    def find(self, place: Place) -> ShareReader | None:
        """Return its reader of a partition, even if it no longer reads the partition."""
        return self.readers.get(place) or self.forgotten.get(place)

    def add(self, channel: Channel, number: int) -> None:
        """Read a partition. Raises SHARE_SESSION_NOT_FOUND if the session was closed meanwhile."""
        if self.is_closed:
            raise _no_session_error(self.group, self.member)
        place = channel.topic.uuid, number
        reader = self.readers.get(place)
        if reader is not None and not reader.is_lost:
            return
        reader = self.forgotten.pop(place, None)
        if reader is None or reader.is_lost:
            reader = ShareReader(channel, number, self.member, self._on_delivery)
        reader.on_delivery = self._on_delivery
        reader.is_new = True
        self.readers[place] = reader

    def forget(self, place: Place) -> None:
        """Read a partition no more; the messages that the member has of it stay with it until their time is over."""
        reader = self.readers.pop(place, None)
        if reader is not None:
            reader.want(0)
            if reader.subscriber.in_flight:
                self.forgotten[place] = reader
            else:
                reader.close()

    def adopt(self, former: ShareSession) -> Turns[None]:
        """Take over the messages of the member's previous session, in turns; partitions without any are left out."""
        # the end of the former session must not take these from this one
        self.forgotten = former.forgotten | former.readers
        former.readers, former.forgotten = {}, {}
        finish(former.close())
        turn = TurnCounter()
        for place, reader in list(self.forgotten.items()):
            # others had their turn: a session after this one may have it, or this one reads it again
            if self.forgotten.get(place) is reader:
                if reader.subscriber.in_flight:
                    reader.want(0)
                    reader.on_delivery = self._on_delivery
                else:
                    del self.forgotten[place]
                    reader.close()
            if turn.is_over():
                yield

    def close(self) -> Turns[None]:
        """Release the member's messages, in turns; the session takes no more messages from now on."""
        self.is_closed = True
        self.stop_waiting()
        readers = [*self.readers.values(), *self.forgotten.values()]
        self.readers, self.forgotten = {}, {}
        self.on_ready()
        turn = TurnCounter()
        for reader in readers:
            reader.close()
            if turn.is_over():
                yield

    def take(
        self, count: int, size_bytes: int, config: ShareGroupConfig, now_us: int, *, by_batch: bool = False
    ) -> Iterator[ShareReader]:
        """Take up to ``count`` messages of about ``size_bytes``; yield each reader after it took some, or none.

        The readers have them as ``deliveries``. With ``by_batch`` they have the last record batch whole, even if those
        are more messages.
        """
        self._turn += 1
        readers = list(self.readers.values())
        for step in range(len(readers)):
            reader = readers[(self._turn + step) % len(readers)]
            if count > 0 and size_bytes > 0 and not reader.is_lost:
                taken = len(reader.deliveries)
                reader.configure(config)
                reader.want(count, size_bytes)
                reader.channel.dispatch(reader.number, now_us)
                size_bytes -= reader.taken_bytes
                reader.want(0)
                if by_batch and len(reader.deliveries) > taken:
                    reader.take_rest(now_us)
                count -= sum(len(delivery.offsets) for delivery in reader.deliveries[taken:])
            elif by_batch and reader.deliveries and not reader.is_lost:
                # a message that ended the wait was all that is wanted
                reader.take_rest(now_us)
            yield reader

    def wait(self, config: ShareGroupConfig) -> Turns[None]:
        """Have ``on_ready`` called when there is a message for the member, which has it then; begins in turns."""
        wait = self._wait = ShareWait()
        turn = TurnCounter()
        for reader in list(self.readers.values()):
            if wait.is_over:
                return
            if not reader.is_lost:
                reader.configure(config)
                reader.want(1, wait=wait)
                reader.channel.wake()
            if turn.is_over():
                yield

    def stop_waiting(self) -> None:
        """Take no messages until the next request."""
        if self._wait is not None:
            self._wait.is_over = True
            self._wait = None

    def _on_delivery(self) -> None:
        if self._wait is not None:
            self.stop_waiting()
            self.on_ready()


class ShareSessions:
    """All share sessions, by group and member."""

    def __init__(
        self,
        groups: ShareGroupCoordinator,
        channels: Channels,
        configs: KafkaConfigTable,
        find_topic: Callable[[bytes], Topic | None],
        now_us: Callable[[], int],
    ) -> None:
        """``find_topic`` returns a topic by its id."""
        self._now_us = now_us
        self._find_topic = find_topic
        self.groups = groups
        self._channels = channels
        self._configs = configs
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._readers_count = 0
        self._config_of: dict[str, ShareGroupConfig] = {}
        self._config_version = -1
        self.on_channel_opened: Callable[[str, Channel], None] = ignore
        """Called with a group and its queue in a topic when a member begins to read it."""

    def find_config(self, group: str) -> ShareGroupConfig:
        """Return the configs of a group; if they may have changed, its queues follow them from now on."""
        if self._config_version != self._configs.version:
            self._config_of.clear()
            self._config_version = self._configs.version
        config = self._config_of.get(group)
        if config is None:
            found = {name: text.strip() for name, text in self._configs.find(GROUP_CONFIG_KIND, group).items()}
            default = ShareGroupConfig()
            config = ShareGroupConfig(
                found.get("share.auto.offset.reset", default.start),
                int(found.get("share.delivery.count.limit", default.attempts_max)),
                int(found.get("share.partition.max.record.locks", default.locks_max)),
                int(found.get("share.record.lock.duration.ms", default.lock_us // MS_US)) * MS_US,
                found.get("share.renew.acknowledge.enable", "true") == "true",
                found.get("share.isolation.level", "read_uncommitted") == "read_uncommitted",
            )
            if len(self._config_of) < SESSIONS_MAX:
                self._config_of[group] = config
            for channel in self.list_channels(group):
                _apply_config(channel, config)
        return config

    def open(self, group: str, member: str, client: object = None) -> Turns[ShareSession]:
        """Return a new session of a member, which replaces the one before, in turns. Raises TOO_MANY_SHARE_SESSIONS.

        It ends with ``close_all`` of its client, if not before.
        """
        former = self._sessions.pop((group, member), None)
        if len(self._sessions) >= SESSIONS_MAX:
            if former is not None:
                yield from former.close()
            raise Refusal(
                Reason.TOO_MANY_SHARE_SESSIONS,
                f"share group {group!r}: {SESSIONS_MAX} share sessions are open, the most; close some consumers",
            )
        session = ShareSession(group, member)
        session.client = client
        session.advance()
        self._sessions[group, member] = session
        if former is not None:
            yield from session.adopt(former)
        return session

    def continue_session(self, group: str, member: str, epoch: int) -> ShareSession:
        """Return the session of a member, whose next epoch begins unless ``epoch`` is the final one.

        Raises SHARE_SESSION_NOT_FOUND, SHARE_SESSION_EPOCH_INVALID.
        """
        session = self._sessions.get((group, member))
        if session is None:
            raise _no_session_error(group, member)
        if epoch != FINAL_EPOCH:
            if epoch != session.epoch:
                raise Refusal(
                    Reason.SHARE_SESSION_EPOCH_INVALID,
                    f"the share session of member {member} of share group {group!r} has epoch {session.epoch}, not "
                    f"{epoch}; open a new one with epoch {INITIAL_EPOCH}",
                )
            session.advance()
        return session

    def add(self, session: ShareSession, channel: Channel, number: int) -> None:
        """Have a session read a partition. Raises TOO_MANY_SHARE_SESSIONS, SHARE_SESSION_NOT_FOUND."""
        if self._readers_count >= READERS_MAX:
            # those of closed sessions are still counted
            self._readers_count = self._count_readers()
        if self._readers_count >= READERS_MAX:
            raise Refusal(
                Reason.TOO_MANY_SHARE_SESSIONS,
                f"share sessions read {READERS_MAX} partitions together, the most; close some consumers",
            )
        session.add(channel, number)
        self._readers_count += 1

    def _count_readers(self) -> int:
        return sum(len(session.readers) + len(session.forgotten) for session in self._sessions.values())

    def close_all(self, client: object) -> Turns[None]:
        """Close the sessions of a connection that has ended, in turns."""
        for session in [one for one in self._sessions.values() if one.client is client]:
            yield from self.close(session)

    def close(self, session: ShareSession) -> Turns[None]:
        """Close a session, in turns: the messages that its member has go to others."""
        if self._sessions.get((session.group, session.member)) is session:
            del self._sessions[session.group, session.member]
        yield from session.close()

    def close_left(self, group: str) -> Turns[None]:
        """Close the sessions of a group whose members have left it, in turns: leaving ends no session by itself."""
        members = self.groups.require(group).members
        for session in [one for one in self._sessions.values() if one.group == group and one.member not in members]:
            yield from self.close(session)

    def open_channel(self, group: str, topic: Topic) -> Turns[Channel]:
        """Return the queue of a group in a topic, created as the group's configs say if it does not exist, in turns."""
        config = self.find_config(group)
        channel = self._channels.find(topic, group)
        if channel is None:
            channel = yield from self._channels.open_in_turns(
                topic, group,
                start=ChannelStart.FIRST if config.start == EARLIEST else ChannelStart.END,
                offsets=(yield from self._find_offsets(topic, config)),
                is_uncommitted=config.is_uncommitted,
            )  # fmt: skip
        _apply_config(channel, config)
        self.groups.note_topic(group, topic.uuid)
        self.on_channel_opened(group, channel)
        return channel

    def _find_offsets(self, topic: Topic, config: ShareGroupConfig) -> Turns[dict[int, int]]:
        """Return by partition the first message of the time that the config asks for; nothing unless it asks for one.

        A partition without messages of that time is read from its end.
        """
        duration_us = find_duration_us(config.start)
        offsets: dict[int, int] = {}
        if duration_us is not None:
            since_us = self._now_us() - duration_us
            turn = TurnCounter(PARTITIONS_AT_ONCE)
            for partition in topic.partitions:
                offsets[partition.number] = offset_at(partition, since_us)
                if turn.is_over():
                    yield
        return offsets

    def find_channel(self, group: str, topic: Topic) -> Channel | None:
        """Return the queue of a group in a topic, if the group has read it."""
        return self._channels.find(topic, group) if self.groups.has_read(group, topic.uuid) else None

    def list_channels(self, group: str) -> list[Channel]:
        """Return the queues of a group."""
        topics = [topic for one in self.groups.list_topics_read(group) if (topic := self._find_topic(one)) is not None]
        channels = [self.find_channel(group, topic) for topic in topics]
        return [channel for channel in channels if channel is not None]

    def require_empty(self, group: str) -> None:
        """Raise GROUP_NOT_FOUND, or GROUP_NOT_EMPTY if the group has members."""
        if self.groups.require(group).members:
            raise Refusal(Reason.GROUP_NOT_EMPTY, f"share group {group!r} has members; stop them first")

    def seek(self, group: str, topic: Topic, number: int, offset: int) -> None:
        """Set the offset at which a group without members continues in a partition; it reads the partition then."""
        topic.partition(number)
        channel = finish(self.open_channel(group, topic))
        _require_unused(channel)
        channel.seek(number, offset)

    def delete_topic(self, group: str, topic: Topic) -> None:
        """Delete the queue of a group without members in a topic."""
        channel = self.find_channel(group, topic)
        if channel is not None:
            _require_unused(channel)
            self._channels.delete(channel)
        self.groups.forget_topic(group, topic.uuid)

    def settle(self, reader: ShareReader, batches: Iterable[AcknowledgementBatch], now_us: int) -> None:
        """Settle messages that a member has: all or, if one is refused, none; ``Channels.store_soon`` is asked.

        Raises INVALID_OFFSET if some were never delivered, NOT_IN_FLIGHT if the member has not all of them.
        """
        lane, subscriber = reader.lane, reader.subscriber
        offsets, kinds = _expand(lane, batches)
        if not len(offsets):
            return
        left = lane.require_owned(subscriber, offsets)
        if len(left) < len(offsets):
            kinds = kinds[np.searchsorted(offsets, left)]
        done = left[(kinds == ACCEPT) | (kinds == GAP)]
        if len(done):
            lane.finish(subscriber, done)
        for kind, settle in ((RELEASE, lane.release), (REJECT, lane.reject)):
            some = left[kinds == kind]
            if len(some):
                settle(subscriber, some)
        renewed = left[kinds == RENEW]
        if len(renewed):
            lane.renew(subscriber, renewed, now_us)
        if len(renewed) < len(left):
            self._channels.store_soon(lane, reader.channel)


def _no_session_error(group: str, member: str) -> Refusal:
    return Refusal(
        Reason.SHARE_SESSION_NOT_FOUND,
        f"member {member} of share group {group!r} has no share session; open one with epoch {INITIAL_EPOCH}",
    )


def _apply_config(channel: Channel, config: ShareGroupConfig) -> None:
    """Have a queue deliver as the group's configs say."""
    if channel.is_uncommitted != config.is_uncommitted:
        channel.set_uncommitted(config.is_uncommitted)
    if channel.attempts_max != config.attempts_max:
        channel.set_attempts_max(config.attempts_max)


def _require_unused(channel: Channel) -> None:
    if channel.subscribers:
        raise Refusal(
            Reason.GROUP_NOT_EMPTY,
            f"channel {channel.name!r} of topic {channel.topic.flat_name!r} has subscribers; stop them first",
        )


def _expand(
    lane: PartitionDispatcher, batches: Iterable[AcknowledgementBatch]
) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    """Return the offsets of acknowledgements that may still have an effect, and the kind of each."""
    offsets: list[NDArray[np.int64]] = []
    kinds: list[NDArray[np.int8]] = []
    oldest, end = lane.oldest, lane.window.end
    size = 0
    for batch in batches:
        first = max(batch.first, oldest)
        size += max(batch.last + 1 - first, 0)
        if batch.last >= end or size > 2 * LOOKAHEAD_MAX:
            raise Refusal(
                Reason.INVALID_OFFSET,
                f"some of messages {batch.first} to {batch.last} of partition {lane.partition} were never delivered; "
                "settle those that were",
            )
        if first <= batch.last:
            some = np.arange(first, batch.last + 1)
            of_each = np.array(batch.kinds, np.int8)
            offsets.append(some)
            kinds.append(np.full(len(some), of_each[0]) if len(of_each) == 1 else of_each[-len(some) :])
    if not offsets:
        return np.empty(0, np.int64), np.empty(0, np.int8)
    return np.concatenate(offsets), np.concatenate(kinds)
