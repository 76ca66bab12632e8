"""Batches of producers with ids: stored once by producer id, epoch and sequence, and hidden while their transaction is
open.

A producer numbers its records per partition (kafka.md 2.1). A control record in the log of each partition, in the
dialect's own format, ends the part of a transaction there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...chunk.runs import runs
from ...dialects import codes, registry
from ...dialects.sequenced import SequencedBatch, SequencedDialect, TransactionMarkerDialect
from ...model.errors import LocalError
from ..core.append.append import Appender, Write, WriteResult
from ..core.append.numbered_append import SEQUENCES, NumberedAppender
from ..core.append.writer_state import (
    SCAN_BYTES,
    WriterStateManager,
    apply_transaction_marker,
    update_last_stable_offset,
)
from ..core.callbacks import ignore
from ..core.pending_append import Append
from ..core.topology import Partition
from ..native.append import PLAIN, TRANSACTIONAL
from .transactional_producer import ProducerIdAndEpoch

DIALECT: Final = codes.KAFKA
"""The dialect whose producers have ids."""
ID_BYTES: Final = 8
"""A producer's id as the name of a writer; those of other protocols are longer."""


class BatchSequence(NamedTuple):
    """Producer and sequence number of a batch in this partition; each record takes one offset.

    The producer is -1 if it has no id.
    """

    producer_id: int
    epoch: int
    sequence: int
    records: int
    transactional: bool = False

    @property
    def writer(self) -> bytes:
        """The producer as the name of a writer; empty if it has no id."""
        return writer_of(self.producer_id) if self.producer_id >= 0 else b""

    def __str__(self) -> str:
        return f"producer {self.producer_id} epoch {self.epoch}"


class ActiveProducer(NamedTuple):
    """A producer as one partition knows it: its last sequence number, and the first offset of its open transaction, if
    it has one.
    """

    identity: ProducerIdAndEpoch
    last_sequence: int
    open_from: int | None


def writer_of(producer_id: int) -> bytes:
    """Return a producer id as the log's dialect names the writer."""
    return producer_id.to_bytes(ID_BYTES, "big")


def producer_of(writer: bytes) -> int:
    """Return the producer id of a writer: the inverse of ``writer_of``."""
    return int.from_bytes(writer, "big")


