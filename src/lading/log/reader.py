"""Reading a partition's directory without a broker, even while a broker writes to it."""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from itertools import pairwise
from pathlib import Path
from typing import Final

from ..chunk.overlay import RangeKind
from ..model.errors import CorruptLog
from . import watermark
from .disk import Disk, File, RealDisk, find_identity, read_all
from .formats import GATE
from .index import IndexEntry
from .interface import Damage, Span
from .overlay import FILE_NAME as STATES
from .overlay import Overlay
from .recovery import segment_bases
from .rewriting import leave_out_merged
from .scan import Region
from .segment import LogPosition, Segment
from .watermark import Watermark

_LOOKS: Final = 5
_LOOK_S: Final = 0.02
"""A reader in another process may see files in the middle of a change, which takes the broker milliseconds; it looks
again this often.
"""


class DirectoryReader:
    """Reads a partition without a lock, up to the limits in its watermark file, with its states.

    ``read`` returns chunks up to ``high_watermark``; a reader that must not see open transactions stops at
    ``last_stable_offset``, which may be inside a chunk. Both lag a running broker by at most 100 ms. ``refresh``
    reads them again.
    """

    def __init__(self, path: Path, disk: Disk | None = None) -> None:
        """Raises CorruptLog if ``path`` is not a partition of a log, FileNotFoundError if it does not exist."""
        self.path = path
        self._disk: Disk = disk or RealDisk()
        self._segments: list[_ClosedSegment] = []
        self._bases: list[int] = []
        self._tail: _Tail | None = None
        self._states: bytes | None = None
        self.refresh()

    def refresh(self) -> None:
        """Read watermark, states and the list of segments again."""
        mark, states = self._look()
        names = self._disk.names(self.path)
        self.topic_id = mark.topic_id
        self.epochs = list(mark.epochs)
        self.epoch = self.epochs[-1][0]
        self.first_offset = mark.first_offset
        self.high_watermark = mark.high_watermark
        self.last_stable_offset = min(mark.last_stable_offset, mark.high_watermark)
        if states != self._states or not hasattr(self, "_overlay"):
            self._states, self._overlay = states, Overlay(self._disk, self.path)
        bases = segment_bases(names)
        leave_out_merged(self._disk, self.path, names, bases)
        self._list([base for base in bases if base <= self.high_watermark])

    def _look(self) -> tuple[Watermark, bytes | None]:
        """Return watermark and states, read in this order so that the states cover all below the last stable offset.

        Raises CorruptLog if one is missing or the states are incomplete: aborted messages would seem committed.
        """
        for _ in range(_LOOKS):
            data = read_all(self._disk, self.path / watermark.FILE_NAME) or b""
            GATE.require_known_watermark(data, self.path / watermark.FILE_NAME)
            mark = watermark.unpack(data)
            if mark is None:
                raise CorruptLog(
                    f"{self.path} is not a readable partition: {watermark.FILE_NAME} is missing or damaged; start "
                    "the broker on this data directory to rebuild it"
                )
            states = read_all(self._disk, self.path / STATES)
            GATE.check_states(states or b"", self.path / STATES)
            if mark.states is None or mark.states.holds(states or b""):
                return mark, states
            # a running broker may have rewritten the states between the two reads
            time.sleep(_LOOK_S)
        raise CorruptLog(
            f"{self.path / STATES} is not what was synced last (deleted, truncated or changed); start a broker on the "
            "data directory, which finds aborted transactions again"
        )

    def _list(self, bases: list[int]) -> None:
        while len(bases) > 1 and bases[1] <= self.first_offset:
            bases.pop(0)
        closed = {segment.base_offset: segment for segment in self._segments if segment is not self._tail}
        self._segments = []
        for base, following in pairwise(bases):
            segment = closed.get(base)
            # a segment with another end was merged with others meanwhile
            ends_elsewhere = segment is not None and segment.end is not None and segment.end.offset != following
            if segment is None or ends_elsewhere or segment.is_replaced():
                segment = _ClosedSegment(self._disk, self.path, base)
            self._segments.append(segment)
        if not bases:
            self._tail = None
        elif (
            self._tail is None
            or self._tail.base_offset != bases[-1]
            or self._tail.reached > self.high_watermark
            or self._tail.is_replaced()
        ):
            self._tail = _Tail(self._disk, self.path, bases[-1])
        if self._tail is not None:
            self._segments.append(self._tail)
        self._bases = bases

    def read(self, offset: int, max_bytes: int) -> Span | None:
        """Read as ``PartitionLog.read`` does; looks for newer data if ``offset`` is at the end of what was known."""
        if offset >= self.high_watermark:
            self.refresh()
        for _ in range(_LOOKS):
            try:
                return self._read(offset, max_bytes)
            except (FileNotFoundError, _ReplacedError):
                # retention or compaction was faster: list the segments again
                self._forget_segments()
        return self._read(offset, max_bytes)

    def _forget_segments(self) -> None:
        """List the directory again; spans that were returned keep their bytes."""
        self._segments, self._tail = [], None
        self.refresh()

    def _read(self, offset: int, max_bytes: int) -> Span | None:
        offset = max(offset, self.first_offset)
        if offset >= self.high_watermark:
            return None
        number = max(bisect_right(self._bases, offset) - 1, 0)
        for segment in self._segments[number:]:
            span = segment.span(max(offset, segment.base_offset), self._limit(segment), max_bytes)
            for other in self._segments:
                if other is not segment and other is not self._tail and other.loaded:
                    other.unload()
            if span is not None:
                return span
        return None

    def _limit(self, segment: Segment) -> LogPosition:
        if isinstance(segment, _Tail):
            return segment.limit(self.high_watermark)
        if segment.end is None:
            following = self._bases[self._bases.index(segment.base_offset) + 1]
            size_bytes = segment.file_size()
            if not segment.load_end(following, size_bytes):
                try:
                    segment.find_end(following)
                except CorruptLog as error:
                    # it has more offsets than expected: later segments were merged into it after the list was made
                    raise _ReplacedError(str(error)) from None
        assert segment.end is not None
        return segment.end

    def offset_at(self, timestamp_us: int) -> int:
        """Return the same as ``PartitionLog.offset_at``."""
        for _ in range(_LOOKS):
            try:
                return self._offset_at(timestamp_us)
            except (FileNotFoundError, _ReplacedError):
                self._forget_segments()
        return self._offset_at(timestamp_us)

    def _offset_at(self, timestamp_us: int) -> int:
        for segment in self._segments:
            found = segment.first_since(timestamp_us, self._limit(segment))
            if found is not None:
                return max(found, self.first_offset)
        return self.high_watermark

    def damage(self, first: int, end: int) -> list[Damage]:
        """Return the damage found so far among these offsets."""
        numbers = range(max(bisect_right(self._bases, first) - 1, 0), bisect_left(self._bases, end))
        known = [damage for number in numbers for damage in self._segments[number].damage]
        return [damage for damage in known if damage.first < end and damage.end > first]

    def damaged_ranges(self, first: int, end: int) -> list[tuple[int, int]]:
        """Return that damage as offset ranges."""
        return [(max(damage.first, first), min(damage.end, end)) for damage in self.damage(first, end)]

    def unavailable_ranges(self, first: int, end: int, count_max: int | None = None) -> list[tuple[int, int, int]]:
        """Return (first, end, state) of the ranges that are not available, the first ``count_max``."""
        return self._overlay.unavailable_ranges(first, end, count_max)

    @property
    def has_unavailable(self) -> bool:
        """Whether a message may be in a state other than available."""
        return self._overlay.has_unavailable

    def aborted_ranges(self, first: int, end: int) -> list[tuple[int, int]]:
        """Return the aborted ranges."""
        return self._overlay.ranges(RangeKind.ABORTED, first, end)

    def control_ranges(self, first: int, end: int) -> list[tuple[int, int]]:
        """Return the ranges of control records."""
        return self._overlay.ranges(RangeKind.CONTROL, first, end)


