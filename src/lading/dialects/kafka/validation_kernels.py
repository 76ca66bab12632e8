"""Kernels that judge what producers sent; ``validation_fallback.py`` says what each does, name by name.

In bounds: callers guarantee BATCH_HEADER_BYTES before ``end``, and no varint is read at or after its bound, which is
never after ``end``.
"""

from __future__ import annotations

from lading.kernels.arrays import Bytes
from lading.kernels.big_endian import big32, big64
from lading.kernels.crc32c import crc32c
from lading.kernels.memory import base, load8
from lading.kernels.signature import BYTES, LONG, Data, inline, int64, kernel, routine, several
from lading.kernels.varint import varint32, varint64

from .layout import (
    ATTRIBUTES_AT,
    BAD_COUNT,
    BAD_CRC,
    BAD_HEADERS,
    BAD_POSITION,
    BAD_RECORD,
    BASE_TIME_AT,
    BATCH_HEADER_BYTES,
    CODEC_BITS,
    COUNT_AT,
    CRC_AT,
    CUT,
    FINE,
    RECORD_BYTES_MIN,
    TIME_MS_MAX,
)


@inline
def _clamp_ms(ms: int) -> int:
    return min(max(ms, -TIME_MS_MAX), TIME_MS_MAX)


@inline
def _past(data: Data, at: int, end: int, least: int) -> int:
    """The position after a size and as many bytes; -1 if they do not end before ``end``.

    ``least`` is 0, or -1 if null is allowed.
    """
    # most sizes have one byte or two, and of an even one half is the size
    if at + 1 < end:
        first = int64(load8(data, at))
        second = int64(load8(data, at + 1))
        if first & 0x81 == 0:
            at += 1 + (first >> 1)
            return at if at <= end else -1
        if first & 0x81 == 0x80 and second < 0x80:
            at += 2 + (second << 6 | (first & 0x7F) >> 1)
            return at if at <= end else -1
    size, here = varint32(data, at, end)
    if here < 0 or size < least or size > end - here:
        return -1
    return here + max(size, 0)


@inline
def _of_two_bytes(data: Data, at: int, end: int) -> tuple[int, int]:
    """The number at ``at`` and the position after it; -1 for that if it does not have two bytes."""
    if at + 1 < end:
        first = int64(load8(data, at))
        second = int64(load8(data, at + 1))
        if first >= 0x80 and second < 0x80:
            value = second << 7 | first & 0x7F
            return (value >> 1) ^ -(value & 1), at + 2
    return int64(0), int64(-1)


@routine
def _headers(data: Data, at: int, end: int) -> bool:
    """Whether the headers at ``at`` end at the end of the record."""
    count, here = varint32(data, at, end)
    if here < 0 or count < 0 or count > (end - here) // 2:
        return False
    for _ in range(count):
        here = _past(data, here, end, 0)
        if here < 0:
            return False
        here = _past(data, here, end, -1)
        if here < 0:
            return False
    return here == end


@routine
def judge_plain_records(data: Data, at: int, end: int, count: int, base_ms: int) -> tuple[int, int, int]:
    lowest = TIME_MS_MAX
    highest = -TIME_MS_MAX
    if count > (end - at) // RECORD_BYTES_MIN:
        return BAD_COUNT, lowest, highest
    for record in range(count):
        length, here = _of_two_bytes(data, at, end)
        if here < 0:
            length, here = varint32(data, at, end)
        if here < 0 or length < 0 or length > end - here:
            return CUT, lowest, highest
        stop = here + length
        if length < RECORD_BYTES_MIN - 1:
            return BAD_RECORD, lowest, highest
        delta_ms, behind = _of_two_bytes(data, here + 1, stop)
        if behind < 0:
            delta_ms, behind = varint64(data, here + 1, stop)
        if behind < 0:
            return BAD_RECORD, lowest, highest
        delta, here = _of_two_bytes(data, behind, stop)
        if here < 0:
            delta, here = varint32(data, behind, stop)
        if here < 0:
            return BAD_RECORD, lowest, highest
        if delta != record:
            return BAD_POSITION, lowest, highest
        for _ in range(2):
            here = _past(data, here, stop, -1)
            if here < 0:
                return BAD_RECORD, lowest, highest
        if not _headers(data, here, stop):
            return BAD_HEADERS, lowest, highest
        # the sum wraps, as Kafka's does
        ms = _clamp_ms(base_ms + delta_ms)
        lowest = min(lowest, ms)
        highest = max(highest, ms)
        at = stop
    if at != end:
        return BAD_COUNT, lowest, highest
    return FINE, lowest, highest


@kernel(several(3)(BYTES, LONG, LONG))
def judge(region: Bytes, start: int, end: int) -> tuple[int, int, int]:
    data = base(region)
    if int64(crc32c(data, start + ATTRIBUTES_AT, end)) != big32(data, start + CRC_AT):
        return BAD_CRC, 0, 0
    if big32(data, start + ATTRIBUTES_AT - 2) & CODEC_BITS:
        return FINE, 0, 0
    return judge_plain_records(
        data, start + BATCH_HEADER_BYTES, end, big32(data, start + COUNT_AT), big64(data, start + BASE_TIME_AT)
    )


@kernel(several(3)(BYTES, *[LONG] * 4))
def judge_records(region: Bytes, start: int, end: int, count: int, base_ms: int) -> tuple[int, int, int]:
    return judge_plain_records(base(region), start, end, count, base_ms)


@kernel(LONG(BYTES, *[LONG] * 3))
def find_keyless(region: Bytes, start: int, end: int, count: int) -> int:
    data = base(region)
    at = start
    for record in range(count):
        length, here = varint32(data, at, end)
        if here < 0 or length < 1 or length > end - here:
            return int64(record)
        at = here + length
        _, here = varint64(data, here + 1, at)
        if here >= 0:
            _, here = varint32(data, here, at)
        if here < 0:
            return int64(record)
        size, here = varint32(data, here, at)
        if here < 0 or size < 0:
            return int64(record)
    return int64(-1)


@kernel(LONG(BYTES, LONG, LONG))
def checksum(region: Bytes, start: int, end: int) -> int:
    return int64(crc32c(base(region), start, end))
