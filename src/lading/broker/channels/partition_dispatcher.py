"""A lane: a channel's cursor over one partition, which delivers its messages to subscribers.

Messages are read from the log page by page into queues, one for each tag that subscribers wait for, and delivered from
there to subscribers with credit. A queue without credit holds up only its own messages: the lane reads on for the
others, at most ``LOOKAHEAD_MAX`` messages ahead of the oldest one that is not done.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.callbacks import ignore
from ..core.counters import Counters
from ..core.group_condition import GroupCondition, select_offsets
from ..core.read import ReadResult, newest, read
from ..core.topology import Partition
from .in_flight import InFlightTracker, Wake
from .omissions import Omissions
from .out_of_window import DEFERRED
from .pages import Page, PageSlice, fitting, offsets_in, pages_of, size_of
from .pattern_matches import PatternBudget
from .rules import ChannelRules
from .statistics import ChannelStatistics
from .subscriber import Delivery, Subscriber, SubscribersByTag, TagSubscribers, select_sample
from .tag_queues import TagQueues, has_front

LOOKAHEAD_MAX: Final = 1 << 18
"""Messages that a channel reads ahead of the oldest unfinished one; beyond, the oldest are set aside, or reading
waits.
"""
PAGE_MESSAGES: Final = 8192
PAGE_BYTES: Final = 1 << 20
PASS_MESSAGES: Final = 1 << 14
"""About how many messages are handled in one pass of the event loop."""
DELIVERY_BYTES: Final = 1 << 18
"""About how many bytes a subscriber gets before its credit is checked again."""
DECODED_SHARE: Final = 4
"""Both bounds are divided by this if messages must be decoded for tags or a filter: a pass stays below 2 ms."""
DECODED_BYTES: Final = PAGE_BYTES // DECODED_SHARE
NO_LIMIT: Final = 1 << 62
"""An offset that no log reaches."""
SPILL: Final = 4096
"""Unfinished messages that are set aside together when the window is full, so that not each read has to do it."""
RESOLVE: Final = 2048
"""Messages that are read again at once for redelivery: they may be far apart in the log, each with a read of its
own.
"""


class Worked(NamedTuple):
    """``more``: there is more to deliver at once; ``held``: a moment later, larger runs could be delivered."""

    more: bool
    held: bool


_IDLE: Final = Worked(False, False)


class PartitionDispatcher(InFlightTracker):
    """The dispatcher of one partition of a channel: decides which subscriber gets a message, and when."""

    def __init__(
        self,
        partition: Partition,
        offset: int,
        statistics: ChannelStatistics,
        counters: Counters,
        rules: ChannelRules,
        wake: Wake,
        pattern_budget: PatternBudget,
    ) -> None:
        """Continue at ``offset``. ``wake`` is called when ``dispatch`` should be called."""
        super().__init__(partition, offset, statistics, wake)
        self.points = SubscribersByTag()
        self._counters = counters
        self._rules = rules
        self._pattern_budget = pattern_budget
        self._tag_queues = TagQueues(self.points, rules.tag_header)
        # this dict is never replaced: it is read several times for each message
        self._queues = self._tag_queues.by_tag
        self._filters = 0
        """Number of subscribers with a filter."""
        self._listening = False
        self._kept_from = -1
        self.omissions = Omissions()
        self.is_uncommitted = False
        """Whether messages of transactions that are open, or were aborted, are delivered."""
        self.condition: GroupCondition | None = None
        """The condition on messages; those that do not meet it count as done, and no subscriber gets them."""
        self.read_limit = NO_LIMIT
        """The offset at which the topic's own queue begins, while that is paused."""

    # -- subscribers

    def add(self, subscriber: Subscriber) -> None:
        """Add a subscriber to this partition."""
        self._subscribers[subscriber.number] = subscriber
        self._filters += subscriber.header_filter is not None
        if self.points.add(subscriber):
            self._tag_queues.sort_again()

    def remove(self, subscriber: Subscriber) -> None:
        """Remove a subscriber: its messages wait again, as if they had not been delivered."""
        if self.in_flight:
            self._take_back(subscriber)
        del self._subscribers[subscriber.number]
        self._filters -= subscriber.header_filter is not None
        if self.points.remove(subscriber):
            self._tag_queues.sort_again()

    def _take_back(self, subscriber: Subscriber) -> None:
        mine = self.window.find_owned(subscriber.number)
        self.window.give_back(mine, uncounted=True)
        offsets = mine.tolist()
        for offset, entry in self.out_of_window.items():
            if entry.owner == subscriber.number:
                entry.attempts -= 1
                self.out_of_window.wait(offset, entry)
                offsets.append(offset)
        self._again_first = self._again_first or bool(offsets)
        self._return_messages(offsets)
        subscriber.in_flight -= len(offsets)
        self.in_flight -= len(offsets)

    # -- delivering

    def dispatch(self, now_us: int, *, eager: bool) -> Worked:
        """Deliver as much as possible now, within bounds."""
        self._now_us = now_us
        self.follow_retention()
        points = self.points.in_order
        if not self.waits or not any(point.has_credit(eager=True) for point in points):
            return _IDLE
        weight = self._find_again() if self._again and (self.ordered or self._again_first) else 0
        if self.ordered:
            return self._work_in_order(now_us)
        left = self._messages_max(PASS_MESSAGES)
        while True:
            for point in points:
                left -= self._serve(point, now_us, eager, left)
            left -= weight
            hungry = any(point.has_credit(eager=eager) and not self._queues[point.tag] for point in points)
            if left <= 0 or not hungry or self._lacks_steps():
                break
            weight = self._load()
            if self._again:
                # after the next page: a message that nobody finishes is tried again once a page, and does not hold up
                # the others
                weight += self._find_again()
            if not weight:
                break
        held = (
            self.waits
            and not eager
            and any(
                point.has_credit(eager=True) and (self._queues[point.tag] or self._again or self._unread)
                for point in points
            )
        )
        return Worked(left <= 0 or self._lacks_steps(), held)

    @property
    def waits(self) -> bool:
        """Whether there are messages to deliver."""
        return bool(self._again) or self._unread or any(self._queues.values())

    @property
    def _decodes(self) -> bool:
        """Whether messages must be decoded to choose their subscribers: by tag, header or condition."""
        return bool(self.points.tags) or self._filters > 0 or self.condition is not None

    def _lacks_steps(self) -> bool:
        """Whether the pass has no time left for the patterns of filters."""
        return self._filters > 0 and self._pattern_budget.steps_left <= 0

    def _messages_max(self, messages: int) -> int:
        return max(messages // DECODED_SHARE, 1) if self._decodes else messages

    def _work_in_order(self, now_us: int) -> Worked:
        """Deliver the oldest message, if none is in flight: an ordered lane delivers one message at a time."""
        for _ in range(PASS_MESSAGES):
            if self.in_flight:
                break
            if self._lacks_steps():
                return Worked(True, False)
            tag = self._tag_queues.find_oldest()
            if tag is None:
                if not self._load():
                    break
                continue
            point = next(point for point in self.points.in_order if point.tag == tag)
            subscriber = point.next(True)
            if subscriber is None:
                break
            self._deliver_portion(subscriber, self._queues[tag][0], 1, now_us)
        else:
            return Worked(True, False)
        return Worked(False, False)

    def has(self, subscriber: Subscriber) -> bool:
        """Return whether a subscriber reads this partition."""
        return subscriber.number in self._subscribers

    @property
    def caught_up(self) -> bool:
        """Whether all visible messages were taken from the log."""
        return not self._unread

    @property
    def _unread(self) -> bool:
        # the same as ``visible_end`` without its call: this runs after each request of FINs
        log, end = self.partition.log, self.window.end
        return end < (log.high_watermark if self.is_uncommitted else log.last_stable_offset) and end < self.read_limit

    @property
    def visible_end(self) -> int:
        """The end of the messages that the channel may deliver."""
        log = self.partition.log
        return log.high_watermark if self.is_uncommitted else log.last_stable_offset

    def _serve(self, point: TagSubscribers, now_us: int, eager: bool, left: int) -> int:
        """Deliver from one queue until it is empty or no subscriber takes more; return the messages examined."""
        queue = self._queues[point.tag]
        seen = 0
        while seen < left and has_front(queue) and (subscriber := point.next(eager)) is not None:
            portion = queue[0]
            count = min(subscriber.credit, len(portion))
            members = len(point.subscribers)
            if members > 1 and len(queue) == 1 and not self._unread:
                # share the rest, so that one subscriber does not get all of it while others wait
                count = min(count, -(-len(portion) // members))
            before = len(portion)
            self._deliver_portion(subscriber, portion, count, now_us)
            seen += before - len(portion)
            if self._filters and self._pattern_budget.steps_left <= 0:
                break
        return seen

    def _deliver_portion(self, subscriber: Subscriber, portion: PageSlice, count: int, now_us: int) -> None:
        page = portion.page
        if self._remove_hidden(portion):
            return
        if count > 1 and count * page.message_bytes > DELIVERY_BYTES:
            count = max(DELIVERY_BYTES // page.message_bytes, 1)
        if subscriber.header_filter is None and not subscriber.sample_percent and self.condition is None:
            offsets = portion.take(count)
        else:
            offsets = self._take_matching(subscriber, portion, count)
        if not len(offsets):
            return
        attempts = self._hand_over(offsets, subscriber, now_us)
        given = len(offsets)
        subscriber.in_flight += given
        subscriber.delivered += given
        self.in_flight += given
        self.changed = True
        self._statistics.delivered += given
        self._counters.messages_out += given
        subscriber.on_delivery(Delivery(self.partition, page, offsets, attempts))

    def _remove_hidden(self, portion: PageSlice) -> bool:
        """Remove messages that were hidden after the page was read; return whether none are left."""
        rest = portion.rest
        for first, end, _ in self.partition.log.unavailable_ranges(int(rest[0]), int(rest[-1]) + 1):
            hidden = portion.remove(first, end)
            self._statistics.unavailable += len(hidden)
            self._drop(hidden)
        return not len(portion)

    def _take_matching(self, subscriber: Subscriber, portion: PageSlice, count: int) -> NDArray[np.int64]:
        """Return up to ``count`` messages that pass the subscriber's filter; messages before these that do not pass are
        done.
        """
        rest = portion.rest[:PAGE_MESSAGES]
        mask = np.ones(len(rest), np.bool_)
        if self.condition is not None:
            mask = self._find_conforming(portion.page, rest, self.condition)
        if subscriber.header_filter is not None:
            places = np.searchsorted(portion.page.offsets, rest)
            matched = subscriber.header_filter.match(portion.page, places, self._pattern_budget)
            mask, rest = mask[: len(matched)] & matched, rest[: len(matched)]
        if subscriber.sample_percent:
            mask &= select_sample(rest, subscriber.sample_percent)
        wanted = np.flatnonzero(mask)[:count]
        looked_at = int(wanted[-1]) + 1 if len(wanted) == count else len(rest)
        taken = portion.take(looked_at)
        passed = taken[~mask[:looked_at]]
        self._statistics.filtered += len(passed)
        self._drop(passed)
        return taken[mask[:looked_at]]

    def _find_conforming(self, page: Page, offsets: NDArray[np.int64], condition: GroupCondition) -> NDArray[np.bool_]:
        """Return for each message of a page whether it meets the condition."""
        if condition not in page.columns:
            found = condition.find_filter(self.partition.topic)
            page.columns[condition] = select_offsets(page.run, page.first, page.end, found)
        selected = page.columns[condition]
        return np.ones(len(offsets), np.bool_) if selected is None else np.isin(offsets, selected)

    # -- reading

    def _load(self) -> int:
        """Move the next messages of the log into the queues; return their weight, 0 without messages."""
        window = self.window
        if not self._unread or (len(window) >= LOOKAHEAD_MAX and not self._set_oldest_aside(SPILL)):
            return 0
        before = window.end
        reading, pages = self._read_pages(before, self._messages_max(PAGE_MESSAGES))
        if (end := reading.end_offset) > self.read_limit:
            reading, pages = self._pages_before_limit(before, pages)
            end = self.read_limit
        if end <= before:
            return 0
        if end - window.first > LOOKAHEAD_MAX + PAGE_MESSAGES:
            if len(window) and not self._set_oldest_aside(len(window)):
                return 0
            pages, end = self._take_near(before, pages, end)
        present = offsets_in(pages)
        self._statistics.unavailable += end - before - len(present)
        if reading.damaged:
            damaged = sum(min(stop, end) - first for first, stop in reading.damaged if first < end)
            self._statistics.lost += damaged
            self._statistics.unavailable -= damaged
        if len(self.omissions.messages) and self.omissions.count(before, end):
            return self._load_without_omissions(end, pages, present)
        if not len(window) and len(present):
            window.clear(int(present[0]))
        window.extend(end, present)
        for page in pages:
            self._tag_queues.add(page, page.offsets)
        self.changed = True
        return self._weigh(pages, end - before)

    def _pages_before_limit(self, offset: int, pages: Sequence[Page]) -> tuple[ReadResult, list[Page]]:
        """Read again, only the messages before the limit; a range without any ends at the limit."""
        count = int(np.searchsorted(offsets_in(pages), self.read_limit))
        if count:
            return self._read_pages(offset, count)
        return ReadResult([], offset, self.read_limit, 0, 0), []

    def _take_near(self, offset: int, pages: list[Page], end: int) -> tuple[list[Page], int]:
        """Begin the empty window at the first message; return pages with no more messages than it can hold, and their
        end.

        The window has a row for each offset, and compaction leaves few messages of many offsets.
        """
        present = offsets_in(pages)
        if not len(present):
            return pages, end
        first = int(present[0])
        self.window.clear(first)
        if end - first <= LOOKAHEAD_MAX:
            return pages, end
        count = int(np.searchsorted(present, first + LOOKAHEAD_MAX))
        if count < len(present):
            _, pages = self._read_pages(offset, count)
        return pages, int(offsets_in(pages)[-1]) + 1

    def _load_without_omissions(self, end: int, pages: Sequence[Page], present: NDArray[np.int64]) -> int:
        """Queue the messages of the pages, except those that the channel skips."""
        before = self.window.end
        kept = self.omissions.take_out(present) if len(present) else present
        # skipped messages were counted when the channel was emptied
        self._statistics.unavailable -= self.omissions.count(before, end) - (len(present) - len(kept))
        self.window.extend(end, kept)
        for page in pages:
            offsets = np.intersect1d(page.offsets, kept, assume_unique=True)
            if len(offsets):
                self._tag_queues.add(page, offsets)
        self.omissions.forget_before(end)
        self.changed = True
        return self._weigh(pages, end - before)

    def _weigh(self, pages: Sequence[Page], messages: int) -> int:
        decoded = self._messages_max(PASS_MESSAGES) * size_of(pages) // DECODED_BYTES if self._decodes else 0
        return max(messages if self._decodes else messages // 4, decoded, 1)

    def _read_pages(self, offset: int, messages_max: int) -> tuple[ReadResult, list[Page]]:
        """Return the pages from an offset on; if they have to be decoded, no more than takes a moment."""
        place, counters = self.partition, self._counters
        kind = self._rules.uncommitted_reader if self.is_uncommitted else self._rules.reader
        reading = newest(place, offset, kind, messages_max, counters) or read(
            place, offset, reader=kind, max_messages=messages_max, max_bytes=PAGE_BYTES, counters=counters
        )
        self._counters.messages_out -= reading.count
        pages = pages_of(reading)
        if self._decodes and (fits := fitting(pages, DECODED_BYTES)) < reading.count:
            return self._read_pages(offset, fits)
        return reading, pages

    def _find_again(self) -> int:
        """Queue messages for redelivery with their pages, as many as a pass handles; return their weight."""
        taken = {heapq.heappop(self._again) for _ in range(min(len(self._again), RESOLVE))}
        offsets = np.array(sorted(taken), np.int64)
        found: list[tuple[str, PageSlice]] = []
        at = weight = 0
        while at < len(offsets) and weight < self._messages_max(PASS_MESSAGES):
            reading, pages = self._read_pages(int(offsets[at]), min(int(offsets[-1] - offsets[at]) + 1, PAGE_MESSAGES))
            stop = max(int(np.searchsorted(offsets, reading.end_offset)), at + 1)
            wanted, present = offsets[at:stop], []
            for page in pages:
                mine = np.intersect1d(wanted, page.offsets, assume_unique=True)
                if len(mine):
                    found += self._tag_queues.sort_by_tag(page, mine)
                    present.append(mine)
            gone = np.setdiff1d(wanted, np.concatenate(present), assume_unique=True) if present else wanted
            lost = int(np.count_nonzero(gone < self.partition.log.first_offset))
            self._statistics.lost += lost
            self._statistics.unavailable += len(gone) - lost
            # hidden, damaged or deleted meanwhile
            self._drop(gone)
            weight += self._weigh(pages, stop - at)
            at = stop
        for offset in offsets[at:].tolist():
            heapq.heappush(self._again, offset)
        if self.ordered or self._again_first:
            self._tag_queues.put_in_front(found)
            self._again_first = bool(self._again)
        else:
            self._tag_queues.put_at_end(found)
        return weight

    def follow_retention(self) -> None:
        """Continue at the first message that the log has; waiting messages before it are counted as lost."""
        first = self.partition.log.first_offset
        if first == self._kept_from:
            return
        self._kept_from = first
        lost = self._tag_queues.drop_before(first)
        while self._again and self._again[0] < first:
            lost.append(heapq.heappop(self._again))
        lost += [offset for offset, entry in self.out_of_window.items() if offset < first and entry.owner == DEFERRED]
        if lost:
            self._drop(np.array(sorted(set(lost)), np.int64))
        unread = max(first - self.window.end, 0)
        self._statistics.lost += len(lost) + unread
        if unread:
            if len(self.window):
                self._set_oldest_aside(len(self.window))
            self.window.extend(first, np.empty(0, np.int64))
        self.changed = self.changed or bool(lost or unread)

    # -- calls from outside

    @property
    def waiting(self) -> int:
        """Number of messages to be delivered, for the first time or again, as far as offsets show."""
        first, end = self.window.end, self._readable_end
        unread = max(end - first, 0)
        if unread and len(self.omissions.messages):
            unread -= self.omissions.count(first, end)
        return self._tag_queues.count() + len(self._again) + unread

    @property
    def _readable_end(self) -> int:
        return min(self.visible_end, self.read_limit)

    def seek(self, offset: int) -> None:
        """Drop all state and continue at ``offset``; subscribers lose their messages in flight."""
        undelivered = self.waiting + self.deferred + self.leaving
        self._statistics.discarded += self.in_flight
        pending = self.window.pending()
        owners = self.window.owners(pending).tolist() + [entry.owner for _, entry in self.out_of_window.items()]
        for number, count in Counter(owner for owner in owners if owner > 0).items():
            self._release_messages(self._subscribers[number], count)
        self.out_of_window.clear()
        self.window.clear(offset)
        self._again.clear()
        self._tag_queues.clear()
        self.changed = True
        self._statistics.skipped += max(undelivered - self.waiting, 0)

    @property
    def is_in_use(self) -> bool:
        """Whether a subscriber has a message, a message is set aside, or the state has changed since it was stored."""
        return bool(self.in_flight or len(self.out_of_window) or self.changed)

    def skip(self) -> int:
        """Continue at the end of the visible messages; return how many were skipped undelivered."""
        if not len(self.window) and not len(self.out_of_window) and not self._unread:
            return 0
        passed = self.waiting + self.deferred
        self.seek(max(self._readable_end, self.window.end))
        self.omissions.forget_before(self.window.first)
        return passed

    def omit(self, first: int, end: int) -> None:
        """Skip messages that are not read yet."""
        self.omissions.omit(max(first, self.window.end), end)

    def expire(self, now_us: int) -> bool:
        """Take back messages whose time-out has passed, and those deferred until now; return whether there were any."""
        self.follow_retention()
        return super().expire(now_us)

    def listen(self) -> Callable[[], None] | None:
        """Return a callback for new visible messages, to be registered at the partition; None if it is registered
        already.
        """
        if self._listening:
            return None
        self._listening = True
        return self._on_visible

    def _on_visible(self) -> None:
        self._listening = False
        self._wake()

    def close(self) -> None:
        """Drop the references to the channel, and those from the partition: a deleted lane is freed at once.

        Otherwise the log's files would stay open until the collector runs (``endpoints/base/garbage``).
        """
        self._wake = self.on_released = ignore
        self.on_exhausted = ignore
        self.partition.read_waiters.pop(self, None)
