"""Appends that go to the cluster: numbered here at once, acknowledged when the cluster has them.

An append needs an offset before the cluster assigns one, for the sequences of writers and for the order of responses.
So each gateway numbers the messages of a partition by itself, from 0; Kafka's offset replaces the number before the
append is completed.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import deque
from typing import TYPE_CHECKING, Final

import numpy as np

from ..broker.core.append.append import Appender
from ..broker.core.pending_append import Append
from ..dialects.kafka.errors import RETRIABLE
from ..log.interface import Commit, InPlace, Write
from ..model.errors import LadingError, Reason, Refusal
from ..transports.fitting import MessageRefused, MessageTooLarge
from .producers import OutgoingMessages

if TYPE_CHECKING:
    from ..broker.core.counters import Counters
    from ..broker.core.topology import Partition
    from .log import ClusterLog
    from .producers import Producers

LOG: Final = logging.getLogger("lading.store")
PLACES_MAX: Final = 1 << 14
"""Acknowledged batches of a partition whose offsets are remembered, for writers that repeat a block."""


class ClusterAppender(Appender):
    """Appends to all partitions of one gateway."""

    def __init__(self, commit: Commit, counters: Counters, unsynced_bytes_max: int, producers: Producers) -> None:
        super().__init__(commit, counters, unsynced_bytes_max)
        self._producers = producers
        self._lines: dict[Partition, _Line] = {}

    def append(
        self,
        partition: Partition,
        dialect: int,
        flags: int,
        room_bytes: int,
        write: Write,
        source: object = None,
        *,
        due_date_us: int = 0,
    ) -> Append:
        """Send the messages that ``write`` writes. If it raises, the error is passed on, and nothing is sent.

        Channels keep the messages back until ``due_date_us``, if it is not 0.
        """
        refusal = partition.log.refusal
        if refusal is not None:
            raise Refusal(refusal.reason, str(refusal))
        line = self._line_of(partition)
        if isinstance(source, InPlace):
            size_bytes, count, low_us, high_us = write(source.array, source.start, line.next)
            array = source.array[source.start : source.start + size_bytes].copy()
        else:
            array = np.empty(room_bytes, np.uint8)
            size_bytes, count, low_us, high_us = write(array, 0, line.next)
        line.outgoing.append(
            OutgoingMessages(dialect, flags, array, 0, size_bytes, line.next, count, low_us, high_us, due_date_us)
        )
        append = self._add_pending(partition, Append(line.next, line.next + count, count, size_bytes))
        line.next += count
        if not partition.dirty:
            partition.dirty = True
            self._dirty.append(partition)
            self._ask()
        return append

    def follow(self, partition: Partition, base_offset: int, end_offset: int, count: int, duplicate: bool) -> Append:
        """Return an Append for messages that were accepted before, by this gateway's numbers for them."""
        append = Append(base_offset, end_offset, count, 0, duplicate)
        line = self._line_of(partition)
        if end_offset <= line.acknowledged:
            line.number_anew(append)
            append.finish(None)
        else:
            partition.pending.append(append)
        return append

    def close_chunk(self, partition: Partition) -> None:
        """Do nothing: each append is a chunk of its own."""

    def _write(self) -> None:
        dirty, self._dirty = self._dirty, []
        for partition in dirty:
            partition.dirty = False
            line = self._line_of(partition)
            messages, line.outgoing = line.outgoing, []
            self._producers.submit(line.log.place, messages, line)

    def on_synced(self, partition: Partition) -> None:
        """Do nothing: the cluster acknowledges appends."""

    def on_partition_deleted(self, partition: Partition) -> None:
        """Fail the pending appends of the partition."""
        super().on_partition_deleted(partition)
        line = self._lines.pop(partition, None)
        if line is not None:
            self._producers.forget(line.log.place, line)

    def _line_of(self, partition: Partition) -> _Line:
        line = self._lines.get(partition)
        if line is None:
            line = self._lines[partition] = _Line(self, partition)
        return line

    # -- responses of the cluster

    def acknowledge(self, line: _Line, end: int) -> None:
        """Complete the appends up to a number."""
        pending, finished = line.partition.pending, []
        while pending and pending[0].end_offset <= end:
            append = pending.popleft()
            self._counters.unsynced_bytes -= append.size_bytes
            line.number_anew(append)
            finished.append(append)
        for append in finished:
            append.finish(None)
        if self._relieved:
            self._call_uncongested()

    def refuse(self, line: _Line, first: int, end: int, error: LadingError) -> None:
        """Fail the appends of a range that the cluster refuses."""
        refusal = _to_refusal(line, error)
        if not isinstance(error, MessageTooLarge):
            line.report(refusal)
        # writers send later blocks again: these must not be taken for stored ones
        self.on_lost(line.partition, first)
        lost = [one for one in line.partition.pending if first < one.end_offset and one.base_offset < end]
        self._fail_appends(line.partition, lost, refusal)
        line.acknowledged = max(line.acknowledged, end)
        self.acknowledge(line, line.acknowledged)

    def fail(self, line: _Line, first: int, error: LadingError) -> None:
        """Fail all appends from a number on: later ones were not sent, so that the order is kept."""
        refusal = _to_refusal(line, error)
        line.report(refusal)
        self._fail_from(line.partition, first, refusal)
        line.outgoing = []
        line.acknowledged = line.next
        self._producers.resume(line.log.place, line)


