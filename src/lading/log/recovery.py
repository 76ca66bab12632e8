"""Log recovery: what is checked, truncated and repaired on open (promise 4).

The check changes nothing; ``Repairs`` lists the changes, and can be applied again after a crash in between. A log
that its owner closed cleanly is trusted. Otherwise everything from the last index entry at or below the
high watermark is read and checked:

* a bad region above the high watermark with nothing intact after it is a torn tail: copied to a file, then truncated;
* any other bad region is damage: it stays unchanged, is reported by offset, and its offsets are not used again.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ..model.errors import CorruptLog
from . import snapshots, watermark
from .active import ActiveSegment
from .disk import Disk, read_all, replace, sync_directory
from .formats import GATE
from .found_files import LogFiles
from .index import Index, IndexEntry
from .interface import Damage, RecoveryReport, TornTail
from .rewriting import leave_out_merged
from .scan import Scan
from .segment import LOG_SUFFIX, LogPosition, Segment, segment_name
from .watermark import StatesMark, Watermark

KEPT_SUFFIX: Final = ".cut"


@dataclass(slots=True)
class Repairs:
    """Changes to the directory: first torn bytes are copied, then the epoch is durable, then files are truncated."""

    cut: tuple[Path, int, int] | None = None
    """(segment file, size to truncate it to, number of bytes to copy before)"""
    drop: list[Path] = field(default_factory=list)
    """Segment files without an intact chunk after the end."""
    forget: list[Path] = field(default_factory=list)
    """Files to delete: indexes of segments that are written again from their end on, because they may have entries of
    lost chunks, which a later power cut might bring back; and snapshots that cover lost messages."""
    sync: list[Path] = field(default_factory=list)
    """Files whose tail is intact, but was perhaps never synced."""


@dataclass(slots=True)
class Tail:
    """The segment in which writing continues: its index, the end of its chunks, its latest message, its damage."""

    base_offset: int
    index: Index
    end: LogPosition
    max_timestamp_us: int
    damage: list[Damage]


@dataclass(slots=True)
class RecoveredLog:
    """The state of a log as recovery found it. Writing continues in ``tail``, or in a new segment if that is None."""

    first_offset: int
    next_offset: int
    stable_before: int
    clock_us: int
    epochs: list[tuple[int, int]]
    new_epoch: int | None
    closed: list[Segment]
    tail: Tail | None
    gaps: list[Damage]
    """Offsets that no segment covers."""
    repairs: Repairs
    report: RecoveryReport
    states: StatesMark | None
    """Size of ``states.log`` on disk, according to the watermark; None if it does not say."""
    names: Sequence[str]
    """The files of the directory."""


def is_new(names: Sequence[str]) -> bool:
    """Return whether a directory with these files has never held a log."""
    return watermark.FILE_NAME not in names and not segment_bases(names)


def recover(
    disk: Disk, directory: Path, files: LogFiles, topic_id: bytes, *, now_us: int, first_epoch: int
) -> RecoveredLog:
    """Recover the log in ``directory``, which has these files and is not new. Raises CorruptLog if it is ambiguous."""
    data = files.watermark
    if data is None:
        path = directory / watermark.FILE_NAME
        data = read_all(disk, path)
        GATE.require_known_watermark(data or b"", path)
    mark = watermark.unpack(data) if data is not None else None
    notes: list[str] = []
    if mark is None:
        notes.append(
            f"{directory / watermark.FILE_NAME} is {'missing' if data is None else 'damaged'}: the end of what was "
            "synced and the epochs so far are not known, a new epoch begins; messages that were deleted from the front "
            "of its first segment are returned again"
        )
    elif mark.topic_id != topic_id:
        raise CorruptLog(
            f"{directory} belongs to topic {mark.topic_id.hex()}, not to {topic_id.hex()}; move it where it belongs"
        )
    elif (untouched := _recover_empty_tail(mark, files)) is not None:
        return untouched
    return _Recovery(disk, directory, mark, files, notes, now_us, first_epoch).run()


def _recover_empty_tail(mark: Watermark, files: LogFiles) -> RecoveredLog | None:
    """Return the log if its owner closed it and its only segment is empty, as ``_Recovery`` would find it.

    Most of the thousands of partitions that a start opens are such, and this takes a third of the time.
    """
    if not mark.clean or files.sizes_bytes is None or len(files.sizes_bytes) != 1:
        return None
    end = mark.high_watermark
    if end != mark.first_offset or files.size_bytes(segment_name(end)) != 0:
        return None
    return RecoveredLog(
        end,
        end,
        min(mark.last_stable_offset, end),
        mark.clock_us,
        list(mark.epochs),
        None,
        [],
        Tail(end, Index(), LogPosition(end, 0), 0, []),
        [],
        Repairs(),
        RecoveryReport(True, end, 0, [], [], [], settled_end=mark.last_stable_offset),
        mark.states,
        files.names,
    )


def segment_bases(names: Sequence[str]) -> list[int]:
    """Return the base offsets of the segments among these file names, ascending."""
    stems = [name[: -len(LOG_SUFFIX)] for name in names if name.endswith(LOG_SUFFIX)]
    return sorted(int(stem) for stem in stems if len(stem) == 20 and stem.isascii() and stem.isdigit())


def make_last(disk: Disk, repairs: Repairs) -> None:
    """Fsync recovered data before readers can see it."""
    for path in repairs.sync:
        file = disk.open(path)
        file.sync()
        file.close()
    repairs.sync = []


def apply_repairs(disk: Disk, directory: Path, repairs: Repairs, write_head: bytes) -> None:
    """Apply the changes. Raises OSError, and can then be called again."""
    for path in repairs.forget:
        # durable together with the directory, before anything new is written
        disk.remove(path)
    if repairs.cut is not None:
        path, position, size_bytes = repairs.cut
        replace(disk, torn_tail_path(path, position), read_part(disk, path, position, size_bytes))
    for path in repairs.drop:
        disk.rename(path, path.with_suffix(KEPT_SUFFIX))
    replace(disk, directory / watermark.FILE_NAME, write_head)
    if repairs.cut is not None:
        path, position, _ = repairs.cut
        file = disk.open(path, write=True)
        file.resize(position)
        file.sync()
        file.close()
    repairs.cut, repairs.drop, repairs.forget = None, [], []


def read_part(disk: Disk, path: Path, position: int, size_bytes: int) -> bytes:
    """Return bytes of a file."""
    file = disk.open(path)
    try:
        return file.read(position, size_bytes)
    finally:
        file.close()


def torn_tail_path(path: Path, position: int) -> Path:
    """Return the path of the file for a torn tail."""
    return path.with_name(f"{path.stem}-{position}{KEPT_SUFFIX}")


class _Recovery:
    """One pass over a directory."""

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        mark: Watermark | None,
        files: LogFiles,
        notes: list[str],
        now_us: int,
        first_epoch: int,
    ) -> None:
        self.disk, self.directory, self.mark, self.files, self.notes = disk, directory, mark, files, notes
        self.bases = bases = segment_bases(files.names)
        self.now_us, self.first_epoch = now_us, first_epoch
        self.synced = mark.high_watermark if mark else 0
        self.first = mark.first_offset if mark else (bases[0] if bases else 0)
        self.damage: list[Damage] = []
        self.repairs = Repairs()
        self.unused: list[Segment] = []
        self.scanned_bytes = 0

    def run(self) -> RecoveredLog:
        # first: a segment that others were merged into is recognised by their ends
        merged = leave_out_merged(self.disk, self.directory, self.files.names, self.bases)
        self.unused += [Segment(self.disk, self.directory, base) for base in merged]
        self._leave_out_forgotten()
        segments = [Segment(self.disk, self.directory, base) for base in self.bases]
        tail = self._clean_tail(segments)
        clean = tail is not None or (self.mark is not None and self.mark.clean and not segments and not self.synced)
        if tail is None and segments:
            tail = self._read_tail(segments)
        next_offset = max(tail.end.offset if tail else 0, self.synced, self.first)
        if tail is not None:
            segments = [segment for segment in segments if segment.base_offset <= tail.base_offset]
            if tail.end.offset < next_offset:
                # the lost part stays as it is; the log continues in a new segment
                _close_damaged_segment(segments[-1], tail, next_offset)
                tail = None
            else:
                continued = segments.pop()
                if not clean:
                    self.repairs.forget.append(continued.index_path)
        begins = segments[0].base_offset if segments else tail.base_offset if tail else next_offset
        gaps = [Damage(self.first, begins, self.directory, 0, 0)] if begins > self.first else []
        self._find_ends(segments, tail.base_offset if tail else next_offset)
        epochs, new_epoch = self._next_epochs(next_offset, clean)
        settled_end = self.mark.last_stable_offset if self.mark else 0
        # the next start would find the damage recorded, and trust these files
        wrong = snapshots.list_wrong(self.disk, self.directory, self.files.names, self.damage, settled_end)
        self.repairs.forget += wrong
        self._delete_unused()
        cuts = []
        if self.repairs.cut is not None:
            path, position, size_bytes = self.repairs.cut
            cuts.append(TornTail(path, position, size_bytes, torn_tail_path(path, position)))
        return RecoveredLog(
            first_offset=self.first,
            next_offset=next_offset,
            stable_before=min(settled_end if self.mark else next_offset, next_offset),
            clock_us=max(
                self.mark.clock_us if self.mark else 0, min(tail.max_timestamp_us if tail else 0, self.now_us)
            ),
            epochs=epochs,
            new_epoch=new_epoch,
            closed=segments,
            tail=tail,
            gaps=gaps,
            repairs=self.repairs,
            report=RecoveryReport(
                clean,
                next_offset,
                self.scanned_bytes,
                cuts,
                [*gaps, *self.damage],
                list(dict.fromkeys(self.notes)),
                settled_end=settled_end,
            ),
            states=self.mark.states if self.mark else None,
            names=self.files.names,
        )

    def _leave_out_forgotten(self) -> None:
        """Exclude segments that ``truncate_before`` had recorded for deletion, but not deleted yet."""
        while len(self.bases) > 1 and self.bases[1] <= self.first:
            self.unused.append(Segment(self.disk, self.directory, self.bases.pop(0)))

    def _delete_unused(self) -> None:
        """Delete files that are not used; last of all, so that nothing is changed if the check of the rest fails."""
        for segment in self.unused:
            self.disk.remove(segment.path)
            self.disk.remove(segment.index_path)

    def _clean_tail(self, segments: list[Segment]) -> Tail | None:
        """Return the last segment as its owner closed it, or None if it was not closed, or changed since."""
        if self.mark is None or not self.mark.clean or not segments:
            return None
        last = segments[-1]
        size_bytes = self._size_bytes(last)
        if last.base_offset == self.synced and size_bytes == 0:
            return Tail(last.base_offset, Index(), LogPosition(self.synced, 0), 0, [])
        index = self._read_index(last)
        end = index.end
        if end is None or (end.offset, end.position) != (self.synced, size_bytes):
            self.notes.append(f"{last.path} is not as it was when the log was closed; its end is read again")
            return None
        index.end = None
        return Tail(last.base_offset, index, LogPosition(end.offset, end.position), end.max_timestamp_us, [])

    def _read_tail(self, segments: list[Segment]) -> Tail:
        """Check all from the last index entry at or below the high watermark; the log ends after what is intact."""
        begin = len(segments) - 1
        while begin and segments[begin].base_offset > self.synced and self.mark is not None:
            begin -= 1
        results = [self._scan(segment) for segment in segments[begin:]]
        whole = [
            found.end_offset > segment.base_offset for segment, found in zip(segments[begin:], results, strict=True)
        ]
        last = max((i for i, holds_chunks in enumerate(whole) if holds_chunks), default=0)
        for segment, found in zip(segments[begin + last + 1 :], results[last + 1 :], strict=True):
            if found.bad_bytes:
                self.repairs.drop.append(segment.path)
                self.repairs.forget.append(segment.index_path)
            else:
                self.unused.append(segment)
        for i in range(last):
            segments[begin + i].close_at(results[i], segments[begin + i + 1].base_offset, results[i].told_end)
            self.damage += results[i].damage
        segment, found = segments[begin + last], results[last]
        if found.end_offset < self.synced:
            found.damage += segment.find_lost_end(found, self.synced)
        elif found.bad_bytes:
            self.repairs.cut = (segment.path, found.end_position, found.bad_bytes)
        if found.end_offset > self.synced:
            self.repairs.sync += [segment.path for segment in segments[begin : begin + last + 1]]
            self.repairs.sync.append(self.directory)
        self.damage += found.damage
        end = LogPosition(found.end_offset, found.end_position)
        return Tail(segment.base_offset, found.index, end, found.max_timestamp_us, found.damage)

    def _scan(self, segment: Segment) -> Scan:
        """Read the end of a segment, starting at its last plausible index entry."""
        index = self._read_index(segment)
        hints = [index.entry(i) for i in range(len(index))]
        number = index.at_offset(self.synced - 1) if self.mark else -1
        start = index.entry(number) if number >= 0 else IndexEntry(segment.base_offset, 0, 0)
        found = segment.scan_to_end(start, hints)
        if start.position and found.index.positions[:1] != array("q", [start.position]):
            # the entry does not point to a whole chunk: the index may be older than the bytes
            start = IndexEntry(segment.base_offset, 0, 0)
            found = segment.scan_to_end(start, hints)
        self.scanned_bytes += found.end_position - start.position
        # the same question as at the next start, which may find nothing else in a damaged index
        found.told_end = index.end or segment.read_told_end()[0]
        index.cut(start.position)
        for i in range(len(found.index)):
            index.add(*found.index.entry(i))
        found.index = index
        return found

    def _size_bytes(self, segment: Segment) -> int:
        known = self.files.size_bytes(segment.name)
        return segment.file_size() if known is None else known

    def _read_index(self, segment: Segment) -> Index:
        index, fault = segment.read_index()
        if fault:
            self.notes.append(f"{segment.index_path}: {fault}; what it lacks is read from the segment")
        return index

    def _find_ends(self, segments: list[Segment], end_offset: int) -> None:
        """Determine the end of every closed segment; one whose index does not have it is read."""
        ends = [*[segment.base_offset for segment in segments], end_offset][1:]
        read: list[Segment] = []
        for segment, end in zip(segments, ends, strict=True):
            if segment.end is not None or segment.load_end(end, self._size_bytes(segment)):
                continue
            found = segment.find_end(end)
            read.append(segment)
            self.scanned_bytes += found.end_position
            self.damage += found.damage
            self.notes.append(f"{segment.index_path}: {segment.index_fault}; rebuilt from the segment")
        for segment in read:
            segment.save_index()

    def _next_epochs(self, next_offset: int, clean: bool) -> tuple[list[tuple[int, int]], int | None]:
        if self.mark is None:
            # an epoch must never be used twice: seconds since 1970 are above any count
            epoch = max(self.now_us // 1_000_000, self.first_epoch)
            return [(epoch, next_offset)], epoch
        epochs = list(self.mark.epochs)
        if clean or (self.mark.clean and next_offset == self.synced and not self.repairs.cut):
            return epochs, None
        epoch = (epochs[-1][0] if epochs else self.first_epoch) + 1
        return watermark.next_epochs(epochs, epoch, next_offset), epoch


def _close_damaged_segment(segment: Segment, tail: Tail, end_offset: int) -> None:
    segment.end = LogPosition(end_offset, max(damage.stop for damage in tail.damage))
    segment.damage, segment.max_timestamp_us = tail.damage, tail.max_timestamp_us


def open_tail(disk: Disk, directory: Path, found: RecoveredLog) -> ActiveSegment:
    """Open the segment to write to: the recovered one, or a new one."""
    if found.tail is None:
        active = ActiveSegment(disk, directory, found.next_offset)
        sync_directory(disk, directory)
        return active
    # closed in order: it is opened at the first write, since a start would open thousands
    resting_bytes = found.tail.end.position if found.report.clean else None
    active = ActiveSegment(disk, directory, found.tail.base_offset, resting_bytes=resting_bytes)
    active.resume(found.tail.index, found.tail.end, found.tail.max_timestamp_us)
    active.damage = list(found.tail.damage)
    return active
