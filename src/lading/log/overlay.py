"""The overlay: what was decided about offsets after they were written, in memory and in ``states.log``.

The file only grows and is compacted by rename. If two records cover the same offset, the later one wins.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import google_crc32c

from ..chunk.overlay import RECORD_BYTES, OverlayRecord, RangeKind, pack, unpack_all
from ..model.state import State
from .disk import Disk, File, read_all, replace
from .formats import GATE
from .intervals import Intervals
from .watermark import StatesMark

FILE_NAME = "states.log"
COMPACT_AFTER_RECORDS = 4096
_WRITTEN, _SYNCING = 0, 1
_LAST = (1 << 63) - 1
_KINDS: Final = tuple(RangeKind)
"""Created once: a start makes thousands of overlays, and listing an enumeration takes a microsecond."""
_NOTHING: Final = StatesMark(google_crc32c.value(b""), 0)
"""The mark of a file without records, and of a missing file."""


class Overlay:
    """States, aborted ranges and control ranges of one partition."""

    def __init__(
        self, disk: Disk, directory: Path, mark: StatesMark | None = None, *, is_missing: bool = False
    ) -> None:
        """Read ``states.log``, if it exists; unreadable parts are reported in ``notes``.

        ``mark`` is how far it was on disk according to the watermark. With ``is_missing`` the caller found no file.
        """
        self._directory = directory
        self.notes: list[str] = []
        self.lost = False
        """Whether records are missing, so that not everything decided about offsets is known."""
        self.unsynced = False
        """Whether records were written since the last ``begin_sync``."""
        self.unsynced_floor: int | None = None
        """First offset of the aborted and control ranges that are not yet on disk; None if all are."""
        self._floors: list[int | None] = [None, None]
        self._disk = disk
        self._file: File | None = None
        self._position = 0
        self._records = 0
        self._rewrite = False
        self._kept: bytes | None = None
        self._sets = {kind: Intervals() for kind in _KINDS}
        self._states = self._sets[RangeKind.STATE]
        data = None if is_missing else read_all(disk, self.path)
        self._exists = data is not None
        self._synced = self._syncing = _NOTHING
        self._crc = _NOTHING.crc
        if data or (mark is not None and mark != _NOTHING):
            self._load(data or b"", mark)

    @property
    def path(self) -> Path:
        """The path of ``states.log``."""
        # created when it is needed: a start makes thousands of overlays, and most have no such file
        return self._directory / FILE_NAME

    @property
    def mark(self) -> StatesMark | None:
        """Return how far the file is on disk; None while records are missing in it."""
        return None if self.lost else self._synced

    def _load(self, data: bytes, mark: StatesMark | None) -> None:
        at = skipped = 0
        while at < len(data):
            ranges, valid = unpack_all(memoryview(data)[at:])
            for record in ranges:
                self._apply(record)
            self._records += len(ranges)
            at += valid
            if at < len(data):
                GATE.require_known_states(memoryview(data)[at:], self.path)
                ahead = _next_record(data, at + 1)
                skipped += (len(data) if ahead < 0 else ahead) - at
                if ahead < 0:
                    break
                at = ahead
        self._position, self._crc = len(data), google_crc32c.value(data)
        self._synced = self._syncing = StatesMark(self._crc, self._position)
        if skipped:
            self.lost = self._rewrite = True
            self._kept = data
            self.notes.append(
                f"{self.path}: {skipped} bytes are not records, so states set by them are lost; "
                "the file is moved aside at the next change of a state"
            )
        elif mark is not None and not mark.holds(data):
            self.lost = self._rewrite = True
            self._kept = data or None
            found = f"is another file than the one of {mark.size_bytes} bytes that was synced last"
            if len(data) < mark.size_bytes:
                found = f"had {mark.size_bytes} bytes and {f'now has {len(data)}' if self._exists else 'is missing'}"
            self.notes.append(
                f"{self.path} {found}: states that were set (poisoned, marked for deletion, unavailable) are lost, "
                "aborted transactions are found again by their control records and the catalog"
            )

    def _apply(self, record: OverlayRecord) -> None:
        value: int | None = record.state
        if record.kind == RangeKind.STATE and record.state == State.AVAILABLE:
            value = None
        self._sets[record.kind].set(record.first, record.end, value)

    def unavailable_ranges(self, first: int, end: int, count_max: int | None = None) -> list[tuple[int, int, int]]:
        """Return (first, end, state) of the ranges that are not available, the first ``count_max``."""
        return self._states.overlapping(first, end, count_max)

    @property
    def has_unavailable(self) -> bool:
        """Whether messages may be in a state other than available."""
        return len(self._states) > 0

    def ranges(self, kind: RangeKind, first: int, end: int) -> list[tuple[int, int]]:
        """Return the aborted ranges, or the control ranges."""
        return [(start, stop) for start, stop, _ in self._sets[kind].overlapping(first, end)]

    def add(self, record: OverlayRecord) -> None:
        """Write a record and apply it. Raises OSError if it cannot be written, and then it is not applied."""
        data = pack(record)
        if self._rewrite:
            self.compact(0)
        if not self._exists:
            # the file's name must be durable before a record in it can be
            replace(self._disk, self.path, b"")
            self._exists = True
        if self._file is None:
            self._file = self._disk.open(self.path, write=True)
        self._file.write(data, self._position)
        self._position += RECORD_BYTES
        self._crc = google_crc32c.extend(self._crc, data)
        self._records += 1
        self.unsynced = True
        self._count(record)

    def remember(self, record: OverlayRecord) -> None:
        """Apply a record that could not be written; ``compact`` writes it."""
        self._rewrite = True
        self._count(record)

    def _count(self, record: OverlayRecord) -> None:
        if record.kind != RangeKind.STATE:
            floor = self._floors[_WRITTEN]
            self._floors[_WRITTEN] = record.first if floor is None else min(floor, record.first)
            self._find_floor()
        self._apply(record)

    def _find_floor(self) -> None:
        self.unsynced_floor = min((floor for floor in self._floors if floor is not None), default=None)

    def begin_sync(self) -> File | None:
        """Return the file to sync so that all records so far are on disk, or None if they are."""
        if not self.unsynced:
            return None
        self.unsynced = False
        self._syncing = StatesMark(self._crc, self._position)
        self._floors = [None, self._floors[_WRITTEN]]
        self._find_floor()
        return self._file

    def finish_sync(self) -> None:
        """Record that the file of ``begin_sync`` is synced."""
        self._synced = self._syncing
        if self._floors[_SYNCING] is not None:
            self._floors[_SYNCING] = None
            self._find_floor()

    def forget_from(self, offset: int) -> None:
        """Drop records about offsets starting at ``offset``, whose messages were truncated and which will be reused."""
        for ranges in self._sets.values():
            if ranges.overlapping(offset, _LAST):
                ranges.set(offset, _LAST, None)
                self._rewrite = True

    def forget(self, kind: RangeKind, first: int, end: int) -> None:
        """Drop the records of a kind about offsets whose messages were removed; the next rewrite makes it durable."""
        self._sets[kind].set(first, end, None)
        self._rewrite = True

    @property
    def needs_rewrite(self) -> bool:
        """Whether the file has records that no longer apply, or lacks some that do."""
        return self._rewrite

    @property
    def wants_compaction(self) -> bool:
        """Whether most of its records are superseded."""
        live = sum(map(len, self._sets.values()))
        return self._records > 2 * live + COMPACT_AFTER_RECORDS and not self.unsynced

    def compact(self, first_offset: int) -> None:
        """Replace the file by one with only the records that still apply, for offsets that are kept."""
        for ranges in self._sets.values():
            ranges.set(0, first_offset, None)
        records = [
            OverlayRecord(kind, value, first, end, 0)
            for kind, ranges in self._sets.items()
            for first, end, value in ranges.all()
        ]
        if self._kept is not None:
            replace(self._disk, self.path.with_name(f"{FILE_NAME}.cut"), self._kept)
            self._kept = None
        data = b"".join(map(pack, records))
        replace(self._disk, self.path, data)
        self._exists = True
        self._records = len(records)
        self._position, self._crc = len(data), google_crc32c.value(data)
        self._synced = self._syncing = StatesMark(self._crc, self._position)
        self._rewrite = False
        self.close()
        self.unsynced, self._floors = False, [None, None]
        self._find_floor()

    def close(self) -> None:
        """Close the file; a sync thread that still has it keeps it open."""
        self._file = None


def _next_record(data: bytes, at: int) -> int:
    """Return the start of the next readable record, or -1."""
    length = (RECORD_BYTES - 8).to_bytes(4, "little")
    while (at := data.find(length, at)) >= 0:
        if unpack_all(data[at : at + RECORD_BYTES])[1]:
            return at
        at += 1
    return -1
