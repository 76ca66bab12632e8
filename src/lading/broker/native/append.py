"""Native blocks: all checked before any is appended, stored once, invisible while their transaction is open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...dialects import codes
from ...dialects.native import messages as native
from ...dialects.sequenced import SequencedBatch
from ...model.errors import MalformedMessage, Reason, Refusal
from ..core.append.append import Appender, WriteResult
from ..core.append.writer_state import WriterStateManager
from ..core.counters import Counters
from ..core.pending_append import Append
from ..core.topology import Partition
from ..core.writers import AppendedBlock
from .transactions import NativeTransactions

PLAIN: Final = 0
TRANSACTIONAL: Final = 1
"""The chunk flag of blocks of a transaction: they share no chunk with other blocks."""


class NativeAppender:
    """Appends of native blocks."""

    def __init__(
        self,
        appender: Appender,
        transactions: NativeTransactions,
        memory: WriterStateManager,
        counters: Counters,
    ) -> None:
        self._appender = appender
        self._transactions = transactions
        self._memory = memory
        self._counters = counters

    def append(
        self, partition: Partition, body: memoryview, *, now_us: int, checked: Sequence[native.Checked] | None = None
    ) -> Append:
        """Append the blocks of ``body`` in order; those that were appended before are left out.

        ``checked`` is what ``native.messages.check`` returned for the body, if another thread called it. The Append
        names the offset of the first block, the old one if it is repeated, and is done when every block is durable.
        Refused before anything is appended: an incomplete block (MalformedMessage), a gap in a writer's sequence, a
        number that the writer used for another block, a transaction that is not open. If the disk fills up half-way,
        the blocks before that are kept, and are recognized when they are sent again.
        """
        blocks = native.check(body) if checked is None else checked
        if not blocks:
            raise MalformedMessage("a native append holds no block", reason=Reason.INVALID_COUNT)
        transactions = {one.block.header.transaction_id for one in blocks}
        if len(transactions) > 1:
            raise Refusal(Reason.MALFORMED, "the blocks of a request belong to one transaction; send one request each")
        if transactions != {0}:
            self._transactions.require_open(*transactions)
        known = self._find_repeated(partition, blocks)
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

    def append_remade(self, partition: Partition, body: memoryview, *, now_us: int) -> Append:
        """Append the broker's own blocks, which are built again after a crash: sequences alone show repeated ones.

        They may have other messages then, as limits and the log may have changed: the Append has the offsets of the
        first attempt.
        """
        checked = [one._replace(digest=0) for one in native.check(body)]
        return self.append(partition, body, now_us=now_us, checked=checked)

    def _find_repeated(self, partition: Partition, blocks: Sequence[native.Checked]) -> list[AppendedBlock | None]:
        """Return for each block the one that it repeats, or None. Raises Refusal for a gap in a writer's sequence."""
        headers = [checked.block.header for checked in blocks]
        if all(header.writer_id == native.NO_WRITER and not header.transaction_id for header in headers):
            return [None] * len(blocks)
        writers = self._memory.of(partition)
        expected: dict[bytes, tuple[int, int]] = {}
        known: list[AppendedBlock | None] = []
        for header, checked in zip(headers, blocks, strict=True):
            repeated = None
            if header.writer_id != native.NO_WRITER:
                repeated = writers.find(
                    header.writer_id,
                    header.writer_epoch,
                    header.sequence,
                    expected,
                    transaction_id=header.transaction_id,
                    digest=checked.digest,
                )
                if repeated is None:
                    expected[header.writer_id] = (header.writer_epoch, header.sequence + 1)
            known.append(repeated)
        return known

    def _write(self, partition: Partition, body: memoryview, checked: native.Checked, now_us: int) -> tuple[int, int]:
        """Append one block; gives its offsets."""
        block = checked.block
        source = body[block.start : block.end]
        alone = [checked._replace(block=block._replace(start=0, end=len(source)))]

        def write(array: NDArray[np.uint8], at: int, base_offset: int) -> WriteResult:
            return WriteResult(*native.restamp(source, alone, array, at, now_us))

        header = block.header
        if header.transaction_id:
            # an aborted range must begin at the start of a chunk
            self._appender.close_chunk(partition)
        flags = TRANSACTIONAL if header.transaction_id else PLAIN
        append = self._appender.append(partition, codes.NATIVE, flags, len(source), write)
        if partition.writers is not None:
            writer = b"" if header.writer_id == native.NO_WRITER else header.writer_id
            facts = (writer, header.writer_epoch, header.sequence, 1, append.base_offset, append.end_offset)
            partition.writers.add(
                SequencedBatch(*facts, transaction=header.transaction_id, digest=checked.digest),
                partition.log.high_watermark,
            )
        if header.transaction_id:
            self._transactions.add_partition(header.transaction_id, partition)
        return append.base_offset, append.end_offset
