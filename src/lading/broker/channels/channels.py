"""All channels of a broker: found by topic and name, delivering at the end of a pass of the event loop, stored."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Final

from ...log.catalog import Catalog
from ...log.catalog_rows import PositionRow
from ...model.errors import Reason, Refusal
from ...runtime.turns import ROWS_AT_ONCE, Turn, TurnCounter, Turns
from ..core.callbacks import ignore
from ..core.change import Change
from ..core.component import NEVER_US, SOON_US, Component
from ..core.counters import Counters
from ..core.pending_append import Append
from ..core.pending_result import PendingResult
from ..core.topology import Partition, Topic
from .channel import Channel
from .in_flight import GivenUp
from .omissions import Omissions
from .partition_dispatcher import NO_LIMIT, PartitionDispatcher
from .pattern_matches import PatternBudget
from .rules import ChannelRules
from .statistics import ChannelStatistics
from .store import (
    ORDERED,
    ORIGIN,
    PAUSED,
    SKIPPING,
    UNCOMMITTED,
    ChannelStore,
    StoredLane,
    after_cut,
    load_omissions,
    omissions_row,
    row_of,
)
from .topic_queues import DelayedOffsets, QueueStart, TopicQueues

LOG: Final = logging.getLogger("lading.broker")
STORE_US: Final = 100_000
"""The changed positions of a few channels are stored within this time; with more of them, less often."""
STORE_BYTES: Final = 64 << 10
NAME_BYTES_MAX: Final = 255
PASS_CHANNELS: Final = 64
MARKED_AT_ONCE: Final = 64
"""Positions of channels that are stored in one pass of the event loop at most: each takes about 20 microseconds, or ten
times as long if 50 messages are in flight.
"""
STORED_AT_ONCE: Final = 256
"""Positions of channels that one tick stores at most; a tick is every 50 ms."""
STORED_TOGETHER: Final = 10
"""Positions that are stored between two looks at the clock: 2 ms if each channel has 50 messages in flight."""
STORING_S: Final = 0.004
"""How long one tick, or one pass before a sync, stores positions."""
EXPIRING_S: Final = 0.008
"""How long one tick takes back late messages: those of some fifty channels, if each has 50."""
RETRY_US: Final = 1_000_000
"""Time after a failure until a channel is tried again."""
ROUND_US: Final = 1_000_000
"""Interval at which channels without subscribers are checked: retention may have deleted the messages at
their position.
"""


class ChannelStart(Enum):
    """Start of a new channel."""

    KEPT = "kept"
    """The first channel of a topic begins at the first message in the topic's queue, any other at the end."""
    END = "end"
    FIRST = "first"
    """The first message that the log has."""


