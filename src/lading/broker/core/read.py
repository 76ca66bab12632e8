"""Read: the stretches of a partition that a reader may see, as Runs that point into the log (design.md Log).

Nothing is decoded if every offset of a chunk is a message and none of them is skipped; this is the common case. Damaged
chunks are searched by their dialect for messages whose own checksums hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...chunk.runs import runs
from ...dialects import registry
from ...log.interface import ReadableLog
from ...model.chunk_table import BASE_OFFSET
from ...model.protocol import AbortedRecords, UnavailableMessages, VisibilityRule
from ...model.ranges import merge_ranges, subtract_ranges
from ...model.run import Run
from ...model.scan_request import ScanRequest
from ...model.state import State
from .chunk_range import ChunkRange, IndexedRun
from .chunks import salvage
from .counters import Counters
from .topology import Partition

READ_BYTES_MIN: Final = 16 << 10
"""The least that is asked of the log at once."""


class RunSlice(NamedTuple):
    """Messages of ``run`` with ``first`` <= offset < ``end``; all of them may be seen."""

    run: Run
    first: int
    end: int


@dataclass(slots=True)
class ReadResult:
    """The messages that a reader gets: take ``pieces`` in order, then continue from ``end_offset``.

    ``count`` messages; ``hidden`` lists (first, end, state) of those to be shown with a state; ``aborted`` the ranges
    that a reader who gets them has to leave out (Kafka). ``damaged`` offsets were left out.
    """

    pieces: list[RunSlice]
    first_offset: int
    end_offset: int
    count: int
    size_bytes: int
    hidden: Sequence[tuple[int, int, int]] = ()
    aborted: Sequence[tuple[int, int]] = ()
    damaged: Sequence[tuple[int, int]] = ()

    @property
    def runs(self) -> list[Run]:
        """The Runs of all pieces."""
        return [piece.run for piece in self.pieces]


def read(
    partition: Partition, offset: int, *, reader: VisibilityRule, max_messages: int, max_bytes: int, counters: Counters
) -> ReadResult:
    """Read at most ``max_messages`` from ``offset`` on, and chunks of about ``max_bytes``, but at least one message.

    An offset before the first kept one continues at the first; one at or past the end that the reader may see returns
    an empty ReadResult that ends at its start.
    """
    log = partition.log
    limit = log.high_watermark if reader.open_transactions else log.last_stable_offset
    at = max(offset, log.first_offset)
    reading = ReadResult([], at, at, 0, 0)
    left_bytes = max_bytes
    damaged: list[tuple[int, int]] = []
    while at < limit and reading.count < max_messages and (left_bytes > 0 or not reading.count):
        wanted = max_messages - reading.count
        stretch = partition.cached_range
        if stretch is None or not stretch.serves(at, left_bytes):
            stretch = read_chunk_range(log, at, max(1, min(left_bytes, _likely_bytes(log, wanted))))
            if stretch is None or stretch.base_offset >= limit:
                # nothing readable remains below it: a reader that waited here would wait for ever
                damaged.append((at, limit))
                at = limit
                break
            partition.cached_range = None if stretch.damaged else stretch
        if stretch.base_offset > at:
            damaged.append((at, stretch.base_offset))
            at = stretch.base_offset
        end = min(stretch.end_offset, limit)
        skipped = find_skipped_ranges(log, at, end, reader)
        lost: list[tuple[int, int]] = []
        if stretch.damaged:
            # what is saved of a chunk is whole messages, or, of Kafka's, whole batches
            kept = stretch.parts[0] if stretch.parts else None
            saved = zip(kept.bases, kept.lasts, strict=True) if kept is not None else ()
            lost = subtract_ranges(((max(base, at), last + 1) for base, last in saved if last >= at), at, end)
            skipped = merge_ranges([*skipped, *lost])
        at = _take(reading, stretch.parts, at, end, skipped, wanted)
        damaged += [(first, min(other, at)) for first, other in lost if first < at]
        left_bytes -= stretch.size_bytes
        if not reading.count:
            at = _after_skipped(log, at, limit, reader)
    reading.end_offset = at
    if reader.states is not UnavailableMessages.HIDDEN:
        reading.hidden = log.unavailable_ranges(reading.first_offset, at)
    if reader.aborted is AbortedRecords.LISTED:
        reading.aborted = log.aborted_ranges(reading.first_offset, at)
    if damaged:
        reading.damaged = damaged
        counters.damaged_messages += sum(end - first for first, end in damaged)
    counters.reads += 1
    counters.messages_out += reading.count
    counters.bytes_out += reading.size_bytes
    return reading


def newest(
    partition: Partition, offset: int, reader: VisibilityRule, max_messages: int, counters: Counters
) -> ReadResult | None:
    """Return the chunk that was written last, for a reader that waits for new messages and has read all others.

    None if it does not begin at ``offset``, is not in memory, has more than ``max_messages``, or is not wholly visible
    to the reader: call ``read`` then.
    """
    log = partition.log
    tail = log.tail
    if tail is None or len(tail.chunks) != 1:
        return None
    start, end, base, count, last = tail.chunks[0, :5].tolist()
    stop = last + 1
    limit = log.high_watermark if reader.open_transactions else log.last_stable_offset
    if base != offset or offset < log.first_offset or count != stop - base or count > max_messages or stop > limit:
        return None
    if (
        reader.states is not UnavailableMessages.HIDDEN
        or reader.aborted is AbortedRecords.LISTED
        or find_skipped_ranges(log, base, stop, reader)
    ):
        return None
    counters.reads += 1
    counters.messages_out += count
    counters.bytes_out += end - start
    return ReadResult([RunSlice(tail, base, stop)], base, stop, count, end - start)


def read_chunk_range(log: ReadableLog, offset: int, max_bytes: int) -> ChunkRange | None:
    """Return the chunk that holds ``offset`` and those after it, about ``max_bytes``; None if none is kept there."""
    tail = log.tail
    if tail is not None and tail.chunks[0, BASE_OFFSET] <= offset < log.high_watermark:
        part = _index_run(tail)
        end_offset = part.lasts[0] + 1
        if offset < end_offset <= log.high_watermark:
            return ChunkRange(part.bases[0], end_offset, part.ends[0], [part], False)
    span = log.read(offset, max_bytes)
    if span is None:
        return None
    found = [salvage(span)] if span.damaged else runs(span.region, span.start, span.end, verify=False)
    parts = [_index_run(run) for run in found if len(run.chunks)]
    return ChunkRange(span.base_offset, span.end_offset, span.end - span.start, parts, span.damaged)


def _index_run(run: Run) -> IndexedRun:
    starts, ends, bases, counts, lasts = run.chunks[:, :5].T.tolist()
    return IndexedRun(run, bases, lasts, starts, ends, sum(counts) == lasts[-1] - bases[0] + 1)


def _likely_bytes(log: ReadableLog, messages: int) -> int:
    """Return about how many bytes this many messages have here, so that a small poll does not walk over many chunks."""
    kept = log.next_offset - log.first_offset
    return max(READ_BYTES_MIN, 2 * messages * log.size_bytes // max(kept, 1))


def find_skipped_ranges(log: ReadableLog, first: int, end: int, reader: VisibilityRule) -> list[tuple[int, int]]:
    """Return the offset ranges that a reader passes over, ascending and disjoint."""
    ranges: list[tuple[int, int]] = []
    if reader.aborted is AbortedRecords.SKIPPED:
        ranges += log.aborted_ranges(first, end)
        ranges += log.control_ranges(first, end)
    if reader.states is UnavailableMessages.HIDDEN:
        ranges += [(one, other) for one, other, _ in log.unavailable_ranges(first, end)]
    elif reader.states is UnavailableMessages.CHOSEN:
        ranges += _find_unchosen(log.unavailable_ranges(first, end), first, end, reader.chosen_states)
    return merge_ranges(ranges) if len(ranges) > 1 else ranges


def _find_unchosen(
    hidden: Sequence[tuple[int, int, int]], first: int, end: int, chosen: frozenset[int]
) -> list[tuple[int, int]]:
    """Return the ranges of ``first`` to ``end`` whose messages have none of the ``chosen`` states."""
    ranges = [(one, other) for one, other, state in hidden if state not in chosen]
    if State.AVAILABLE not in chosen:
        ranges += subtract_ranges(hidden, first, end)
    return ranges


def _after_skipped(log: ReadableLog, offset: int, limit: int, reader: VisibilityRule) -> int:
    """``offset``, or the end of the skipped range it lies in: however much was aborted is not walked through."""
    ranges = find_skipped_ranges(log, offset, limit, reader) if offset < limit else []
    return ranges[0][1] if ranges and ranges[0][0] <= offset else offset


def _take(
    reading: ReadResult,
    parts: Sequence[IndexedRun],
    first: int,
    end: int,
    skipped: Sequence[tuple[int, int]],
    wanted: int,
) -> int:
    """Add the visible messages of ``first`` to ``end``, at most ``wanted``; returns the offset to continue at."""
    for part in parts:
        low, high = max(first, part.bases[0]), min(end, part.lasts[-1] + 1)
        for start, stop in subtract_ranges(skipped, low, high):
            if part.dense:
                stop = min(stop, start + wanted)
                run, from_, to = part.between(start, stop)
                count = stop - start
            else:
                run, from_, to = part.between(start, stop)
                offsets = message_offsets(run, start, stop)
                count = len(offsets)
                if count > wanted:
                    stop = int(offsets[wanted])
                    run, from_, to = part.between(start, stop)
                    count = wanted
            if count:
                reading.pieces.append(RunSlice(run, start, stop))
                reading.count += count
                reading.size_bytes += _size_bytes(part, from_, to, count)
                wanted -= count
            if wanted == 0:
                return stop
    return end


def _size_bytes(part: IndexedRun, low: int, high: int, messages: int) -> int:
    """Return about how many bytes this many messages of these chunks take."""
    body_bytes = sum(part.ends[low:high]) - sum(part.starts[low:high])
    return body_bytes * messages // max(part.lasts[high - 1] - part.bases[low] + 1, messages)


def message_offsets(run: Run, first: int, end: int) -> NDArray[np.int64]:
    """Return the offsets of the messages of ``run`` with ``first`` <= offset < ``end``."""
    found = registry.decode(run, ScanRequest(first, end, frozenset({"offset"})))
    columns = [part.columns["offset"].to_numpy() for part in found]
    return np.concatenate(columns) if columns else np.empty(0, np.int64)
