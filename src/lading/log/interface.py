"""What the broker knows of a partition's log, by who needs what; another log may stand behind it (design.md Log).

Offsets count messages from 0; a range is ``first`` to ``end``, ``end`` exclusive. Times are microseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ..clock import Dates
from ..model.errors import Refusal
from ..model.run import Run
from .disk import File


class Reservation(NamedTuple):
    """Room for messages: write them at ``array[at:]``, the first one has offset ``base_offset``; then ``commit``."""

    array: NDArray[np.uint8]
    at: int
    base_offset: int


class InPlace(NamedTuple):
    """Messages that can be written from where they lie: ``array[start:]``.

    The ENVELOPE_BYTES before ``start`` are free too, and all of it may be changed.
    """

    array: NDArray[np.uint8]
    start: int


class WriteResult(NamedTuple):
    """What a dialect wrote into the chunk: bytes, messages, and their lowest and highest timestamp."""

    size_bytes: int
    messages_count: int
    min_timestamp_us: int
    max_timestamp_us: int


Write = Callable[[NDArray[np.uint8], int, int], WriteResult]
"""(array, at, base offset) -> Written; may raise Refusal or MalformedMessage, then nothing is appended."""


@dataclass(frozen=True, slots=True)
class Span:
    """Whole chunks of one segment: ``region[start:end]`` of a read-only map, offsets ``base_offset`` to ``end_offset``.

    The region stays valid after its segment is deleted. A ``damaged`` span is exactly one chunk whose CRC does not
    hold but whose length and offsets agree with its neighbours: only what the dialect's own checks find intact
    in it may be served. All other spans were checked since they were mapped; one that was mended (``chunk.mend``) is a
    copy.
    """

    region: NDArray[np.uint8]
    start: int
    end: int
    base_offset: int
    end_offset: int
    damaged: bool = False


@dataclass(frozen=True, slots=True)
class Damage:
    """Offsets that cannot be read as they were written, and the bytes of ``path`` where they lay.

    ``one_chunk``: the bytes are one chunk with believable length and offsets, so its dialect may look into it.
    """

    first: int
    end: int
    path: Path
    start: int
    stop: int
    one_chunk: bool = False

    def __str__(self) -> str:
        return f"{self.path}: offsets {self.first} to {self.end - 1} are damaged (bytes {self.start} to {self.stop})"


@dataclass(frozen=True, slots=True)
class TornTail:
    """A torn tail that recovery took off ``path`` at ``position``; ``kept`` is the file its bytes lie in now."""

    path: Path
    position: int
    size_bytes: int
    kept: Path

    def __str__(self) -> str:
        return (
            f"{self.path}: cut a torn tail of {self.size_bytes} bytes at byte {self.position}, kept in {self.kept.name}"
        )


NEVER_US: Final = 1 << 62
AHEAD_US_MAX: Final = 3_600_000_000
"""A producer's time may lie so far after the append; beyond it the time of the append counts for retention."""


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """One segment as retention sees it; ``max_timestamp_us`` is 0 where it holds no messages."""

    base_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp_us: int
    written_us: Callable[[], int] = lambda: NEVER_US
    """When it was written to last, by the machine's clock; asked only where the messages' own times do not decide."""

    @property
    def aged_us(self) -> int:
        """The time from which it ages: its latest message's, but not far after the last append to it.

        A message whose producer was years ahead does not keep the others for years.
        """
        return min(self.max_timestamp_us, self.written_us() + AHEAD_US_MAX)


