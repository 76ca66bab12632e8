"""Appends of batches whose producer numbers its messages in each partition, so that a repeated batch is kept once.

Each message takes one number; after the highest number comes 0. A batch with the next numbers is appended; a repetition
of one of the last batches gets the offset of the first one. A higher epoch starts again at 0 and fences the lower one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ....dialects.sequenced import SequencedBatch
from ....model.errors import Reason, Refusal
from ..counters import Counters
from ..pending_append import Append
from ..topology import Partition
from ..writers import AppendedBlock, Writers
from .append import Appender, Write, WriteResult
from .writer_state import WriterStateManager

SEQUENCES: Final = 1 << 31
"""The number of sequence numbers: after the highest one they begin again at 0."""


class NumberedBatch(Protocol):
    """Producer and sequence number of a batch in this partition; its text names the producer and its epoch."""

    @property
    def writer(self) -> bytes:
        """The producer in the form of a writer's name; empty if it has none, then nothing is remembered."""

    @property
    def epoch(self) -> int:
        """The epoch of the producer."""

    @property
    def sequence(self) -> int:
        """The number of the first message."""

    @property
    def records(self) -> int:
        """The number of messages."""

    @property
    def transactional(self) -> bool:
        """Whether it belongs to its producer's open transaction."""


class NumberedAppender:
    """Appends numbered batches, for the protocols that have them."""

    def __init__(self, appender: Appender, memory: WriterStateManager, counters: Counters) -> None:
        self._appender = appender
        self._memory = memory
        self._counters = counters

    def find_duplicate(self, partition: Partition, batch: NumberedBatch) -> Append | None:
        """Return the append that a batch repeats, or None if the batch is the next new one.

        Raises PRODUCER_FENCED or OUT_OF_SEQUENCE if it is neither. An unknown producer may begin with any number: its
        state may have been deleted with its messages.
        """
        repeated = _find_duplicate(self._memory.of(partition), batch)
        if repeated is None:
            return None
        self._counters.duplicate_blocks += 1
        return self._appender.follow(
            partition, repeated.base_offset, repeated.end_offset, batch.records, duplicate=True
        )

    def find_next(self, partition: Partition, batches: Sequence[NumberedBatch]) -> list[int]:
        """Return the places of those of ``batches`` that are new, and have the next number of their producer.

        They may be appended together. Only the first of several batches of a producer is among them.
        """
        writers, seen, places = self._memory.of(partition), set[bytes](), []
        for place, batch in enumerate(batches):
            name = batch.writer
            if not name:
                places.append(place)
            elif name not in seen:
                seen.add(name)
                writer = writers.get(name)
                if writer is None or (batch.epoch, batch.sequence) == (writer.epoch, writer.next_sequence % SEQUENCES):
                    places.append(place)
        return places

    def append(
        self,
        partition: Partition,
        batches: Sequence[NumberedBatch],
        dialect: int,
        flags: int,
        room_bytes: int,
        write: Write,
        source: object = None,
        *,
        in_new_chunk: bool = False,
    ) -> Append:
        """Append new batches, each with the next number of its producer, and remember them.

        That is done as ``Appender.append`` does; ``write`` writes all of them, in this order. With ``in_new_chunk``
        they begin a chunk, without any earlier messages.
        """
        writers = self._memory.of(partition)
        try:
            if in_new_chunk:
                self._appender.close_chunk(partition)
            noted = _note_after_write(writers, batches, write, partition.log.high_watermark)
            return self._appender.append(partition, dialect, flags, room_bytes, noted, source)
        except Refusal:
            writers.truncate_from(partition.log.next_offset)
            for batch in batches:
                writers.expect(batch.writer, batch.epoch, batch.sequence)
            raise


def _note_after_write(writers: Writers, batches: Sequence[NumberedBatch], write: Write, high_watermark: int) -> Write:
    """Return ``write`` with a step that notes the batches as known.

    Not after the disk write, as a snapshot may follow at once.
    """

    def noting(array: NDArray[np.uint8], at: int, base_offset: int) -> WriteResult:
        written = write(array, at, base_offset)
        for batch in batches:
            end_offset = base_offset + batch.records
            facts = (batch.writer, batch.epoch, batch.sequence, batch.records, base_offset, end_offset)
            writers.add(SequencedBatch(*facts, transactional=batch.transactional), high_watermark)
            base_offset = end_offset
        return written

    return noting


def _find_duplicate(writers: Writers, batch: NumberedBatch) -> AppendedBlock | None:
    """Return the block that a batch repeats, or None if it is new and next."""
    writer = writers.get(batch.writer)
    if writer is None:
        return None
    if (batch.epoch, batch.sequence) == (writer.epoch, writer.next_sequence % SEQUENCES):
        return None
    if batch.epoch < writer.epoch:
        raise Refusal(
            Reason.PRODUCER_FENCED,
            f"{batch}: epoch {writer.epoch} of it has written here already; "
            "close this producer, a newer one writes under its name",
        )
    if batch.epoch > writer.epoch:
        if batch.sequence:
            raise Refusal(Reason.OUT_OF_SEQUENCE, f"{batch}: a new epoch begins at record 0, not {batch.sequence}")
        return None
    for block in reversed(writer.recent):
        if (block.sequence, block.numbers) == (batch.sequence, batch.records):
            return block
    raise Refusal(
        Reason.OUT_OF_SEQUENCE,
        f"{batch}: record {batch.sequence} does not follow, the next is {writer.next_sequence % SEQUENCES}; "
        "send that one, or begin a new epoch",
    )
