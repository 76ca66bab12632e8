"""Ranges of offsets against the plainest form of the same: sets of integers."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lading.log.intervals import Intervals
from lading.model.ranges import merge_ranges, ranges_of, ranges_of_rising, split_by_mark, subtract_ranges, write_marks
from lading.model.run import Run
from lading.transports.fetched import missing

OFFSETS = st.integers(0, 40)
SPANS = st.tuples(OFFSETS, st.integers(1, 12)).map(lambda span: (span[0], sum(span)))
SETS = st.sets(OFFSETS)
MARKS = st.dictionaries(OFFSETS, st.integers(2, 4))


def offsets_in(ranges: list[tuple[int, int]]) -> set[int]:
    """The offsets of some ranges."""
    return {offset for first, end in ranges for offset in range(first, end)}


def spans(offsets: set[int]) -> list[tuple[int, int]]:
    """The ranges of a set, by looking at each offset: rising, apart, none empty."""
    firsts = sorted(offset for offset in offsets if offset - 1 not in offsets)
    ends = sorted(offset + 1 for offset in offsets if offset + 1 not in offsets)
    return list(zip(firsts, ends, strict=True))


@given(st.lists(SPANS))
def test_merged_ranges_are_the_union(ranges: list[tuple[int, int]]) -> None:
    assert merge_ranges(ranges) == spans(offsets_in(ranges))


@given(st.lists(SPANS), OFFSETS, OFFSETS)
def test_subtracted_ranges_leave_the_difference(left_out: list[tuple[int, int]], first: int, end: int) -> None:
    # they may overlap, as damaged and skipped ranges do, and carry a mark
    rest = spans(set(range(first, end)) - offsets_in(left_out))
    assert subtract_ranges(sorted(left_out), first, end) == rest
    assert subtract_ranges([(*span, 2) for span in sorted(left_out)], first, end) == rest


def marked_spans(marks: dict[int, int]) -> list[tuple[int, int, int]]:
    """The ranges of offsets that have the same mark, in order."""
    return sorted(
        (start, stop, mark)
        for mark in set(marks.values())
        for start, stop in spans({offset for offset, its in marks.items() if its == mark})
    )


@given(MARKS, OFFSETS, OFFSETS)
def test_pieces_by_mark_cover_everything_once(marks: dict[int, int], first: int, end: int) -> None:
    pieces = list(split_by_mark(marked_spans(marks), first, end))
    told = [(offset, mark) for start, stop, mark in pieces for offset in range(start, stop)]
    assert told == [(offset, marks.get(offset)) for offset in range(first, end)]
    assert all(start < stop for start, stop, _ in pieces)


@given(SETS, MARKS)
def test_marks_are_written_over_values(offsets: set[int], marks: dict[int, int]) -> None:
    rising = sorted(offsets)
    values = np.ones(len(rising), np.int8)
    written = write_marks(values, np.array(rising, np.int64), marked_spans(marks))
    assert written.tolist() == [marks.get(offset, 1) for offset in rising]
    assert values.tolist() == [1] * len(rising)


@given(SETS)
def test_single_offsets_become_ranges(offsets: set[int]) -> None:
    assert ranges_of([*offsets, *offsets]) == spans(offsets)
    rising = np.array(sorted(offsets), np.int64)
    assert [tuple(row) for row in ranges_of_rising(rising).tolist()] == spans(offsets)


@given(SETS, OFFSETS, OFFSETS)
def test_what_intervals_miss_is_the_difference(offsets: set[int], first: int, end: int) -> None:
    intervals = Intervals()
    for start, stop in spans(offsets):
        intervals.set(start, stop, 0)
    assert intervals.missing(first, end) == spans(set(range(first, end)) - offsets)


@given(SETS, st.lists(OFFSETS), OFFSETS, OFFSETS)
def test_what_no_chunk_holds_is_missing(offsets: set[int], cuts: list[int], first: int, end: int) -> None:
    chunks = np.zeros((0, 8), np.int64)
    for start, stop in spans(offsets):
        row = np.zeros((1, 8), np.int64)
        row[0, 2], row[0, 4] = start, stop - 1
        chunks = np.concatenate((chunks, row))
    parts = np.split(chunks, sorted(min(cut, len(chunks)) for cut in cuts))
    runs = [Run(1, np.empty(0, np.uint8), part) for part in parts]
    assert missing(runs, first, end) == spans(set(range(first, end)) - offsets)
    assert missing([], first, end) == spans(set(range(first, end)))
