"""Messages as records of a Kafka cluster, and how many bytes each takes alone, which a topic bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from ...dialects.kafka.encode import RecordEncoder
from ...dialects.kafka.layout import BATCH_HEADER_BYTES
from ...dialects.kafka.protocol import RECORDS
from ..fitting import fill_missing_columns, fit_to_target

if TYPE_CHECKING:
    import pyarrow as pa

    from ...model.protocol import MessageBound

LONE_CODEC: Final[Literal["lz4"]] = "lz4"
"""Codec for a record that is too large uncompressed: brokers apply the limit to the bytes that are sent."""


def encode_records(rows: pa.RecordBatch, now_us: int) -> RecordEncoder:
    """Return complete messages as records, with carriers; ``now_us`` is the time of messages without one."""
    import numpy as np
    import pyarrow as pa

    times: Any = rows.column("timestamp").cast(pa.int64()).fill_null(now_us)
    times_us = np.ascontiguousarray(times.to_numpy(zero_copy_only=False))
    carrying = RecordEncoder.carrying(rows, times_us)
    return carrying or RecordEncoder(fit_to_target(rows, RECORDS, "Kafka", strict=False), times_us)


def find_oversized(batch: pa.RecordBatch, bound: MessageBound) -> list[tuple[int, int]]:
    """Return the rows whose record, alone and compressed, makes a batch larger than ``bound``, each with its size."""
    import numpy as np

    records = encode_records(fill_missing_columns(batch), 0)
    found = []
    for row in np.flatnonzero(records.sizes + BATCH_HEADER_BYTES > bound.bytes_max).tolist():
        size_bytes = measure_record(records, row, bound.bytes_max, is_compressed=bound.is_compressed)
        if size_bytes > bound.bytes_max:
            found.append((row, size_bytes))
    return found


def measure_record(records: RecordEncoder, row: int, bytes_max: int, *, is_compressed: bool = True) -> int:
    """Return the size of a batch with one record: if it exceeds ``bytes_max``, compressed if that is smaller."""
    size_bytes = len(records.encode(row, row + 1))
    if size_bytes > bytes_max and is_compressed:
        size_bytes = min(size_bytes, len(records.encode(row, row + 1, compression=LONE_CODEC)))
    return size_bytes
