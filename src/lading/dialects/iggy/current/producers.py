"""Who numbered the messages of a batch, which its head says since protocol 0.12: a producer that sends it once.

The producer takes one sequence number a message in each partition, and sends a batch again under the same numbers if it
does not know its fate. After the highest number sequences continue at 0 (Kafka's ranges, 31 bits).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from lading.model.chunk_table import BODY_END, BODY_START, FLAGS
from lading.model.errors import MalformedMessage
from lading.model.run import Run

from ...sequenced import SequencedBatch
from ..messages.layout import CUT, REASONS
from .layout import (
    NUMBERED,
    PRODUCER,
    PRODUCER_END,
    PRODUCER_EPOCH_MAX,
    PRODUCER_ID_MAX,
    PRODUCER_SEQUENCE_MAX,
)
from .stored_fallback import read_batch

_SECTION: Final = struct.Struct("<B3sQH2sI")
_NO_PRODUCER: Final = bytes(_SECTION.size)
_WRITER_PREFIX: Final = b"iggy"
"""Before the id of a producer in the name of a writer: ids of Kafka's producers are other ones."""


class BatchProducer(NamedTuple):
    """The producer of a batch, and the number of its first message in the partition."""

    id: int
    epoch: int
    sequence: int

    @property
    def writer(self) -> bytes:
        """The producer as the name of a writer."""
        return _WRITER_PREFIX + self.id.to_bytes(8, "big")


def producer_of(writer: bytes) -> int | None:
    """Return the id of the producer that has this name as a writer, or None for a writer of another protocol."""
    if len(writer) != len(_WRITER_PREFIX) + 8 or not writer.startswith(_WRITER_PREFIX):
        return None
    return int.from_bytes(writer[len(_WRITER_PREFIX) :], "big")


def read_producer(head: memoryview) -> BatchProducer | None:
    """Return who numbered a batch with this head, or None if nobody has.

    Raises MalformedMessage if the head says neither.
    """
    section = bytes(head[PRODUCER:PRODUCER_END])
    if section == _NO_PRODUCER:
        return None
    if not is_producer_sound(head):
        raise MalformedMessage("the head of a batch names no producer that there can be", at=PRODUCER)
    _, _, ident, epoch, _, sequence = _SECTION.unpack(section)
    return BatchProducer(ident, epoch, sequence)


def is_producer_sound(head: memoryview) -> bool:
    """Return whether what a head says of its producer is something: nothing at all, or an id, epoch and number."""
    present, zeros, ident, epoch, more_zeros, sequence = _SECTION.unpack_from(head, PRODUCER)
    if any(zeros) or any(more_zeros):
        return False
    if not present:
        return not (ident or epoch or sequence)
    is_in_range = ident <= PRODUCER_ID_MAX and epoch <= PRODUCER_EPOCH_MAX and sequence <= PRODUCER_SEQUENCE_MAX
    return bool(present == 1 and is_in_range)


def iter_batches(run: Run, first: int) -> Iterator[SequencedBatch]:
    """See SequencedDialect.iter_batches; only batches of chunks with the flag are numbered, and looked at."""
    data = run.region.data
    for chunk in run.chunks.tolist():
        if not chunk[FLAGS] & NUMBERED:
            continue
        at, end = chunk[BODY_START], chunk[BODY_END]
        while at < end:
            batch = read_batch(data, at, end)
            if batch is None:
                raise MalformedMessage(f"the message {REASONS[CUT]}", at=at)
            producer = read_producer(data[at : at + PRODUCER_END])
            end_offset = batch.base_offset + batch.messages_count
            if producer is not None and end_offset > first:
                yield SequencedBatch(
                    producer.writer,
                    producer.epoch,
                    producer.sequence,
                    batch.messages_count,
                    batch.base_offset,
                    end_offset,
                )
            at = batch.end