class _Line:
    """The messages of one partition: their numbers at this gateway, and the offsets that replaced those."""

    def __init__(self, appender: ClusterAppender, partition: Partition) -> None:
        self.partition = partition
        self.log: ClusterLog = partition.log  # type: ignore[assignment]
        self.next = 0
        self.acknowledged = 0
        """Everything before it was acknowledged, or has failed."""
        self.outgoing: list[OutgoingMessages] = []
        self._appender = appender
        self._has_failed = False
        self._numbers: deque[int] = deque(maxlen=PLACES_MAX)
        self._offsets: deque[int] = deque(maxlen=PLACES_MAX)

    def number_anew(self, append: Append) -> None:
        """Give an append the offset of its first message; -1 if that is not known any more."""
        at = bisect_right(self._numbers, append.base_offset) - 1
        known = at >= 0 and self._offsets[at] >= 0
        append.base_offset = self._offsets[at] + append.base_offset - self._numbers[at] if known else -1
        append.end_offset = append.base_offset + append.count

    def acknowledge(self, first: int, end: int, base_offset: int) -> None:
        """Complete the appends that the cluster has stored."""
        self._numbers.append(first)
        self._offsets.append(base_offset)
        self._has_failed = False
        self.acknowledged = max(self.acknowledged, end)
        if base_offset >= 0:
            # the leader has it on all replicas in sync: readers need not wait for the next check of the ends
            self.log.advance(base_offset + end - first)
        self._appender.acknowledge(self, end)

    def report(self, refusal: Refusal) -> None:
        """Log the first refusal since the cluster took messages: Iggy's clients get a code alone."""
        if not self._has_failed:
            LOG.warning("%s", refusal)
        self._has_failed = True

    def refuse(self, first: int, end: int, error: LadingError) -> None:
        """Fail the appends that the cluster has refused."""
        self._appender.refuse(self, first, end, error)

    def fail(self, first: int, error: LadingError) -> None:
        """Fail the appends whose outcome at the cluster is unknown."""
        self._appender.fail(self, first, error)


def _to_refusal(line: _Line, error: LadingError) -> Refusal:
    if isinstance(error, Refusal):
        return error
    topic, partition = line.log.place
    code = getattr(error, "code", None)
    if isinstance(error, MessageRefused) or (code is not None and code not in RETRIABLE):
        return Refusal(
            Reason.READ_ONLY,
            f"topic {topic!r}, partition {partition}: the Kafka cluster refused ({error}); "
            "mend that before you send again",
        )
    return Refusal(
        Reason.READ_ONLY,
        f"topic {topic!r}, partition {partition}: the Kafka cluster did not acknowledge ({error}); send again",
    )