class Snapshot(NamedTuple):
    """A named blob and the offset it is true for: what lies before ``end_offset`` need not be read again."""

    end_offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What opening found: a ``clean`` log was closed by its owner and nothing had to be looked at."""

    clean: bool
    end_offset: int
    scanned_bytes: int = 0
    cuts: Sequence[TornTail] = ()
    damage: Sequence[Damage] = ()
    notes: Sequence[str] = ()
    """Sentences about side files (index, watermark, states) that were missing or wrong."""
    settled_end: int = 0
    """Everything before it was decided when the last owner let go: committed, or in the aborted ranges."""
    states_lost: bool = False
    """States, aborted and control ranges are not all that there were; the log tells the ranges again."""


class Syncable(Protocol):
    """What a commit brings to disk: a partition's log, or the log of the catalog."""

    on_synced: Callable[[], None] | None
    """Called at the end of ``complete_sync`` and ``fail_sync``."""

    def begin_sync(self) -> Sequence[File]:
        """The files to sync so that all that was flushed is on disk; empty when nothing is to do.

        Answered by one ``complete_sync`` or ``fail_sync`` before the next ``begin_sync``.
        """

    def complete_sync(self) -> None:
        """All files of ``begin_sync`` are on disk."""

    def fail_sync(self, error: OSError) -> None:
        """One of them is not: nothing of it is acknowledged, nothing is tried again, a log turns read-only."""


class ReadableLog(Protocol):
    """What readers ask of a partition's log."""

    topic_id: bytes
    epoch: int
    epochs: list[tuple[int, int]]
    """(epoch, its first offset), rising."""
    first_offset: int
    next_offset: int
    """The offset the next message gets; messages of the open chunk are counted."""
    high_watermark: int
    """Readers see offsets below this."""
    last_stable_offset: int
    """No open transaction, and no aborted range that is not on disk yet, lies below this."""
    tail: Run | None
    """The chunk that was written last, from memory, if the log was watched and it is small; perhaps not synced yet."""

    @property
    def size_bytes(self) -> int:
        """Bytes of all chunks kept, envelopes included."""

    @property
    def segments_count(self) -> int:
        """At least 1."""

    def read(self, offset: int, max_bytes: int) -> Span | None:
        """Whole chunks from the one that holds ``offset``, about ``max_bytes`` but at least one; None at the end.

        An offset that is not kept any more, or lies in damage without a believable chunk, goes on at the next chunk:
        ``Span.base_offset`` tells.
        """

    def damaged_ranges(self, first: int, end: int) -> list[tuple[int, int]]:
        """Damaged offset ranges known so far that meet ``first`` to ``end``."""

    def offset_at(self, timestamp_us: int) -> int:
        """Base offset of the first chunk with a message at or after this time; ``high_watermark`` when there is
        none.
        """

    def unavailable_ranges(self, first: int, end: int) -> list[tuple[int, int, int]]:
        """(first, end, state) of the ranges that are not available, clipped to the question."""

    def aborted_ranges(self, first: int, end: int) -> list[tuple[int, int]]:
        """Aborted ranges, clipped to the question."""

    def control_ranges(self, first: int, end: int) -> list[tuple[int, int]]:
        """Ranges of control records, clipped to the question."""

    def segments(self) -> list[SegmentInfo]:
        """All segments in order, the one that is written to last."""


class AppendableLog(Protocol):
    """What appends ask of a partition's log."""

    refusal: Refusal | None
    """Why appends are refused at present: READ_ONLY until the next start, DISK_FULL until one succeeds."""
    watched: bool
    """Somebody waits for what comes next: chunks that are written now may be asked for at once."""
    dates: Dates
    """Gives the date of a time that the broker counted; one for all logs of a broker."""

    def reserve(self, dialect: int, flags: int, room_bytes: int) -> Reservation:
        """Room in the open chunk, or in a new one where dialect or flags differ or it would pass its limit.

        Raises Refusal (READ_ONLY, DISK_FULL). After a Refusal from here, ``commit`` or ``flush``, every append with
        ``base_offset >= next_offset`` has not happened. A reservation ends with the next call.
        """

    def commit(self, size_bytes: int, count: int, min_timestamp_us: int, max_timestamp_us: int) -> int:
        """The messages written at the reservation are now part of the open chunk; their base offset."""

    def append(
        self,
        dialect: int,
        flags: int,
        body: bytes | memoryview,
        count: int,
        min_timestamp_us: int,
        max_timestamp_us: int,
    ) -> int:
        """``reserve``, copy and ``commit`` in one."""

    def write_through(self, dialect: int, flags: int, room_bytes: int, write: Write) -> WriteResult:
        """Append what ``write`` writes into at most ``room_bytes`` as a chunk of its own, at once.

        Nothing may be in the open chunk. Refusal where it cannot be written; what ``write`` raises is raised; nothing
        is appended then.
        """

    def write_in_place(self, dialect: int, flags: int, messages: InPlace, write: Write) -> WriteResult:
        """As ``write_through``, for messages that need not be copied: ``write`` only puts on them what is to change."""

    def flush(self) -> None:
        """Seal and write the open chunk, if there is one; Refusal where that fails, and the chunk is dropped."""

    def append_time_us(self, now_us: int) -> int:
        """The date of ``now_us``, or the last one given out where the clock was set back: times in a log never fall."""


