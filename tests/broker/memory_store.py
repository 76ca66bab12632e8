"""A store whose logs lie in memory and whose disk is slow: what a broker may ask of another log, and no more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from lading.chunk.envelope import ENVELOPE_BYTES
from lading.chunk.overlay import RangeKind
from lading.log.access_file import AccessFile
from lading.log.catalog import FILE_NAME, Catalog
from lading.log.directory import DataDirectory
from lading.log.disk import File, RealDisk
from lading.log.interface import (
    ClosedSegment,
    ClosingSteps,
    Damage,
    InPlace,
    PartitionLog,
    RecoveryReport,
    Reservation,
    RewrittenSegment,
    SegmentInfo,
    Snapshot,
    Span,
    Write,
    WriteResult,
)
from lading.log.intervals import Intervals
from lading.log.open_chunk import OpenChunk
from lading.model.errors import Refusal
from lading.model.run import Run
from lading.model.state import State
from lading.runtime.clock import Dates
from tests.simulation.stepped_commit import SteppedCommit


class NoFile:
    """Stands for what has to be synced."""

    def sync(self) -> None:
        """Nothing lies on a disk."""


class MemoryLog:
    """A partition's log in memory: a list of chunks."""

    tail: Run | None = None
    segments_count = 1
    rolls_count = 0
    segment_bytes = 1 << 30
    path = Path("memory")

    def __init__(self, topic_id: bytes, epoch: int, dates: Dates) -> None:
        self.topic_id, self.epoch, self.epochs = topic_id, epoch, [(epoch, 0)]
        self.first_offset = self.next_offset = self.high_watermark = self.last_stable_offset = 0
        self.dates = dates
        self.watched = False
        self._chunks: list[tuple[int, int, np.ndarray[tuple[int], np.dtype[np.uint8]], int]] = []
        self._ranges = {kind: Intervals() for kind in ("state", "aborted", "control")}
        self._snapshots: dict[str, Snapshot] = {}
        self._time_us = 0
        self.reopen()

    def reopen(self) -> None:
        """As another owner finds it."""
        self.refusal: Refusal | None = None
        self.recovery = RecoveryReport(True, self.next_offset, settled_end=self.next_offset)
        self.on_synced: Callable[[], None] | None = None
        self.is_begun = True
        self.on_refusal: Callable[[Refusal | None], None] = lambda refusal: None
        self.on_damage: Callable[[Sequence[Damage]], None] = lambda damage: None
        self.on_opened: Callable[[], None] = lambda: None
        self.on_rest: Callable[[], None] = lambda: None
        self._chunk: OpenChunk | None = None
        self._written = False
        self._syncing = 0
        self._held: int | None = self.next_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of all chunks."""
        return sum(len(data) for _, _, data, _ in self._chunks)

    # -- append

    def stop_writing(self, problem: str) -> None:
        """A directory in memory is never deleted."""
        raise NotImplementedError(problem)

    def reserve(self, dialect: int, flags: int, room_bytes: int) -> Reservation:
        """Room in the open chunk, or in a new one."""
        key = dialect << 16 | flags
        if self._chunk is not None:
            at = self._chunk.room(key, room_bytes)
            if at is not None:
                return Reservation(self._chunk.buffer.array, at, self.next_offset)
            self.flush()
        chunk = self._chunk = OpenChunk.with_room(key, self.next_offset, room_bytes)
        return Reservation(chunk.buffer.array, ENVELOPE_BYTES, self.next_offset)

    def commit(self, size_bytes: int, count: int, min_timestamp_us: int, max_timestamp_us: int) -> int:
        """What was written is part of the open chunk."""
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
        """Reserve, copy and commit."""
        array, at, _ = self.reserve(dialect, flags, len(body))
        array[at : at + len(body)] = np.frombuffer(body, np.uint8)
        return self.commit(len(body), count, min_timestamp_us, max_timestamp_us)

    def write_through(self, dialect: int, flags: int, room_bytes: int, write: Write) -> WriteResult:
        """A chunk of its own."""
        self.flush()
        array, at, base_offset = self.reserve(dialect, flags, room_bytes)
        written = write(array, at, base_offset)
        self.commit(*written)
        self.flush()
        return written

    def write_in_place(self, dialect: int, flags: int, messages: InPlace, write: Write) -> WriteResult:
        """A chunk of its own, copied all the same."""
        body = messages.array[messages.start :].copy()

        def copied(array: np.ndarray[tuple[int], np.dtype[np.uint8]], at: int, base_offset: int) -> WriteResult:
            written = write(body, 0, base_offset)
            array[at : at + len(body)] = body
            return written

        return self.write_through(dialect, flags, len(body), copied)

    def flush(self) -> None:
        """Seal the open chunk."""
        chunk, self._chunk = self._chunk, None
        if chunk is not None and chunk.count:
            data = np.frombuffer(bytes(chunk.seal()), np.uint8)
            self._chunks.append((chunk.base_offset, self.next_offset, data, chunk.max_timestamp_us))
            self._written = True
        if chunk is not None:
            chunk.release()

    def append_time_us(self, now_us: int) -> int:
        """Times never fall."""
        self._time_us = max(self._time_us, self.dates.of(now_us))
        return self._time_us

    # -- sync

    def begin_sync(self) -> Sequence[File]:
        """Something, where there is something to sync."""
        if not self._written:
            return ()
        self._written, self._syncing = False, self._chunks[-1][1]
        return (NoFile(),)  # type: ignore[return-value]

    def complete_sync(self) -> None:
        """Readers see it."""
        self.high_watermark = max(self.high_watermark, self._syncing)
        self._move_stable()
        if self.on_synced is not None:
            self.on_synced()

    def fail_sync(self, error: OSError) -> None:
        """Memory does not fail."""
        raise error

    def _move_stable(self) -> None:
        held = self.high_watermark if self._held is None else self._held
        self.last_stable_offset = min(self.high_watermark, held)

    def hold_last_stable_offset(self, offset: int | None) -> None:
        """An open transaction begins there."""
        self._held = offset
        self._move_stable()

    # -- read

    def read(self, offset: int, max_bytes: int) -> Span | None:
        """One chunk."""
        offset = max(offset, self.first_offset)
        for base_offset, end_offset, data, _ in self._chunks:
            if offset < end_offset <= self.high_watermark:
                return Span(data, 0, len(data), base_offset, end_offset)
        return None

    def damaged_ranges(self, first: int, end: int) -> list[tuple[int, int]]:
        """None ever."""
        return []

    def offset_at(self, timestamp_us: int) -> int:
        """The first chunk that has one so late."""
        found = (base for base, _, _, latest_us in self._chunks if latest_us >= timestamp_us)
        return max(next(found, self.high_watermark), self.first_offset)

    # -- states

    def set_state(self, first: int, end: int, state: int, now_us: int) -> None:
        """Set it."""
        self._ranges["state"].set(first, end, None if state == State.AVAILABLE else state)

    def add_aborted(self, first: int, end: int, now_us: int = 0) -> None:
        """Note it."""
        self._ranges["aborted"].set(first, end, 0)

    def add_control(self, first: int, end: int, now_us: int = 0) -> None:
        """Note it."""
        self._ranges["control"].set(first, end, 0)

    def sync_states(self) -> None:
        """They are there."""

    def unavailable_ranges(self, first: int, end: int, count_max: int | None = None) -> list[tuple[int, int, int]]:
        """Those that are not available."""
        return self._ranges["state"].overlapping(first, end, count_max)

    @property
    def has_unavailable(self) -> bool:
        """Whether there are any of those."""
        return len(self._ranges["state"]) > 0

    def aborted_ranges(self, first: int, end: int) -> list[tuple[int, int]]:
        """Aborted ones."""
        return [one[:2] for one in self._ranges["aborted"].overlapping(first, end)]

    def control_ranges(self, first: int, end: int) -> list[tuple[int, int]]:
        """Control records."""
        return [one[:2] for one in self._ranges["control"].overlapping(first, end)]

    # -- keeping

    def segments(self) -> list[SegmentInfo]:
        """All of it is one."""
        latest_us = max((one[3] for one in self._chunks), default=0)
        return [SegmentInfo(self.first_offset, self.next_offset, self.size_bytes, latest_us)]

    def roll(self) -> bool:
        """All of it is one segment, always."""
        return False

    def list_closed_segments(self) -> list[ClosedSegment]:
        """None is ever closed."""
        return []

    def replace_segment(self, rewritten: RewrittenSegment) -> bool:
        """There is none."""
        return False

    def forget_ranges(self, kind: RangeKind, ranges: Sequence[tuple[int, int]]) -> None:
        """Nothing is ever rewritten."""

    def truncate_before(self, offset: int) -> None:
        """Forget what lies before."""
        self.first_offset = max(self.first_offset, min(offset, self.high_watermark))
        self._chunks = [one for one in self._chunks if one[1] > self.first_offset]

    def snapshot(self, name: str, data: bytes) -> None:
        """Keep it."""
        self._snapshots[name] = Snapshot(self.next_offset, data)

    def snapshot_at_close(self, name: str, data: bytes) -> None:
        self.snapshot(name, data)

    def forget_snapshot(self, name: str) -> None:
        """Forget it."""
        self._snapshots.pop(name, None)

    def load_snapshot(self, name: str) -> Snapshot | None:
        """The last one."""
        return self._snapshots.get(name)

    def rest(self) -> bool:
        """There are no files."""
        return False

    def maintain(self, now_us: int) -> int | None:
        """There is nothing to do."""
        return None

    def close(self) -> None:
        """What was flushed is there."""
        self.flush()
        self.high_watermark = self.next_offset

    def close_in_steps(self) -> ClosingSteps:
        self.close()
        yield from ()

    def drop(self) -> None:
        """It has no files."""


class MemoryStore:
    """A store whose topics and catalog lie in ``data``, and whose logs are those of ``logs``."""

    def __init__(self, data: Path, logs: dict[Path, MemoryLog]) -> None:
        self.commit = SteppedCommit()
        self.dates = Dates()
        self.directory = DataDirectory(data, RealDisk())
        self.access_file = AccessFile(data)
        self.catalog = Catalog(data / FILE_NAME, RealDisk(), self.dates)
        self._logs = logs

    def open_log(self, path: Path, topic_id: bytes, first_epoch: int, now_us: int) -> PartitionLog:
        """The log as it was left, or a new one."""
        log = self._logs.get(path)
        if log is None or log.topic_id != topic_id:
            log = self._logs[path] = MemoryLog(topic_id, first_epoch, self.dates)
        log.dates = self.dates
        log.reopen()
        return log
