"""The window of a channel over one partition: the messages that were taken from the log and are not all done.

Owner, deadline and attempts of each are in NumPy arrays, a ring by offset, so that neither a delivery nor a burst of
finished messages costs a Python object per message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...kernels import engine
from . import fallback
from .window_layout import DONE, NEVER_US, WAITING

KERNEL_MODULE: Final = "lading.broker.channels.kernels"
SLOTS_MIN: Final = 1 << 8
"""A ring begins with this few slots, since a start creates thousands of rings; it grows with the messages in flight."""
SLOTS_KEPT: Final = 1 << 16
"""A ring that is larger than this is freed when it becomes empty."""
LATE_MAX: Final = 8192
"""At most this many time-outs are handled at once."""


class Window:
    """Messages with ``first`` <= offset < ``end``; all messages before ``first`` are done, or set aside elsewhere."""

    __slots__ = ("_attempts", "_deadlines", "_delivered", "_owners", "end", "first", "soonest_us")

    def __init__(self, offset: int) -> None:
        self.first = offset
        self.end = offset
        self.soonest_us = NEVER_US
        """A lower bound of the deadlines of all delivered messages."""
        self._resize(SLOTS_MIN)

    def _resize(self, slots: int) -> None:
        self._owners = np.empty(slots, np.int32)
        self._deadlines = np.empty(slots, np.int64)
        self._delivered = np.empty(slots, np.int64)
        self._attempts = np.empty(slots, np.uint16)

    def __len__(self) -> int:
        return self.end - self.first

    def clear(self, offset: int) -> None:
        """Drop all messages and continue at ``offset``."""
        self.first = self.end = offset
        self.soonest_us = NEVER_US
        if len(self._owners) > SLOTS_KEPT:
            self._resize(SLOTS_MIN)

    def extend(self, end: int, present: NDArray[np.int64]) -> None:
        """Extend the window to ``end``: messages ``present`` wait, all other offsets count as done (no messages have
        them).
        """
        if self.first == self.end and not len(present):
            self.clear(end)
            return
        self._make_room(end - self.first)
        if len(present) == 1 and end - self.end == 1:
            slot = self.end & self._mask
            self._owners[slot] = WAITING
            self._attempts[slot] = 0
            self.end = end
            return
        slots = np.arange(self.end, end) & self._mask
        if len(present) < len(slots):
            self._owners[slots] = DONE
            slots = present & self._mask
        self._owners[slots] = WAITING
        self._attempts[slots] = 0
        self.end = end
        self.advance()

    def _make_room(self, size: int) -> None:
        slots = len(self._owners)
        if size <= slots:
            return
        before: list[NDArray[Any]] = [self._owners, self._deadlines, self._delivered, self._attempts]
        offsets = np.arange(self.first, self.end)
        taken = offsets & (slots - 1)
        while slots < size:
            slots *= 2
        self._resize(slots)
        after: list[NDArray[Any]] = [self._owners, self._deadlines, self._delivered, self._attempts]
        places = offsets & (slots - 1)
        for old, new in zip(before, after, strict=True):
            new[places] = old[taken]

    @property
    def _mask(self) -> int:
        return len(self._owners) - 1

    def owner(self, offset: int) -> int:
        """Return a message's owner: a subscriber's number, ``WAITING`` or ``DONE``; ``DONE`` outside the window."""
        return int(self._owners[offset & self._mask]) if self.first <= offset < self.end else DONE

    def attempts(self, offset: int) -> int:
        """Return how often a message in the window was delivered."""
        return int(self._attempts[offset & self._mask])

    def count_attempts(self, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how often each of some messages was delivered; undefined for those outside the window."""
        counts: NDArray[np.int64] = self._attempts[offsets & self._mask].astype(np.int64)
        return counts

    def last_delivery_us(self, offset: int) -> int:
        """Return when a message in the window was last delivered."""
        return int(self._delivered[offset & self._mask])

    def deadline_us(self, offset: int) -> int:
        """Return the time until which a message of the window stays with its owner."""
        return int(self._deadlines[offset & self._mask])

    def restore(self, offset: int, attempts: int) -> None:
        """Put a message that was set aside back into the window; it waits there."""
        self._owners[offset & self._mask] = WAITING
        self._attempts[offset & self._mask] = attempts

    def set_attempts(self, offset: int, attempts: int) -> None:
        """Correct the number of deliveries of a message in the window."""
        self._attempts[offset & self._mask] = attempts

    def hand_over(self, offsets: NDArray[np.int64], owner: int, now_us: int, deadline_us: int) -> NDArray[np.int64]:
        """Give waiting messages of the window to a subscriber; return which attempt this is for each."""
        counted = np.empty(len(offsets), np.int64)
        self._choose_kernels(len(offsets)).hand_over(
            offsets,
            owner,
            now_us,
            deadline_us,
            self._owners,
            self._deadlines,
            self._delivered,
            self._attempts,
            counted,
        )
        self.soonest_us = min(self.soonest_us, deadline_us)
        return counted

    def finish(self, offsets: NDArray[np.int64], start: int, owner: int) -> int:
        """Finish ``offsets[start:]`` up to the first message that ``owner`` does not have; return its index."""
        at: int
        at, self.first = self._choose_kernels(len(offsets) - start).finish(
            offsets, start, self._owners, self.first, self.end, owner
        )
        return at

    def touch(self, offset: int, deadline_us: int) -> None:
        """Set a later deadline for a message that a subscriber has."""
        self._deadlines[offset & self._mask] = deadline_us

    def give_back(self, offsets: NDArray[np.int64], *, uncounted: bool = False) -> None:
        """Have delivered messages wait again; if ``uncounted``, the last delivery does not count."""
        slots = offsets & self._mask
        self._owners[slots] = WAITING
        if uncounted:
            self._attempts[slots] -= 1

    def drop(self, offsets: NDArray[np.int64]) -> None:
        """Mark these offsets done."""
        self._owners[offsets & self._mask] = DONE
        self.advance()

    def advance(self) -> None:
        """Remove the done messages at the front."""
        _, self.first = self._choose_kernels(0).finish(_NOTHING, 0, self._owners, self.first, self.end, 0)

    def find_expired(self, now_us: int) -> NDArray[np.int64]:
        """Return offsets whose deadline has passed, at most ``LATE_MAX`` at once."""
        if self.soonest_us > now_us:
            return _NOTHING
        late = np.empty(min(len(self), LATE_MAX), np.int64)
        found, self.soonest_us = self._choose_kernels(len(self)).expire(
            self.first, self.end, self._owners, self._deadlines, now_us, late
        )
        return late[:found]

    def find_owned(self, owner: int) -> NDArray[np.int64]:
        """Return the offsets that are in flight to a subscriber."""
        return self._select_offsets(lambda slots: self._owners[slots] == owner)

    def pending(self) -> NDArray[np.int64]:
        """Return the offsets that are not done."""
        return self._select_offsets(lambda slots: self._owners[slots] != DONE)

    def find_retried(self) -> NDArray[np.int64]:
        """Return the offsets that are not done and were delivered before."""
        return self._select_offsets(lambda slots: (self._owners[slots] != DONE) & (self._attempts[slots] > 0))

    def _select_offsets(self, condition: Callable[[NDArray[np.int64]], NDArray[np.bool_]]) -> NDArray[np.int64]:
        offsets = np.arange(self.first, self.end)
        found: NDArray[np.int64] = offsets[condition(offsets & self._mask)]
        return found

    def owners(self, offsets: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the owners of messages of the window."""
        found: NDArray[np.int32] = self._owners[offsets & self._mask]
        return found

    def _choose_kernels(self, messages: int) -> Any:
        return engine.select(KERNEL_MODULE, fallback, 8 * messages)


_NOTHING: Final[NDArray[np.int64]] = np.empty(0, np.int64)
