"""Ranges of offsets as (first, end), ``end`` exclusive: merged, subtracted, and built from single offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

OffsetSpan = tuple[int, int]
MarkedSpan = tuple[int, int, int]
"""(first, end, mark): a range with a number, such as a state."""


def merge_ranges(ranges: Iterable[OffsetSpan]) -> list[OffsetSpan]:
    """Return the ranges in order, those that touch or overlap as one."""
    merged: list[OffsetSpan] = []
    for first, end in sorted(ranges):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((first, end))
    return merged


def clip_ranges(ranges: Iterable[OffsetSpan], first: int, end: int) -> list[OffsetSpan]:
    """Return the parts of the ranges that lie between ``first`` and ``end``."""
    return [(max(low, first), min(high, end)) for low, high in ranges if high > first and low < end]


def subtract_ranges(left_out: Iterable[OffsetSpan | MarkedSpan], first: int, end: int) -> list[OffsetSpan]:
    """Return the parts of ``first`` to ``end`` that are in none of the ranges ``left_out``, sorted by their first."""
    kept: list[OffsetSpan] = []
    for one in left_out:
        start, stop = one[0], one[1]
        if stop <= first:
            continue
        if start >= end:
            break
        if start > first:
            kept.append((first, start))
        first = stop
    if first < end:
        kept.append((first, end))
    return kept


def split_by_mark(marked: Iterable[MarkedSpan], first: int, end: int) -> Iterator[tuple[int, int, int | None]]:
    """Yield all of ``first`` to ``end``, in order, split at the borders of marks; None if a part has no mark.

    The marked ranges are sorted and do not overlap.
    """
    for start, stop, mark in marked:
        if stop <= first:
            continue
        if max(start, first) >= end:
            break
        if start > first:
            yield first, start, None
        yield max(start, first), min(stop, end), mark
        first = stop
    if first < end:
        yield first, end, None


def write_marks(values: NDArray[np.int8], offsets: NDArray[np.int64], marked: Iterable[MarkedSpan]) -> NDArray[np.int8]:
    """Return a copy of ``values``, one per ascending offset, with the mark for every offset in a marked range."""
    changed = values.copy()
    for first, end, mark in marked:
        changed[slice(*np.searchsorted(offsets, (first, end)))] = mark
    return changed


def ranges_of(offsets: Iterable[int]) -> list[OffsetSpan]:
    """Return single offsets, in any order, as ranges; those that touch are one range."""
    return merge_ranges((offset, offset + 1) for offset in offsets)


def ranges_of_rising(offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return ascending offsets as ranges, one per row of an int64 array: ``ranges_of`` for many offsets at once."""
    cuts = np.flatnonzero(np.diff(offsets) != 1) + 1
    firsts = np.concatenate((offsets[:1], offsets[cuts]))
    ends = np.concatenate((offsets[cuts - 1], offsets[-1:])) + 1
    return np.stack((firsts, ends), axis=1)
