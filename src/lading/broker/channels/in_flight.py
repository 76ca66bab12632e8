"""Messages of one partition of a channel that are in flight: the subscriber of each, its time-out, and redelivery."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...model.errors import Reason, Refusal
from ..core.pending_append import Append
from ..core.topology import Partition
from .out_of_window import DEFERRED, LEAVING, OutOfWindow, OutOfWindowMessage
from .statistics import ChannelStatistics
from .subscriber import Subscriber
from .window import Window
from .window_layout import NEVER_US, WAITING

OUT_OF_WINDOW_MAX: Final = 20_000
"""At most this many messages are set aside: deferred by subscribers, or left by the window when it moves on."""
FEW: Final = 16
RETRY_US: Final = 1_000_000
"""Time after which a failed copy to the dead letter topic is tried again."""

Wake = Callable[[], None]


class GivenUp(NamedTuple):
    """Messages of a partition that a channel no longer delivers, after ``attempts`` deliveries each.

    ``is_rejected``: by a subscriber; otherwise they were delivered as often as the channel allows.
    """

    partition: Partition
    offsets: list[int]
    attempts: int
    is_rejected: bool = False


Exhausted = Callable[[GivenUp], Append | None]
"""Handles messages that are given up; returns the append of their copies to wait for, or None."""


class DispatcherState(NamedTuple):
    """All messages before ``first`` are done, except ``entries``; those from ``first`` to ``end`` are, except
    ``pending``.

    ``entries`` are (offset, when it is due or 0, deliveries so far) of messages that were set aside or tried before.
    """

    first: int
    end: int
    pending: NDArray[np.int64]
    entries: list[tuple[int, int, int]]


class InFlightTracker:
    """Messages that were taken from the log and are not done. They are in the window, or were set aside from it."""

    def __init__(self, partition: Partition, offset: int, statistics: ChannelStatistics, wake: Wake) -> None:
        """Begin without messages: all messages before ``offset`` are done."""
        self.partition = partition
        self.window = Window(offset)
        self.out_of_window = OutOfWindow()
        self.ordered = False
        self.attempts_max: int | None = None
        """The number of deliveries of a message that the channel allows; its topic may allow fewer."""
        self.on_exhausted: Exhausted = _drop_given_up
        self.changed = True
        """Whether the state has changed since it was stored."""
        self.in_flight = 0
        self._statistics = statistics
        self._wake = wake
        self.on_released = wake
        """Called when subscribers can take more messages; the owner may set one that wakes only if messages wait."""
        self._subscribers: dict[int, Subscriber] = {}
        self._again: list[int] = []
        """Messages to be delivered again, by offset."""
        self._again_first = False
        """Whether they are delivered before the waiting messages, because a subscriber that left had them; otherwise
        after.
        """
        self._now_us = 0

    def _hand_over(self, offsets: NDArray[np.int64], subscriber: Subscriber, now_us: int) -> NDArray[np.int64]:
        deadline_us = now_us + subscriber.timeout_us
        if offsets[0] >= self.window.first:
            return self.window.hand_over(offsets, subscriber.number, now_us, deadline_us)
        left_behind = int(np.searchsorted(offsets, self.window.first))
        counted = np.empty(len(offsets), np.int64)
        for at, offset in enumerate(offsets[:left_behind].tolist()):
            entry = self.out_of_window.get(offset)
            attempts = 1 if entry is None else entry.attempts + 1
            self.out_of_window.put(offset, OutOfWindowMessage(subscriber.number, deadline_us, attempts, now_us))
            counted[at] = attempts
        rest = np.ascontiguousarray(offsets[left_behind:])
        counted[left_behind:] = self.window.hand_over(rest, subscriber.number, now_us, deadline_us)
        return counted

    def _set_oldest_aside(self, count: int) -> bool:
        """Set aside the oldest unfinished messages, so that the window can move on; return False if that is
        impossible.
        """
        offsets = self.window.pending()[:count]
        if len(self.out_of_window) + len(offsets) > OUT_OF_WINDOW_MAX:
            return False
        for offset, owner in zip(offsets.tolist(), self.window.owners(offsets).tolist(), strict=True):
            due_us = NEVER_US if owner == WAITING else self.window.deadline_us(offset)
            attempts = self.window.attempts(offset)
            self.out_of_window.put(
                offset, OutOfWindowMessage(owner, due_us, attempts, self.window.last_delivery_us(offset))
            )
        self.window.drop(offsets)
        return True

    @property
    def deferred(self) -> int:
        """Number of messages that are deferred."""
        return self.out_of_window.count(DEFERRED)

    @property
    def leaving(self) -> int:
        """Return the number of messages that the channel gave up and that are not in the dead letter topic yet."""
        return self.out_of_window.count(LEAVING)

    def state(self) -> DispatcherState:
        """Return the state to store: a restart then loses no message and delivers few of them twice."""
        pending = self.window.pending()
        retried = self.window.find_retried().tolist()
        entries = [(offset, 0, self.window.attempts(offset)) for offset in retried]
        for offset, entry in self.out_of_window.items():
            entries.append((offset, _due_after_restart_us(entry), entry.attempts))
        return DispatcherState(self.window.first, self.window.end, pending, entries)

    def restore(self, state: DispatcherState) -> None:
        """Continue from the stored state of a lane; messages that were in flight are delivered again."""
        self.window.clear(state.first)
        if state.end > state.first:
            self.window.extend(state.end, state.pending)
            self._again = state.pending.tolist()
        for offset, due_us, attempts in state.entries:
            if self.window.owner(offset) == WAITING:
                self.window.set_attempts(offset, attempts)
            elif due_us:
                self.out_of_window.put(offset, OutOfWindowMessage(DEFERRED, due_us, attempts))
            else:
                self.out_of_window.put(offset, OutOfWindowMessage(WAITING, NEVER_US, attempts))
                self._again.append(offset)
        heapq.heapify(self._again)
        self.changed = False

    def finish(self, subscriber: Subscriber, offsets: NDArray[np.int64]) -> int:
        """Finish messages up to the first that the subscriber does not have; return how many."""
        at = 0
        while True:
            at = self.window.finish(offsets, at, subscriber.number)
            if at == len(offsets):
                break
            offset = int(offsets[at])
            entry = self.out_of_window.get(offset)
            if entry is None or entry.owner != subscriber.number:
                break
            self.out_of_window.remove(offset)
            at += 1
        if at:
            self._release_messages(subscriber, at)
            subscriber.finished += at
            self._statistics.finished += at
        return at

    @property
    def oldest(self) -> int:
        """The offset of the oldest message that is not done."""
        return min((offset for offset, _ in self.out_of_window.items()), default=self.window.first)

    def require_owned(self, subscriber: Subscriber, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return those of these ascending offsets that are not settled yet; others before the window are done.

        Raises INVALID_OFFSET if some were never delivered, NOT_IN_FLIGHT if another subscriber has some.
        """
        window, number = self.window, subscriber.number
        early, inside = offsets[offsets < window.first], offsets[offsets >= window.first]
        entries = [self.out_of_window.get(offset) for offset in early.tolist()] if len(self.out_of_window) else []
        is_past_end = len(inside) > 0 and inside[-1] >= window.end
        strange = inside[:0] if is_past_end else inside[window.owners(inside) != number]
        if is_past_end or any(window.owner(at) == WAITING and not window.attempts(at) for at in strange.tolist()):
            raise Refusal(
                Reason.INVALID_OFFSET,
                f"some of messages {offsets[0]} to {offsets[-1]} of partition {self.partition} were never delivered; "
                "settle those that were",
            )
        if len(strange) or any(entry is not None and entry.owner != number for entry in entries):
            raise Refusal(
                Reason.NOT_IN_FLIGHT,
                f"some of messages {offsets[0]} to {offsets[-1]} of partition {self.partition} are not with this "
                "client; settle a message once, and before its time-out",
            )
        known = early[[entry is not None for entry in entries]] if entries else early[:0]
        return np.concatenate((known, inside)) if len(known) else inside

    def release(self, subscriber: Subscriber, offsets: NDArray[np.int64]) -> None:
        """Deliver messages of a subscriber again, to any subscriber, before all that wait; these deliveries count."""
        self._again_first = True
        self._release_messages(subscriber, len(offsets))
        subscriber.requeued += len(offsets)
        self._statistics.requeued += len(offsets)
        self._wait(offsets)

    def reject(self, subscriber: Subscriber, offsets: NDArray[np.int64]) -> None:
        """Stop delivering messages of a subscriber; they go to the dead letter topic, if there is one."""
        self._release_messages(subscriber, len(offsets))
        self._give_up(offsets.tolist(), is_rejected=True)

    def renew(self, subscriber: Subscriber, offsets: NDArray[np.int64], now_us: int) -> None:
        """Restart the time-outs of messages of a subscriber."""
        for offset in offsets.tolist():
            self.touch(subscriber, offset, now_us)

    def requeue(self, subscriber: Subscriber, offset: int, delay_us: int, now_us: int) -> None:
        """Deliver a message again, to any subscriber, after a delay (none in an ordered lane)."""
        attempts, _ = self._require_in_flight(subscriber, offset)
        delay_us = 0 if self.ordered else delay_us
        if delay_us > 0 and len(self.out_of_window) >= OUT_OF_WINDOW_MAX and self.out_of_window.get(offset) is None:
            raise Refusal(
                Reason.TOO_MANY_DEFERRED,
                f"partition {self.partition} has {len(self.out_of_window)} deferred messages in this channel already, "
                f"the limit is {OUT_OF_WINDOW_MAX}: requeue message {offset} without a delay, or finish it",
            )
        self._release_messages(subscriber, 1)
        subscriber.requeued += 1
        self._statistics.requeued += 1
        if delay_us > 0:
            self._set_aside([offset], OutOfWindowMessage(DEFERRED, now_us + delay_us, attempts))
        else:
            self._wait(np.array([offset], np.int64))

    def touch(self, subscriber: Subscriber, offset: int, now_us: int) -> None:
        """Restart the delivery timeout, up to the maximum (NSQ TOUCH)."""
        attempts, delivered_us = self._require_in_flight(subscriber, offset)
        deadline_us = min(now_us + subscriber.timeout_us, delivered_us + subscriber.timeout_max_us)
        if self.out_of_window.get(offset) is None:
            self.window.touch(offset, deadline_us)
        else:
            self.out_of_window.put(offset, OutOfWindowMessage(subscriber.number, deadline_us, attempts, delivered_us))

    def _require_in_flight(self, subscriber: Subscriber, offset: int) -> tuple[int, int]:
        """Return the attempts of a message that the subscriber has, and when it was delivered."""
        if self.window.owner(offset) == subscriber.number:
            return self.window.attempts(offset), self.window.last_delivery_us(offset)
        entry = self.out_of_window.get(offset)
        if entry is None or entry.owner != subscriber.number:
            raise Refusal(
                Reason.NOT_IN_FLIGHT,
                f"message {offset} of partition {self.partition} is not with this client: it was finished, requeued, "
                "timed out or never delivered to it; finish or touch a message before its timeout",
            )
        return entry.attempts, entry.delivered_us

    def is_in_flight(self, offset: int) -> bool:
        """Return whether any subscriber has the message."""
        entry = self.out_of_window.get(offset)
        return (self.window.owner(offset) if entry is None else entry.owner) > 0

    def expire(self, now_us: int) -> bool:
        """Take back messages whose time-out has passed, and those deferred until now; return whether there were any."""
        self._now_us = now_us
        if self.window.soonest_us > now_us and not self.out_of_window.is_due(now_us):
            # nearly always the case: a tick checks every partition of every channel
            return False
        late = self.window.find_expired(now_us)
        if len(late):
            for number, count in zip(*np.unique(self.window.owners(late), return_counts=True), strict=True):
                self._count_timed_out(int(number), int(count))
            self._wait(late)
        due = list(self.out_of_window.due(now_us))
        for offset, entry in due:
            if entry.owner > 0:
                self._count_timed_out(entry.owner, 1)
            self._wait_again(offset, entry)
        self._give_up_or_return([offset for offset, _ in due])
        return bool(len(late) or due)

    def _count_timed_out(self, number: int, count: int) -> None:
        subscriber = self._subscribers[number]
        self._release_messages(subscriber, count)
        subscriber.timed_out += count
        self._statistics.timed_out += count

    def _release_messages(self, subscriber: Subscriber, count: int) -> None:
        subscriber.in_flight -= count
        self.in_flight -= count
        self.changed = True
        self.on_released()

    def _wait(self, offsets: NDArray[np.int64]) -> None:
        """Queue messages that were with a subscriber for redelivery."""
        inside = offsets[offsets >= self.window.first]
        self.window.give_back(inside)
        for offset in offsets[offsets < self.window.first].tolist():
            entry = self.out_of_window.get(offset)
            if entry is not None:
                self.out_of_window.wait(offset, entry)
        self._give_up_or_return(offsets.tolist())

    def _give_up_or_return(self, offsets: list[int]) -> None:
        limits = (self.partition.topic.settings.attempts_max, self.attempts_max)
        attempts_max = min((limit for limit in limits if limit is not None), default=None)
        if attempts_max is not None:
            given_up = {offset for offset in offsets if self._count_attempts(offset) >= attempts_max}
            if given_up:
                self._give_up(sorted(given_up))
                offsets = [offset for offset in offsets if offset not in given_up]
        self._return_messages(offsets)

    def _wait_again(self, offset: int, entry: OutOfWindowMessage) -> None:
        """Queue messages that were set aside for redelivery: in the window, if it still has their offsets."""
        if offset >= self.window.first:
            self.window.restore(offset, entry.attempts)
            self.out_of_window.remove(offset)
        else:
            self.out_of_window.wait(offset, entry)

    def _count_attempts(self, offset: int) -> int:
        entry = self.out_of_window.get(offset)
        return self.window.attempts(offset) if entry is None else entry.attempts

    def _return_messages(self, offsets: list[int]) -> None:
        if offsets:
            if len(offsets) < FEW:
                for offset in offsets:
                    heapq.heappush(self._again, offset)
            else:
                self._again += offsets
                heapq.heapify(self._again)
            self.changed = True
            self._wake()

    def _give_up(self, offsets: list[int], *, is_rejected: bool = False) -> None:
        """Handle messages that are not delivered any more: they are done once their copies are appended."""
        given_up = np.array(offsets, np.int64)
        counts = self.window.count_attempts(given_up)
        for at, offset in enumerate(offsets) if len(self.out_of_window) else ():
            entry = self.out_of_window.get(offset)
            counts[at] = counts[at] if entry is None else entry.attempts
        for attempts in np.unique(counts).tolist():
            some = given_up[counts == attempts].tolist()
            try:
                gone = self.on_exhausted(GivenUp(self.partition, some, attempts, is_rejected))
            except Refusal:
                self._set_aside(some, OutOfWindowMessage(DEFERRED, self._now_us + RETRY_US, attempts))
                continue
            if gone is None:
                self._drop(np.array(some, np.int64))
                self._statistics.exhausted += len(some)
            else:
                self._set_aside(some, OutOfWindowMessage(LEAVING, NEVER_US, attempts))
                gone.add_done_callback(partial(self._on_copied, some, attempts))

    def _on_copied(self, offsets: list[int], attempts: int, append: Append) -> None:
        if append.error is None:
            self._complete_leaving(offsets)
        else:
            self._defer_leaving(offsets, attempts)

    def _complete_leaving(self, offsets: list[int]) -> None:
        for offset in offsets:
            entry = self.out_of_window.get(offset)
            if entry is not None and entry.owner == LEAVING:
                self.out_of_window.remove(offset)
                self._statistics.exhausted += 1
                self.changed = True

    def _defer_leaving(self, offsets: list[int], attempts: int) -> None:
        for offset in offsets:
            entry = self.out_of_window.get(offset)
            if entry is not None and entry.owner == LEAVING:
                self.out_of_window.put(offset, OutOfWindowMessage(DEFERRED, self._now_us + RETRY_US, attempts))

    def _set_aside(self, offsets: Sequence[int], entry: OutOfWindowMessage) -> None:
        for offset in offsets:
            self.out_of_window.put(offset, replace(entry))
        inside = [offset for offset in offsets if offset >= self.window.first]
        if inside:
            self.window.drop(np.array(inside, np.int64))
        self.changed = True

    def _drop(self, offsets: NDArray[np.int64]) -> None:
        """Mark these offsets done."""
        if len(offsets):
            inside = offsets[offsets >= self.window.first]
            for offset in offsets.tolist() if len(self.out_of_window) else ():
                if self.out_of_window.get(offset) is not None:
                    self.out_of_window.remove(offset)
            if len(inside):
                self.window.drop(inside)
            self.changed = True


def _due_after_restart_us(entry: OutOfWindowMessage) -> int:
    """Return when a message is due after a restart; at once if its copy to the dead letter topic was being made."""
    return entry.due_us if entry.owner == DEFERRED else int(entry.owner == LEAVING)


def _drop_given_up(given_up: GivenUp) -> None:
    return None
