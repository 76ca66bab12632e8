"""Append: choose a partition, let the dialect write into the log, acknowledge when the messages are durable.

Messages that arrive within one pass of the event loop share a chunk, a checksum and a write; one sync covers all that
arrive during the previous one (design.md Log). An ``Append`` is done when its messages are synced, or failed as a
whole.

If appends do not wait for the disk (``durability = "os"``), the only source of a pass does not wait for the end of the
pass either: its messages are written at once. If a second source appends in the same pass, appends wait until the next
flush. A batch that is large enough to be a chunk by itself is written at once too, from the buffer that holds it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from ....chunk.envelope import ENVELOPE_BYTES
from ....log.interface import Commit, InPlace, Write, WriteResult
from ....model.errors import Reason, Refusal
from ....model.lazy_dataclass import lazy_dataclass
from ....runtime.turns import CALLBACKS_AT_ONCE, CallbackQueue
from ..callbacks import ignore
from ..component import Component
from ..counters import Counters
from ..pending_append import Append
from ..topology import Partition, Topic

__all__ = [
    "BEFORE_IN_PLACE_BYTES",
    "Appender",
    "Balanced",
    "ByHash",
    "ByNumber",
    "InPlace",
    "PartitionChoice",
    "Write",
    "WriteResult",
    "choose_partition",
]


LOG: Final = logging.getLogger("lading.broker")
BEFORE_IN_PLACE_BYTES: Final = ENVELOPE_BYTES
"""Bytes before the messages that are overwritten if the messages are written straight from their receive buffer."""


@lazy_dataclass(frozen=True, slots=True)
class Balanced:
    """Take the partitions of the topic in turn."""


@lazy_dataclass(frozen=True, slots=True)
class ByNumber:
    """Take this partition, counted from 0."""

    number: int


@lazy_dataclass(frozen=True, slots=True)
class ByHash:
    """Take the partition that the dialect's hash of a key selects: ``choose(partitions_count) -> number``."""

    choose: Callable[[int], int]


PartitionChoice = Balanced | ByNumber | ByHash


