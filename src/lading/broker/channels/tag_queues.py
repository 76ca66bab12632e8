"""Queues by tag: messages that were read from a partition and wait for credit, one queue for each waiting point."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from .pages import Page, PageSlice
from .subscriber import SubscribersByTag


class TagQueues:
    """The queues of one partition; ``points`` says which tags have one."""

    def __init__(self, points: SubscribersByTag, tag_header: str) -> None:
        self._points = points
        self._tag_header = tag_header
        self.by_tag: dict[str, deque[PageSlice]] = {"": deque()}
        """The queues by tag; the dict is never replaced, and slices in it may be empty."""

    def add(self, page: Page, offsets: NDArray[np.int64]) -> None:
        """Queue messages of a page after all others."""
        for tag, portion in self.sort_by_tag(page, offsets):
            self.by_tag[tag].append(portion)

    def put_in_front(self, portions: Sequence[tuple[str, PageSlice]]) -> None:
        """Queue the messages that ``sort_by_tag`` returned before all others."""
        for tag, portion in reversed(portions):
            self.by_tag[tag].appendleft(portion)

    def put_at_end(self, portions: Sequence[tuple[str, PageSlice]]) -> None:
        """Queue the messages that ``sort_by_tag`` returned after all others."""
        for tag, portion in portions:
            self.by_tag[tag].append(portion)

    def sort_by_tag(self, page: Page, offsets: NDArray[np.int64]) -> Iterable[tuple[str, PageSlice]]:
        """Return messages of a page by the tag of the queue that they belong in."""
        tags = self._points.tags
        if not tags:
            return (("", PageSlice(page, offsets)),)
        codes = page.find_tags(self._tag_header, tags)
        if len(offsets) < len(page.offsets):
            codes = codes[np.searchsorted(page.offsets, offsets)]
        sorted_out = ((tag, offsets[codes == number]) for number, tag in enumerate(("", *tags)))
        return [(tag, PageSlice(page, mine)) for tag, mine in sorted_out if len(mine)]

    def sort_again(self) -> None:
        """Sort the waiting messages again, because subscribers now have other tags."""
        by_page: dict[Page, list[NDArray[np.int64]]] = {}
        for queue in self.by_tag.values():
            for portion in queue:
                if len(portion):
                    by_page.setdefault(portion.page, []).append(portion.rest)
        self.by_tag.clear()
        self.by_tag.update((point.tag, deque()) for point in self._points.in_order)
        for page in sorted(by_page, key=lambda page: page.first):
            self.add(page, np.sort(np.concatenate(by_page[page])))

    def find_oldest(self) -> str | None:
        """Return the tag whose queue has the oldest message; None if all are empty."""
        waiting = [(queue[0].rest[0], tag) for tag, queue in self.by_tag.items() if has_front(queue)]
        return min(waiting)[1] if waiting else None

    def drop_before(self, first: int) -> list[int]:
        """Remove messages before an offset and return their number."""
        dropped: list[int] = []
        for queue in self.by_tag.values():
            for portion in queue:
                if len(portion) and portion.rest[0] < first:
                    dropped += portion.drop_before(first).tolist()
        return dropped

    def count(self) -> int:
        """Return how many messages wait."""
        return sum(len(portion) for queue in self.by_tag.values() for portion in queue)

    def clear(self) -> None:
        """Drop all waiting messages."""
        for queue in self.by_tag.values():
            queue.clear()


def has_front(queue: deque[PageSlice]) -> bool:
    """Return whether a queue has messages, after removing empty slices from its front."""
    while queue and not len(queue[0]):
        queue.popleft()
    return bool(queue)
