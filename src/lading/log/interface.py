"""The interfaces of a partition's log, one for each kind of user; another log may implement them (design.md Log).

Offsets count messages from 0; a range is ``first`` to ``end``, ``end`` exclusive. Times are in microseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ..chunk.overlay import RangeKind
from ..model.errors import Refusal
from ..model.lazy_dataclass import lazy_dataclass
from ..model.run import Run
from ..runtime.clock import Dates
from .disk import Disk, File
from .index import Index


class Reservation(NamedTuple):
    """Space for messages: write them at ``array[at:]``, the first with offset ``base_offset``, then call ``commit``."""

    array: NDArray[np.uint8]
    at: int
    base_offset: int


class InPlace(NamedTuple):
    """Messages in memory that can be written without a copy: ``array[start:]``.

    The ENVELOPE_BYTES before ``start`` are free as well, and all of it may be changed.
    """

    array: NDArray[np.uint8]
    start: int


class WriteResult(NamedTuple):
    """Result of a dialect's write into the chunk: number of bytes and messages, lowest and highest timestamp."""

    size_bytes: int
    messages_count: int
    min_timestamp_us: int
    max_timestamp_us: int


Write = Callable[[NDArray[np.uint8], int, int], WriteResult]
"""Called with (array, at, base offset). If it raises Refusal or MalformedMessage, nothing is appended."""


@lazy_dataclass(frozen=True, slots=True)
class Span:
    """Whole chunks of one segment: ``region[start:end]`` of a read-only map, offsets ``base_offset`` to ``end_offset``.

    The region stays valid after its segment is deleted. A ``damaged`` span is exactly one chunk whose CRC does not
    match but whose length and offsets agree with its neighbours: only messages that the dialect's own checks find
    intact may be served. All other spans were checked since they were mapped; a repaired one (``chunk.bit_repair``) is
    a copy.
    """

    region: NDArray[np.uint8]
    start: int
    end: int
    base_offset: int
    end_offset: int
    damaged: bool = False


@lazy_dataclass(frozen=True, slots=True)
class Damage:
    """Offsets that cannot be read as they were written, and the bytes of ``path`` that held them.

    ``one_chunk`` says that the bytes are one chunk with plausible length and offsets, which its dialect may examine.
    """

    first: int
    end: int
    path: Path
    start: int
    stop: int
    one_chunk: bool = False

    def __str__(self) -> str:
        return f"{self.path}: offsets {self.first} to {self.end - 1} are damaged (bytes {self.start} to {self.stop})"


@lazy_dataclass(frozen=True, slots=True)
class TornTail:
    """A torn tail that recovery removed from ``path`` at ``position``; ``kept`` is the file that has its bytes now."""

    path: Path
    position: int
    size_bytes: int
    kept: Path

    def __str__(self) -> str:
        return (
            f"{self.path}: truncated {self.size_bytes} bytes of a torn tail at byte {self.position}, "
            f"kept in {self.kept.name}"
        )


NEVER_US: Final = 1 << 62
AHEAD_US_MAX: Final = 3_600_000_000
"""Time that a producer's clock may be ahead of the append; beyond that retention uses the time of the append."""


@lazy_dataclass(frozen=True, slots=True)
class SegmentInfo:
    """Facts of a segment for retention; ``max_timestamp_us`` is 0 if it has no messages."""

    base_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp_us: int
    written_us: Callable[[], int] = lambda: NEVER_US
    """When it was last written to, by the machine's clock; called only if the messages' own times do not decide."""

    @property
    def aged_us(self) -> int:
        """The time from which its age counts: that of its latest message, but not far after the last append.

        So a message whose producer's clock was years ahead does not keep the others for years.
        """
        return min(self.max_timestamp_us, self.written_us() + AHEAD_US_MAX)


class Snapshot(NamedTuple):
    """A named blob that is valid up to ``end_offset``: messages before it need not be read again."""

    end_offset: int
    data: bytes


