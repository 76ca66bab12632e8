"""Native blocks: checked whole before anything is appended, kept once, held back while their transaction is open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..chunk.runs import runs
from ..dialects import registry
from ..dialects.native import messages as native
from ..log.catalog import Catalog
from ..model.errors import MalformedMessage, Reason, Refusal
from ..model.run import BASE_OFFSET, BODY_END, BODY_START, Run
from .append import Append, Appender, Written
from .counters import Counters
from .settings import BrokerSettings
from .topology import Partition
from .transactions import Transactions
from .writers import SNAPSHOT, Block, Writers

PLAIN: Final = 0
TRANSACTIONAL: Final = 1
"""Chunk flags of native blocks: those of a transaction share no chunk with others."""
SCAN_BYTES: Final = 4 << 20


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

    def append(
        self, partition: Partition, body: memoryview, *, now_us: int, checked: Sequence[native.Checked] | None = None
    ) -> Append:
        """Append the blocks of ``body`` in order; those that were appended before are left out.

        ``checked`` is what ``native.messages.check`` said of the body, where that was done in another thread. The
        Append names the offset of the first block, the old one where it is repeated, and is done when every block
        lasts. Refused before anything is appended: a block that is not whole (MalformedMessage), a gap in a writer's
        sequence, a transaction that is not open. Where the disk fills up half-way the blocks before that stay, and
        are known when they are sent again.
        """
        blocks = native.check(body) if checked is None else checked
        if not blocks:
            raise MalformedMessage("a native append holds no block", reason=Reason.INVALID_COUNT)
        transactions = {one.block.header.transaction_id for one in blocks}
        if len(transactions) > 1:
            raise Refusal(Reason.MALFORMED, "the blocks of a request belong to one transaction; send one request each")
        if transactions != {0}:
            self._transactions.require_open(*transactions)
        known = self._known(partition, blocks)
        now_us = partition.log.append_time_us(now_us)
        offsets = [
            (repeated.base_offset, repeated.end_offset) if repeated else self._write(partition, body, one, now_us)
            for one, repeated in zip(blocks, known, strict=True)
        ]
        duplicates = sum(repeated is not None for repeated in known)
        self._counters.duplicate_blocks += duplicates
        return self._appender.follow(
            partition,
            offsets[0][0],
            max(end for _, end in offsets),
            sum(one.block.rows for one in blocks),
            duplicate=duplicates == len(blocks),
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
                        _replay(writers, run, at, log.synced_end)
            at = span.end_offset

    def synced(self, partition: Partition) -> None:
        """After a sync: keep a snapshot when a segment was closed, best when nothing is under way."""
        writers, log = partition.writers, partition.log
        if writers is None:
            return
        closed = abs(log.segments_count - writers.snapshot_segments)
        if closed > 1 or (closed and log.synced_end == log.next_offset):
            self.snapshot(partition)

    def snapshot(self, partition: Partition) -> None:
        """Keep what is known of the partition's writers, so that a start reads only what comes after."""
        writers, log = partition.writers, partition.log
        if writers is not None:
            log.snapshot(SNAPSHOT, writers.dump())
            writers.snapshot_segments = log.segments_count

    def _of(self, partition: Partition) -> Writers:
        if partition.writers is None:
            settings = self._settings
            partition.writers = Writers(settings.writer_window, settings.writers_per_partition_max)
            partition.writers.snapshot_segments = partition.log.segments_count
        return partition.writers

    def _known(self, partition: Partition, blocks: Sequence[native.Checked]) -> list[Block | None]:
        """For each block the one it repeats, or None; Refusal where one does not follow."""
        headers = [one.block.header for one in blocks]
        if all(header.writer_id == native.NO_WRITER and not header.transaction_id for header in headers):
            return [None] * len(blocks)
        if partition.writers is None:
            self._catalog.add_writer_partition(partition.topic.uuid, partition.number)
        writers = self._of(partition)
        expected: dict[bytes, tuple[int, int]] = {}
        known: list[Block | None] = []
        for header in headers:
            repeated = None
            if header.writer_id != native.NO_WRITER:
                repeated = writers.find(header.writer_id, header.writer_epoch, header.sequence, expected)
                if repeated is None:
                    expected[header.writer_id] = (header.writer_epoch, header.sequence + 1)
            known.append(repeated)
        return known

    def _write(self, partition: Partition, body: memoryview, checked: native.Checked, now_us: int) -> tuple[int, int]:
        """Append one block; gives its offsets."""
        block = checked.block
        source = body[block.start : block.end]
        alone = [checked._replace(block=block._replace(start=0, end=len(source)))]

        def write(array: NDArray[np.uint8], at: int, base_offset: int) -> Written:
            return Written(*native.restamp(source, alone, array, at, now_us))

        header = block.header
        if header.transaction_id:
            # an aborted range must begin where a chunk begins
            self._appender.close_chunk(partition)
        flags = TRANSACTIONAL if header.transaction_id else PLAIN
        append = self._appender.append(partition, registry.NATIVE, flags, len(source), write)
        if partition.writers is not None:
            written = Block(header.sequence, append.base_offset, append.end_offset)
            partition.writers.add(
                header.writer_id, header.writer_epoch, header.transaction_id, written, partition.log.synced_end
            )
        if header.transaction_id:
            self._transactions.appended(header.transaction_id, partition)
        return append.base_offset, append.end_offset

    def _lost(self, partition: Partition, offset: int) -> None:
        if partition.writers is not None:
            partition.writers.cut(offset)
            self._transactions.cut(partition)


def _replay(writers: Writers, run: Run, first: int, synced_end: int) -> None:
    """Take in the blocks of a Run from offset ``first`` on, as when they were appended."""
    for chunk in run.chunks.tolist():
        body = run.region.data[chunk[BODY_START] : chunk[BODY_END]]
        offset = chunk[BASE_OFFSET]
        for block in native.blocks(body):
            if offset >= first:
                header = block.header
                written = Block(header.sequence, offset, offset + block.rows)
                writers.add(header.writer_id, header.writer_epoch, header.transaction_id, written, synced_end)
            offset += block.rows
