"""Chunks that a reader of the same dialect gets as they are stored, found with little work (design.md Log).

Most reads continue at the end of the one before, at the border of a chunk, and no message there is hidden or of another
dialect. All other reads are done by ``read.read``, which returns the same messages.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Final, NamedTuple

from ....chunk.envelope import ENVELOPE_BYTES
from ....model.protocol import VisibilityRule
from ..chunk_range import ChunkRange
from ..counters import Counters
from ..read import find_skipped_ranges, read_chunk_range
from ..topology import Partition

_AHEAD_CHUNKS_MAX: Final = 64
"""At most this many chunks are looked ahead: with small chunks, looking ahead costs more than it saves."""


class Whole(NamedTuple):
    """The bodies of whole chunks, with all messages before ``end_offset``."""

    bodies: list[memoryview]
    size_bytes: int
    messages_count: int
    end_offset: int


@dataclass(slots=True)
class Ahead:
    """Limit of the read-ahead for the reads of one response.

    Reading ahead leaves less work for the next read, but makes other clients wait longer.
    """

    bytes_left: int

    def take(self, before: ChunkRange | None, offset: int, max_bytes: int) -> int:
        """Return how many bytes to request of the log for a reader that wants ``max_bytes`` and got ``before`` in its
        last read.
        """
        if before is None or not before.base_offset < offset <= before.end_offset:
            return max_bytes
        if sum(len(part.bases) for part in before.parts) > _AHEAD_CHUNKS_MAX:
            return max_bytes
        ahead_bytes, self.bytes_left = self.bytes_left, 0
        return max(max_bytes, ahead_bytes)


def whole_chunks(
    partition: Partition,
    offset: int,
    *,
    reader: VisibilityRule,
    dialect: int,
    max_bytes: int,
    max_chunks: int,
    ahead: Ahead,
    counters: Counters,
) -> Whole | None:
    """Return the chunk that begins with ``offset`` and those after it, to be sent as they are stored.

    Returns at most ``max_chunks`` chunks of at most ``max_bytes``, fewer at the end of a segment; the read is counted.
    Returns None if no chunk of the dialect begins at ``offset``, or if it is too large, damaged, not wholly visible to
    the reader, or lacks an offset: the caller then reads by ``read``.
    """
    log = partition.log
    limit = log.high_watermark if reader.open_transactions else log.last_stable_offset
    if max_bytes <= 0 or not log.first_offset <= offset < limit:
        return None
    stretch = partition.cached_range
    first = -1 if stretch is None else _chunk_at(stretch, offset, limit, max_bytes)
    if first < 0:
        # the envelopes before the bodies are not sent
        stretch = read_chunk_range(
            log, offset, ahead.take(stretch, offset, max_bytes + _AHEAD_CHUNKS_MAX * ENVELOPE_BYTES)
        )
        if stretch is None or stretch.damaged:
            return None
        partition.cached_range = stretch
        first = _chunk_at(stretch, offset, 0, 0)
    if stretch is None or first < 0:
        return None
    run, _, lasts, starts, ends, dense = stretch.parts[0]
    if run.dialect != dialect or not dense:
        return None
    stop = min(bisect_left(lasts, limit), first + max_chunks)
    behind = min(bisect_right(ends, starts[first] + max_bytes), stop)
    if behind <= first:
        return None
    # the envelopes between the bodies are not sent
    size_bytes = ends[behind - 1] - starts[first] - (behind - first - 1) * ENVELOPE_BYTES
    while behind < stop and size_bytes + ends[behind] - starts[behind] <= max_bytes:
        size_bytes += ends[behind] - starts[behind]
        behind += 1
    end_offset = lasts[behind - 1] + 1
    if find_skipped_ranges(log, offset, end_offset, reader):
        return None
    data = run.region.data
    bodies = [data[start:end] for start, end in zip(starts[first:behind], ends[first:behind], strict=True)]
    whole = Whole(bodies, size_bytes, end_offset - offset, end_offset)
    counters.reads += 1
    counters.messages_out += whole.messages_count
    counters.bytes_out += whole.size_bytes
    return whole


def _chunk_at(stretch: ChunkRange, offset: int, limit: int, wanted_bytes: int) -> int:
    """Return the number of the chunk that begins with ``offset``; -1 if none does.

    Also returns -1 if fewer than ``wanted_bytes`` follow it although the log continues, up to ``limit``.
    """
    if len(stretch.parts) != 1 or not stretch.base_offset <= offset < stretch.end_offset:
        return -1
    part = stretch.parts[0]
    bases = part.bases
    number = bisect_left(bases, offset)
    if number == len(bases) or bases[number] != offset:
        return -1
    if stretch.end_offset < limit and part.ends[-1] - part.starts[number] < wanted_bytes:
        return -1
    return number
