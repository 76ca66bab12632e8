"""Messages after a channel's position that it skips because it was emptied.

A channel that is emptied drops delayed messages too, which have no offset in the topic's log yet. They are named by
their offsets among the delayed messages until they enter the log, and by their offsets there afterwards.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...log.intervals import Intervals
from ...model.ranges import subtract_ranges

_COUNT: Final = struct.Struct("<I")
OMITTED: Final = 0
"""The value stored for every range."""


class Omissions:
    """The messages that one channel omits in one partition."""

    __slots__ = ("changed", "delayed", "messages")

    def __init__(self) -> None:
        self.messages = Intervals()
        """Offsets in the partition's log."""
        self.delayed = Intervals()
        """Offsets among the partition's delayed messages."""
        self.changed = False
        """Whether the omissions have changed since they were stored."""

    def omit(self, first: int, end: int) -> None:
        """Skip messages of the log."""
        self.messages.set(first, end, OMITTED)
        self.changed = True

    def omit_delayed(self, first: int, end: int) -> None:
        """Skip delayed messages, now and also in the log once their delay is over."""
        if self.delayed.missing(first, end):
            self.delayed.set(first, end, OMITTED)
            self.changed = True

    def has_delayed(self, offset: int) -> bool:
        """Return whether a delayed message is skipped."""
        return not self.delayed.missing(offset, offset + 1)

    def count(self, first: int, end: int) -> int:
        """Return how many messages of the log between two offsets are skipped."""
        return sum(stop - start for start, stop, _ in self.messages.overlapping(first, end))

    def take_out(self, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return rising offsets without the skipped ones."""
        for first, end, _ in self.messages.overlapping(int(offsets[0]), int(offsets[-1]) + 1):
            offsets = offsets[(offsets < first) | (offsets >= end)]
            if not len(offsets):
                break
        return offsets

    def forget_before(self, offset: int) -> None:
        """Remove messages of the log that the channel has passed."""
        if len(self.messages) and self.messages.all()[0][0] < offset:
            self.messages.set(0, offset, None)
            self.changed = True

    def copy(self) -> Omissions:
        """Return a copy for another channel, marked to be stored."""
        return decode_omissions(self.encode())

    def encode(self) -> bytes:
        """Return the bytes to store: the number of ranges of the log, those ranges, then the ranges of
        delayed messages.
        """
        messages, delayed = ([(first, end) for first, end, _ in some.all()] for some in (self.messages, self.delayed))
        return _COUNT.pack(len(messages)) + np.array([*messages, *delayed], "<i8").tobytes()


def decode_omissions(extra: bytes, messages_end: int | None = None, delayed_end: int | None = None) -> Omissions:
    """Return the stored omissions, without offsets from the given ends on: the log lost them, and other messages have
    them now.
    """
    omissions = Omissions()
    if len(extra) < _COUNT.size or (len(extra) - _COUNT.size) % 16:
        return omissions
    ranges = np.frombuffer(extra, "<i8", offset=_COUNT.size).reshape(-1, 2).tolist()
    count = _COUNT.unpack_from(extra)[0]
    for some, target, limit in (
        (ranges[:count], omissions.messages, messages_end),
        (ranges[count:], omissions.delayed, delayed_end),
    ):
        for first, end in some:
            target.set(first, end if limit is None else min(end, limit), OMITTED)
    omissions.changed = bool(ranges)
    return omissions


def list_kept(omissions: Omissions, first: int, end: int) -> list[tuple[int, int]]:
    """Return the parts of a range of the log that are not skipped."""
    return subtract_ranges(omissions.messages.overlapping(first, end), first, end)
