"""Ranges of offsets as (first, end), ``end`` not included: joined, subtracted, and made of single offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

OffsetSpan = tuple[int, int]
MarkedSpan = tuple[int, int, int]
"""A range with a number that it has, such as a state."""


def merge_ranges(ranges: Iterable[OffsetSpan]) -> list[OffsetSpan]:
    """Ranges in order, joined where they touch or overlap."""
    merged: list[OffsetSpan] = []
    for first, end in sorted(ranges):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((first, end))
    return merged


def subtract_ranges(left_out: Iterable[OffsetSpan | MarkedSpan], first: int, end: int) -> list[OffsetSpan]:
    """What of ``first`` to ``end`` is in none of the ranges ``left_out``, whose firsts rise."""
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
    """Yield ``first`` to ``end`` whole, in order, cut where a mark begins or ends; what has none has None.

    The marked ranges rise and do not overlap.
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
    """A copy of ``values``, one for each of the rising ``offsets``, with the mark where one lies in a marked range."""
    changed = values.copy()
    for first, end, mark in marked:
        changed[slice(*np.searchsorted(offsets, (first, end)))] = mark
    return changed


def ranges_of(offsets: Iterable[int]) -> list[OffsetSpan]:
    """Single offsets, in any order, as ranges, joined where they touch."""
    return merge_ranges((offset, offset + 1) for offset in offsets)


def ranges_of_rising(offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Offsets that rise as ranges, one a row: what ``ranges_of`` gives, for many offsets at once."""
    cuts = np.flatnonzero(np.diff(offsets) != 1) + 1
    firsts = np.concatenate((offsets[:1], offsets[cuts]))
    ends = np.concatenate((offsets[cuts - 1], offsets[-1:])) + 1
    return np.stack((firsts, ends), axis=1)