@lazy_dataclass(frozen=True, slots=True)
class RecoveryReport:
    """Result of opening a log. A ``clean`` log was closed by its owner, and its messages needed no check."""

    clean: bool
    end_offset: int
    scanned_bytes: int = 0
    cuts: Sequence[TornTail] = ()
    damage: Sequence[Damage] = ()
    notes: Sequence[str] = ()
    """Messages about side files (index, watermark, states) that were missing or wrong."""
    settled_end: int = 0
    """Everything before it was decided when the last owner ended: committed, or in the aborted ranges."""
    states_lost: bool = False
    """Whether states, aborted and control ranges are incomplete; the ranges can be derived from the log again."""


class Syncable(Protocol):
    """Files that a commit makes durable: a partition's log, or the write-ahead log of the catalog."""

    on_synced: Callable[[], None] | None
    """Called at the end of ``complete_sync`` and ``fail_sync``."""
    is_begun: bool
    """Whether the disk knows that the log is being written to; until then its first write waits for a sync, whatever
    the durability."""

    def begin_sync(self) -> Sequence[File]:
        """Return the files to sync so that all that was flushed is on disk; empty if nothing is to be done.

        The caller calls ``complete_sync`` or ``fail_sync`` once before the next ``begin_sync``.
        """

    def complete_sync(self) -> None:
        """Record that all files of ``begin_sync`` are on disk."""

    def fail_sync(self, error: OSError) -> None:
        """Record that one of them may not be: nothing is acknowledged or retried, and a log becomes read-only."""


class ReadableLog(Protocol):
    """A partition's log for readers."""

    topic_id: bytes
    epoch: int
    epochs: list[tuple[int, int]]
    """(epoch, its first offset), ascending."""
    first_offset: int
    next_offset: int
    """The offset of the next message, after those in the open chunk."""
    high_watermark: int
    """Readers see offsets below this."""
    last_stable_offset: int
    """No open transaction, and no aborted range that is not yet on disk, is below this."""
    tail: Run | None
    """The last chunk written, in memory, if the log was watched and the chunk is small; it may not be synced yet."""

    @property
    def size_bytes(self) -> int:
        """Bytes of all chunks kept, envelopes included."""

    @property
    def segments_count(self) -> int:
        """At least 1."""

    @property
    def rolls_count(self) -> int:
        """How many segments were closed since the log was opened: retention and compaction do not lower it."""

    def read(self, offset: int, max_bytes: int) -> Span | None:
        """Return whole chunks from the one with ``offset``: at least one, else about ``max_bytes``; None at the end.

        If ``offset`` was deleted, or is in damage without a plausible chunk, reading continues at the next chunk, as
        ``Span.base_offset`` shows. Raises NotLoaded, as ``offset_at`` does, if the messages are not on this machine.
        """

    def damaged_ranges(self, first: int, end: int) -> list[tuple[int, int]]:
        """Return the damaged ranges known so far that overlap ``first`` to ``end``."""

    def offset_at(self, timestamp_us: int) -> int:
        """Return the base offset of the first chunk with a message at or after this time, or ``high_watermark``."""

    def unavailable_ranges(self, first: int, end: int, count_max: int | None = None) -> list[tuple[int, int, int]]:
        """Return (first, end, state) of the ranges that are not available, clipped to ``first`` to ``end``.

        Of more than ``count_max`` ranges those that come first.
        """

    @property
    def has_unavailable(self) -> bool:
        """Whether a message may be in a state other than available."""

    def aborted_ranges(self, first: int, end: int) -> list[tuple[int, int]]:
        """Return the aborted ranges, clipped to ``first`` to ``end``."""

    def control_ranges(self, first: int, end: int) -> list[tuple[int, int]]:
        """Return the ranges of control records, clipped to ``first`` to ``end``."""

    def segments(self) -> list[SegmentInfo]:
        """Return all segments in order, the active one last."""