class _ReplacedError(CorruptLog):
    """The file of a segment is another one than before: compaction has rewritten it."""


class _ClosedSegment(Segment):
    """A segment whose file is the same each time that it is mapped."""

    _identity: tuple[int, ...] | None = None

    def _region(self, size: int) -> Region:
        if self._map is None or self._map.size < size:
            file = self._disk.open(self.path)
            try:
                self._require_same(file)
                self._map = file.map(size)
            finally:
                file.close()
        return self._map

    def is_replaced(self) -> bool:
        """Whether another file now has the name of the mapped one.

        Aborted messages that were removed from the new file are not listed any more, but the old one still has them.
        """
        if not self.loaded:
            return False
        try:
            file = self._disk.open(self.path)
        except FileNotFoundError:
            return True
        try:
            return self._identify(file) != self._identity
        finally:
            file.close()

    def _require_same(self, file: File) -> None:
        identity = self._identify(file)
        if self._identity is not None and self._identity != identity:
            raise _ReplacedError(f"{self.path} was replaced while it was read; read it again")
        self._identity = identity

    def file_size(self) -> int:
        file = self._disk.open(self.path)
        try:
            self._require_same(file)
            return file.size()
        finally:
            file.close()

    def _identify(self, file: File) -> tuple[int, ...]:
        # a disk whose files have no descriptors
        return find_identity(file) or (file.size(),)


