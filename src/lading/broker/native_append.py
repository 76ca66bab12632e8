"""Native blocks: checked whole before anything is appended, kept once, held back while their transaction is open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..chunk.runs import runs
from ..dialects import registry
from ..dialects.native import messages as native
from ..log.catalog import Catalog
from ..model.errors import Reason, Refusal
from ..model.limits import CHUNK_BODY_BYTES_MAX
from ..model.run import BASE_OFFSET, BODY_END, BODY_START
from .append import Append, Appender, Written
from .counters import Counters
from .settings import BrokerSettings
from .topology import Partition
from .transactions import Transactions
from .writers import SNAPSHOT, Block, Writers

PLAIN: Final = 0
TRANSACTIONAL: Final = 1
"""Chunk flag of the native dialect: blocks of a transaction share no chunk with others."""
NO_WRITER: Final = bytes(16)
SCAN_BYTES: Final = 4 << 20


class _Accepted(NamedTuple):
    header: native.BlockHeader
    start: int
    end: int
    rows: int


class NativeAppender:
    """Appends of native blocks, and what is known of their writers."""

    def __init__(
        self,
        appender: Appender,
        transactions: Transactions,
        catalog: Catalog,
        settings: BrokerSettings,
        counters: Counters,
    ) -> None:
        self._appender = appender
        self._transactions = transactions
        self._catalog = catalog
        self._settings = settings
        self._counters = counters
        appender.on_lost = self._lost

    def append(self, partition: Partition, body: memoryview, *, now_us: int) -> Append:
        """Append the blocks of ``body`` in order; those that were appended before are left out.

        The Append names the offset of the first block, the old one where all are repeated, and is done when every
        block lasts. Refused before anything is appended: a block that is not whole (MalformedMessage), a gap in a
        writer's sequence, a transaction that is not open. Where the disk fills up half-way the blocks before
        that stay, and are known when they are sent again.
        """
        accepted = _checked(body, now_us)
        transaction_id = accepted[0].header.transaction_id
        if any(block.header.transaction_id != transaction_id for block in accepted):
            raise Refusal(
                Reason.MALFORMED, "the blocks of one request belong to one transaction; send one request each"
            )
        if transaction_id:
            self._transactions.require_open(transaction_id)
        known = self._known(partition, accepted)
        first_offset: int | None = None
        end_offset = 0
        count = 0
        for block, repeated in zip(accepted, known, strict=True):
            base, end = (repeated.base_offset, repeated.end_offset) if repeated else self._write(partition, body, block)
            first_offset = base if first_offset is None else first_offset
            end_offset = max(end_offset, end)
            count += block.rows
        duplicates = sum(repeated is not None for repeated in known)
        self._counters.duplicate_blocks += duplicates
        return self._appender.follow(
            partition, first_offset or 0, end_offset, count, duplicate=duplicates == len(accepted)
        )

    def load(self, partition: Partition) -> None:
        """What the writers of a partition did, from the last snapshot and the blocks after it."""
        log = partition.log
        writers = self._of(partition)
        snapshot = log.load_snapshot(SNAPSHOT)
        at = log.first_offset
        if snapshot is not None:
            writers.load(snapshot.data)
            at = snapshot.end_offset
            writers.snapshot_segments = log.segments_count
        while (span := log.read(at, SCAN_BYTES)) is not None:
            if not span.damaged:
                for run in runs(span.region, span.start, span.end, verify=False):
                    if run.dialect == registry.NATIVE:
                        _replay(writers, run.region, run.chunks, at, log.synced_end)
            at = span.end_offset

    def synced(self, partition: Partition) -> None:
        """After a sync: keep a snapshot when a segment was closed, best when nothing is under way."""
        writers, log = partition.writers, partition.log
        if writers is None or not writers.changed:
            return
        closed = abs(log.segments_count - writers.snapshot_segments)
        if closed > 1 or (closed and log.synced_end == log.next_offset):
            self.snapshot(partition)

    def snapshot(self, partition: Partition) -> None:
        """Keep what is known of the partition's writers, if anything changed."""
        writers, log = partition.writers, partition.log
        if writers is not None and writers.changed:
            log.snapshot(SNAPSHOT, writers.dump())
            writers.changed = False
            writers.snapshot_segments = log.segments_count

    def _of(self, partition: Partition) -> Writers:
        if partition.writers is None:
            settings = self._settings
            partition.writers = Writers(settings.writer_window, settings.writers_per_partition_max)
            partition.writers.snapshot_segments = partition.log.segments_count
        return partition.writers

    def _known(self, partition: Partition, accepted: Sequence[_Accepted]) -> list[Block | None]:
        """For each block the one it repeats, or None; Refusal where one does not follow."""
        if all(block.header.writer_id == NO_WRITER and not block.header.transaction_id for block in accepted):
            return [None] * len(accepted)
        if partition.writers is None:
            self._catalog.add_writer_partition(partition.topic.uuid, partition.number)
        writers = self._of(partition)
        expected: dict[bytes, tuple[int, int]] = {}
        known: list[Block | None] = []
        for block in accepted:
            header = block.header
            repeated = None
            if header.writer_id != NO_WRITER:
                repeated = writers.find(header.writer_id, header.writer_epoch, header.sequence, expected)
                if repeated is None:
                    expected[header.writer_id] = (header.writer_epoch, header.sequence + 1)
            known.append(repeated)
        return known

    def _write(self, partition: Partition, body: memoryview, block: _Accepted) -> tuple[int, int]:
        header = block.header
        size_bytes = block.end - block.start

        def write(array: NDArray[np.uint8], at: int, base_offset: int) -> Written:
            array[at : at + size_bytes] = np.frombuffer(body[block.start : block.end], np.uint8)
            native.stamp(array, at, block.append_time_us)
            return Written(size_bytes, block.rows, block.min_timestamp_us, block.max_timestamp_us)

        flags = TRANSACTIONAL if header.transaction_id else PLAIN
        if flags:
            # an aborted range must end where a chunk ends
            self._appender.close_chunk(partition)
        append = self._appender.append(partition, registry.NATIVE, flags, size_bytes, write)
        end_offset = append.base_offset + block.rows
        if header.writer_id != NO_WRITER:
            written = Block(header.sequence, append.base_offset, end_offset)
            self._of(partition).add(header.writer_id, header.writer_epoch, written, partition.log.synced_end)
        if header.transaction_id:
            self._of(partition).transactions.add(header.transaction_id, append.base_offset, end_offset)
            self._transactions.appended(header.transaction_id, partition)
        return append.base_offset, end_offset

    def _lost(self, partition: Partition, offset: int) -> None:
        if partition.writers is not None:
            partition.writers.cut(offset)
            self._transactions.cut(partition)
