"""Messages that enter the log later: kept beside their partition until they are due, then appended to it.

So no reader sees them early, and all see them when they are due, in any protocol, at the end of the log. A message
waits in a log of its own in the partition's directory, one chunk for each append, whose time is the time it is due. A
crash between its append and the note of it brings it twice, never not at all.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...chunk.runs import runs
from ...dialects import registry
from ...log.catalog import Catalog
from ...log.catalog_rows import PositionRow
from ...log.closing import close_logs
from ...log.directory import DataDirectory
from ...log.interface import PartitionLog
from ...log.intervals import Intervals
from ...model.chunk_table import BASE_OFFSET, BODY_END, BODY_START, COUNT, FLAGS, LAST_OFFSET, MAX_TIMESTAMP_US
from ...model.errors import Refusal
from ...model.run import Run
from .append.append import Appender, Write, WriteResult
from .callbacks import ignore
from .component import NEVER_US, SOON_US, Component, partitions_of
from .disk_refusals import refuse_disk_errors
from .pending_append import Append
from .topology import Partition, Topic

LOG: Final = logging.getLogger("lading.broker")
POSTPONED: Final = "postponed"
"""Name of the directory inside a partition's, and of its rows in the catalog."""
RETRY_US: Final = 1_000_000
STORE_US: Final = 100_000
READ_BYTES: Final = 1 << 20
PASS_MESSAGES: Final = 500
"""At most this many messages enter their logs in one tick; the others in the next."""
_DIALECT_FLAGS: Final = 0xFF

OpenLog = Callable[[Path, bytes, int], PartitionLog]


@dataclass(slots=True, eq=False)
class _DelayedPartition:
    """Messages that wait for one partition: ``own`` is the log it waits in, seen as a partition."""

    partition: Partition
    own: Partition
    due: list[tuple[int, int]] = field(default_factory=list)
    """(due time, offset in the log of delayed messages) of each message, the soonest first."""
    entered: Intervals = field(default_factory=Intervals)
    """Offsets that have entered the partition's log."""
    entering: set[int] = field(default_factory=set)
    """Offsets of messages that are on their way into the partition's log."""
    changed: bool = False

    @property
    def first(self) -> int:
        """All messages before this offset have entered the partition's log."""
        gone = self.entered.overlapping(0, 1)
        return max(self.entered.all()[0][1] if gone else 0, self.own.log.first_offset)


