"""Record batches without some of their records, as Apache Kafka's log cleaner leaves them.

The records that are kept are copied byte for byte: they refer to the base offset and base time of their batch, which
stay, as do its last offset, producer, sequence and codec. Only length, count, latest time and CRC change.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Any, Final

import cramjam
import google_crc32c
import numpy as np

from lading.kernels.varint_fallback import add_wrapping
from lading.model.chunk_table import FLAGS
from lading.model.errors import MalformedMessage
from lading.model.run import Run

from ..compaction import KeptPart, Ranges
from . import layout
from .compression import GZIP, LZ4, NONE, SNAPPY, compress_lz4, decompress
from .layout import BATCH_HEADER_BYTES, CODEC_BITS, CRC_AT, FRAME_BYTES, LOG_APPEND_TIME
from .messages import read_batches_of

_codecs: Any = cramjam


def keep(run: Run, ranges: Ranges) -> Iterator[KeptPart]:
    """See compaction.CompactableDialect.keep. Control batches are kept if their offset is in a range."""
    batches = read_batches_of(run)
    if batches.reason:
        raise MalformedMessage(f"the record batch {layout.REASONS[batches.reason]}", at=batches.end)
    firsts, ends = [first for first, _ in ranges], [end for _, end in ranges]
    flags = int(run.chunks[0, FLAGS])
    data = run.region.data
    for start, stop, base, count, last, _, _, attributes, _, _ in batches.table.tolist():
        low, high = bisect_right(ends, base), bisect_left(firsts, last + 1)
        if low == high:
            continue
        if (high == low + 1 and firsts[low] <= base and last < ends[low]) or attributes & layout.CONTROL:
            body: bytes | memoryview | None = data[start:stop]
        else:
            body = _keep_records(data[start:stop], base, count, attributes, ranges[low:high])
        if body is not None:
            yield KeptPart(base, last + 1, flags, body)


def _keep_records(batch: memoryview, base_offset: int, count: int, attributes: int, ranges: Ranges) -> bytes | None:
    """Return a batch with the records in these ranges, the batch itself if it keeps all, or None if it keeps none."""
    codec = attributes & CODEC_BITS
    if codec == NONE:
        records = memoryview(bytes(batch[BATCH_HEADER_BYTES:]))
    else:
        plain, size_bytes = decompress(codec, batch[BATCH_HEADER_BYTES:])
        records = plain.data[:size_bytes]
    base_ms = int.from_bytes(batch[layout.BASE_TIME_AT : layout.BASE_TIME_AT + 8], "big", signed=True)
    kept: list[memoryview] = []
    latest_ms = -1
    at = number = 0
    for _ in range(count):
        start = at
        length, at = _read_varint(records, at)
        end = at + length
        if not at < end <= len(records):
            raise MalformedMessage(f"a record {layout.REASONS[layout.BAD_RECORD]}", at=start)
        time_delta, field_at = _read_varint(records, at + 1)
        offset_delta, _ = _read_varint(records, field_at)
        offset = base_offset + offset_delta
        while number < len(ranges) and ranges[number][1] <= offset:
            number += 1
        if number < len(ranges) and ranges[number][0] <= offset:
            kept.append(records[start:end])
            latest_ms = max(latest_ms, add_wrapping(base_ms, time_delta))
        at = end
    if len(kept) == count:
        return bytes(batch)
    if not kept:
        return None
    head = bytearray(batch[:BATCH_HEADER_BYTES])
    body = _compress(codec, b"".join(kept))
    head[layout.LENGTH_AT : layout.LENGTH_AT + 4] = (len(head) + len(body) - FRAME_BYTES).to_bytes(4, "big")
    head[layout.COUNT_AT : layout.COUNT_AT + 4] = len(kept).to_bytes(4, "big")
    if not attributes & LOG_APPEND_TIME:
        head[layout.MAX_TIME_AT : layout.MAX_TIME_AT + 8] = latest_ms.to_bytes(8, "big", signed=True)
    made = bytes(head) + body
    crc: int = google_crc32c.value(made[layout.ATTRIBUTES_AT :])
    return made[:CRC_AT] + crc.to_bytes(4, "big") + made[layout.ATTRIBUTES_AT :]


def _compress(codec: int, data: bytes) -> bytes:
    """Return records as a batch of this codec stores them."""
    if codec == NONE:
        return data
    if codec == LZ4:
        return compress_lz4(np.frombuffer(data, np.uint8)).tobytes()
    if codec == SNAPPY:
        return bytes(_codecs.snappy.compress_raw(data))
    return bytes(_codecs.gzip.compress(data) if codec == GZIP else _codecs.zstd.compress(data))


_VARINT_BITS_MAX: Final = 70


def _read_varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return the zigzag number at byte ``at``, and the position after it."""
    value = shift = 0
    while shift < _VARINT_BITS_MAX and at < len(data):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= (1 << 64) - 1
            return value >> 1 ^ -(value & 1), at
        shift += 7
    raise MalformedMessage(f"a record {layout.REASONS[layout.BAD_RECORD]}", at=at)
