"""The segments of one log in order, the last one active: reading across them, starting and deleting them."""

from __future__ import annotations

import contextlib
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from .active import ActiveSegment
from .disk import Disk, File
from .interface import ClosedSegment, Damage, RewrittenSegment, SegmentInfo, Span
from .segment import LogPosition, Segment

_LOADED_MAX: Final = 4
"""Closed segments of a partition that stay mapped: readers mostly share the last ones, and maps are bounded by the
system.
"""


Reached = tuple[int, LogPosition]
"""End of a log: (base offset of its last segment, end in it); a tuple, as one is created at every sync."""


class Segments:
    """All segments of one log; ``synced`` is how far they are on disk, and the limit of readers."""

    def __init__(
        self, disk: Disk, directory: Path, closed: Sequence[Segment], active: ActiveSegment, gaps: Sequence[Damage]
    ) -> None:
        """``gaps`` are the offsets that no segment covers."""
        self.active = active
        self.rolls_count = 0
        self.synced = self.written
        self._disk = disk
        self._directory = directory
        self._gaps = gaps
        self._watchers: tuple[Callable[[Sequence[Damage]], None], Callable[[], None]] | None = None
        self._all: list[Segment] = [*closed, active]
        self._bases = [segment.base_offset for segment in self._all]
        self._closed_bytes = sum(segment.end.position for segment in closed if segment.end)
        self._recent: OrderedDict[int, None] = OrderedDict()

    def watch(self, on_damage: Callable[[Sequence[Damage]], None], on_map: Callable[[], None]) -> None:
        """Call ``on_damage`` with damage that reading has found, ``on_map`` when a file is mapped."""
        self._watchers = on_damage, on_map
        for segment in self._all:
            segment.on_damage, segment.on_map = self._watchers

    def rest(self) -> None:
        """Close all files; the caller has synced everything written."""
        self.active.rest()
        for segment in self.closed:
            segment.unload()
        self._recent.clear()

    @property
    def written(self) -> Reached:
        """Return how far the segments are written."""
        return self.active.base_offset, self.active.written

    @property
    def closed(self) -> list[Segment]:
        """All segments but the active one."""
        return self._all[:-1]

    @property
    def size_bytes(self) -> int:
        """Bytes of all chunks, envelopes included."""
        return self._closed_bytes + self.active.written.position

    @property
    def count(self) -> int:
        """At least 1."""
        return len(self._all)

    def infos(self) -> list[SegmentInfo]:
        """Return what retention knows of each segment, in order."""
        closed = [self._describe_segment(segment, segment.end) for segment in self.closed if segment.end is not None]
        active = self.active
        return [*closed, self._describe_segment(active, active.written)]

    def _describe_segment(self, segment: Segment, end: LogPosition) -> SegmentInfo:
        written_us = partial(self._disk.mtime_us, segment.path)
        return SegmentInfo(segment.base_offset, end.offset, end.position, segment.max_timestamp_us, written_us)

    def list_closed(self) -> list[ClosedSegment]:
        """Return the closed segments in order, for readers in other threads."""
        return [
            ClosedSegment(
                self._disk, self._directory, segment.base_offset, segment.end, segment.max_timestamp_us,
                bool(segment.damage),
            )
            for segment in self.closed
            if segment.end is not None
        ]  # fmt: skip

    def roll(self, base_offset: int) -> list[File]:
        """Close the active segment, start the next one at ``base_offset``; return what the next sync must include."""
        old = self.active
        old.finish()
        new = ActiveSegment(self._disk, self._directory, base_offset)
        also_sync = [old.file, self._disk.open(self._directory)]
        self._all[-1:] = [old.to_segment(), new]
        if self._watchers is not None:
            self.watch(*self._watchers)
        self._bases.append(base_offset)
        self._keep_recent(old)
        self._closed_bytes += old.written.position
        self.active = new
        self.rolls_count += 1
        return also_sync

    def read(self, offset: int, end: int, max_bytes: int) -> Span | None:
        """Read as ``PartitionLog.read`` does, from segments that start before ``end``."""
        number = max(bisect_right(self._bases, offset) - 1, 0)
        while number < len(self._all) and self._bases[number] < end:
            segment = self._all[number]
            span = segment.span(max(offset, segment.base_offset), self._limit(segment), max_bytes)
            if segment is not self.active:
                self._keep_recent(segment)
            if span is not None:
                return span
            number += 1
        return None

    def first_since(self, timestamp_us: int, end: int) -> int | None:
        """Return the base offset of the first chunk before ``end`` with a message at or after a time, or None."""
        for segment in self._all:
            if segment.base_offset >= end:
                break
            if segment.max_timestamp_us >= timestamp_us:
                found = segment.first_since(timestamp_us, self._limit(segment))
                if found is not None:
                    return found
        return None

    def damage(self, first: int, end: int) -> list[Damage]:
        """Return the known damage among these offsets, with the bytes that held them."""
        numbers = range(max(bisect_right(self._bases, first) - 1, 0), bisect_left(self._bases, end))
        known = [*self._gaps, *(damage for number in numbers for damage in self._all[number].damage)]
        return [damage for damage in known if damage.first < end and damage.end > first]

    def delete_before(self, offset: int) -> None:
        """Delete the segments that end at or before ``offset``; the active one stays."""
        while len(self._bases) > 1 and self._bases[1] <= offset:
            segment = self._all.pop(0)
            self._recent.pop(self._bases.pop(0), None)
            assert segment.end is not None
            self._closed_bytes -= segment.end.position
            for path in (segment.path, segment.index_path):
                with contextlib.suppress(OSError):
                    self._disk.remove(path)

    def find_closed(self, base_offset: int) -> Segment | None:
        """Return the closed segment that begins with this offset, or None if it does not exist."""
        number = bisect_left(self._bases, base_offset)
        closed = number < len(self._all) - 1 and self._bases[number] == base_offset
        return self._all[number] if closed else None

    def replace(self, rewritten: RewrittenSegment) -> bool:
        """Put the file of a rewritten segment into the place of the old ones; return False if one of these was deleted.

        Spans of the old file that were returned keep it. Raises OSError if the file cannot be renamed.
        """
        base_offset = rewritten.old.base_offset
        olds = [self.find_closed(source.base_offset) for source in rewritten.sources]
        if any(old is None or old.end != source.end for old, source in zip(olds, rewritten.sources, strict=True)):
            return False
        old = olds[0]
        assert old is not None, "was looked at"
        self._disk.remove(old.index_path)
        self._disk.rename(rewritten.path, old.path)
        new = Segment(self._disk, self._directory, base_offset)
        new.take_rewritten(LogPosition(*rewritten.end), rewritten.max_timestamp_us, rewritten.entries)
        number = bisect_left(self._bases, base_offset)
        self._all[number : number + len(olds)] = [new]
        self._bases[number : number + len(olds)] = [base_offset]
        if self._watchers is not None:
            new.on_damage, new.on_map = self._watchers
        for source in rewritten.sources:
            self._recent.pop(source.base_offset, None)
        self._closed_bytes += rewritten.size_bytes - sum(source.size_bytes for source in rewritten.sources)
        return True

    def _limit(self, segment: Segment) -> LogPosition:
        base_offset, end = self.synced
        if segment.base_offset == base_offset:
            closed_end = None if segment is self.active else segment.end
            # a closed segment may be rewritten before the next sync: if all of it is synced, its own end is the limit
            return end if closed_end is None or end.offset < closed_end.offset else closed_end
        assert segment.end is not None
        return segment.end

    def _keep_recent(self, segment: Segment) -> None:
        """Keep only the maps of the closed segments read last."""
        self._recent[segment.base_offset] = None
        self._recent.move_to_end(segment.base_offset)
        if len(self._recent) > _LOADED_MAX:
            base, _ = self._recent.popitem(last=False)
            for old in self.closed:
                if old.base_offset == base:
                    old.unload()
