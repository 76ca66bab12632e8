"""Stored record batches on their way to a Kafka reader: unchanged, or cut to the messages that it may see.

A reader continues after the last offset of the last batch it gets. If only hidden or lost messages follow, an empty
batch with the true last offset delta moves it on, as real brokers leave one after compaction (kafka.md 2.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import google_crc32c
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.model.chunk_table import BASE_OFFSET, BODY_END, BODY_START, COUNT, LAST_OFFSET
from lading.model.errors import MalformedMessage
from lading.model.run import Run
from lading.model.scan_request import ScanRequest

from .. import registry
from . import layout
from .encode import ProducerSequence, RecordEncoder
from .layout import (
    ATTRIBUTES_AT,
    BATCH_HEADER,
    BATCH_HEADER_BYTES,
    COUNT_AT,
    CRC_AT,
    FRAME_BYTES,
    LAST_DELTA_AT,
    LENGTH_AT,
    LOG_APPEND_TIME,
    MAGIC,
    TRANSACTIONAL,
)
from .messages import decode_columns, read_batches

CHUNKS_MAX: Final = 2048
"""Limit of the chunks in one response: with tiny chunks the bytes alone would not limit the work."""
JOINED_CHUNKS: Final = 16
JOINED_BYTES: Final = 8 << 10
"""More than JOINED_CHUNKS pieces of less than JOINED_BYTES on average are copied into one: a few long buffers are sent
faster.
"""
DELTA_MAX: Final = (1 << 31) - 1

Bytes = bytes | bytearray | memoryview


class Passed(NamedTuple):
    """Unchanged batches, up to, not including, ``end_offset``."""

    parts: Sequence[Bytes]
    size_bytes: int
    end_offset: int


def slice_stored(run: Run, first: int, end: int, max_bytes: int, *, force: bool) -> Passed:
    """Return the batches that hold offsets from ``first`` up to, not including, ``end``.

    Nothing is copied or decoded. At most ``max_bytes`` are returned; with ``force`` at least one batch. The first one
    may begin before ``first``.
    """
    rows = run.chunks[:CHUNKS_MAX]
    starts, ends, bases, lasts = (
        rows[:, column].tolist() for column in (BODY_START, BODY_END, BASE_OFFSET, LAST_OFFSET)
    )
    data = run.region.data
    parts: list[Bytes] = []
    total, after = 0, first
    for start, stop, base, last in zip(starts, ends, bases, lasts, strict=True):
        if base < first or last >= end or total + stop - start > max_bytes:
            batches = read_batches(run.region, start, stop, first=first, last=end, verify=False).table
            if not len(batches):
                continue
            start = int(batches[0, layout.START])
            fitting = np.searchsorted(batches[:, layout.END], start + max_bytes - total, "right")
            taken = max(int(fitting), int(force and not parts))
            if taken:
                parts.append(data[start : int(batches[taken - 1, layout.END])])
                total += len(parts[-1])
                after = int(batches[taken - 1, layout.LAST]) + 1
            if taken < len(batches):
                break
        else:
            parts.append(data[start:stop])
            total += stop - start
            after = last + 1
    return Passed(join_small(parts, total), total, after)


def join_small(parts: Sequence[Bytes], size_bytes: int) -> Sequence[Bytes]:
    """Join many small parts into one, so that a response does not consist of thousands of buffers."""
    if len(parts) > JOINED_CHUNKS and size_bytes < len(parts) * JOINED_BYTES:
        return (b"".join(parts),)
    return parts


def slice_visible(
    run: Run, first: int, end: int, change: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None
) -> Iterator[Bytes]:
    """Return the batches as ``slice_stored`` does, but nothing outside of ``first`` to ``end``: partial batches are
    built anew.

    With ``change`` every batch but control batches is built anew, from the messages that it returns.
    """
    for chunk in run.chunks:
        start, stop = int(chunk[BODY_START]), int(chunk[BODY_END])
        for batch in read_batches(run.region, start, stop, first=first, last=end, verify=False).table:
            where, behind = int(batch[layout.START]), int(batch[layout.END])
            inside = batch[layout.BASE] >= first and batch[layout.LAST] < end
            if (inside and change is None) or batch[layout.ATTRIBUTES] & layout.CONTROL:
                yield run.region.data[where:behind]
            else:
                yield from _cut(run, chunk, batch, first, end, change)


def _cut(
    run: Run,
    chunk: NDArray[np.int64],
    batch: NDArray[np.int64],
    first: int,
    end: int,
    change: Callable[[pa.RecordBatch], pa.RecordBatch] | None,
) -> Iterator[memoryview]:
    """Return the messages of one batch from ``first`` to ``end`` as a batch with the old one's header fields."""
    row = chunk.copy()
    row[BODY_START], row[BODY_END] = batch[layout.START], batch[layout.END]
    row[BASE_OFFSET], row[LAST_OFFSET], row[COUNT] = batch[layout.BASE], batch[layout.LAST], batch[layout.COUNT]
    alone = Run(run.dialect, run.region, row[np.newaxis])
    fields = BATCH_HEADER.unpack_from(run.region.data, int(batch[layout.START]))
    epoch, attributes, max_ms, producer_id, producer_epoch, sequence = (fields[at] for at in (2, 5, 8, 9, 10, 11))
    for decoded in decode_columns(alone, ScanRequest(first, end)):
        rows = registry.to_batch(decoded)
        if change is not None:
            rows = change(rows)
        times = rows.column("timestamp").cast(pa.int64()).to_numpy(zero_copy_only=False)
        offsets = rows.column("offset").to_numpy()
        records = RecordEncoder(rows, times, offsets)
        for low, high in records.split_batches():
            producer = ProducerSequence(producer_id, producer_epoch, sequence)
            made = records.encode(low, high, producer)
            kept = attributes & (LOG_APPEND_TIME | TRANSACTIONAL)
            made[ATTRIBUTES_AT : ATTRIBUTES_AT + 2] = kept.to_bytes(2, "big")
            made[12:16] = epoch.to_bytes(4, "big", signed=True)
            if kept & LOG_APPEND_TIME:
                made[layout.MAX_TIME_AT : layout.MAX_TIME_AT + 8] = max_ms.to_bytes(8, "big", signed=True)
            made[CRC_AT : CRC_AT + 4] = google_crc32c.value(bytes(made[ATTRIBUTES_AT:])).to_bytes(4, "big")
            yield made