class KafkaAppender:
    """Appends of numbered batches and of the control records that end transactions."""

    def __init__(
        self,
        appender: Appender,
        memory: WriterStateManager,
        numbered: NumberedAppender,
        on_stable_moved: Callable[[Partition], None] = ignore,
    ) -> None:
        """``on_stable_moved`` is called with every partition whose stable end may have moved."""
        self._appender = appender
        self._memory = memory
        self._numbered = numbered
        self._on_stable_moved = on_stable_moved

    def append(
        self, partition: Partition, batch: BatchSequence, room_bytes: int, write: Write, source: object = None
    ) -> Append:
        """Append a batch, or return the earlier append of the same batch; raises PRODUCER_FENCED or OUT_OF_SEQUENCE.

        ``source`` is as in ``Appender.append``; batches of a transaction wait for the end of the pass anyway.
        """
        repeated = self._numbered.find_duplicate(partition, batch)
        if repeated is not None:
            return repeated
        before = self._memory.of(partition).open_by_writer.get(batch.writer)
        append = self._numbered.append(
            partition,
            (batch,),
            DIALECT,
            TRANSACTIONAL if batch.transactional else PLAIN,
            room_bytes,
            write,
            # readers may not see it before it is known to be open
            None if batch.transactional else source,
            # an aborted range must begin at the start of a chunk
            in_new_chunk=batch.transactional and (not before or before[-1][1] != partition.log.next_offset),
        )
        if batch.transactional and not before:
            self.settle(partition)
        return append

    def find_next(self, partition: Partition, batches: Sequence[BatchSequence]) -> list[int]:
        """Return the places of the batches that ``append_next`` may append together; see ``NumberedAppender``."""
        return self._numbered.find_next(partition, batches)

    def append_next(
        self, partition: Partition, batches: Sequence[BatchSequence], room_bytes: int, write: Write, source: object
    ) -> Append:
        """Append batches of no transaction together, which ``find_next`` has found. Raises Refusal."""
        return self._numbered.append(partition, batches, DIALECT, PLAIN, room_bytes, write, source)

    def write_transaction_marker(
        self, partition: Partition, writer: bytes, epoch: int, committed: bool, now_us: int
    ) -> Append:
        """End a writer's transaction in this partition. Raises Refusal if the log does not accept the control record;
        nothing has changed then.

        Its readers continue as soon as that is synced.
        """
        dialect = registry.dialect(DIALECT)
        if not isinstance(dialect, TransactionMarkerDialect):
            raise LocalError(f"dialect {dialect.name} has no control records; give one that has a marker")
        log_epoch, now_us = partition.log.epoch, partition.log.append_time_us(now_us)
        size_bytes = len(dialect.marker(writer, epoch, committed, 0, log_epoch, now_us))

        def write(array: NDArray[np.uint8], at: int, base_offset: int) -> WriteResult:
            record = dialect.marker(writer, epoch, committed, base_offset, log_epoch, now_us)
            array[at : at + size_bytes] = np.frombuffer(record, np.uint8)
            return WriteResult(size_bytes, 1, now_us, now_us)

        writers = self._memory.of(partition)
        self._appender.close_chunk(partition)
        append = self._appender.append(partition, DIALECT, TRANSACTIONAL, size_bytes, write)
        # once it is written only a failed sync can lose it, and then the log takes nothing more
        self._appender.close_chunk(partition)
        apply_transaction_marker(partition, writer, append.base_offset, committed)
        facts = (writer, epoch, 0, 0, append.base_offset, append.end_offset)
        writers.add(SequencedBatch(*facts, outcome=committed), partition.log.high_watermark)
        self.settle(partition)
        return append

    def settle(self, partition: Partition) -> None:
        """Update the stable end for readers: the partition's undecided ranges have changed."""
        update_last_stable_offset(partition)
        self._on_stable_moved(partition)

    def append_when_durable(self, partition: Partition) -> Append | None:
        """Return an Append that is done when the present content of the partition is durable, or None if it is durable
        already.
        """
        log = partition.log
        if log.next_offset <= log.high_watermark:
            return None
        return self._appender.follow(partition, log.next_offset, log.next_offset, 0, duplicate=True)

    def list_active_producers(self, partition: Partition) -> list[ActiveProducer]:
        """Return the producers that the partition remembers; the one whose last batch is oldest comes first."""
        writers = partition.writers
        if writers is None:
            return []
        found = []
        for writer, known in writers.items():
            if len(writer) != ID_BYTES:
                # writers of other protocols
                continue
            last = -1 if not known.recent else (known.next_sequence - 1) % SEQUENCES
            first_open = writers.open_by_writer[writer][0][0] if writer in writers.open_by_writer else None
            found.append(ActiveProducer(ProducerIdAndEpoch(producer_of(writer), known.epoch), last, first_open))
        return found

    def list_aborted(self, partition: Partition, first: int, end: int) -> list[tuple[int, int]]:
        """Return (producer id, first offset) of each aborted transaction in ``first`` to ``end``, by offset.

        The first offset is that of the first such batch; a reader leaves out what the producer has from there up to
        its next control record.
        """
        log = partition.log
        found: list[tuple[int, int]] = []
        ranges = log.aborted_ranges(first, end)
        if not ranges:
            return found
        named: set[bytes] = set()
        at = ranges[0][0]
        for start, stop in sorted([*ranges, *log.control_ranges(at, end)]):
            at = max(at, start)
            while at < stop:
                span = log.read(at, min(SCAN_BYTES, 1 << 16))
                if span is None or span.base_offset >= stop:
                    break
                for run in runs(span.region, span.start, span.end, verify=False) if not span.damaged else ():
                    dialect = registry.dialect(run.dialect)
                    if not isinstance(dialect, SequencedDialect):
                        continue
                    for one in dialect.iter_batches(run, at):
                        if one.outcome is not None:
                            named.discard(one.writer)
                        elif one.transactional and one.writer not in named and _overlaps(ranges, one):
                            named.add(one.writer)
                            found.append((producer_of(one.writer), one.base_offset))
                at = max(span.end_offset, at + 1)
        return found


def _overlaps(ranges: list[tuple[int, int]], batch: SequencedBatch) -> bool:
    return any(first < batch.end_offset and batch.base_offset < end for first, end in ranges)
