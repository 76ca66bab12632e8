"""A segment: one file of chunks, read through a read-only map.

Every byte is checked against its chunk's CRC once after it was mapped, before it is returned, so that neither a flipped
bit nor a write that the disk lost is ever served as a message. A part that fails is scanned once (``scan``), recorded
as damage and skipped from then on, unless the only fault of a chunk is one flipped bit: then a repaired copy is served.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..chunk.bit_repair import repair_chunk
from ..chunk.envelope import ENVELOPE_BYTES, read
from ..model.chunk_table import BASE_OFFSET, BODY_END, BODY_START, LAST_OFFSET, MAX_TIMESTAMP_US
from ..model.errors import CorruptLog
from . import index as index_format
from .disk import Disk, bring_in, file_size, place_of, read_all
from .index import Index, IndexEntry
from .interface import Damage, Span
from .intervals import Intervals
from .scan import Region, Scan, find_lost_end, follows, scan, walk

_HINTS_MAX: Final = 128
"""Positions after recent reads, so that a reader which continues needs no search; about one for each reader."""
LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"


class LogPosition(NamedTuple):
    """A chunk boundary, such as the end of reading: ``position`` in the file, and its ``offset``."""

    offset: int
    position: int


def segment_name(base_offset: int) -> str:
    """Return the name of the file of a segment."""
    return f"{base_offset:020}{LOG_SUFFIX}"


class Segment:
    """The reading side of a segment; ``end`` is the end of its chunks, None until it was determined."""

    def __init__(self, disk: Disk, directory: Path, base_offset: int) -> None:
        self.base_offset = base_offset
        self.directory = directory
        self.end: LogPosition | None = None
        self.max_timestamp_us = 0
        self.damage: list[Damage] = []
        self.index_fault = ""
        """The fault of the index file when it was read, or ""."""
        self.on_damage: Callable[[Sequence[Damage]], None] = _ignore
        """Called with damage that reading has found."""
        self.on_map: Callable[[], None] = _do_nothing
        """Called when the file was mapped, which holds it open."""
        self._disk = disk
        self._map: Region | None = None
        self._index: Index | None = None
        self._checked = Intervals()
        self._hints: dict[int, int] = {}

    # ------------------------------------------------------------------------------------------ closed segments

    @property
    def name(self) -> str:
        """The name of its file."""
        return segment_name(self.base_offset)

    # created when it is needed: a start makes thousands of segments, and opens few of their files

    @property
    def path(self) -> Path:
        """The path of its file."""
        return self.directory / self.name

    @property
    def index_path(self) -> Path:
        """The path of its index."""
        return self.directory / f"{self.base_offset:020}{INDEX_SUFFIX}"

    def load_end(self, end_offset: int, file_size: int) -> bool:
        """Take the end of a closed segment from the last entry of its index; return False if that is not plausible.

        ``file_size`` is the size of its file in bytes.
        """
        end, fault = self.read_told_end()
        if end is None or end.offset != end_offset or end.position > file_size:
            self.index_fault = fault
            return False
        self.end, self.max_timestamp_us = LogPosition(end.offset, end.position), end.max_timestamp_us
        return True

    def read_told_end(self) -> tuple[IndexEntry | None, str]:
        """Return the segment's end according to the index's last entry alone, and the index's fault, if any."""
        data = read_all(self._disk, self.index_path) or b""
        index, fault = index_format.unpack(data[-index_format.ENTRY_BYTES :], -1)
        return None if fault else index.end, fault or "its end is missing" if data else "the file is missing"

    def find_end(self, end_offset: int) -> Scan:
        """Determine index and end of a closed segment by reading all of it; ``end_offset`` is from the next segment."""
        index, self.index_fault = self.read_index()
        hints = [index.entry(i) for i in range(len(index))]
        found = self.scan_to_end(IndexEntry(self.base_offset, 0, 0), hints)
        self.close_at(found, end_offset)
        return found

    def close_at(self, found: Scan, end_offset: int, indexed_end: IndexEntry | None = None) -> None:
        """Adopt the result of a scan of all of it. Raises CorruptLog if it overlaps the next segment.

        ``indexed_end`` is the segment's end according to its index. Losses before that end are recorded as later
        openings, which trust the index, would find them: a chunk of which a power cut has left the beginning may still
        hold messages.
        """
        if found.end_offset < end_offset:
            if (
                indexed_end is not None
                and indexed_end.offset == end_offset
                and indexed_end.position <= self.file_size()
            ):
                found.bad_bytes = max(found.bad_bytes, indexed_end.position - found.end_position)
            found.damage += self.find_lost_end(found, end_offset)
            found.end_position, found.end_offset = found.end_position + found.bad_bytes, end_offset
        elif found.end_offset > end_offset:
            raise CorruptLog(
                f"{self.path} holds offsets up to {found.end_offset - 1}, but the next segment begins with "
                f"{end_offset}; one of the two does not belong here"
            )
        self._adopt(found)

    def take_rewritten(self, end: LogPosition, max_timestamp_us: int, index: Index) -> None:
        """Take over the facts of the file that has replaced that of a closed segment."""
        self.end, self.max_timestamp_us, self._index = end, max_timestamp_us, index

    def save_index(self) -> None:
        """Write the index of a closed segment. It may fail or be lost: the index is then rebuilt."""
        assert self.end is not None
        index = self.index
        index.end = IndexEntry(*self.end, self.max_timestamp_us)
        with contextlib.suppress(OSError):
            file = self._disk.open(self.index_path, write=True)
            try:
                data = index.pack()
                file.write(data, 0)
                file.resize(len(data))
            finally:
                file.close()

    def scan_from(
        self, start: IndexEntry, size: int, hints: Sequence[IndexEntry] = (), *, stop_offset: int | None = None
    ) -> Scan:
        """Check the chunks from ``start`` in the first ``size`` bytes of the file; changes nothing."""
        region = self._region(size)
        self._bring_in(region, start.position, size)
        return scan(region, start, size, path=self.path, hints=hints, stop_offset=stop_offset)

    def scan_to_end(
        self, start: IndexEntry, hints: Sequence[IndexEntry] = (), *, stop_offset: int | None = None
    ) -> Scan:
        """Check the chunks from ``start`` up to the unused space, also while a broker closes the segment."""
        while True:
            size = self.data_end()
            try:
                return self.scan_from(start, size, hints, stop_offset=stop_offset)
            except CorruptLog:
                # a broker that closes the segment releases the space ahead, of which ``size`` counts the first page
                if self.data_end() >= size:
                    raise

    def find_lost_end(self, found: Scan, end_offset: int) -> list[Damage]:
        """Return the damage between the end of a scan and the offset that the log is known to have reached."""
        stop = found.end_position + found.bad_bytes
        return find_lost_end(self._region(stop), found, stop, end_offset, self.path)

    def file_size(self) -> int:
        """Return the size of the file, which may end with unused space."""
        return file_size(self._disk, self.path)

    def data_end(self) -> int:
        """Return an upper bound of the start of the unused space."""
        file = self._disk.open(self.path)
        try:
            return file.data_end()
        finally:
            file.close()

    def _adopt(self, found: Scan) -> None:
        self._index = found.index
        self.damage = found.damage
        self.max_timestamp_us = found.max_timestamp_us
        self.end = LogPosition(found.end_offset, found.end_position)
        self._checked = Intervals()
        self._checked.set(found.start_position, found.end_position, 1)
        for damage in found.damage:
            self._checked.set(damage.start, damage.stop, None)
        self._hints.clear()

    @property
    def loaded(self) -> bool:
        """Whether its bytes are mapped."""
        return self._map is not None

    def unload(self) -> None:
        """Drop map and index; spans that were returned keep their map."""
        self.unmap()
        self._index = None
        self._hints.clear()

    def unmap(self) -> None:
        """Drop the map; what is mapped again is checked again."""
        self._map, self._checked = None, Intervals()

    def read_index(self) -> tuple[Index, str]:
        data = read_all(self._disk, self.index_path)
        return (Index(), "the file is missing") if data is None else index_format.unpack(data, self.base_offset)

    def _region(self, size: int) -> Region:
        if self._map is None or self._map.size < size:
            file = self._disk.open(self.path)
            try:
                self._map = file.map(size)
            finally:
                file.close()
            self.on_map()
        return self._map

    @property
    def index(self) -> Index:
        """The sparse index, read from its file if it is not in memory."""
        if self._index is None:
            index, fault = self.read_index()
            if fault or not len(index):
                self.index_fault = fault or "it is empty"
                assert self.end is not None
                self._rescan(self.end)
                assert self._index is not None
            else:
                self._index = index
        return self._index

    # ------------------------------------------------------------------------------------------ reading

    def span(self, offset: int, limit: LogPosition, max_bytes: int) -> Span | None:
        """Return checked chunks from the one with ``offset``, or None if there is nothing readable before ``limit``."""
        region = self._region(limit.position)
        for attempt in (0, 1):
            wanted = offset
            for damage in self.damage:
                if damage.first <= wanted < damage.end:
                    whole = _repair_copy(region, damage) if damage.end <= limit.offset else None
                    if whole is not None:
                        return Span(whole, 0, whole.size, damage.first, damage.end)
                    if damage.one_chunk and damage.end <= limit.offset:
                        return Span(region, damage.start, damage.stop, damage.first, damage.end, damaged=True)
                    wanted = damage.end
            if wanted >= limit.offset:
                return None
            start = self._locate(region, wanted, limit)
            stop = start and self._stop(region, start, limit, max_bytes)
            if start and stop and self._check(region, start, stop):
                if len(self._hints) >= _HINTS_MAX:
                    self._hints.clear()
                self._hints[stop.offset] = stop.position
                return Span(region, start.position, stop.position, start.offset, stop.offset)
            if attempt == 0:
                self._rescan(limit)
        raise CorruptLog(f"{place_of(self.path)}: offset {offset} cannot be found; the file changes while it is read")

    def first_since(self, timestamp_us: int, limit: LogPosition) -> int | None:
        """Return the base offset of the first chunk with a message at or after a time, or None."""
        if not limit.position:
            return None
        region = self._region(limit.position)
        number = max(self.index.at_time(timestamp_us), 0)
        at = self.index.positions[number] if len(self.index) else 0
        while at < limit.position:
            rows, at, reason = walk(region, at, limit.position, verify=False)
            late = np.flatnonzero(rows[:, MAX_TIMESTAMP_US] >= timestamp_us)
            if len(late):
                return int(rows[late[0], BASE_OFFSET])
            if reason:
                behind = [damage.stop for damage in self.damage if damage.start == at]
                if not behind:
                    self._rescan(limit)
                    return self.first_since(timestamp_us, limit)
                at = behind[0]
        return None

    def _locate(self, region: Region, offset: int, limit: LogPosition) -> LogPosition | None:
        """Return the chunk with ``offset``, or None if the index or the bytes are wrong."""
        hint = self._hints.get(offset)
        if hint is not None:
            return LogPosition(offset, hint)
        index = self.index
        number = index.at_offset(offset)
        if number < 0:
            return None
        at = LogPosition(index.offsets[number], index.positions[number])
        for damage in self.damage:
            if at.offset < damage.end <= offset:
                at = LogPosition(damage.end, damage.stop)
        if at.offset == offset:
            return at
        block_end = limit
        if number + 1 < len(index) and index.positions[number + 1] < limit.position:
            block_end = LogPosition(index.offsets[number + 1], index.positions[number + 1])
        if not self._check(region, at, self._before_damage(at, block_end)):
            return None
        position = at.position
        while position < block_end.position:
            rows, position, _ = walk(region, position, block_end.position, verify=False)
            row = int(np.searchsorted(rows[:, LAST_OFFSET], offset))
            if row < len(rows):
                return LogPosition(int(rows[row, BASE_OFFSET]), int(rows[row, BODY_START]) - ENVELOPE_BYTES)
            if not len(rows):
                return None
        return None

    def _stop(self, region: Region, start: LogPosition, limit: LogPosition, max_bytes: int) -> LogPosition | None:
        """Return the chunk boundary about ``max_bytes`` after ``start``, or None if the bytes are wrong."""
        limit = self._before_damage(start, limit)
        wanted = start.position + max_bytes
        if wanted >= limit.position:
            return limit
        index = self.index
        number = index.at_position(wanted)
        if number >= 0 and index.positions[number] > start.position:
            return LogPosition(index.offsets[number], index.positions[number])
        rows, _, _ = walk(region, start.position, limit.position, verify=False)
        fits = max(int(np.searchsorted(rows[:, BODY_END], wanted, "right")), 1)
        return LogPosition(int(rows[fits - 1, LAST_OFFSET]) + 1, int(rows[fits - 1, BODY_END])) if len(rows) else None

    def _before_damage(self, start: LogPosition, limit: LogPosition) -> LogPosition:
        for damage in self.damage:
            if damage.first >= start.offset and damage.start <= limit.position:
                return LogPosition(damage.first, damage.start)
        return limit

    def _check(self, region: Region, start: LogPosition, stop: LogPosition) -> bool:
        """Return whether chunks with correct CRCs lead from ``start`` to ``stop``; nothing is checked twice."""
        if not self._checked.missing(start.position, stop.position):
            return True
        at, offset = start.position, start.offset
        self._bring_in(region, at, stop.position)
        while at < stop.position:
            rows, at, _ = walk(region, at, stop.position, verify=True)
            if not len(rows) or follows(rows, offset) < len(rows):
                return False
            offset = int(rows[-1, LAST_OFFSET]) + 1
        if (offset, at) != (stop.offset, stop.position):
            return False
        self._checked.set(start.position, stop.position, 1)
        return True

    def _rescan(self, limit: LogPosition) -> None:
        """Scan everything up to ``limit`` again: rebuild the index from the bytes, record damage."""
        index = self._index or self.read_index()[0]
        hints = [index.entry(i) for i in range(len(index))]
        end, latest, known = self.end, self.max_timestamp_us, self.damage
        limit = self._find_end() or limit
        found = self.scan_from(IndexEntry(self.base_offset, 0, 0), limit.position, hints)
        if found.end_offset < limit.offset:
            found.bad_bytes = limit.position - found.end_position
            found.damage += self.find_lost_end(found, limit.offset)
        self._adopt(found)
        self.end = end
        self.max_timestamp_us = max(latest, found.max_timestamp_us)
        news = [damage for damage in found.damage if damage not in known]
        if news:
            self.on_damage(news)

    def _bring_in(self, region: Region, start: int, end: int) -> None:
        try:
            bring_in(region, start, end)
        except OSError as error:
            raise CorruptLog(
                f"{place_of(self.path)}: bytes {start} to {end} cannot be read ({error.strerror}); check the disk, "
                "and whether the file was truncated"
            ) from error

    def _find_end(self) -> LogPosition | None:
        """Return the end of the chunks, visible to readers or not, or None if only the limit of readers is known."""
        return self.end


def _ignore(damage: Sequence[Damage]) -> None:
    """Do nothing with new damage."""


def _do_nothing() -> None:
    """Do nothing: open files are not counted."""


def _repair_copy(region: Region, damage: Damage) -> NDArray[np.uint8] | None:
    """Return a repaired copy of a chunk in which one bit flipped, if its offsets are the missing ones."""
    whole = repair_chunk(region, damage.start, damage.stop)
    if whole is None:
        return None
    found = read(whole, verify=False)
    return whole if (found.base_offset, found.end_offset) == (damage.first, damage.end) else None
