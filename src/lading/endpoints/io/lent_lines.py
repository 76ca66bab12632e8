"""When a socket is lent, and the lines of one endpoint's lent sockets: the bytes that their requests begin with."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

import numpy as np

from ...kernels.arrays import Bytes, Longs
from ...kernels.lent_layout import LINE_BYTES_MAX

M = TypeVar("M")

LEND_AFTER: Final = 2
"""Requests before a socket is lent: lending it and taking it back cost about as much as a request.

With 8 of them, 1,000 connections that each sent a few requests a second were served one by one for seconds.
"""
LEND_AFTER_MAX: Final = 1024
"""The number doubles after each short loan, up to this."""
LINES_MAX: Final = 4096
"""At most this many different lines of lent sockets at a time; sockets with further lines are not lent."""


class LoanCountdown:
    """The requests of one connection until its socket may be lent: more of them after each loan that was not used."""

    __slots__ = ("_next_count", "requests_left")

    def __init__(self) -> None:
        # sessions subtract from it and compare it with 0 themselves: it is done for each request, and saves a call
        self.requests_left = self._next_count = LEND_AFTER
        """Number of further requests like the last one before the socket may be lent."""

    def restart(self) -> None:
        """Start counting anew, as the socket is lent now; each time twice as many, until a loan is used."""
        self.requests_left = self._next_count
        self._next_count = min(2 * self._next_count, LEND_AFTER_MAX)

    def note_used(self) -> None:
        """Note that requests were taken from the lent socket: the next loan begins after as few as the first."""
        self._next_count = LEND_AFTER


class _Line(Generic[M]):
    __slots__ = ("key", "meaning", "sockets_count")

    def __init__(self, key: Hashable, meaning: M) -> None:
        self.key, self.meaning = key, meaning
        self.sockets_count = 0


class LentLines(Generic[M]):
    """Lines by number, each with its meaning, for as long as a lent socket has it. Threads: event loop only."""

    def __init__(self) -> None:
        self.text: Bytes = np.zeros(0, np.uint8)
        """Room of LINE_BYTES_MAX for each line."""
        self.sizes: Longs = np.zeros(0, np.int64)
        self._numbers: dict[Hashable, int] = {}
        self._lines: list[_Line[M] | None] = []
        self._free: list[int] = []

    def add(self, key: Hashable, line: bytes, meaning: M) -> int | None:
        """Return the number of a line for one more socket; None if there are too many lines, or it is too long.

        ``key`` distinguishes lines of the same bytes with another meaning, as those of another user. The line means
        ``meaning`` from now on, for all of its sockets.
        """
        number = self._numbers.get(key)
        if number is None:
            if len(line) > LINE_BYTES_MAX or len(self._numbers) >= LINES_MAX:
                return None
            number = self._numbers[key] = self._insert(_Line(key, meaning), line)
        found = self._lines[number]
        assert found is not None
        found.sockets_count += 1
        found.meaning = meaning
        return number

    def _insert(self, fresh: _Line[M], line: bytes) -> int:
        if not self._free:
            begun = len(self._lines)
            count = max(2 * begun, 64)
            self._lines += [None] * (count - begun)
            self._free += range(count - 1, begun - 1, -1)
            self.text = np.concatenate((self.text, np.zeros((count - begun) * LINE_BYTES_MAX, np.uint8)))
            self.sizes = np.concatenate((self.sizes, np.zeros(count - begun, np.int64)))
        number = self._free.pop()
        at = number * LINE_BYTES_MAX
        self._lines[number] = fresh
        self.text[at : at + len(line)] = np.frombuffer(line, np.uint8)
        self.sizes[number] = len(line)
        return number

    def find(self, number: int) -> M | None:
        """Return what a line means, None if no socket has it any more."""
        found = self._lines[number]
        return None if found is None else found.meaning

    def release(self, number: int) -> None:
        """Note that a socket with this line has been taken back."""
        found = self._lines[number]
        assert found is not None
        found.sockets_count -= 1
        if not found.sockets_count:
            self._lines[number] = None
            self.sizes[number] = 0
            del self._numbers[found.key]
            self._free.append(number)
