"""One partition's log on a local disk: appended to by the event loop, synced by group commit, read through maps."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Sequence
from dataclasses import replace as replaced
from pathlib import Path
from typing import Final

import numpy as np

from ..chunk.envelope import ENVELOPE_BYTES
from ..chunk.overlay import OverlayRecord, RangeKind
from ..model.chunk_table import BASE_OFFSET
from ..model.errors import Reason, Refusal
from ..model.run import Run
from ..runtime.clock import Dates
from . import snapshots, watermark
from .buffers import Buffer
from .closing import close_logs
from .creation import create_logs
from .disk import Disk, File, place_of, refusal, write_temporary
from .found_files import LogFiles
from .interface import (
    ClosedSegment,
    ClosingSteps,
    Damage,
    InPlace,
    RecoveryReport,
    Reservation,
    RewrittenSegment,
    SegmentInfo,
    Snapshot,
    Span,
    Write,
    WriteResult,
    WrittenFiles,
)
from .open_chunk import OpenChunk
from .overlay import FILE_NAME as STATES_FILE
from .overlay import Overlay
from .recovery import RecoveredLog, apply_repairs, is_new, make_last, open_tail, recover
from .segments import Reached, Segments
from .watermark_file import WatermarkFile, WatermarkSlot

_INDEX_EVERY_US: Final = 1_000_000
"""The index is a shortcut that recovery rebuilds: writing it more often would only cost."""


def open_partition(
    disk: Disk, path: Path, topic_id: bytes, *, segment_bytes: int, now_us: int, first_epoch: int = 1,
    files: LogFiles | None = None,
) -> DiskPartitionLog:  # fmt: skip
    """Open the log in the directory ``path``, or create it; its ``recovery`` is the report of recovery.

    ``files`` are its files, if the caller has just looked at them.

    Raises CorruptLog if the directory belongs to another topic or its files contradict each other, OSError if
    the disk fails. On a full disk the log opens for readers and refuses appends.
    """
    if files is None:
        try:
            files = LogFiles(disk.names(path))
        except FileNotFoundError:
            files = LogFiles(())
    if is_new(files.names):
        disk.make_directory(path)
        create_logs(disk, [path], topic_id, first_epoch)
        files = LogFiles(disk.names(path))
    found = recover(disk, path, files, topic_id, now_us=now_us, first_epoch=first_epoch)
    for name in files.names:
        if name.endswith(".tmp"):
            disk.remove(path / name)
    make_last(disk, found.repairs)
    return DiskPartitionLog(disk, path, topic_id, found, segment_bytes, now_us)


class DiskPartitionLog:
    """See ``interface.PartitionLog``, which says what each method means.

    The files next to the messages (watermark, states of ranges, snapshots) determine the limits of readers; if one of
    them cannot be written, the log refuses messages.
    """

    tail: Run | None
    recovery: RecoveryReport

    def __init__(
        self, disk: Disk, path: Path, topic_id: bytes, found: RecoveredLog, segment_bytes: int, now_us: int
    ) -> None:
        self.on_synced: Callable[[], None] | None = None
        self.is_begun = self._begins = False
        self.watched, self.tail = False, None
        self.segment_bytes = segment_bytes
        self._chunk: OpenChunk | None = None
        self._written = False
        """Whether something was written since the last ``begin_sync``."""
        self._also_sync: list[File] = []
        self._syncing: Reached | None = None
        """How far the sync in progress covers the segments."""
        self._index_due_us = now_us
        self._snapshots_at_close: dict[Path, bytes] = {}
        self.path = path
        self.topic_id = topic_id
        self.epochs, self.epoch = found.epochs, found.epochs[-1][0]
        self.first_offset = found.first_offset
        self.next_offset = self.high_watermark = self.last_stable_offset = found.next_offset
        self.refusal: Refusal | None = None
        self.on_refusal: Callable[[Refusal | None], None] = _ignore
        self.on_damage: Callable[[Sequence[Damage]], None] = _ignore
        self.on_opened: Callable[[], None] = do_nothing
        self.on_rest: Callable[[], None] = do_nothing
        self._disk = disk
        self._found: RecoveredLog | None = found
        self._clock_us = found.clock_us
        self.dates = Dates()
        self._held: int | None = found.stable_before if found.next_offset else None
        has_states = STATES_FILE in found.names
        self._overlay = Overlay(disk, path, found.states, is_missing=not has_states)
        self.recovery = found.report
        if self._overlay.notes:
            self.recovery = replaced(
                found.report,
                clean=found.report.clean and not self._overlay.lost,
                notes=[*found.report.notes, *self._overlay.notes],
                states_lost=self._overlay.lost,
            )
        self._is_loading = True
        """Whether the log's messages about others are still being read: nothing was held back yet."""
        if has_states:
            self._overlay.forget_from(found.next_offset)
        self._segments = Segments(disk, path, found.closed, open_tail(disk, path, found), found.gaps)
        # looked up at each call: they are set later
        self._segments.watch(lambda damage: self.on_damage(damage), lambda: self.on_opened())

        self._mark = WatermarkFile(disk, path, now_us)
        self._update_last_stable_offset()
        self._mark.stale = False
        # the next reader of the log finds which states are lost, before ``hold_stable``; until then the watermark still
        # says that something is missing, so that a crash in between is noticed too
        if not self._overlay.lost and (not found.report.clean or self._overlay.needs_rewrite):
            with contextlib.suppress(Refusal):
                self._apply_repairs()

    # ------------------------------------------------------------------------------------------ append

    def reserve(self, dialect: int, flags: int, room_bytes: int) -> Reservation:
        key = dialect << 16 | flags
        chunk = self._chunk
        if chunk is not None:
            at = chunk.room(key, room_bytes)
            if at is not None:
                return Reservation(chunk.buffer.array, at, self.next_offset)
            self.flush()
        self._require_writable()
        chunk = self._chunk = OpenChunk.with_room(key, self.next_offset, room_bytes)
        return Reservation(chunk.buffer.array, ENVELOPE_BYTES, self.next_offset)

    def commit(self, size_bytes: int, count: int, min_timestamp_us: int, max_timestamp_us: int) -> int:
        assert self._chunk is not None
        self._chunk.add(size_bytes, count, min_timestamp_us, max_timestamp_us)
        self.next_offset += count
        return self.next_offset - count

    def append(
        self,
        dialect: int,
        flags: int,
        body: bytes | memoryview,
        count: int,
        min_timestamp_us: int,
        max_timestamp_us: int,
    ) -> int:
        array, at, _ = self.reserve(dialect, flags, len(body))
        array[at : at + len(body)] = np.frombuffer(body, np.uint8)
        return self.commit(len(body), count, min_timestamp_us, max_timestamp_us)

    def write_through(self, dialect: int, flags: int, room_bytes: int, write: Write) -> WriteResult:
        chunk = OpenChunk.with_room(dialect << 16 | flags, self.next_offset, room_bytes)
        try:
            return self._write_now(chunk, ENVELOPE_BYTES, write)
        finally:
            chunk.release()

    def write_in_place(self, dialect: int, flags: int, messages: InPlace, write: Write) -> WriteResult:
        array, start = messages
        chunk = OpenChunk(dialect << 16 | flags, self.next_offset, Buffer(array), start - ENVELOPE_BYTES)
        return self._write_now(chunk, start, write)

    def _write_now(self, chunk: OpenChunk, at: int, write: Write) -> WriteResult:
        if self._chunk is not None:
            self.flush()
        if self.refusal is not None:
            self._require_writable()
        written = write(chunk.buffer.array, at, chunk.base_offset)
        chunk.add(*written)
        self.next_offset += chunk.count
        self._write(chunk)
        return written

    def flush(self) -> None:
        chunk, self._chunk = self._chunk, None
        if chunk is None:
            return
        try:
            self._write(chunk)
        finally:
            chunk.release()

    def _write(self, chunk: OpenChunk) -> None:
        if not chunk.count:
            return
        base = chunk.base_offset
        if self.refusal is not None and self._read_only:
            # the chunk was open when the log refused: the appends of its messages fail
            self.next_offset = base
            self._require_writable()
        try:
            if self._segments.active.resting:
                self._wake()
            if not self._mark.begun:
                self._begin_writing()
            data = chunk.seal()
            written = self._segments.active.written.position
            if written and written + len(data) > self.segment_bytes:
                self._also_sync += self._segments.roll(base)
            self._segments.active.append(data, self.next_offset, chunk.max_timestamp_us)
        except OSError as error:
            self.next_offset = base
            self._segments.active.forget_partial_write()
            raise self._refuse(error, "could not be written") from error
        except BaseException:
            self.next_offset = base
            raise
        self._written = True
        self.tail = chunk.run() if self.watched else None
        if self.refusal is not None:
            self.refusal = None
            self.on_refusal(None)

    # ------------------------------------------------------------------------------------------ open files

    def rest(self) -> bool:
        under_way = self._written or self._syncing is not None or self._also_sync or self._mark.stale
        if under_way or self._chunk is not None or self._overlay.unsynced:
            return False
        self._segments.rest()
        self._mark.rest()
        self._overlay.close()
        self.on_rest()
        return True

    # ------------------------------------------------------------------------------------------ durability

    def begin_sync(self) -> Sequence[File]:
        states = self._overlay.begin_sync() if self._overlay.unsynced else None
        if not self._written and states is None:
            return ()
        files, self._also_sync = self._also_sync, []
        if self._written:
            files.append(self._segments.active.file)
        if states is not None:
            files.append(states)
        if not self.is_begun and self._mark.begun:
            # with the first messages, off the loop: nobody has seen them, and if this slot is lost too, the sizes of
            # files show that the log has changed since it was closed
            self._mark.wake()
            files.append(self._mark.file)
            self._begins = True
        self._written = False
        self._syncing = self._segments.written
        return files

    def complete_sync(self) -> None:
        done, self._syncing = self._syncing, None
        if self._begins:
            self.is_begun, self._begins = True, False
        if done is not None and (self.refusal is None or not self._read_only):
            self._overlay.finish_sync()
            self._segments.synced = done
            _, end = done
            self.high_watermark = end.offset
            self._mark.stale = True
            self._update_last_stable_offset()
        if self.on_synced is not None:
            self.on_synced()

    def fail_sync(self, error: OSError) -> None:
        self._syncing, self._begins = None, False
        # after a failed sync, pages in memory may look written although they are not: whatever the error, another
        # attempt proves nothing
        self._refuse(OSError(errno.EIO, error.strerror or str(error)), "could not be synced")
        self.next_offset = max(self.high_watermark, self._segments.active.written.offset)
        if self._chunk is not None:
            self._chunk.release()
            self._chunk = None
        if self.on_synced is not None:
            self.on_synced()

    def maintain(self, now_us: int) -> int | None:
        if self._read_only:
            return None
        if self._mark.stale:
            with contextlib.suppress(OSError):
                self._mark.wake()
        if not self._mark.begun:
            if not self._mark.stale:
                return None
            with contextlib.suppress(OSError, Refusal):
                self._begin_writing()
            if not self._mark.begun:
                return now_us
            self._release_readers()
        self._mark.write_when_due(self._now_marked(), now_us)
        under_way = self._mark.stale or self._syncing is not None or self._written or self._overlay.unsynced
        if -_INDEX_EVERY_US < now_us - self._index_due_us < 0:
            return now_us if under_way else self._index_due_us
        self._index_due_us = now_us + _INDEX_EVERY_US
        if self.is_begun:
            # else a power cut might keep entries of chunks that it loses, in a log that still counts as cleanly closed
            self._segments.active.save_index()
        if self._overlay.wants_compaction or self._overlay.needs_rewrite:
            with contextlib.suppress(OSError):
                self._rewrite_states()
                self._release_readers()
        if under_way:
            return now_us
        return self._index_due_us if self._overlay.needs_rewrite else None

    def _rewrite_states(self) -> None:
        self._mark.forget_states(self._now_marked())
        self._overlay.compact(self.first_offset)

    def _release_readers(self) -> None:
        """Let readers proceed if aborted ranges that a full disk had refused are on disk now."""
        before = self.last_stable_offset
        self._update_last_stable_offset()
        if self.last_stable_offset > before and self.on_synced is not None:
            self.on_synced()

    def close(self) -> None:
        close_logs([self])

    def close_in_steps(self) -> ClosingSteps:
        with contextlib.suppress(Refusal, OSError):
            self.flush()
            if not self.recovery.clean and not self._mark.begun:
                self._begin_writing()
        try:
            yield from self._finish_files()
        except OSError as error:
            if self._syncing is None:
                self.fail_sync(error)
        self._close_files()

    def _finish_files(self) -> ClosingSteps:
        """Finish the segment and the snapshot, then the watermark file, which says that the log was closed cleanly."""
        # while a sync is under way, do not mark the log as closed in order: a file reports an error to that sync only,
        # not to a second one, so this code cannot know whether everything is on disk
        is_marked = self._mark.begun and not self._read_only and self._syncing is None
        first: list[Path] = []
        last: list[Path] = []
        if is_marked:
            self._wake()
            for file in self.begin_sync():
                file.sync()
            self.complete_sync()
            active = self._segments.active
            active.finish()
            # closed at once: thousands of logs close together, and a process may have few open files
            active.close()
            self._mark.rest()
            first.append(active.path)
        snapshot_files = [
            (write_temporary(self._disk, path, data), path) for path, data in self._snapshots_at_close.items()
        ]
        first += [temporary for temporary, _ in snapshot_files]
        if first:
            yield WrittenFiles(self._disk, first)
        for temporary, path in snapshot_files:
            self._disk.rename(temporary, path)
            last = [self.path]
        if is_marked:
            self._mark.wake()
            self._mark.finish(self._now_marked())
            self._mark.rest()
            last.append(self._mark.path)
        if last:
            yield WrittenFiles(self._disk, last)

    def drop(self) -> None:
        chunk, self._chunk = self._chunk, None
        if chunk is not None:
            chunk.release()
        self._close_files()

    def _close_files(self) -> None:
        if self._syncing is None:
            # otherwise they are closed when the sync that has them releases them
            self._segments.active.close()
            self._mark.close()
        self._mark.leave_open()
        self._overlay.close()
        self.refusal = Refusal(Reason.READ_ONLY, f"{place_of(self.path)} is closed; open it again")
        # callbacks refer to the owner of this log: both would stay until the garbage collector runs
        self._unwatch()

    # ------------------------------------------------------------------------------------------ read

    def read(self, offset: int, max_bytes: int) -> Span | None:
        offset = max(offset, self.first_offset)
        return self._segments.read(offset, self.high_watermark, max_bytes) if offset < self.high_watermark else None

    def damaged_ranges(self, first: int, end: int) -> list[tuple[int, int]]:
        return [(max(damage.first, first), min(damage.end, end)) for damage in self.damage(first, end)]

    def damage(self, first: int, end: int) -> list[Damage]:
        """Return the known damage among these offsets, with the bytes that held them."""
        return self._segments.damage(first, end)

    def offset_at(self, timestamp_us: int) -> int:
        found = self._segments.first_since(timestamp_us, self.high_watermark)
        return self.high_watermark if found is None else max(found, self.first_offset)

    def append_time_us(self, now_us: int) -> int:
        date_us = now_us + self.dates.shift_us
        if date_us > self._clock_us:
            self._clock_us = date_us
        return self._clock_us

    # ------------------------------------------------------------------------------------------ states

    def set_state(self, first: int, end: int, state: int, now_us: int) -> None:
        self._note(RangeKind.STATE, state, first, end, now_us)

    def add_aborted(self, first: int, end: int, now_us: int = 0) -> None:
        self._note(RangeKind.ABORTED, 0, first, end, now_us)

    def add_control(self, first: int, end: int, now_us: int = 0) -> None:
        self._note(RangeKind.CONTROL, 0, first, end, now_us)

    def _note(self, kind: RangeKind, state: int, first: int, end: int, now_us: int) -> None:
        first, end = max(first, self.first_offset), min(end, self.next_offset)
        if first >= end:
            return
        record = OverlayRecord(kind, state, first, end, max(now_us, 0))
        if not self._is_loading:
            self._require_writable()
        try:
            self._mark.wake()
            self._overlay.add(record)
        except OSError as error:
            refused = self._refuse(error, "could not keep a state")
            if kind is RangeKind.STATE and not self._is_loading:
                raise refused from error
            # the log's own messages have decided it, and a snapshot of their writers may not show it any more: readers
            # stop before it until ``maintain`` or ``sync_states`` has written it to disk
            self._overlay.remember(record)
            self._mark.stale = True
        self._update_last_stable_offset()

    def unavailable_ranges(self, first: int, end: int, count_max: int | None = None) -> list[tuple[int, int, int]]:
        return self._overlay.unavailable_ranges(first, end, count_max)

    @property
    def has_unavailable(self) -> bool:
        return self._overlay.has_unavailable

    def aborted_ranges(self, first: int, end: int) -> list[tuple[int, int]]:
        return self._overlay.ranges(RangeKind.ABORTED, first, end)

    def control_ranges(self, first: int, end: int) -> list[tuple[int, int]]:
        return self._overlay.ranges(RangeKind.CONTROL, first, end)

    def sync_states(self) -> None:
        if self._overlay.needs_rewrite and not self._overlay.lost:
            try:
                self._mark.wake()
                self._rewrite_states()
            except OSError as error:
                raise self._refuse(error, "could not keep a state") from error
            self._update_last_stable_offset()
        file = self._overlay.begin_sync()
        if file is None:
            return
        try:
            file.sync()
            self._sync_begun()
        except OSError as error:
            self.fail_sync(error)
            raise Refusal(Reason.READ_ONLY, str(self.refusal)) from error
        self._overlay.finish_sync()
        self._mark.stale = True
        self._update_last_stable_offset()

    # ------------------------------------------------------------------------------------------ watermark and refusals

    def _unwatch(self) -> None:
        """Reset the callbacks to their defaults."""
        self.on_refusal = self.on_damage = _ignore
        self.on_opened = self.on_rest = do_nothing
        self._segments.watch(_ignore, do_nothing)

    def _require_writable(self) -> None:
        if self.refusal is not None and self._read_only:
            raise Refusal(Reason.READ_ONLY, str(self.refusal))

    @property
    def _read_only(self) -> bool:
        return self.refusal is not None and self.refusal.reason is Reason.READ_ONLY

    def _refuse(self, error: OSError, what: str) -> Refusal:
        before, self.refusal = self.refusal, refusal(self.path, error, what)
        if before is None or before.reason is not self.refusal.reason:
            self.on_refusal(self.refusal)
        return Refusal(self.refusal.reason, str(self.refusal))

    def stop_writing(self, problem: str) -> None:
        self.refusal = Refusal(Reason.READ_ONLY, problem)
        self.on_refusal(self.refusal)

    def _wake(self) -> None:
        self._segments.active.wake()
        self._mark.wake()

    def _begin_writing(self) -> None:
        """Prepare the first write since opening: record that the log is not closed cleanly any more.

        That is durable with the next sync; until then nothing that was written is acknowledged or visible.
        """
        self._wake()
        has_new_states = self._overlay.needs_rewrite
        if self._found is not None or has_new_states:
            self._apply_repairs()
        self._mark.begin(self._now_marked())
        if has_new_states:
            # the slots of before describe another file, whose states would be reported as lost
            self._sync_begun()

    def _sync_begun(self) -> None:
        """Make durable that the log is being written to, if it is and the disk does not know yet."""
        if not self.is_begun and self._mark.begun:
            self._mark.wake()
            self._mark.file.sync()
            self.is_begun = True

    def _apply_repairs(self) -> None:
        """Apply the repairs of recovery before anything is appended."""
        found = self._found
        try:
            if self._overlay.needs_rewrite:
                self._overlay.compact(self.first_offset)
            if found is not None and not found.report.clean:
                apply_repairs(self._disk, self.path, found.repairs, self._encode_head())
                self._segments.active.on_truncated()
        except OSError as error:
            raise self._refuse(error, "could not be repaired") from error
        self._found = None

    def _encode_head(self) -> bytes:
        return watermark.pack(self.topic_id, self.first_offset, *self._now_marked()[:3], self.epochs)

    def _now_marked(self) -> WatermarkSlot:
        return WatermarkSlot(self.high_watermark, self.last_stable_offset, self._clock_us, self._overlay.mark)

    def _update_last_stable_offset(self) -> None:
        end = self.high_watermark
        floor = self._overlay.unsynced_floor
        if self._held is not None and self._held < end:
            end = self._held
        if floor is not None and floor < end:
            end = floor
        if end != self.last_stable_offset:
            self.last_stable_offset = end
            self._mark.stale = True

    def hold_last_stable_offset(self, offset: int | None) -> None:
        self._held, self._is_loading = offset, False
        self._update_last_stable_offset()
        if self._overlay.lost:
            self._overlay.lost = False
            with contextlib.suppress(Refusal, OSError):
                self._begin_writing()

    # ------------------------------------------------------------------------------------------ snapshots

    def snapshot(self, name: str, data: bytes) -> None:
        try:
            # it may cover messages that are not on disk: if they are lost, the next epoch says that it is not valid
            self._sync_begun()
            snapshots.save(self._disk, self.path, name, self.epoch, self.next_offset, data)
        except OSError as error:
            raise self._refuse(error, f"could not keep the snapshot {name!r}") from error

    def snapshot_at_close(self, name: str, data: bytes) -> None:
        path = snapshots.find_path(self.path, name)
        self._snapshots_at_close[path] = snapshots.pack(self.epoch, self.next_offset, data)

    def forget_snapshot(self, name: str) -> None:
        try:
            snapshots.remove(self._disk, self.path, name)
        except OSError as error:
            # its offsets must not be used again, so nothing is appended any more
            refused = OSError(errno.EIO, error.strerror or str(error))
            raise self._refuse(refused, f"could not delete the snapshot {name!r}") from error

    def load_snapshot(self, name: str) -> Snapshot | None:
        return snapshots.load(self._disk, self.path, name, self.epochs, self.next_offset)

    # ------------------------------------------------------------------------------------------ size and age

    @property
    def size_bytes(self) -> int:
        return self._segments.size_bytes

    @property
    def segments_count(self) -> int:
        return self._segments.count

    @property
    def rolls_count(self) -> int:
        return self._segments.rolls_count

    def segments(self) -> list[SegmentInfo]:
        return self._segments.infos()

    def roll(self) -> bool:
        if self._chunk is not None or self.refusal is not None or not self._segments.active.written.position:
            return False
        try:
            self._wake()
            if not self._mark.begun:
                self._begin_writing()
            self._also_sync += self._segments.roll(self.next_offset)
        except OSError as error:
            raise self._refuse(error, "could not begin a segment") from error
        # a sync makes the new file's name durable, and notifies those that keep something for each segment
        self._written = True
        return True

    # ------------------------------------------------------------------------------------------ compaction

    def list_closed_segments(self) -> list[ClosedSegment]:
        return self._segments.list_closed()

    def replace_segment(self, rewritten: RewrittenSegment) -> bool:
        if self._read_only or not self._segments.replace(rewritten):
            return False
        if self.tail is not None and self.tail.chunks[0, BASE_OFFSET] < rewritten.sources[-1].end_offset:
            # the last written chunk has messages that the file no longer contains
            self.tail = None
        return True

    def forget_ranges(self, kind: RangeKind, ranges: Sequence[tuple[int, int]]) -> None:
        for first, end in ranges:
            self._overlay.forget(kind, first, end)

    def truncate_before(self, offset: int) -> None:
        # the open chunk stays open: a failing write must be reported to its appends, and this caller would not do so
        offset = min(offset, self.high_watermark)
        if offset <= self.first_offset:
            return
        try:
            self._wake()
            if not self._mark.begun:
                self._begin_writing()
            if offset == self.next_offset and self._segments.active.written.position:
                self._also_sync += self._segments.roll(offset)
            self.first_offset = offset
            self._mark.begin_again(self._encode_head(), self._now_marked())
            self.is_begun = True
        except OSError as error:
            raise self._refuse(error, "could not be shortened") from error
        self._segments.delete_before(offset)


def _ignore(news: object) -> None:
    """Do nothing with an event: the default of callbacks."""


def do_nothing() -> None:
    """Do nothing: the default of callbacks without arguments."""
