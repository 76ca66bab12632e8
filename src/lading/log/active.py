"""The segment being written: bytes are added by ``pwrite``, and the file grows ahead of them as a hole."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

from .disk import Data, Disk, File
from .index import ENTRY_BYTES, INDEX_EVERY_SHIFT, Index, IndexEntry
from .scan import Region
from .segment import LogPosition, Segment

_GROWTH_MIN: Final = 1 << 20
_GROWTH_MAX: Final = 16 << 20
"""The file grows by its own size between these two, so that few appends pay for it, and a full disk is not filled
with room.
"""


class ActiveSegment(Segment):
    """A segment with its writing side. The next chunk is written at ``written``; readers end at or before it."""

    def __init__(self, disk: Disk, directory: Path, base_offset: int, *, resting_bytes: int | None = None) -> None:
        """Open the file, or create it; the caller then describes its content with ``resume``.

        With ``resting_bytes``, its size, the file exists and stays closed until ``wake``.
        """
        super().__init__(disk, directory, base_offset)
        self.resting = resting_bytes is not None
        """Whether the file is closed until ``wake``."""
        self.written = LogPosition(base_offset, 0)
        if resting_bytes is None:
            self.file: File = disk.open(self.path, write=True)
            resting_bytes = self.file.size()
        self._capacity = resting_bytes
        self._index: Index = Index()
        self._index_saved = 0
        self._bucket = -1

    def resume(self, index: Index, written: LogPosition, max_timestamp_us: int) -> None:
        """Continue after ``written``, with the index of what is before it."""
        self._index, self._index_saved = index, 0
        self._bucket = index.positions[-1] >> INDEX_EVERY_SHIFT if len(index) else -1
        self.written, self.max_timestamp_us = written, max_timestamp_us

    def rest(self) -> None:
        """Close the file until ``wake``; everything written is synced."""
        self.close()
        self.resting = True
        self.unmap()

    def close(self) -> None:
        """Close the file; maps stay valid."""
        if not self.resting:
            self.file.close()

    def wake(self) -> None:
        """Open the file again. Raises OSError if that fails, and the file stays closed."""
        if self.resting:
            self.file = self._disk.open(self.path, write=True)
            self.resting = False

    def on_truncated(self) -> None:
        """Recovery truncated the file: drop the map of its former size."""
        self._capacity = self.file.size()
        self._map = None

    def to_segment(self) -> Segment:
        """Return the same segment for readers only, after ``finish``; it holds no file open."""
        segment = Segment(self._disk, self.directory, self.base_offset)
        segment.end, segment.max_timestamp_us, segment.damage = self.written, self.max_timestamp_us, self.damage
        segment._map, segment._index, segment._checked = self._map, self._index, self._checked
        return segment

    def append(self, data: Data, end_offset: int, max_timestamp_us: int) -> None:
        """Write one chunk. Raises OSError if it cannot be written whole, and then nothing has changed."""
        position = self.written.position
        stop = position + len(data)
        if stop > self._capacity:
            self._grow(stop)
        self.file.write(data, position)
        bucket = position >> INDEX_EVERY_SHIFT
        if bucket != self._bucket:
            self._bucket = bucket
            self._index.add(self.written.offset, position, self.max_timestamp_us)
        if max_timestamp_us > self.max_timestamp_us:
            self.max_timestamp_us = max_timestamp_us
        self.written = LogPosition(end_offset, stop)

    def forget_partial_write(self) -> None:
        """Release the space that a failed ``append`` may have written to."""
        if self.resting:
            # the file was not even opened
            return
        with contextlib.suppress(OSError):
            self.file.resize(self.written.position)
            self._capacity = self.written.position
            self._map = None

    def _grow(self, size: int) -> None:
        growth = min(max(self._capacity, _GROWTH_MIN), _GROWTH_MAX)
        capacity = max(self._capacity + growth, -(-size // _GROWTH_MIN) * _GROWTH_MIN)
        self.file.resize(capacity)
        self._capacity = capacity

    def _region(self, size: int) -> Region:
        if self._map is None or self._map.size < size:
            self._map = self._map_region()
            self.on_map()
        return self._map

    def _map_region(self) -> Region:
        if not self.resting:
            return self.file.map(self._capacity)
        file = self._disk.open(self.path)
        try:
            return file.map(self._capacity)
        finally:
            file.close()

    def save_index(self) -> None:
        """Append new entries to the index file. It may fail or be lost: the index is then rebuilt."""
        if self._index_saved == len(self._index) and self._index.end is None:
            return
        data = self._index.pack(self._index_saved)
        with contextlib.suppress(OSError):
            file = self._disk.open(self.index_path, write=True)
            try:
                file.write(data, self._index_saved * ENTRY_BYTES)
                file.resize(self._index_saved * ENTRY_BYTES + len(data))
                self._index_saved = len(self._index)
            finally:
                file.close()

    def finish(self) -> None:
        """Release the space ahead and write the end to the index, so that the next opening need not search for it."""
        if self.file.size() != self.written.position:
            self.file.resize(self.written.position)
            self._capacity = self.written.position
            self._map = None
        self._index.end = IndexEntry(*self.written, self.max_timestamp_us)
        self.save_index()
        self._index.end = None

    def _find_end(self) -> LogPosition | None:
        return self.written

    def _rescan(self, limit: LogPosition) -> None:
        super()._rescan(limit)
        self._index_saved = 0