class AppendableLog(Protocol):
    """A partition's log for appends."""

    refusal: Refusal | None
    """Why appends are refused at present: READ_ONLY until the next start, DISK_FULL until an append succeeds."""
    watched: bool
    """Whether a reader waits for the next messages, so that chunks written now may be read at once."""
    dates: Dates
    """Converts the broker's times to dates; one instance for all logs of a broker."""

    def reserve(self, dialect: int, flags: int, room_bytes: int) -> Reservation:
        """Reserve space in the open chunk, or in a new one if dialect or flags differ or its limit would be exceeded.

        Raises Refusal (READ_ONLY, DISK_FULL). After a Refusal from here, ``commit`` or ``flush``, appends with
        ``base_offset >= next_offset`` have not happened. A reservation ends with the next call.
        """

    def commit(self, size_bytes: int, count: int, min_timestamp_us: int, max_timestamp_us: int) -> int:
        """Add the messages written at the reservation to the open chunk; return their base offset."""

    def append(
        self,
        dialect: int,
        flags: int,
        body: bytes | memoryview,
        count: int,
        min_timestamp_us: int,
        max_timestamp_us: int,
    ) -> int:
        """Reserve, copy and commit in one call; return the base offset."""

    def write_through(self, dialect: int, flags: int, room_bytes: int, write: Write) -> WriteResult:
        """Append what ``write`` writes into at most ``room_bytes`` as a chunk of its own, at once.

        The open chunk must be empty. Raises Refusal if it cannot be written, and what ``write`` raises; then nothing is
        appended.
        """

    def write_in_place(self, dialect: int, flags: int, messages: InPlace, write: Write) -> WriteResult:
        """Like ``write_through``, but without a copy of the messages: ``write`` only changes what differs."""

    def flush(self) -> None:
        """Seal and write the open chunk, if there is one. Raises Refusal if that fails, and discards the chunk."""

    def append_time_us(self, now_us: int) -> int:
        """Return the date of ``now_us``, or the last one returned if that is later, so that times never decrease."""


class OverlayLog(Protocol):
    """A partition's log for states and transactions: records about ranges of its messages."""

    def set_state(self, first: int, end: int, state: int, now_us: int) -> None:
        """Set the state of offsets: effective at once, on disk after ``sync_states`` or the next sync."""

    def add_aborted(self, first: int, end: int, now_us: int = 0) -> None:
        """Record an aborted range; ``last_stable_offset`` does not pass it before it is on disk.

        If the disk refuses it now, it counts in memory, and ``maintain`` or ``sync_states`` writes it.
        """

    def add_control(self, first: int, end: int, now_us: int = 0) -> None:
        """Record a range of control records in the same way as ``add_aborted``."""

    def sync_states(self) -> None:
        """Make states and ranges durable now. Raises Refusal if that fails."""

    def hold_last_stable_offset(self, offset: int | None) -> None:
        """Keep ``last_stable_offset`` at or below ``offset`` (an open transaction); None ends that.

        Until the first call after opening, it keeps the last owner's value.
        """


class WrittenFiles(NamedTuple):
    """Files, or directories, to make durable, and the disk that they are on."""

    disk: Disk
    paths: Sequence[Path]


ClosingSteps = Generator[WrittenFiles, None, None]
"""A log that is being closed; see ``KeptLog.close_in_steps``."""


class KeptLog(Protocol):
    """A partition's log for its owner: events, truncation, snapshots, maintenance."""

    recovery: RecoveryReport
    on_refusal: Callable[[Refusal | None], None]
    """Called when appends start to be refused, or for another reason, and with None when they are accepted again."""
    on_damage: Callable[[Sequence[Damage]], None]
    """Called with damage that reading has found."""
    on_opened: Callable[[], None]
    """Called when a read made the log hold a file open."""
    on_rest: Callable[[], None]
    """Called at the end of ``rest``: references to maps of its files must be dropped."""

    def stop_writing(self, problem: str) -> None:
        """Refuse every append from now on with ``problem``: what is written would not be there at the next start."""

    def truncate_before(self, offset: int) -> None:
        """Delete everything before ``offset``: whole segments are removed from disk, reads leave out the rest."""

    def snapshot(self, name: str, data: bytes) -> None:
        """Store a blob that is valid up to ``next_offset``, replacing the last one of that name."""

    def snapshot_at_close(self, name: str, data: bytes) -> None:
        """Store a blob as ``snapshot`` does, when the log closes; an error then leaves the last one of that name."""

    def forget_snapshot(self, name: str) -> None:
        """Delete the blob of that name, which covers messages that were never stored.

        It is deleted from disk on return, so that their offsets can be used again. Raises Refusal if it cannot be
        deleted; the log is read-only then.
        """

    def load_snapshot(self, name: str) -> Snapshot | None:
        """Return the blob, or None if it is missing, damaged or covers messages that were truncated."""

    def rest(self) -> bool:
        """Close open files until the next write; return False, and close none, if work is in progress."""

    def maintain(self, now_us: int) -> int | None:
        """Do what is due of deferred writes (watermark, index, compaction of states); return when to call this again.

        That may be ``now_us``, which means in about 50 ms. None if there is nothing to write until the log changes.
        """

    def close(self) -> None:
        """Flush, sync, and mark the log as cleanly closed. It cannot be used afterwards.

        A sync in progress keeps its files, and the log then does not count as cleanly closed.
        """

    def close_in_steps(self) -> ClosingSteps:
        """Close as ``close`` does, many logs together (``closing.close_logs``).

        The files of each step have to be made durable before it continues. If that fails, the caller throws the OSError
        in, and the log does not count as cleanly closed.
        """

    def drop(self) -> None:
        """Close files that are about to be deleted. The log cannot be used afterwards."""


