"""Sets of offsets or bytes as sorted, disjoint ranges, optimised for queries with an empty result."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import Final

from ..model.ranges import subtract_ranges

_NO_OFFSETS: Final = array("q")
_NO_VALUES: Final = array("B")


class Intervals:
    """Disjoint ranges [first, end) with a small number each; adjacent ranges with the same number are one.

    A query costs O(log n), a change O(n) memory moves of 8 bytes.
    """

    __slots__ = ("_ends", "_firsts", "_values")

    def __init__(self) -> None:
        # a start makes tens of thousands of sets, and nearly all stay empty: these share their arrays
        self._firsts = self._ends = _NO_OFFSETS
        self._values = _NO_VALUES

    def __len__(self) -> int:
        return len(self._firsts)

    def all(self) -> list[tuple[int, int, int]]:
        """Return every (first, end, value) in order."""
        return list(zip(self._firsts, self._ends, self._values, strict=True))

    def overlapping(self, first: int, end: int, count_max: int | None = None) -> list[tuple[int, int, int]]:
        """Return the ranges that overlap [first, end), clipped to it; of more than ``count_max`` the first."""
        if not self._ends or self._ends[-1] <= first:
            return []
        low = bisect_right(self._ends, first)
        high = bisect_left(self._firsts, end, low)
        if count_max is not None:
            high = min(high, low + count_max)
        return [
            (max(self._firsts[i], first), min(self._ends[i], end), self._values[i])
            for i in range(low, high)
            if max(self._firsts[i], first) < min(self._ends[i], end)
        ]

    def missing(self, first: int, end: int) -> list[tuple[int, int]]:
        """Return the parts of [first, end) that no range covers."""
        if first < end and (not self._ends or self._ends[-1] <= first):
            return [(first, end)]
        return subtract_ranges(self.overlapping(first, end), first, end)

    def set(self, first: int, end: int, value: int | None) -> None:
        """Set the value of [first, end), whatever it was; None removes it."""
        if first >= end:
            return
        if not self._ends:
            if value is not None:
                self._firsts, self._ends = array("q", [first]), array("q", [end])
                self._values = array("B", [value])
            return
        if value is not None and self._ends[-1] == first and self._values[-1] == value:
            # nearly every change is at the end of the last range
            self._ends[-1] = end
            return
        low = bisect_left(self._ends, first)
        high = bisect_right(self._firsts, end, low)
        pieces: list[tuple[int, int, int]] = []
        for i in range(low, high):
            start, stop, old = self._firsts[i], self._ends[i], self._values[i]
            if start < first:
                pieces.append((start, min(stop, first), old))
            if stop > end:
                pieces.append((max(start, end), stop, old))
        if value is not None:
            pieces.append((first, end, value))
        pieces.sort()
        merged: list[tuple[int, int, int]] = []
        for piece in pieces:
            if merged and merged[-1][1] == piece[0] and merged[-1][2] == piece[2]:
                merged[-1] = (merged[-1][0], piece[1], piece[2])
            else:
                merged.append(piece)
        self._firsts[low:high] = array("q", [piece[0] for piece in merged])
        self._ends[low:high] = array("q", [piece[1] for piece in merged])
        self._values[low:high] = array("B", [piece[2] for piece in merged])