class Appender(Component):
    """Appends to all partitions of one broker and acknowledges them in offset order."""

    def __init__(self, commit: Commit, counters: Counters, unsynced_bytes_max: int) -> None:
        self.on_pending: Callable[[], None] = ignore
        """Called when an append begins to wait for ``flush`` while no other waits."""
        self.on_lost: Callable[[Partition, int], None] = _nothing_lost
        """Called with a partition and the offset from which on its appends have failed."""
        self._commit = commit
        self._counters = counters
        self._unsynced_bytes_max = unsynced_bytes_max
        self._dirty: list[Partition] = []
        self._before: list[Callable[[], None]] = []
        """Callbacks to call before the next flush."""
        self._asked = False
        """Whether a flush was requested and has not begun."""
        self._alone: object = None
        """The only source that has appended since the last flush."""
        self._relieved: list[Callable[[], None]] = []
        self.completions = CallbackQueue()
        """Callbacks of completed syncs that are still to be called.

        A sync covers appends, and changes of the catalog, of many connections, each of which then sends its response.
        Those of 200 connections in one pass took 35 ms.
        """

    @property
    def congested(self) -> bool:
        """Whether more bytes wait for the disk than the setting allows."""
        return self._counters.unsynced_bytes > self._unsynced_bytes_max

    def call_when_uncongested(self, callback: Callable[[], None]) -> None:
        """Call back once the broker is not congested, which may be at once."""
        if self.congested:
            self._relieved.append(callback)
        else:
            callback()

    def append(
        self, partition: Partition, dialect: int, flags: int, room_bytes: int, write: Write, source: object = None
    ) -> Append:
        """Append what ``write`` writes into at most ``room_bytes``; if it raises, nothing is appended.

        ``source`` identifies the sender, if it is read once in a pass of the event loop and has nothing left to read:
        while no other source appends in the pass, its appends do not wait for the end of the pass. Or ``source`` is the
        messages themselves, if there are so many that a copy would cost more than a separate write.
        """
        if source is not None:
            if isinstance(source, InPlace):
                return self._append_in_place(partition, dialect, flags, source, write)
            if self._commit.instant and not self._dirty and (self._alone is None or source is self._alone):
                return self._append_now(partition, dialect, flags, room_bytes, write, source)
        log = partition.log
        try:
            array, at, base_offset = log.reserve(dialect, flags, room_bytes)
            size_bytes, count, min_timestamp_us, max_timestamp_us = write(array, at, base_offset)
            base_offset = log.commit(size_bytes, count, min_timestamp_us, max_timestamp_us)
        except Refusal as refusal:
            # if the log refuses, an earlier full chunk may be lost too: its appends fail as well
            if partition.pending and partition.pending[-1].end_offset > log.next_offset:
                self._fail_from(partition, log.next_offset, refusal)
            raise
        append = self._add_pending(partition, Append(base_offset, base_offset + count, count, size_bytes))
        if not partition.dirty:
            partition.dirty = True
            self._dirty.append(partition)
            self._ask()
        return append

    def _append_now(
        self, partition: Partition, dialect: int, flags: int, room_bytes: int, write: Write, source: object
    ) -> Append:
        """Return an append that is written: ``source`` is alone, and only the first of a log waits for the disk."""
        self._alone = source
        log = partition.log
        log.watched = bool(partition.read_waiters)
        size_bytes, count, _, _ = log.write_through(dialect, flags, room_bytes, write)
        self._commit.submit(log)
        append = Append(log.next_offset - count, log.next_offset, count, size_bytes)
        if log.high_watermark < append.end_offset:
            return self._add_pending(partition, append)
        self._count(append)
        append.done = True
        return append

    def _append_in_place(
        self, partition: Partition, dialect: int, flags: int, messages: InPlace, write: Write
    ) -> Append:
        self.close_chunk(partition)
        log = partition.log
        size_bytes, count, _, _ = log.write_in_place(dialect, flags, messages, write)
        append = self._add_pending(partition, Append(log.next_offset - count, log.next_offset, count, size_bytes))
        self._commit.submit(log)
        return append

    def _add_pending(self, partition: Partition, append: Append) -> Append:
        partition.pending.append(append)
        self._count(append)
        self._counters.unsynced_bytes += append.size_bytes
        return append

    def _count(self, append: Append) -> None:
        counters = self._counters
        counters.appends += 1
        counters.messages_in += append.count
        counters.bytes_in += append.size_bytes

    def call_before_flush(self, callback: Callable[[], None]) -> None:
        """Call back once, before the next flush writes."""
        self._before.append(callback)
        self._ask()

    def _ask(self) -> None:
        if not self._asked:
            self._asked = True
            self.on_pending()

    def follow(self, partition: Partition, base_offset: int, end_offset: int, count: int, duplicate: bool) -> Append:
        """Return an Append for messages that are in the log already: done when all of them are durable."""
        append = Append(base_offset, end_offset, count, 0, duplicate)
        if end_offset <= partition.log.high_watermark:
            append.finish(None)
        else:
            partition.pending.append(append)
        return append

    def flush(self) -> None:
        """Write the appends since the last flush and pass them to the commit; called at the end of a loop pass."""
        before, self._before = self._before, []
        try:
            for callback in before:
                try:
                    callback()
                except Exception:
                    LOG.exception("a callback at the end of a pass failed")
        finally:
            self._asked = False
            self._write()
            if self._before:
                # a callback has requested another flush
                self._ask()

    def _write(self) -> None:
        dirty, self._dirty, self._alone = self._dirty, [], None
        for partition in dirty:
            partition.dirty = False
            try:
                self.close_chunk(partition)
                self._commit.submit(partition.log)
            except Refusal:
                continue
            except Exception:
                # write the remaining partitions too: they are not listed any more, and would never be written
                LOG.exception("partition %s: writing failed", partition)

    def close_chunk(self, partition: Partition) -> None:
        """Write the open chunk; later appends use a new one.

        If that fails, its appends fail, and the error is raised.
        """
        partition.log.watched = bool(partition.read_waiters)
        try:
            partition.log.flush()
        except Refusal as refusal:
            self._fail_from(partition, partition.log.next_offset, refusal)
            # chunks before the one that failed may wait for their sync
            self._commit.submit(partition.log)
            raise

    def on_synced(self, partition: Partition) -> None:
        """Finish the appends that are durable now, or fail the rest if the log will never sync again."""
        log = partition.log
        pending = partition.pending
        if pending:
            finished: list[Append] = []
            size_bytes, high_watermark = 0, log.high_watermark
            while pending and pending[0].end_offset <= high_watermark:
                append = pending.popleft()
                finished.append(append)
                size_bytes += append.size_bytes
            self._counters.unsynced_bytes -= size_bytes
            # nearly every sync completes few appends: those are called without another call
            if finished[CALLBACKS_AT_ONCE:] or self.completions.waiting:
                self.completions.call(partial(append.finish, None) for append in finished)
            else:
                for append in finished:
                    append.finish(None)
        if pending and log.refusal is not None and log.refusal.reason is Reason.READ_ONLY:
            self._fail_from(partition, log.high_watermark, log.refusal)
        if self._relieved:
            self._call_uncongested()

    def _call_uncongested(self) -> None:
        """Once the broker is not congested, call back the waiting callers.

        While it is congested, the next sync that ends, or fails, calls this again.
        """
        if self.congested:
            return
        relieved, self._relieved = self._relieved, []
        self.completions.call(relieved)

    def _fail_from(self, partition: Partition, offset: int, refusal: Refusal) -> None:
        """Fail the appends that have messages from ``offset`` on."""
        self.on_lost(partition, offset)
        pending = partition.pending
        if not pending or all(append.end_offset <= offset for append in pending):
            return
        self._fail_appends(partition, [append for append in pending if append.end_offset > offset], refusal)

    def _fail_appends(self, partition: Partition, lost: Sequence[Append], refusal: Refusal) -> None:
        """Fail some of the appends that wait in a partition."""
        partition.pending = deque(append for append in partition.pending if append not in lost)
        self._counters.failed_appends += len(lost)
        self._counters.unsynced_bytes -= sum(append.size_bytes for append in lost)
        for append in lost:
            append.finish(Refusal(refusal.reason, str(refusal)))
        if self._relieved:
            # there may be no sync after this; called in the next pass, since a client's request may be in progress here
            self.call_before_flush(self._call_uncongested)

    def on_partition_deleted(self, partition: Partition) -> None:
        """Fail the pending appends of the partition."""
        self._fail_from(
            partition,
            0,
            Refusal(
                Reason.PARTITION_NOT_FOUND, f"partition {partition} was deleted; read the partitions of its topic again"
            ),
        )
        if partition.dirty:
            partition.dirty = False
            self._dirty.remove(partition)


def choose_partition(topic: Topic, choice: PartitionChoice) -> Partition:
    """Return the partition for an append. Raises Refusal if the topic has none, or not the requested one."""
    match choice:
        case ByNumber(number):
            return topic.partition(number)
        case ByHash(choose):
            return topic.partition(choose(len(topic.partitions)) if topic.partitions else 0)
        case Balanced():
            partition = topic.partition(topic.next_balanced)
            topic.next_balanced = (topic.next_balanced + 1) % len(topic.partitions)
            return partition


def _nothing_lost(partition: Partition, offset: int) -> None:
    return None