class ClosedSegment(NamedTuple):
    """A segment that is not written to any more: its directory, and the end of its chunks as (offset, position)."""

    disk: Disk
    directory: Path
    base_offset: int
    end: tuple[int, int]
    max_timestamp_us: int
    is_damaged: bool

    @property
    def end_offset(self) -> int:
        """The offset after its last one."""
        return self.end[0]

    @property
    def size_bytes(self) -> int:
        """Bytes of its chunks."""
        return self.end[1]


class RewrittenSegment(NamedTuple):
    """A synced file at ``path`` with the kept messages of consecutive segments, ready to replace them."""

    sources: Sequence[ClosedSegment]
    path: Path
    end: tuple[int, int]
    max_timestamp_us: int
    entries: Index
    """The index of the new file."""

    @property
    def old(self) -> ClosedSegment:
        """The first of the segments, whose file is replaced."""
        return self.sources[0]

    @property
    def size_bytes(self) -> int:
        """Bytes of its chunks."""
        return self.end[1]


class CompactableLog(Protocol):
    """A partition's log for compaction, which rewrites closed segments without some of their messages."""

    path: Path
    """The directory of the log."""
    segment_bytes: int
    """A chunk that would make the active segment larger begins a new one."""

    def roll(self) -> bool:
        """Close the active segment and begin a new one; the next sync makes that durable.

        Returns False, and does nothing, if it is empty, a chunk is open or appends are refused. Raises Refusal if the
        disk refuses it.
        """

    def list_closed_segments(self) -> list[ClosedSegment]:
        """Return the segments that are not written to any more, in order, for readers in any thread."""

    def replace_segment(self, rewritten: RewrittenSegment) -> bool:
        """Put the file of a rewritten segment into the place of the old one; return False if that was deleted.

        The caller then calls ``rewriting.settle``. Raises OSError if the file cannot be renamed.
        """

    def forget_ranges(self, kind: RangeKind, ranges: Sequence[tuple[int, int]]) -> None:
        """Drop states, aborted ranges or control ranges whose messages were all removed, once that is durable."""


class PartitionLog(ReadableLog, AppendableLog, OverlayLog, KeptLog, CompactableLog, Syncable, Protocol):
    """The log of one partition. Not thread-safe: the event loop owns it; only the files of ``begin_sync`` leave it."""


class Commit(Protocol):
    """Makes flushed chunks durable: ``GroupCommit``, or inline for tests and ``durability = "os"``."""

    instant: bool
    """Whether nothing waits for the disk: written messages count as synced."""

    def submit(self, log: Syncable, done: Callable[[OSError | None], None] | None = None) -> None:
        """Sync what was flushed so far, then call ``complete_sync`` or ``fail_sync`` of the log, and ``done``."""

    def fileno(self) -> int | None:
        """Return a descriptor that is readable when ``complete`` has work, or None if there is nothing to wait for."""

    def complete(self) -> None:
        """Report what was synced; never blocks."""

    def drain(self, timeout_s: float = 30.0) -> bool:
        """Wait until no sync is in progress, reporting what was synced; return False if time ran out."""

    def close(self) -> None:
        """Drain and end the threads."""
