"""Kernels that find stored messages, whole or between damage; ``fallback.py`` says what each does, name by name."""

from __future__ import annotations

from lading.kernels.arrays import Bytes, Longs, Table
from lading.kernels.big_endian import big16, big32, big64, byte
from lading.kernels.crc32c import crc32c
from lading.kernels.memory import base
from lading.kernels.signature import BYTES, CHUNKS, LONG, OUT_LONGS, OUT_TABLE, Data, inline, int64, kernel, several
from lading.model import chunk_table

from .layout import (
    BAD_EXT,
    BAD_LENGTH,
    CRC,
    CUT,
    EXT,
    EXT_VERSION,
    FINE,
    HEAD_BYTES,
    ID,
    NO_EXT,
    OFFSET_BITS,
    RECORD_BYTES_MIN,
    TIMESTAMP,
)


@inline
def read_record(data: Data, at: int, end: int) -> tuple[int, int, int, int, int]:
    """Read the positions of the parts of a record: a reason, its end, its ext and the size of that, its body."""
    # in bounds: the head is read only if it lies before ``end``, the length of an ext only if it lies in the record
    if end - at < RECORD_BYTES_MIN:
        return CUT, at, at, 0, at
    stop = at + HEAD_BYTES + big32(data, at)
    if stop - at < RECORD_BYTES_MIN:
        return BAD_LENGTH, at, at, 0, at
    if stop > end:
        return CUT, at, at, 0, at
    if byte(data, at + EXT_VERSION) == NO_EXT:
        return FINE, stop, at + RECORD_BYTES_MIN, 0, at + RECORD_BYTES_MIN
    if stop - at < EXT:
        return BAD_EXT, at, at, 0, at
    size = big16(data, at + RECORD_BYTES_MIN)
    if at + EXT + size > stop:
        return BAD_EXT, at, at, 0, at
    return FINE, stop, at + EXT, size, at + EXT + size


@kernel(several(3)(BYTES, CHUNKS, OUT_LONGS, LONG, LONG, OUT_LONGS, OUT_LONGS, OUT_LONGS))
def survey(
    region: Bytes, chunks: Table, cursor: Longs, first: int, end: int, offsets: Longs, starts: Longs, sizes: Longs
) -> tuple[int, int, int]:
    # in bounds: a body is tested against the region, and ``read_record`` finds a record whole before ``stop``
    data = base(region)
    chunk, at, index = cursor[0], cursor[1], cursor[2]
    count = 0
    reason = FINE
    while chunk < chunks.shape[0] and count < offsets.size:
        start, stop = chunks[chunk, chunk_table.BODY_START], chunks[chunk, chunk_table.BODY_END]
        low, high = chunks[chunk, chunk_table.BASE_OFFSET], chunks[chunk, chunk_table.LAST_OFFSET]
        records = chunks[chunk, chunk_table.COUNT]
        if high < first or low >= end:
            chunk += 1
            at = -1
            continue
        if at < 0:
            at = start
            index = 0
        if at < 0 or stop > region.size or stop < at:
            reason = CUT
            break
        while index < records and count < offsets.size and low + index < end:
            reason, record_end, _, _, _ = read_record(data, at, stop)
            if reason != FINE:
                break
            if low + index >= first:
                offsets[count] = low + index
                starts[count] = at
                sizes[count] = record_end - at
                count += 1
            at = record_end
            index += 1
        if reason != FINE or (count == offsets.size and index < records and low + index < end):
            break
        chunk += 1
        at = -1
    cursor[0] = chunk
    cursor[1] = at
    cursor[2] = index
    return count, reason, at


@kernel(LONG(BYTES, *[LONG] * 4, OUT_TABLE, LONG))
def intact(region: Bytes, start: int, stop: int, low: int, records: int, found: Table, budget: int) -> int:
    # in bounds: the caller gives a chunk's body, and ``read_record`` finds a record whole before ``stop``
    data = base(region)
    at = start
    index = 0
    count = 0
    damaged = False
    while stop - at >= RECORD_BYTES_MIN and index < records and budget > 0 and count < found.shape[0]:
        reason, record_end, _, _, _ = read_record(data, at, stop)
        budget -= 1
        if reason == FINE:
            budget -= record_end - at
            if int64(crc32c(region, at + TIMESTAMP, record_end)) == big32(data, at + CRC):
                if damaged:
                    # how many messages were passed over is unknown: only the id shows the offset
                    told = (big64(data, at + ID) & ((1 << OFFSET_BITS) - 1)) - 1 - low
                    if told < index or told >= records:
                        at = record_end
                        continue
                    index = told
                found[count, 0] = low + index
                found[count, 1] = at
                found[count, 2] = record_end
                count += 1
                index += 1
                at = record_end
                continue
        damaged = True
        at += 1
    return count
