"""A channel: subscribers share the messages of a topic; one subscriber has each message until it is finished."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ...runtime.turns import Turns
from ..core.group_condition import GroupCondition
from ..core.topology import Topic
from .partition_dispatcher import PartitionDispatcher
from .statistics import ChannelStatistics
from .subscriber import Subscriber

LANES_AT_ONCE: Final = 1_000
"""Partitions that one pass of the event loop looks at: idle ones take two to three microseconds each."""
HOLD_US: Final = 3_000
"""If a subscriber has most of its credit in flight, it gets the rest this much later: larger runs cost less."""


class ChannelOwner(Protocol):
    """The methods of ``Channels`` that a channel calls."""

    def wake(self, channel: Channel) -> None:
        """Have the channel deliver soon."""

    def count_delayed(self, lane: PartitionDispatcher) -> int:
        """Return how many messages that their publisher delayed wait for the channel."""

    def omit_delayed(self, lane: PartitionDispatcher) -> None:
        """Have the channel skip the messages that ``count_delayed`` counts."""

    def confirm(self, channel: Channel) -> None:
        """Store the present state of the channel; durable on return."""

    def delete(self, channel: Channel) -> None:
        """Delete the channel."""


@dataclass(slots=True)
class PumpRound:
    """A look at all partitions of a channel that takes several passes of the event loop."""

    next_step: int = 0
    """How many partitions were looked at."""
    more: bool = False
    """Whether there is more to do after this look."""
    held: bool = False
    """Whether a moment later larger stretches can be delivered."""


class Channel:
    """One channel of a topic. Messages are identified by partition number and offset.

    ``Channels.open`` creates it. Subscribers get messages by ``Subscriber.take`` while ``Channels.pump`` runs.
    """

    def __init__(self, owner: ChannelOwner, topic: Topic, name: str, *, ephemeral: bool) -> None:
        """An ``ephemeral`` channel is not stored, and is deleted with its last subscriber."""
        self.ephemeral = ephemeral
        self.topic = topic
        self.name = name
        self.subscribers: dict[Subscriber, PartitionDispatcher | None] = {}
        """The subscribers, each with the one partition that it reads, or None if it reads all."""
        self.lanes: list[PartitionDispatcher] = []
        self.paused = False
        self.skipping = False
        self.ordered = False
        self.deleted = False
        self.attempts_max: int | None = None
        self.condition: GroupCondition | None = None
        self.is_uncommitted = False
        self._owner = owner
        self._counts = ChannelStatistics()
        self._turn = 0
        self._round: PumpRound | None = None
        """The look at all partitions that began in an earlier pass; None unless one is under way."""
        self._held_since_us: int | None = None

    def wake(self) -> None:
        """Have the channel deliver soon, if it has messages."""
        if self._round is not None:
            # perhaps in a partition that was looked at before
            self._round.more = True
        self._owner.wake(self)

    def wake_waiting(self) -> None:
        """Wake the channel if it has messages: a subscriber can take more now."""
        for lane in self.lanes:
            if lane.waits:
                self.wake()
                return

    # -- subscribers

    def subscribe(self, subscriber: Subscriber, partition: int | None = None, *, ordered: bool = False) -> None:
        """Read one partition, or all; ``ordered`` makes the channel deliver one message at a time."""
        lanes = self.lanes if partition is None else [self._dispatcher_of(partition)]
        self.subscribers[subscriber] = None if partition is None else lanes[0]
        subscriber.on_credit = self.wake
        if ordered and not self.ordered:
            self.set_ordered(True)
        for lane in lanes:
            lane.add(subscriber)
        self.wake()

    def leave(self, subscriber: Subscriber) -> None:
        """Remove a subscriber: others get its messages, and its deliveries do not count as attempts."""
        if subscriber not in self.subscribers:
            return
        only = self.subscribers.pop(subscriber)
        subscriber.on_credit = None
        for lane in self.lanes if only is None else (only,):
            if lane.has(subscriber):
                lane.remove(subscriber)
        if self.ephemeral and not self.subscribers and not self.deleted:
            self._owner.delete(self)
        self.wake()

    def finish(self, subscriber: Subscriber, partition: int, offsets: NDArray[np.int64]) -> int:
        """Finish the leading offsets that are in flight to the subscriber; return how many.

        If that is not all of them, the offset at this index is not in flight to the subscriber.
        """
        return self._dispatcher_of(partition).finish(subscriber, offsets)

    def requeue(self, subscriber: Subscriber, partition: int, offset: int, delay_us: int, *, now_us: int) -> None:
        """Deliver a message again, to any subscriber, after a delay; Refusal NOT_IN_FLIGHT or TOO_MANY_DEFERRED."""
        self._dispatcher_of(partition).requeue(subscriber, offset, delay_us, now_us)

    def touch(self, subscriber: Subscriber, partition: int, offset: int, *, now_us: int) -> None:
        """Restart a message's time-out, up to ``timeout_max_us`` after its delivery. Raises Refusal NOT_IN_FLIGHT."""
        self._dispatcher_of(partition).touch(subscriber, offset, now_us)

    def is_in_flight(self, partition: int, offset: int) -> bool:
        """Return whether any subscriber has the message."""
        return partition < len(self.lanes) and self.lanes[partition].is_in_flight(offset)

    def _dispatcher_of(self, partition: int) -> PartitionDispatcher:
        self.topic.partition(partition)
        return self.lanes[partition]

    # -- delivering

    def pump(self, now_us: int) -> int | None:
        """Deliver messages; return when to call again: 0 for at once, None if the channel is woken instead."""
        if self.paused or self.skipping or self.deleted:
            return None
        held_us = self._held_since_us
        eager = held_us is not None and now_us - held_us >= HOLD_US
        more = held = False
        lanes = self.lanes
        begin, end = 0, len(lanes)
        if end > LANES_AT_ONCE:
            if self._round is None:
                self._round = PumpRound()
                self._turn += 1
            begin, end = self._round.next_step, min(self._round.next_step + LANES_AT_ONCE, end)
        else:
            self._turn += 1
        for step in range(begin, end):
            lane = lanes[(self._turn + step) % len(lanes)]
            worked = lane.dispatch(now_us, eager=eager)
            more |= worked.more
            held |= worked.held
            self._listen(lane)
        if self._round is not None:
            more |= self._round.more
            held |= self._round.held
            if end < len(lanes):
                self._round = PumpRound(end, more, held)
                return 0
            self._round = None
        if not held:
            self._held_since_us = None
        elif held_us is None:
            self._held_since_us = now_us
        if more:
            return 0
        return None if self._held_since_us is None else self._held_since_us + HOLD_US

    def dispatch(self, partition: int, now_us: int) -> None:
        """Deliver at once as many messages of one partition as its subscribers take."""
        if not (self.paused or self.skipping or self.deleted):
            lane = self._dispatcher_of(partition)
            lane.dispatch(now_us, eager=True)
            self._listen(lane)

    def set_attempts_max(self, attempts_max: int | None) -> None:
        """Set how often a message is delivered before it is given up, unless the topic allows fewer deliveries."""
        self.attempts_max = attempts_max
        for lane in self.lanes:
            lane.attempts_max = attempts_max

    def set_condition(self, condition: GroupCondition | None) -> None:
        """Deliver only the messages that meet a condition, or all for None; subscribers keep messages that
        they have.
        """
        self.condition = condition
        for lane in self.lanes:
            lane.condition = condition

    def set_uncommitted(self, is_uncommitted: bool) -> None:
        """Set whether messages of transactions that are open, or were aborted, are delivered.

        The setting is stored with the next position. A channel that has read such messages waits until they are
        decided.
        """
        if is_uncommitted or all(lane.window.end <= lane.partition.log.last_stable_offset for lane in self.lanes):
            self.is_uncommitted = is_uncommitted
            for lane in self.lanes:
                lane.is_uncommitted = is_uncommitted
                lane.changed = True

    def _listen(self, lane: PartitionDispatcher) -> None:
        if self.subscribers and lane.caught_up and (heard := lane.listen()) is not None:
            lane.partition.read_waiters[lane] = heard

    @property
    def is_in_use(self) -> bool:
        """Whether the channel has time-outs or delays, or a change that is not stored yet."""
        return bool(self.subscribers or self.skipping) or any(lane.is_in_use for lane in self.lanes)

    def expire_in_turns(self, clock: Callable[[], int]) -> Turns[None]:
        """Take back messages whose time-out has passed, and those deferred until now; yield after each partition."""
        if self.skipping:
            self._pass_over()
        for lane in self.lanes:
            lane.expire(clock())
            yield
            if self.deleted:
                return

    # -- operators

    def pause(self) -> None:
        """Deliver nothing until ``unpause``."""
        self._set(paused=True)

    def unpause(self) -> None:
        """Deliver again."""
        self._set(paused=False)

    def skip(self) -> None:
        """Skip all present and new messages until ``unskip``."""
        self._pass_over()
        self._set(skipping=True)

    def unskip(self) -> None:
        """Deliver new messages again."""
        self._set(skipping=False)

    def set_ordered(self, ordered: bool) -> None:
        """Set whether each partition's messages are delivered one at a time, each after the one before is finished."""
        self._set(ordered=ordered)

    def _set(self, *, paused: bool | None = None, skipping: bool | None = None, ordered: bool | None = None) -> None:
        self.paused = self.paused if paused is None else paused
        self.skipping = self.skipping if skipping is None else skipping
        self.ordered = self.ordered if ordered is None else ordered
        for lane in self.lanes:
            lane.ordered = self.ordered
        self._owner.confirm(self)
        self.wake()

    def empty(self) -> int:
        """Discard all messages, in-flight ones included; return how many were never delivered."""
        passed = self._pass_over()
        self._owner.confirm(self)
        return passed

    def _pass_over(self) -> int:
        passed = 0
        for lane in self.lanes:
            passed += lane.skip()
            if delayed_count := self._owner.count_delayed(lane):
                self._owner.omit_delayed(lane)
                self._counts.skipped += delayed_count
                passed += delayed_count
        return passed

    def seek(self, partition: int, offset: int) -> None:
        """Continue at an offset of one partition, before or after the channel's current one."""
        lane = self._dispatcher_of(partition)
        log = lane.partition.log
        lane.seek(min(max(offset, log.first_offset), lane.visible_end))
        self._owner.confirm(self)
        self.wake()

    def statistics(self) -> ChannelStatistics:
        """Return the counts as they are now."""
        for lane in self.lanes:
            lane.follow_retention()
        self._counts.depth = sum(lane.waiting for lane in self.lanes)
        self._counts.in_flight = sum(lane.in_flight for lane in self.lanes)
        self._counts.deferred = sum(lane.deferred + self._owner.count_delayed(lane) for lane in self.lanes)
        self._counts.leaving = sum(lane.leaving for lane in self.lanes)
        return self._counts

    # -- partitions are added and deleted

    def add_lane(self, make: Callable[[ChannelStatistics], PartitionDispatcher]) -> PartitionDispatcher:
        """Add the next partition."""
        lane = make(self._counts)
        lane.ordered = self.ordered
        lane.attempts_max = self.attempts_max
        lane.condition = self.condition
        lane.is_uncommitted = self.is_uncommitted
        self.lanes.append(lane)
        for subscriber, only in self.subscribers.items():
            if only is None:
                lane.add(subscriber)
        return lane

    def drop_lanes(self, count: int) -> None:
        """Keep only the first ``count`` partitions; messages of the others are not in flight any more."""
        for lane in self.lanes[count:]:
            lane.seek(lane.visible_end)
            self._counts.skipped += self._owner.count_delayed(lane)
            lane.close()
        del self.lanes[count:]