class OverlayLog(Protocol):
    """What states and transactions ask of a partition's log: notes on ranges of its messages."""

    def set_state(self, first: int, end: int, state: int, now_us: int) -> None:
        """Set the state of offsets; in force at once, on disk after ``sync_states`` or the next sync."""

    def add_aborted(self, first: int, end: int, now_us: int = 0) -> None:
        """Note an aborted range; ``last_stable_offset`` does not pass it before it is on disk."""

    def add_control(self, first: int, end: int, now_us: int = 0) -> None:
        """Note a range of control records, likewise."""

    def sync_states(self) -> None:
        """Bring states and ranges to disk now; Refusal where that fails."""

    def hold_last_stable_offset(self, offset: int | None) -> None:
        """``last_stable_offset`` may not pass ``offset`` (an open transaction); None lets go.

        Until the first call after opening it stays where the last owner left it.
        """


class KeptLog(Protocol):
    """What the owner of a partition's log does to it, and hears from it, for as long as it is kept."""

    recovery: RecoveryReport
    on_refusal: Callable[[Refusal | None], None]
    """Called when appends begin to be refused, for another reason, or are taken again (None)."""
    on_damage: Callable[[Sequence[Damage]], None]
    """Called with what reading finds damaged that was not known."""
    on_opened: Callable[[], None]
    """Called when a reader made the log hold a file open."""
    on_rest: Callable[[], None]
    """Called at the end of ``rest``: what maps of its files are kept elsewhere has to go."""

    def truncate_before(self, offset: int) -> None:
        """Forget all before ``offset``: whole segments are deleted, the rest is no longer offered."""

    def snapshot(self, name: str, data: bytes) -> None:
        """Keep a blob that is true for all before ``next_offset``; the last one of a name counts."""

    def load_snapshot(self, name: str) -> Snapshot | None:
        """The blob, unless it is missing, damaged or about messages that were cut."""

    def rest(self) -> bool:
        """Close what files are open, until the next write; False where something is under way, and then nothing."""

    def maintain(self, now_us: int) -> int | None:
        """Write what may lag (watermark, index, compaction of states) when due; gives when to call it again.

        That may be ``now_us``: in 50 ms or so. None where nothing is left to write until something happens in the log.
        """

    def close(self) -> None:
        """Flush, sync, mark as closed in order. The log cannot be used after it.

        While a sync is under way it keeps its files, and the log counts as not closed in order.
        """

    def drop(self) -> None:
        """Let go of files that are going to be deleted. The log cannot be used after it."""


class PartitionLog(ReadableLog, AppendableLog, OverlayLog, KeptLog, Syncable, Protocol):
    """One partition. Not thread-safe: one thread (the event loop) owns it; only ``begin_sync``'s files leave it."""


class Commit(Protocol):
    """What makes flushed chunks last: ``GroupCommit``, or inline for tests and ``durability = "os"``."""

    instant: bool
    """Nobody waits for the disk: what is written is taken as synced."""

    def submit(self, log: Syncable, done: Callable[[OSError | None], None] | None = None) -> None:
        """Get on disk what was flushed so far; then the log's ``synced`` or ``sync_failed``, and ``done``."""

    def fileno(self) -> int | None:
        """Readable when ``complete`` has work; None where there is nothing to wait for."""

    def complete(self) -> None:
        """Hand out what was synced; never blocks."""

    def drain(self, timeout_s: float = 30.0) -> bool:
        """Wait until nothing is under way, handing out what was synced; False when time ran out."""

    def close(self) -> None:
        """Drain and end the threads."""
