"""Producers of record batches, and the control batches that end transactions.

kafka.md 2.1 and 2.4. A producer is identified by its id, 8 bytes big-endian; a batch takes one sequence number a
record.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import google_crc32c

from lading.model.errors import MalformedMessage
from lading.model.run import Run

from ..sequenced import SequencedBatch
from . import layout
from .layout import BATCH_HEADER, BATCH_HEADER_BYTES, CONTROL, CRC_AT, FRAME_BYTES, MAGIC, TRANSACTIONAL
from .messages import read_batches_of

_IDENTITY: Final = struct.Struct(">qhi")
"""Producer id, epoch and base sequence, from ``layout.PRODUCER_AT`` on."""
_OUTCOME_AT: Final = BATCH_HEADER_BYTES + 7
"""Position of the type of a control record: after the record's own fields and the version of its key."""
_MARKER: Final = struct.Struct(">bbbbbHHbHib")
"""Length, attributes, time and offset delta, key length, key (version, type), value length, value (version,
coordinator epoch), headers count; the varints take one byte each."""
_MARKER_LENGTH, _KEY_LENGTH, _VALUE_LENGTH = 2 * 16, 2 * 4, 2 * 6


def writer_of(producer_id: int) -> bytes:
    """Return a producer id in the form of a writer's name; empty without one."""
    return b"" if producer_id < 0 else producer_id.to_bytes(8, "big")


def iter_batches(run: Run, first: int) -> Iterator[SequencedBatch]:
    """See SequencedDialect.numbered; batches without a producer have an empty writer."""
    batches = read_batches_of(run, first)
    if batches.reason:
        raise MalformedMessage(f"the record batch {layout.REASONS[batches.reason]}", at=batches.end)
    data = run.region.data
    for start, _, base, count, last, _, _, attributes, _, _ in batches.table.tolist():
        producer_id, epoch, sequence = _IDENTITY.unpack_from(data, start + layout.PRODUCER_AT)
        outcome = bool(data[start + _OUTCOME_AT + 1]) if attributes & CONTROL else None
        # compaction leaves fewer records than the batch had numbers; a batch without numbers has no producer
        numbers = last - base + 1 if count else 0
        yield SequencedBatch(
            writer_of(producer_id),
            epoch,
            sequence,
            numbers,
            base,
            last + 1,
            transactional=bool(attributes & TRANSACTIONAL),
            outcome=outcome,
        )


def marker(writer: bytes, epoch: int, committed: bool, base_offset: int, log_epoch: int, now_us: int) -> bytes:
    """See TransactionMarkerDialect.marker: a control batch of one record, type 1 for commit and 0 for abort.

    It has its log's epoch as all batches do: a consumer that stops after it asks for the end of that epoch.
    """
    record = _MARKER.pack(_MARKER_LENGTH, 0, 0, 0, _KEY_LENGTH, 0, committed, _VALUE_LENGTH, 0, 0, 0)
    time_ms = now_us // 1000
    batch = bytearray(BATCH_HEADER_BYTES) + record
    BATCH_HEADER.pack_into(
        batch, 0, base_offset, len(batch) - FRAME_BYTES, log_epoch, MAGIC, 0, TRANSACTIONAL | CONTROL, 0,
        time_ms, time_ms, int.from_bytes(writer, "big"), epoch, -1, 1,
    )  # fmt: skip
    batch[CRC_AT : CRC_AT + 4] = google_crc32c.value(bytes(batch[CRC_AT + 4 :])).to_bytes(4, "big")
    return bytes(batch)