class DelayedMessages(Component):
    """The delayed messages of all partitions of a broker."""

    def __init__(
        self,
        catalog: Catalog,
        appender: Appender,
        directory: DataDirectory,
        open_log: OpenLog,
        synced: Callable[[Partition], None],
        watch: Callable[[Iterable[Partition]], None],
    ) -> None:
        """``synced`` is called when the log of a partition's delayed messages is synced.

        ``watch`` gets the logs in which messages wait after a start.
        """
        self._catalog = catalog
        self._appender = appender
        self._directory = directory
        self._open_log = open_log
        self._synced = synced
        self._watch = watch
        self._held: dict[Partition, _DelayedPartition] = {}
        self._store_due_us = 0
        self.on_entered: Callable[[Partition, int, int, int], None] = ignore
        """Called with (partition, offset among the delayed messages, first, end in its log) before readers see it."""

    def load(self, topics: Sequence[Topic]) -> None:
        """Load the messages that were still delayed when the broker ended."""
        rows = {(row.topic, row.partition): row for row in self._catalog.positions(POSTPONED)}
        for partition in partitions_of(topics):
            if self._directory.has_log_below(partition.topic.uuid, partition.number, POSTPONED):
                held = self._open(partition)
                row = rows.get((partition.topic.uuid, partition.number))
                if row is not None:
                    _note_entered(held, row)
                self._find(held)
            elif (partition.topic.uuid, partition.number) in rows:
                LOG.warning(
                    "%s: %s is missing; delayed messages in it are lost",
                    partition, self._path_of(partition),
                )  # fmt: skip
        self._watch(self.logs())

    def _path_of(self, partition: Partition) -> Path:
        return self._directory.partition(partition.topic.uuid, partition.number) / POSTPONED

    def _open(self, partition: Partition) -> _DelayedPartition:
        path = self._path_of(partition)
        log = self._open_log(path, partition.topic.uuid, 1)
        own = Partition(partition.topic, partition.number, log)
        log.on_synced = lambda: self._synced(own)
        log.hold_last_stable_offset(None)
        held = self._held[partition] = _DelayedPartition(partition, own)
        return held

    def _find(self, held: _DelayedPartition) -> None:
        log = held.own.log
        at = held.first
        while (span := log.read(at, READ_BYTES)) is not None:
            if not span.damaged:
                for run in runs(span.region, span.start, span.end, verify=False):
                    for row in run.chunks:
                        offset = int(row[BASE_OFFSET])
                        if offset >= at and held.entered.missing(offset, offset + 1):
                            held.due.append((int(row[MAX_TIMESTAMP_US]), offset))
            at = span.end_offset
        heapq.heapify(held.due)

    def append(
        self, partition: Partition, due_us: int, dialect: int, flags: int, room_bytes: int, write: Write
    ) -> Append:
        """Keep the messages that ``write`` writes until ``due_us``; they are durable when the Append is done.

        They are written as if the partition's log took them now; when they enter it, the dialect's ``rebase``, if it
        has one, corrects the fields that hold their place. Raises Refusal as ``Appender.append`` does.
        """
        held = self._held.get(partition)
        if held is None:
            with refuse_disk_errors(f"partition {partition}: the log of its delayed messages"):
                held = self._open(partition)
        # a chunk of its own: its time is that of all messages in it
        self._appender.close_chunk(held.own)

        # over a restart a date counts
        due_date_us = self._catalog.dates.of(due_us)

        def write_due(array: NDArray[np.uint8], at: int, base_offset: int) -> WriteResult:
            written = write(array, at, base_offset)
            return WriteResult(written.size_bytes, written.messages_count, due_date_us, due_date_us)

        append = self._appender.append(held.own, dialect, flags, room_bytes, write_due)
        append.add_done_callback(lambda done: _wait(held, due_us, done))
        return append

    def logs(self) -> list[Partition]:
        """Return the logs in which messages wait, seen as partitions."""
        return [held.own for held in self._held.values()]

    def next_offset(self, partition: Partition) -> int:
        """Return the offset, among the delayed messages of a partition, that the next one gets."""
        held = self._held.get(partition)
        return 0 if held is None else held.own.log.next_offset

    def list_waiting(self, partition: Partition) -> list[int]:
        """Return the offsets of delayed messages that are not in the partition's log yet."""
        held = self._held.get(partition)
        return [] if held is None else [*(offset for _, offset in held.due), *held.entering]

    def count(self, partition: Partition) -> int:
        """Return how many appends wait for a partition."""
        held = self._held.get(partition)
        return 0 if held is None else len(held.due) + len(held.entering)

    @property
    def due_us(self) -> int:
        """The time of the next tick, if any message was ever postponed."""
        return SOON_US if self._held else NEVER_US

    def tick(self, now_us: int) -> None:
        """Append the messages that are due, and note those that are in the log."""
        left = PASS_MESSAGES
        for held in list(self._held.values()):
            while left and held.due and held.due[0][0] <= now_us:
                _, offset = heapq.heappop(held.due)
                self._enter(held, offset, now_us)
                left -= 1
        if now_us >= self._store_due_us:
            self._store_due_us = now_us + STORE_US
            self.store(now_us)

    def _enter(self, held: _DelayedPartition, offset: int, now_us: int) -> None:
        log = held.own.log
        span = log.read(offset, 1)
        if span is None or span.damaged or span.base_offset != offset:
            LOG.warning("%s: a delayed message can no longer be read; it is skipped", held.partition)
            self._mark_entered(held, offset, offset + 1)
            return
        run = runs(span.region, span.start, span.end, verify=False)[0]
        end = int(run.chunks[0, LAST_OFFSET]) + 1
        time_us = held.partition.log.append_time_us(now_us)
        try:
            append = self._appender.append(
                held.partition,
                run.dialect,
                int(run.chunks[0, FLAGS]) & _DIALECT_FLAGS,
                span.end - span.start,
                lambda array, at, base_offset: _write(run, held.partition.number, array, at, base_offset, time_us),
            )
        except Refusal:
            heapq.heappush(held.due, (now_us + RETRY_US, offset))
            return
        held.entering.add(offset)
        append.add_done_callback(lambda done: self._on_entry_appended(held, offset, end, done, now_us))

    def _on_entry_appended(self, held: _DelayedPartition, offset: int, end: int, append: Append, now_us: int) -> None:
        held.entering.discard(offset)
        if append.error is None:
            self.on_entered(held.partition, offset, append.base_offset, append.base_offset + append.count)
            self._mark_entered(held, offset, end)
        else:
            heapq.heappush(held.due, (now_us + RETRY_US, offset))

    def _mark_entered(self, held: _DelayedPartition, offset: int, end: int) -> None:
        held.entered.set(offset, end, 0)
        held.changed = True

    def store(self, now_us: int) -> None:
        """Store which messages have entered their logs, and delete those that are not needed any more."""
        changed = [held for held in self._held.values() if held.changed]
        rows = []
        for held in changed:
            ranges = np.array([one[:2] for one in held.entered.all()], "<i8").tobytes()
            place = held.partition
            epoch = held.own.log.epoch
            rows.append(PositionRow(POSTPONED, place.topic.uuid, place.number, "", held.first, epoch, ranges, now_us))
        if rows:
            self._catalog.put_positions(rows)
        for held in changed:
            held.changed = False
            held.own.log.truncate_before(held.first)

    def on_partition_deleted(self, partition: Partition) -> None:
        """Fail what is on its way into the log that waits for it, and close that."""
        held = self._held.pop(partition, None)
        if held is not None:
            self._appender.on_partition_deleted(held.own)
            held.own.log.on_synced = None
            held.own.log.close()

    def close(self, now_us: int) -> None:
        """Store which messages have entered their logs, and close the logs of delayed messages."""
        try:
            self.store(now_us)
        finally:
            close_logs([held.own.log for held in self._held.values()])


def _wait(held: _DelayedPartition, due_us: int, append: Append) -> None:
    """Have what is on the disk wait; the offset of what was refused is that of another message next."""
    if append.error is None:
        heapq.heappush(held.due, (due_us, append.base_offset))


def _note_entered(held: _DelayedPartition, row: PositionRow) -> None:
    """Return what has entered, without offsets that were cut off since and are other messages now."""
    limit = min([held.own.log.next_offset, *(at for epoch, at in held.own.log.epochs if epoch > (row.epoch or 0))])
    held.entered.set(0, min(row.offset, limit), 0)
    for first, end in np.frombuffer(row.extra or b"", "<i8").reshape(-1, 2).tolist():
        held.entered.set(first, min(end, limit), 0)


def _write(run: Run, number: int, array: NDArray[np.uint8], at: int, base_offset: int, time_us: int) -> WriteResult:
    chunk = run.chunks[0]
    body = run.region[chunk[BODY_START] : chunk[BODY_END]]
    target = array[at : at + len(body)]
    target[:] = body
    rebase = getattr(registry.dialect(run.dialect), "rebase", None)
    if rebase is not None:
        rebase(target, number, base_offset)
    return WriteResult(len(body), int(chunk[COUNT]), time_us, time_us)