class Channels(Component):
    """The channels of all topics. One thread, the event loop's, uses them."""

    def __init__(
        self,
        catalog: Catalog,
        counters: Counters,
        rules: ChannelRules,
        delayed: DelayedOffsets,
        on_exhausted: Callable[[Channel, GivenUp], Append | None],
    ) -> None:
        """``on_exhausted`` is called with the channel and the messages whose deliveries are used up.

        It returns the append of a copy, or None; the message leaves the channel when the copy is on disk.
        """
        self.on_work: Callable[[], None] = ignore
        """Called when ``pump`` should be called soon; then not again until it was called."""
        self.on_exhausted = on_exhausted
        self.on_unused: Callable[[Topic], None] = _ignore_unused
        """Called when the last channel of an ephemeral topic was deleted."""
        self.on_deleted: Callable[[Channel], None] = ignore
        """Called with a channel that was deleted by itself, not with its topic."""
        self._catalog = catalog
        self._store = ChannelStore(catalog)
        self._counters = counters
        self._rules = rules
        self._pattern_budget = PatternBudget()
        self._channels: dict[Topic, dict[str, Channel]] = {}
        self._opening: dict[Channel, None] = {}
        """Channels that ``open_in_turns`` is creating."""
        self._delayed = delayed
        self._queues = TopicQueues(self._store, delayed, lambda topic: bool(self._channels.get(topic)))
        self._awake: dict[Channel, None] = {}
        self._held: dict[Channel, int] = {}
        """Channels that wait a moment, so as to deliver more messages at once, and until when."""
        self._pumping = False
        self._store_due_us = 0
        self._to_store: deque[tuple[Channel, PartitionDispatcher]] = deque()
        """Partitions of channels whose positions this round of ``tick`` has not stored yet."""
        self._stored_bytes = 0
        """About how many bytes of rows this round has stored."""
        self._marked: dict[PartitionDispatcher, Channel] = {}
        """Partitions of channels whose positions are stored before the next sync of the catalog."""
        self._in_use: dict[Channel, None] = {}
        """Channels whose time-outs ticks check; checking hundreds of idle ones as well would take milliseconds."""
        self._time_outs: Turns[None] | None = None
        """The walk over ``_in_use`` that the last tick did not end."""
        self._now_us = 0
        """The time of the present tick."""
        self._rest_of_round: list[Channel] = []
        """Channels that this round has not checked yet."""
        self._per_round = 0
        self._round_us = self._round_ticked_us = 0

    def load(self, topics: Sequence[Topic]) -> None:
        """Load the stored channels."""
        by_uuid = {topic.uuid: topic for topic in topics}
        lanes, omissions = self._store.lanes(), self._store.omissions()
        paused = self._store.list_paused_topics()
        for uuid, topic in by_uuid.items():
            stored = lanes.get((uuid, ORIGIN), {})
            if stored or uuid in paused:
                starts = {
                    partition.number: self._start_of_stored(partition, one, omissions)
                    for partition in topic.partitions
                    if (one := stored.get(partition.number)) is not None
                }
                self._queues.load(topic, starts, paused=uuid in paused)
        for uuid, name in self._store.channels():
            if (known := by_uuid.get(uuid)) is not None:
                self._load_channel(known, name, lanes.get((uuid, name), {}), omissions)

    def _start_of_stored(
        self, partition: Partition, stored: StoredLane, omissions: Mapping[tuple[bytes, str, int], tuple[int, bytes]]
    ) -> QueueStart:
        delayed_from, extra = omissions.get((partition.topic.uuid, ORIGIN, partition.number), (0, b""))
        delayed_end = self._delayed.next_offset(partition)
        return QueueStart(
            after_cut(stored, partition).first,
            min(delayed_from, delayed_end),
            load_omissions(extra, partition, delayed_end),
        )

    def _load_channel(
        self,
        topic: Topic,
        name: str,
        stored: dict[int, StoredLane],
        omissions: Mapping[tuple[bytes, str, int], tuple[int, bytes]],
    ) -> None:
        channel = self._new_channel(topic, name)
        flags = max((one.flags for one in stored.values()), default=0)
        channel.paused, channel.skipping = bool(flags & PAUSED), bool(flags & SKIPPING)
        channel.ordered, channel.is_uncommitted = bool(flags & ORDERED), bool(flags & UNCOMMITTED)
        for partition in topic.partitions:
            _, extra = omissions.get((topic.uuid, name, partition.number), (0, b""))
            passed_over = load_omissions(extra, partition, self._delayed.next_offset(partition))
            lane = self._add_lane(channel, partition, partition.log.first_offset, passed_over)
            if (one := stored.get(partition.number)) is not None:
                lane.restore(after_cut(one, partition))
        self._channels.setdefault(topic, {})[name] = channel
        self._in_use[channel] = None

    def prepare(self, topic: Topic, name: str, start: ChannelStart) -> Change[None] | None:
        """Return the change that creates a channel of many partitions in turns; None if ``open`` can do it at once.

        For topics in a cluster ``open`` never can.
        """
        if len(topic.partitions) <= ROWS_AT_ONCE or self.find(topic, name) is not None:
            return None
        return self._prepare(topic, name, start)

    def _prepare(self, topic: Topic, name: str, start: ChannelStart) -> Change[None]:
        yield from self.open_in_turns(topic, name, start=start)

    def open(self, topic: Topic, name: str, *, start: ChannelStart = ChannelStart.KEPT) -> Channel:
        """Return the channel with that name, created if it does not exist; it is on disk on return."""
        found = self.find(topic, name)
        if found is not None:
            return found
        _require_name(name)
        channel = self._new_channel(topic, name)
        for partition in topic.partitions:
            self._begin_lane(channel, partition, start)
        self.confirm(channel)
        self._channels.setdefault(topic, {})[name] = channel
        return channel

    def open_in_turns(
        self,
        topic: Topic,
        name: str,
        *,
        start: ChannelStart,
        offsets: Mapping[int, int] = MappingProxyType({}),
        is_uncommitted: bool = False,
    ) -> Turns[Channel]:
        """Return the channel of that name as ``open`` does, in turns: 1,000 partitions take 50 ms.

        A new channel begins in each partition at the offset in ``offsets``, if there is one and ``start`` is END, or
        else at ``start``. Raises TOPIC_NAME_NOT_FOUND if the topic was deleted meanwhile.
        """
        if (found := self.find(topic, name)) is not None:
            return found
        _require_name(name)
        channel = self._new_channel(topic, name)
        channel.is_uncommitted = is_uncommitted
        self._opening[channel] = None
        queue: object = None
        try:
            # what a topic keeps for its first channel may have become another one's meanwhile, or was dropped
            while (
                not channel.lanes
                or [lane.partition for lane in channel.lanes] != topic.partitions
                or (start is ChannelStart.KEPT and queue != self._queues.identify(topic))
            ):
                queue = self._queues.identify(topic)
                for lane in channel.lanes:
                    lane.close()
                channel.lanes.clear()
                yield from self._begin_lanes(channel, start, offsets)
                yield from self._store_lanes(channel)
                # meanwhile the topic or another channel of that name may have been created or deleted, or partitions
                # added
                if channel.deleted:
                    raise Refusal(
                        Reason.TOPIC_NAME_NOT_FOUND,
                        f"topic {topic.flat_name!r} was deleted; create it again, or choose another",
                    )
                if (found := self.find(topic, name)) is not None:
                    return found
                if not topic.partitions:
                    break
            self._confirm_rows(channel, [])
            for lane in channel.lanes:
                self._set_limit(lane)
            self._channels.setdefault(topic, {})[name] = channel
        finally:
            del self._opening[channel]
            if self.find(topic, name) is not channel:
                for lane in channel.lanes:
                    lane.close()
        return channel

    def _begin_lanes(self, channel: Channel, start: ChannelStart, offsets: Mapping[int, int]) -> Turns[None]:
        turn = TurnCounter()
        for partition in list(channel.topic.partitions):
            lane = self._begin_lane(channel, partition, start)
            if start is ChannelStart.END:
                # not past the visible end: later messages may belong to an open transaction
                offset = min(offsets.get(partition.number, NO_LIMIT), lane.visible_end)
                if offset != lane.window.end:
                    lane.seek(offset)
            if turn.is_over():
                yield

    def _store_lanes(self, channel: Channel) -> Turns[None]:
        """Store the positions of a channel that is being created, in turns; no reader sees them before it exists."""
        lanes = [] if channel.ephemeral else list(channel.lanes)
        for at in range(0, len(lanes), MARKED_AT_ONCE):
            yield
            # stop: the positions of another channel with the name must not be replaced
            if channel.deleted or self.find(channel.topic, channel.name) is not None:
                return
            some = lanes[at : at + MARKED_AT_ONCE]
            self._store_rows([(channel, lane) for lane in some], 0)

    def _begin_lane(self, channel: Channel, partition: Partition, start: ChannelStart) -> PartitionDispatcher:
        offset, omissions = self._queues.begin_channel(partition, at_end=start is ChannelStart.END)
        if start is ChannelStart.FIRST:
            offset = partition.log.first_offset
        return self._add_lane(channel, partition, offset, omissions)

    def _new_channel(self, topic: Topic, name: str) -> Channel:
        return Channel(self, topic, name, ephemeral=self._rules.is_ephemeral(name))

    def _add_lane(
        self, channel: Channel, partition: Partition, offset: int, omissions: Omissions | None = None
    ) -> PartitionDispatcher:
        def make(statistics: ChannelStatistics) -> PartitionDispatcher:
            lane = PartitionDispatcher(
                partition, offset, statistics, self._counters, self._rules, channel.wake, self._pattern_budget
            )
            lane.on_released = channel.wake_waiting
            lane.omissions = omissions or lane.omissions
            self._set_limit(lane)
            lane.on_exhausted = lambda given_up: self.on_exhausted(channel, given_up)
            return lane

        return channel.add_lane(make)

    def find(self, topic: Topic, name: str) -> Channel | None:
        """Return a channel by name."""
        return self._channels.get(topic, {}).get(name)

    def of_topic(self, topic: Topic) -> list[Channel]:
        """Return all channels of a topic by name."""
        channels = self._channels.get(topic, {})
        return [channels[name] for name in sorted(channels)]

    def delete(self, channel: Channel) -> None:
        """Delete the channel with its stored state, and notify its subscribers."""
        if not channel.ephemeral:
            self._store.remove(channel.topic, channel.name)
        self._close(channel, f"channel {channel.name!r} of topic {channel.topic.flat_name!r} was deleted")
        self.on_deleted(channel)
        left = self._channels[channel.topic]
        del left[channel.name]
        if not left:
            del self._channels[channel.topic]
            if self._rules.is_ephemeral(channel.topic.name):
                self.on_unused(channel.topic)
            else:
                self._queues.on_last_channel_deleted(channel.topic)

    def _close(self, channel: Channel, reason: str) -> None:
        channel.deleted = True
        self._awake.pop(channel, None)
        self._held.pop(channel, None)
        self._in_use.pop(channel, None)
        for subscriber in list(channel.subscribers):
            channel.leave(subscriber)
            subscriber.on_closed(reason)
        for lane in channel.lanes:
            lane.close()

    def on_topic_deleted(self, topic: Topic) -> None:
        """Remove the channels of a deleted topic, and their stored state."""
        self._queues.forget(topic)
        opening = [channel for channel in self._opening if channel.topic is topic]
        for channel in (*self._channels.pop(topic, {}).values(), *opening):
            self._close(channel, f"topic {topic.flat_name!r} was deleted")

    def on_topic_resized(self, topic: Topic) -> None:
        """Note that the topic has more or fewer partitions: new ones are read from their beginning."""
        for channel in self.of_topic(topic):
            channel.drop_lanes(len(topic.partitions))
            self._queues.drop_partitions(topic, len(topic.partitions))
            for partition in topic.partitions[len(channel.lanes) :]:
                self._add_lane(channel, partition, partition.log.first_offset)
            self.confirm(channel)
            channel.wake()

    def take_unconfirmed(self) -> list[PendingResult[None]]:
        """Return the pending results of changes that clients wait for, each once; there are some only for topics in a
        cluster.
        """
        return []

    # -- the queues of topics

    def is_paused(self, topic: Topic) -> bool:
        """Return whether the channels of the topic get no new messages."""
        return self._queues.is_paused(topic)

    def set_paused(self, topic: Topic, paused: bool) -> None:
        """Make the topic keep new messages in its queue, or pass them to its channels; on disk on return.

        Channels still deliver messages that they have, unless they are paused themselves.
        """
        self._queues.set_paused(topic, paused)
        for channel in self.of_topic(topic):
            for lane in channel.lanes:
                self._set_limit(lane)
            channel.wake()

    def empty_topic(self, topic: Topic) -> None:
        """Drop the messages that the topic keeps for a first channel, or since it was paused; durable on return.

        Messages in its channels stay.
        """
        dropped = self._queues.empty(topic)
        for channel in self.of_topic(topic):
            for partition, (messages, (first_delayed, delayed_end)) in dropped.items():
                lane = channel.lanes[partition.number]
                for first, end in messages:
                    lane.omit(first, end)
                lane.omissions.omit_delayed(first_delayed, delayed_end)
                self._set_limit(lane)
            if dropped:
                self.confirm(channel)

    def topic_depth(self, topic: Topic) -> int:
        """Return how many messages are in the topic's queue, which no channel has yet."""
        return self._queues.depth(topic)

    def _set_limit(self, lane: PartitionDispatcher) -> None:
        limit = self._queues.find_limit(lane.partition)
        lane.read_limit = NO_LIMIT if limit is None else limit

    def _find_delayed_end(self, partition: Partition) -> int:
        limit, end = self._queues.find_delayed_limit(partition), self._delayed.next_offset(partition)
        return end if limit is None else min(limit, end)

    def count_delayed(self, lane: PartitionDispatcher) -> int:
        """Return how many messages that their publisher delayed wait for a channel."""
        waiting = self._delayed.list_waiting(lane.partition)
        if not waiting:
            return 0
        end = self._find_delayed_end(lane.partition)
        return sum(offset < end and not lane.omissions.has_delayed(offset) for offset in waiting)

    def omit_delayed(self, lane: PartitionDispatcher) -> None:
        """Have a channel skip the messages that ``count_delayed`` counts."""
        lane.omissions.omit_delayed(0, self._find_delayed_end(lane.partition))

    def on_delayed_entered(self, partition: Partition, delayed_offset: int, first: int, end: int) -> None:
        """Have the channels that dropped a delayed message skip it in the log too, which it has entered."""
        opening = [channel for channel in self._opening if channel.topic is partition.topic]
        for channel in (*self._channels.get(partition.topic, {}).values(), *opening):
            if partition.number < len(channel.lanes):
                lane = channel.lanes[partition.number]
                if lane.omissions.has_delayed(delayed_offset):
                    lane.omit(first, end)
                    lane.changed = True
                    self._mark_in_use(channel)
        self._queues.on_delayed_entered(partition, delayed_offset, first, end)

    # -- delivering

    def wake(self, channel: Channel) -> None:
        """Have the channel deliver soon, if it has messages."""
        if channel.deleted:
            return
        self._mark_in_use(channel)
        quiet = not self._awake
        self._awake[channel] = None
        if quiet and not self._pumping:
            self.on_work()

    def pump(self, now_us: int) -> int | None:
        """Deliver in all channels that were woken. Return when to call again at the latest, or None if
        nothing waits.
        """
        for channel in [one for one, due_us in self._held.items() if due_us <= now_us]:
            self._awake[channel] = None
        self._pumping = True
        self._pattern_budget.begin_pass()
        try:
            for channel in list(self._awake)[:PASS_CHANNELS]:
                if channel not in self._awake:
                    # the channel was deleted with its last subscriber while another one was delivering
                    continue
                del self._awake[channel]
                try:
                    again_us = channel.pump(now_us)
                except Exception:
                    # other channels continue: they need not wait for a fault in this one
                    LOG.exception("channel %s of topic %s: delivering failed", channel.name, channel.topic.flat_name)
                    again_us = now_us + RETRY_US
                self._held.pop(channel, None)
                if again_us == 0:
                    self._awake[channel] = None
                elif again_us is not None:
                    self._held[channel] = again_us
        finally:
            self._pumping = False
        if self._awake:
            self.on_work()
        return min(self._held.values(), default=None)

    # -- time and disk

    @property
    def due_us(self) -> int:
        """The time of the next tick, if channels are in use: their time-outs and delays are counted in milliseconds."""
        return SOON_US if self._in_use else NEVER_US

    def tick(self, now_us: int) -> None:
        """Handle time-outs and delays, and store the positions of channels; of many, the next ticks do the rest."""
        for channel in self._next_of_round(now_us):
            self._in_use[channel] = None
        self._now_us = now_us
        if self._time_outs is None:
            self._time_outs = self._expire_all()
        turn = Turn(EXPIRING_S)
        for _ in self._time_outs:
            if turn.is_over():
                break
        else:
            self._time_outs = None
        if now_us >= self._store_due_us:
            self._store_some(now_us)

    def _expire_all(self) -> Turns[None]:
        """Check the time-outs of the channels in use, and forget those out of use; yield after each partition."""
        for channel in list(self._in_use):
            if channel.deleted:
                continue
            try:
                yield from channel.expire_in_turns(self._read_now)
            except Exception:
                LOG.exception("channel %s of topic %s: time-outs failed", channel.name, channel.topic.flat_name)
            if not channel.is_in_use:
                self._in_use.pop(channel, None)

    def _read_now(self) -> int:
        return self._now_us

    def _mark_in_use(self, channel: Channel) -> None:
        if not self._in_use:
            self.on_due()
        self._in_use[channel] = None

    def _next_of_round(self, now_us: int) -> list[Channel]:
        """Return the next channels to check: as large a share of all as the time since the last tick is of a round."""
        passed_us, self._round_ticked_us = now_us - self._round_ticked_us, now_us
        if not self._rest_of_round and not 0 <= now_us - self._round_us < ROUND_US:
            self._round_us = now_us
            self._rest_of_round = [one for channels in self._channels.values() for one in channels.values()]
            self._per_round = len(self._rest_of_round)
        count = -(-self._per_round * min(max(passed_us, 0), ROUND_US) // ROUND_US)
        taken, self._rest_of_round = self._rest_of_round[:count], self._rest_of_round[count:]
        return [channel for channel in taken if not channel.deleted]

    def close(self, now_us: int) -> None:
        """Store the positions of all channels."""
        self.store(now_us)

    def store(self, now_us: int) -> None:
        """Store the positions of channels that have moved."""
        self._store_rows(self._list_changed(), now_us)
        self._to_store.clear()

    def _store_some(self, now_us: int) -> None:
        """Store some of the positions that have moved; the next tick stores the others."""
        if not self._to_store:
            self._to_store += self._list_changed()
            self._stored_bytes = 0
        turn, left = Turn(STORING_S), STORED_AT_ONCE
        while self._to_store and left > 0 and not turn.is_over():
            some = [self._to_store.popleft() for _ in range(min(len(self._to_store), left, STORED_TOGETHER))]
            left -= len(some)
            self._stored_bytes += self._store_rows(
                [(channel, lane) for channel, lane in some if lane.changed and not channel.deleted], now_us
            )
        if not self._to_store:
            self._store_due_us = now_us + STORE_US * (1 + self._stored_bytes // STORE_BYTES)

    def _list_changed(self) -> list[tuple[Channel, PartitionDispatcher]]:
        return [
            (channel, lane)
            for channel in self._in_use
            if not channel.ephemeral
            for lane in channel.lanes
            if lane.changed
        ]

    def _store_rows(self, changed: Sequence[tuple[Channel, PartitionDispatcher]], now_us: int) -> int:
        """Store the positions of some partitions of channels; return about how many bytes they are."""
        rows = [row for channel, lane in changed for row in self._list_rows(channel, [lane], now_us)]
        rows += [
            omissions_row(lane.partition, channel.name, lane.omissions)
            for channel, lane in changed
            if lane.omissions.changed
        ]
        if rows:
            self._store.put(rows)
            for _, lane in changed:
                lane.changed = lane.omissions.changed = False
        return sum(len(row.extra or b"") for row in rows)

    def store_soon(self, lane: PartitionDispatcher, channel: Channel) -> None:
        """Have ``store_marked`` store a partition's position: a client waits until it is durable."""
        if not channel.ephemeral:
            self._marked[lane] = channel

    def store_marked(self) -> bool:
        """Store the positions that clients wait for; return whether there are more."""
        turn, waiting = Turn(STORING_S), list(self._marked)[:MARKED_AT_ONCE]
        for first in range(0, len(waiting), STORED_TOGETHER):
            marked = [(lane, self._marked.pop(lane)) for lane in waiting[first : first + STORED_TOGETHER]]
            self._store_rows([(channel, lane) for lane, channel in marked if not channel.deleted], 0)
            if turn.is_over():
                break
        return bool(self._marked)

    def confirm(self, channel: Channel) -> None:
        """Store the present state of a channel; durable on return."""
        self._confirm_rows(channel, self._list_rows(channel, channel.lanes))

    def _list_rows(self, channel: Channel, lanes: Iterable[PartitionDispatcher], now_us: int = 0) -> list[PositionRow]:
        return [
            row_of(channel.name, lane, _pack_flags(channel), now_us, self._catalog.dates.shift_us) for lane in lanes
        ]

    def _confirm_rows(self, channel: Channel, rows: list[PositionRow]) -> None:
        if not channel.ephemeral:
            changed = [lane for lane in channel.lanes if lane.omissions.changed]
            rows += [omissions_row(lane.partition, channel.name, lane.omissions) for lane in changed]
            self._store.confirm(channel.topic, channel.name, rows)
            for lane in changed:
                lane.omissions.changed = False
        # after the write: a channel that the disk refuses does not exist, and must not be stored later
        self._mark_in_use(channel)


def _require_name(name: str) -> None:
    size_bytes = len(name.encode(errors="replace"))
    if not 1 <= size_bytes <= NAME_BYTES_MAX:
        raise Refusal(Reason.INVALID_CHANNEL_NAME, f"a channel name has 1 to {NAME_BYTES_MAX} bytes, not {size_bytes}")


def _pack_flags(channel: Channel) -> int:
    return (
        PAUSED * channel.paused
        | SKIPPING * channel.skipping
        | ORDERED * channel.ordered
        | UNCOMMITTED * channel.is_uncommitted
    )


def _ignore_unused(topic: Topic) -> None:
    return None
