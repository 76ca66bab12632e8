"""The sparse index of a segment: about every 64 KiB the start of a chunk, and the latest time before it.

File: entries of 32 bytes, ``offset u64 · position u64 · max_timestamp_us u64 · kind u32 · crc32c u32`` (of the 28 bytes
before it), little-endian. An entry of kind 0 says that the chunk with this base offset starts at this position,
and that no message before it in the segment is later than the time. Kind 1 says the same of the end
of the segment, comes last, and means that the segment was not written to afterwards. The file contains nothing that
the segment does not: it is rebuilt if it is missing or wrong.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import google_crc32c

INDEX_EVERY_SHIFT: Final = 16
"""A chunk gets an entry if it is the first that starts in its 64 KiB of the segment."""

_ENTRY: Final = struct.Struct("<QQQI")
_CRC: Final = struct.Struct("<I")
ENTRY_BYTES: Final = _ENTRY.size + _CRC.size
_CHUNK, _END = 0, 1
_LAST: Final = (1 << 63) - 1


class IndexEntry(NamedTuple):
    """The chunk at ``position`` starts with ``offset``; no message before it is later than ``max_timestamp_us``."""

    offset: int
    position: int
    max_timestamp_us: int


@dataclass(slots=True)
class Index:
    """Entries in ascending order, and the end of the segment if the file has it."""

    offsets: array[int] = field(default_factory=lambda: array("q"))
    positions: array[int] = field(default_factory=lambda: array("q"))
    timestamps_us: array[int] = field(default_factory=lambda: array("q"))
    end: IndexEntry | None = None

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, offset: int, position: int, max_timestamp_us: int) -> None:
        """Append an entry."""
        self.offsets.append(offset)
        self.positions.append(position)
        self.timestamps_us.append(max_timestamp_us)

    def entry(self, number: int) -> IndexEntry:
        """Return an entry by number; -1 is the last."""
        return IndexEntry(self.offsets[number], self.positions[number], self.timestamps_us[number])

    def at_offset(self, offset: int) -> int:
        """Return the number of the last entry at or before ``offset``, or -1."""
        return bisect_right(self.offsets, offset) - 1

    def at_position(self, position: int) -> int:
        """Return the number of the last entry at or before ``position``, or -1."""
        return bisect_right(self.positions, position) - 1

    def at_time(self, timestamp_us: int) -> int:
        """Return the number of the entry at which to start a search for the first message at or after a time, or -1."""
        return max(bisect_left(self.timestamps_us, timestamp_us) - 1, min(len(self), 1) - 1)

    def cut(self, position: int) -> None:
        """Remove entries at or after ``position``."""
        keep = bisect_left(self.positions, position)
        for column in (self.offsets, self.positions, self.timestamps_us):
            del column[keep:]
        self.end = None

    def pack(self, first: int = 0) -> bytes:
        """Return the entries from number ``first`` as bytes of the file, with the end if it is known."""
        rows = [(*self.entry(number), _CHUNK) for number in range(first, len(self))]
        if self.end is not None:
            rows.append((*self.end, _END))
        return b"".join(_pack(*row) for row in rows)


def unpack(data: bytes, base_offset: int) -> tuple[Index, str]:
    """Parse an index file; return the entries before the first fault, and the fault in words or ""."""
    index = Index()
    previous = IndexEntry(base_offset - 1, -1, 0)
    for at in range(0, len(data), ENTRY_BYTES):
        row = data[at : at + ENTRY_BYTES]
        if len(row) < ENTRY_BYTES or _CRC.unpack_from(row, _ENTRY.size)[0] != google_crc32c.value(row[: _ENTRY.size]):
            return index, f"entry {at // ENTRY_BYTES} is not whole"
        offset, position, timestamp_us, kind = _ENTRY.unpack_from(row)
        entry = IndexEntry(offset, position, timestamp_us)
        rises = all(new >= old for new, old in zip(entry, previous, strict=True)) and max(entry) <= _LAST
        if not rises or (kind == _CHUNK and (offset == previous.offset or position == previous.position)):
            return index, f"entry {at // ENTRY_BYTES} does not follow the one before"
        if kind == _END:
            index.end = entry
            return index, "" if at + ENTRY_BYTES == len(data) else "entries follow the end"
        index.add(*entry)
        previous = entry
    return index, ""


def _pack(offset: int, position: int, timestamp_us: int, kind: int) -> bytes:
    entry = _ENTRY.pack(offset, position, timestamp_us, kind)
    return entry + _CRC.pack(google_crc32c.value(entry))
