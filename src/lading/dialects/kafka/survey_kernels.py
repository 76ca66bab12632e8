"""Kernel that finds record batches; ``fallback.py`` says what it does, and gives the same result."""

from __future__ import annotations

from lading.kernels.arrays import Bytes, Longs, Table
from lading.kernels.big_endian import big16, big32, big64
from lading.kernels.crc32c import crc32c
from lading.kernels.memory import base, load8
from lading.kernels.signature import BYTES, CHUNKS, LONG, OUT_LONGS, OUT_TABLE, Data, inline, int64, kernel, several
from lading.model import chunk_table

from .layout import (
    ATTRIBUTES,
    ATTRIBUTES_AT,
    BAD_COUNT,
    BAD_CRC,
    BAD_MAGIC,
    BAD_POSITION,
    BASE,
    BASE_TIME_AT,
    BASE_TIME_MS,
    BATCH_HEADER_BYTES,
    CHUNK,
    COUNT,
    COUNT_AT,
    CRC_AT,
    CUT,
    END,
    FINE,
    FRAME_BYTES,
    LAST,
    LAST_DELTA_AT,
    LENGTH_AT,
    MAGIC,
    MAGIC_AT,
    MAX_TIME_AT,
    MAX_TIME_MS,
    POSITION_MAX,
    PRODUCER,
    PRODUCER_AT,
    START,
)


@inline
def _signed32(data: Data, at: int) -> int:
    value = big32(data, at)
    return value - (value >> 31 << 32)


@kernel(several(3)(BYTES, CHUNKS, LONG, LONG, LONG, OUT_LONGS, OUT_TABLE))
def survey(
    region: Bytes, chunks: Table, first: int, end: int, verify: int, cursor: Longs, table: Table
) -> tuple[int, int, int]:
    data = base(region)
    found = 0
    chunk = cursor[0]
    at = cursor[1]
    reason = FINE
    while chunk < chunks.shape[0] and found < table.shape[0]:
        # the next chunk, or the one in which the last call stopped
        body_end = chunks[chunk, chunk_table.BODY_END]
        if at < 0:
            at = chunks[chunk, chunk_table.BODY_START]
            if chunks[chunk, chunk_table.LAST_OFFSET] < first or chunks[chunk, chunk_table.BASE_OFFSET] >= end:
                at = body_end
        if at < 0 or body_end > region.size or body_end < at:
            reason = CUT
            break
        while at < body_end and found < table.shape[0]:
            # in bounds: the head is read only if it lies before body_end, the rest only up to ``stop``
            if body_end - at < BATCH_HEADER_BYTES:
                reason = CUT
                break
            # length, version and checksum
            length = _signed32(data, at + LENGTH_AT)
            stop = at + FRAME_BYTES + length
            if int64(load8(data, at + MAGIC_AT)) != MAGIC:
                reason = BAD_MAGIC
                break
            if length < BATCH_HEADER_BYTES - FRAME_BYTES or stop > body_end:
                reason = CUT
                break
            if verify and int64(crc32c(region, at + ATTRIBUTES_AT, stop)) != big32(data, at + CRC_AT):
                reason = BAD_CRC
                break
            # offsets and number of records
            base_offset = big64(data, at)
            delta = _signed32(data, at + LAST_DELTA_AT)
            count = _signed32(data, at + COUNT_AT)
            if base_offset < 0 or delta < 0 or base_offset > POSITION_MAX - 1 - delta:
                reason = BAD_POSITION
                break
            if count < 0 or count > delta + 1:
                reason = BAD_COUNT
                break
            # a batch that is asked for
            if base_offset + delta >= first and base_offset < end:
                table[found, START] = at
                table[found, END] = stop
                table[found, BASE] = base_offset
                table[found, COUNT] = count
                table[found, LAST] = base_offset + delta
                table[found, BASE_TIME_MS] = big64(data, at + BASE_TIME_AT)
                table[found, MAX_TIME_MS] = big64(data, at + MAX_TIME_AT)
                table[found, ATTRIBUTES] = big16(data, at + ATTRIBUTES_AT)
                table[found, PRODUCER] = big64(data, at + PRODUCER_AT)
                table[found, CHUNK] = chunk
                found += 1
            at = stop
        if reason != FINE:
            break
        if at >= body_end:
            chunk += 1
            if chunk < chunks.shape[0]:
                at = -1
    cursor[0] = chunk
    cursor[1] = at
    return found, at, reason
