"""Rewriting of closed segments: their kept messages are written to a file next to them, which then replaces them by a
rename.

The new file covers the same offsets: chunks follow one another without a gap, and a chunk covers removed offsets after
its last message. A power cut leaves the old file or the new one, in this order of steps:

1. The new file is written as ``BASE.cleaned.tmp`` and synced. A start deletes files that end with ``.tmp``.
2. If the new file is not smaller, the index is deleted first, and the directory synced. The last entry of an index
   has the end of its segment: one that points past the end of the file is noticed, another one is believed.
3. If several segments become one, a file ``BASE-END.merge.tmp`` says so, synced: as long as it exists, and segment
   BASE reaches to END, segments between are left out when the directory is opened (``leave_out_merged``).
4. The owner of the log deletes the index and renames the file (``DiskPartitionLog.replace_segment``).
5. The directory is synced; then the new index is written, and the files of segments that were merged are deleted, that
   of step 3 as the last one.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from .disk import Data, Disk, File, sync_directory
from .index import INDEX_EVERY_SHIFT, Index, IndexEntry
from .interface import ClosedSegment, RewrittenSegment
from .segment import LogPosition, Segment

CLEANED_SUFFIX: Final = ".cleaned.tmp"
MERGE_SUFFIX: Final = ".merge.tmp"
_MERGE_NAME: Final = re.compile(r"(\d{20})-(\d{20})" + re.escape(MERGE_SUFFIX), re.ASCII)


def open_closed(closed: ClosedSegment) -> Segment:
    """Return a reader of a closed segment, which holds no file open before the first read."""
    segment = Segment(closed.disk, closed.directory, closed.base_offset)
    segment.end, segment.max_timestamp_us = LogPosition(*closed.end), closed.max_timestamp_us
    return segment


def _merge_path(rewritten: RewrittenSegment) -> Path:
    """Return the path of the file that says that the segments were merged."""
    old = rewritten.old
    return old.directory / f"{old.base_offset:020}-{rewritten.end[0]:020}{MERGE_SUFFIX}"


class SegmentRewriter:
    """Writes the kept messages of consecutive segments to the file that will replace them; from any thread."""

    def __init__(self, sources: Sequence[ClosedSegment]) -> None:
        self._sources = sources
        self._old = old = sources[0]
        self._path = old.directory / f"{old.base_offset:020}{CLEANED_SUFFIX}"
        self._index = Index()
        self._bucket = -1
        self._offset, self._position = old.base_offset, 0
        self._max_timestamp_us = 0
        self._file: File | None = None

    def add(self, data: Data, end_offset: int, max_timestamp_us: int) -> None:
        """Write one chunk, which begins at the end of the one before. Raises OSError if the disk refuses it."""
        if self._file is None:
            self._file = self._old.disk.open(self._path, write=True)
            # a crash may have left the file of an earlier attempt
            self._file.resize(0)
        self._file.write(data, self._position)
        bucket = self._position >> INDEX_EVERY_SHIFT
        if bucket != self._bucket:
            self._bucket = bucket
            self._index.add(self._offset, self._position, self._max_timestamp_us)
        self._max_timestamp_us = max(self._max_timestamp_us, max_timestamp_us)
        self._offset, self._position = end_offset, self._position + len(data)

    def finish(self) -> RewrittenSegment:
        """Make the file durable and return it. Raises OSError if the disk refuses that."""
        old, file = self._old, self._file
        assert file is not None, "has a chunk"
        assert self._offset == self._sources[-1].end_offset, "covers all offsets of the segments"
        file.sync()
        file.close()
        end = self._offset, self._position
        rewritten = RewrittenSegment(self._sources, self._path, end, self._max_timestamp_us, self._index)
        if self._position >= old.size_bytes:
            old.disk.remove(open_closed(old).index_path)
        if len(self._sources) > 1:
            old.disk.open(_merge_path(rewritten), write=True).close()
        if self._position >= old.size_bytes or len(self._sources) > 1:
            sync_directory(old.disk, old.directory)
        return rewritten

    def abandon(self) -> None:
        """Delete the written file."""
        with contextlib.suppress(OSError):
            if self._file is not None:
                self._file.close()
            self._old.disk.remove(self._path)


def settle(rewritten: RewrittenSegment) -> None:
    """Make the rename durable, then write the new index and delete the files of segments that were merged.

    Raises OSError if the disk refuses that; the next start does the rest.
    """
    old = rewritten.old
    sync_directory(old.disk, old.directory)
    segment = Segment(old.disk, old.directory, old.base_offset)
    segment.take_rewritten(LogPosition(*rewritten.end), rewritten.max_timestamp_us, rewritten.entries)
    segment.save_index()
    if len(rewritten.sources) > 1:
        for source in rewritten.sources[1:]:
            merged = open_closed(source)
            old.disk.remove(merged.path)
            old.disk.remove(merged.index_path)
        sync_directory(old.disk, old.directory)
        old.disk.remove(_merge_path(rewritten))


def leave_out_merged(disk: Disk, directory: Path, names: Sequence[str], bases: list[int]) -> list[int]:
    """Remove from ``bases``, ascending, the segments that were merged into an earlier one; return those.

    ``names`` are the files of the directory. Segments stay if the rename of the merged file did not last.
    """
    left_out: list[int] = []
    for found in filter(None, map(_MERGE_NAME.fullmatch, names)):
        first, end = int(found[1]), int(found[2])
        merged = [base for base in bases if first < base < end]
        if merged and first in bases and _reaches(Segment(disk, directory, first), end):
            left_out += merged
    bases[:] = [base for base in bases if base not in left_out]
    return left_out


def _reaches(segment: Segment, end_offset: int) -> bool:
    """Return whether the chunks of a segment lead to an offset, or past it: it may have been merged again since."""
    scan = segment.scan_to_end(IndexEntry(segment.base_offset, 0, 0), stop_offset=end_offset)
    return scan.end_offset >= end_offset