class _Tail(_ClosedSegment):
    """The last segment, which may grow: its end is at the watermark, and found by walking the chunks up to there."""

    def __init__(self, disk: Disk, directory: Path, base_offset: int) -> None:
        super().__init__(disk, directory, base_offset)
        self._index = self.read_index()[0]
        self._index.end = None
        self._reached: LogPosition | None = None

    def _identify(self, file: File) -> tuple[int, ...]:
        """Return facts that stay while the file grows, and change when its broker closes it."""
        return find_identity(file)[:1]

    @property
    def reached(self) -> int:
        """Return how far the chunks were read."""
        return self._reached.offset if self._reached else self.base_offset

    def limit(self, high_watermark: int) -> LogPosition:
        """Return the chunk boundary at ``high_watermark``, or the last one before it if the chunks do not reach it."""
        if self._reached is None:
            self._reached = self._begin(high_watermark)
        if self._reached.offset < high_watermark:
            index = self.index
            start = IndexEntry(*self._reached, self.max_timestamp_us)
            found = self.scan_to_end(start, stop_offset=high_watermark)
            index.cut(start.position)
            for number in range(len(found.index)):
                index.add(*found.index.entry(number))
            self.damage += found.damage
            self.max_timestamp_us = found.max_timestamp_us
            self._reached = LogPosition(found.end_offset, found.end_position)
            self._checked.set(start.position, found.end_position, 1)
            for damage in found.damage:
                self._checked.set(damage.start, damage.stop, None)
        return self._reached

    def _begin(self, high_watermark: int) -> LogPosition:
        """Return the position to start walking from: the last index entry below the end, if a chunk has its offset."""
        number = self.index.at_offset(high_watermark - 1)
        if number >= 0:
            entry = self.index.entry(number)
            found = self.scan_to_end(entry, stop_offset=entry.offset + 1)
            if found.end_offset > entry.offset and not found.damage:
                self.index.cut(entry.position + 1)
                self.max_timestamp_us = entry.max_timestamp_us
                return LogPosition(entry.offset, entry.position)
        self.index.cut(0)
        return LogPosition(self.base_offset, 0)

    def unload(self) -> None:
        """Do nothing: the segment is kept, so that its chunks are not walked again."""
