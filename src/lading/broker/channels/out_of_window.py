"""Messages that a channel has set aside: deferred by a subscriber, or unfinished when the window moved on."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from .window_layout import NEVER_US, WAITING

DEFERRED: Final = -3
"""Owner of a message that is deferred."""
LEAVING: Final = -4
"""Owner of an exhausted message whose copy is being appended."""


@dataclass(slots=True)
class OutOfWindowMessage:
    """One message: ``owner`` is a subscriber's number, ``WAITING``, ``DEFERRED`` or ``LEAVING``.

    ``due_us``: when it is delivered again, after its delay or its owner's time-out.
    """

    owner: int
    due_us: int
    attempts: int
    delivered_us: int = 0


class OutOfWindow:
    """Entries by offset, with an order by the time at which they are due."""

    __slots__ = ("_due", "_entries")

    def __init__(self) -> None:
        self._entries: dict[int, OutOfWindowMessage] = {}
        self._due: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, offset: int) -> OutOfWindowMessage | None:
        """Return the entry of a message."""
        return self._entries.get(offset)

    def items(self) -> Iterator[tuple[int, OutOfWindowMessage]]:
        """Return the entries of all messages."""
        return iter(self._entries.items())

    def put(self, offset: int, entry: OutOfWindowMessage) -> None:
        """Set a message aside, or replace its entry."""
        self._entries[offset] = entry
        if entry.due_us != NEVER_US:
            heapq.heappush(self._due, (entry.due_us, offset))

    def wait(self, offset: int, entry: OutOfWindowMessage) -> None:
        """Mark the message ready for redelivery."""
        entry.owner, entry.due_us = WAITING, NEVER_US

    def remove(self, offset: int) -> None:
        """Forget a message that is done."""
        del self._entries[offset]
        if not self._entries:
            self._due.clear()

    def clear(self) -> None:
        """Remove all entries."""
        self._entries.clear()
        self._due.clear()

    def is_due(self, now_us: int) -> bool:
        """Return whether a message may be due."""
        return bool(self._due) and self._due[0][0] <= now_us

    def due(self, now_us: int) -> Iterator[tuple[int, OutOfWindowMessage]]:
        """Return messages that are due; each is returned once."""
        while self._due and self._due[0][0] <= now_us:
            due_us, offset = heapq.heappop(self._due)
            entry = self._entries.get(offset)
            # a message that was touched, finished or given back meanwhile has another due time
            if entry is not None and entry.due_us == due_us:
                entry.due_us = NEVER_US
                yield offset, entry

    def count(self, owner: int) -> int:
        """Return how many messages this owner has."""
        return sum(entry.owner == owner for entry in self._entries.values())