def slice_selected(run: Run, first: int, end: int, offsets: NDArray[np.int64]) -> Iterator[Bytes]:
    """Return the messages from ``first`` to ``end`` that are among these rising offsets; control batches are kept
    whole.

    A batch is not copied if all of its messages are selected, or if it cannot be decoded; otherwise a new one has the
    selected messages.
    """

    def select(rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows.filter(pa.array(np.isin(rows.column("offset").to_numpy(), offsets)))

    for chunk in run.chunks:
        start, stop = int(chunk[BODY_START]), int(chunk[BODY_END])
        for batch in read_batches(run.region, start, stop, first=first, last=end, verify=False).table:
            low, high = np.searchsorted(offsets, (batch[layout.BASE], batch[layout.LAST] + 1)).tolist()
            if high - low == batch[layout.COUNT] or batch[layout.ATTRIBUTES] & layout.CONTROL:
                yield run.region.data[int(batch[layout.START]) : int(batch[layout.END])]
            elif high > low:
                wanted = int(offsets[low]), int(offsets[high - 1]) + 1
                try:
                    yield from list(_cut(run, chunk, batch, *wanted, select))
                except MalformedMessage:
                    # the client reports the damaged batch, as it would without a filter
                    yield run.region.data[int(batch[layout.START]) : int(batch[layout.END])]


def empty(first: int, end: int) -> bytes:
    """Return a batch without records that covers as many of the offsets first <= offset < end as one batch can."""
    delta = min(end - 1 - first, DELTA_MAX)
    size = BATCH_HEADER_BYTES - FRAME_BYTES
    made = bytearray(BATCH_HEADER.pack(first, size, -1, MAGIC, 0, 0, delta, -1, -1, -1, -1, -1, 0))
    made[CRC_AT : CRC_AT + 4] = google_crc32c.value(bytes(made[ATTRIBUTES_AT:])).to_bytes(4, "big")
    return bytes(made)


def split_batches(data: bytes) -> Iterator[Bytes]:
    """Return the batches in encoded messages, one after another."""
    view, at = memoryview(data), 0
    while at < len(view):
        end = at + FRAME_BYTES + int.from_bytes(view[at + LENGTH_AT : at + LENGTH_AT + 4], "big")
        yield view[at:end]
        at = end


def find_batch_end(batch: Bytes) -> int:
    """Return the offset after the last one that a batch covers."""
    base = int.from_bytes(batch[:8], "big")
    return base + int.from_bytes(batch[LAST_DELTA_AT : LAST_DELTA_AT + 4], "big") + 1


def count_records(batch: Bytes) -> int:
    """Return the number of records in a batch's header."""
    return int.from_bytes(batch[COUNT_AT : COUNT_AT + 4], "big")


def slice_holding(run: Run, offsets: NDArray[np.int64]) -> list[Bytes]:
    """Return the batches that hold any of these rising offsets, whole and in order; nothing is copied.

    Adjacent batches are one piece. A chunk is not read if all its messages are selected.
    """
    pieces: list[tuple[int, int]] = []

    def add(start: int, end: int) -> None:
        if pieces and pieces[-1][1] == start:
            pieces[-1] = pieces[-1][0], end
        else:
            pieces.append((start, end))

    chunks = run.chunks
    first = int(np.searchsorted(chunks[:, LAST_OFFSET], offsets[0]))
    end = int(np.searchsorted(chunks[:, BASE_OFFSET], offsets[-1], "right"))
    lows = np.searchsorted(offsets, chunks[first:end, BASE_OFFSET])
    highs = np.searchsorted(offsets, chunks[first:end, LAST_OFFSET], "right")
    for chunk, low, high in zip(chunks[first:end], lows.tolist(), highs.tolist(), strict=True):
        start, stop = int(chunk[BODY_START]), int(chunk[BODY_END])
        if high - low == chunk[COUNT]:
            add(start, stop)
        elif high > low:
            wanted = offsets[low:high]
            for batch in read_batches(
                run.region, start, stop, first=int(wanted[0]), last=int(wanted[-1]) + 1, verify=False
            ).table:
                at = int(np.searchsorted(wanted, batch[layout.BASE]))
                if at < len(wanted) and wanted[at] <= batch[layout.LAST]:
                    add(int(batch[layout.START]), int(batch[layout.END]))
    return [run.region.data[start:stop] for start, stop in pieces]
