"""Record batches of producers, and what readers of a partition see of them: shared by the tests of producers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.broker.broker import Broker
from lading.broker.core.append.append import WriteResult
from lading.broker.core.pending_append import Append
from lading.broker.core.topology import Partition
from lading.broker.kafka.append import BatchSequence
from lading.dialects.kafka import protocol as kafka_row
from lading.dialects.kafka.encode import ProducerSequence, RecordEncoder
from lading.dialects.kafka.layout import ATTRIBUTES_AT, CRC_AT, TRANSACTIONAL
from lading.dialects.native import protocol as native_row
from lading.model.protocol import VisibilityRule
from lading.model.scan_request import ScanRequest
from tests.broker.room import NOW, batch, read, rows


def record_batch(payloads: Sequence[bytes], who: BatchSequence) -> bytearray:
    """A batch as a client sends it."""
    import google_crc32c

    records = RecordEncoder(batch(*payloads, timestamp_us=NOW), np.full(len(payloads), NOW))
    made = bytearray(records.encode(0, len(payloads), ProducerSequence(who.producer_id, who.epoch, who.sequence)))
    if who.transactional:
        made[ATTRIBUTES_AT + 1] |= TRANSACTIONAL
        made[CRC_AT : CRC_AT + 4] = google_crc32c.value(bytes(made[CRC_AT + 4 :])).to_bytes(4, "big")
    return made


def produce(
    broker: Broker,
    partition: Partition,
    *payloads: bytes,
    producer: int,
    epoch: int = 0,
    sequence: int = 0,
    transactional: bool = False,
    flush: bool = True,
    source: object = None,
) -> Append:
    """Append a batch as the endpoint does."""
    who = BatchSequence(producer, epoch, sequence, len(payloads), transactional)
    made = record_batch(payloads, who)

    def write(array: NDArray[np.uint8], at: int, base_offset: int) -> WriteResult:
        made[:8] = base_offset.to_bytes(8, "big")
        array[at : at + len(made)] = np.frombuffer(made, np.uint8)
        return WriteResult(len(made), len(payloads), NOW, NOW)

    append = broker.producers.append(partition, who, len(made), write, source)
    if flush:
        broker.appender.flush()
    return append


def committed(broker: Broker, partition: Partition, reader: VisibilityRule = native_row.ALL_STATES) -> list[bytes]:
    """The payloads that a reader of what is committed sees."""
    return [payload for _, payload in rows(read(broker, partition, reader=reader))]


def as_kafka(broker: Broker, partition: Partition, first: int = 0) -> list[bytes]:
    """What a Kafka client sees with read_committed: pass-through batches, less those it is told to leave out."""
    from lading.dialects import registry
    from lading.dialects.kafka import messages

    reading = read(broker, partition, first, reader=kafka_row.COMMITTED)
    aborted = broker.producers.list_aborted(partition, first, reading.end_offset)
    found: list[bytes] = []
    for run, _, _ in reading.pieces:
        table = messages.read_batches_of(run, first).table
        seen = messages.visible(table, aborted)
        for row in table[seen].tolist():
            for part in registry.dialect(run.dialect).decode(
                run, ScanRequest(first=row[2], end=row[4] + 1, fields=frozenset({"payload"}))
            ):
                column: Any = part.columns["payload"]
                found += column.to_pylist()
    return found
