"""Subscribers of a channel, and the points at which they wait for messages: one for each tag, one for no tag."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.topology import Partition
from .filters import HeaderFilter
from .pages import Page

TIMEOUT_US: Final = 60_000_000
TIMEOUT_MAX_US: Final = 900_000_000
"""Defaults of nsqd: ``-msg-timeout`` and ``-max-msg-timeout``."""

_numbers = count(1)


class Delivery(NamedTuple):
    """Messages for one subscriber: exactly ``offsets`` (rising, all in ``page``) of ``partition``.

    ``attempts`` counts each one's deliveries, this one included. Memory stays valid for as long as it is held.
    """

    partition: Partition
    page: Page
    offsets: NDArray[np.int64]
    attempts: NDArray[np.int64]


class Subscriber:
    """One reader of a channel, such as a connection. It gets at most as many messages as it is ready for.

    ``take`` is called with each delivery, ``closed`` with the reason when the channel is deleted.
    """

    def __init__(
        self,
        take: Callable[[Delivery], None],
        closed: Callable[[str], None] = lambda reason: None,
        *,
        tag: str = "",
        header_filter: HeaderFilter | None = None,
        sample_percent: int = 0,
        timeout_us: int = TIMEOUT_US,
        timeout_max_us: int = TIMEOUT_MAX_US,
        name: str = "",
    ) -> None:
        """``tag`` may be empty; ``sample_percent`` 0 means all messages; ``timeout_us`` applies to each message."""
        self.number = next(_numbers)
        self.on_delivery = take
        self.on_closed = closed
        self.tag = tag
        self.header_filter = header_filter
        self.sample_percent = sample_percent
        self.timeout_us = timeout_us
        self.timeout_max_us = timeout_max_us
        self.name = name
        self.on_credit: Callable[[], None] | None = None
        """Called when the subscriber can take more messages; None while it is not in a channel."""
        self.ready = 0
        self.in_flight = 0
        self.delivered = 0
        self.finished = 0
        self.requeued = 0
        self.timed_out = 0
        self._blocked = False

    @property
    def credit(self) -> int:
        """Return how many more messages the subscriber can take now."""
        return 0 if self._blocked else self.ready - self.in_flight

    def set_ready(self, ready: int) -> None:
        """Set how many messages the subscriber takes at once; 0 for none."""
        self.ready = ready
        self._wake()

    @property
    def blocked(self) -> bool:
        """Whether delivered messages still wait to be sent: the subscriber gets no more while this is true."""
        return self._blocked

    @blocked.setter
    def blocked(self, blocked: bool) -> None:
        self._blocked = blocked
        if not blocked:
            self._wake()

    def _wake(self) -> None:
        if self.on_credit is not None and self.credit > 0:
            self.on_credit()


class TagSubscribers:
    """The waiting subscribers of one tag (tag "": those without a tag), served in turn."""

    __slots__ = ("_turn", "subscribers", "tag")

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.subscribers: list[Subscriber] = []
        self._turn = 0

    def next(self, eager: bool) -> Subscriber | None:
        """Return the next subscriber with credit; one that has used most of its credit counts only if ``eager``."""
        members = self.subscribers
        for step in range(len(members)):
            at = (self._turn + step) % len(members)
            one = members[at]
            credit = one.credit
            if credit > 0 and (eager or 4 * credit >= one.ready):
                self._turn = at + 1
                return one
        return None

    def has_credit(self, *, eager: bool) -> bool:
        """Return whether any subscriber can take more; one that has used most of its credit counts only if
        ``eager``.
        """
        for one in self.subscribers:
            credit = one.credit
            if credit > 0 and (eager or 4 * credit >= one.ready):
                return True
        return False


class SubscribersByTag:
    """The points of one partition at which subscribers wait.

    A tag has a point while a subscriber asks for it (nsq.md 4.2).
    """

    def __init__(self) -> None:
        self._points: dict[str, TagSubscribers] = {"": TagSubscribers("")}
        self.in_order: Sequence[TagSubscribers] = tuple(self._points.values())
        """The point without a tag, then those of ``tags``."""
        self.tags: tuple[str, ...] = ()
        """The tags that subscribers ask for; messages with other tags go to subscribers without a tag."""

    def add(self, subscriber: Subscriber) -> bool:
        """Add a subscriber. Return whether its tag is new."""
        fresh = subscriber.tag not in self._points
        point = self._points.setdefault(subscriber.tag, TagSubscribers(subscriber.tag))
        point.subscribers.append(subscriber)
        return self._refresh_tags(fresh)

    def remove(self, subscriber: Subscriber) -> bool:
        """Remove a subscriber. Return whether its tag was removed too."""
        point = self._points.get(subscriber.tag)
        if point is None or subscriber not in point.subscribers:
            return False
        point.subscribers.remove(subscriber)
        gone = bool(subscriber.tag) and not point.subscribers
        if gone:
            del self._points[subscriber.tag]
        return self._refresh_tags(gone)

    def _refresh_tags(self, tags: bool) -> bool:
        if tags:
            self.in_order = tuple(self._points.values())
            self.tags = tuple(tag for tag in self._points if tag)
        return tags


def select_sample(offsets: NDArray[np.int64], percent: int) -> NDArray[np.bool_]:
    """Return a mask of about ``percent`` of the messages: the same ones in every call."""
    mixed = offsets.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(40)
    return mixed % np.uint64(100) < percent
