"""Kernels that judge what producers sent; ``validation_fallback.py`` says what each does, name by name."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from lading.kernels.big_endian import big32, big64
from lading.kernels.crc32c import crc32c
from lading.kernels.memory import base, load8
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

njit: Any = numba.njit
types: Any = numba.types

_source = types.Array(types.uint8, 1, "C", readonly=True)
_long = types.int64
_judged = types.UniTuple(_long, 3)


@njit(inline="always")
def _bounded(ms: Any) -> Any:
    return min(max(ms, -TIME_MS_MAX), TIME_MS_MAX)


@njit(inline="always")
def _past(data: Any, at: Any, end: Any, least: Any) -> Any:
    """The position behind a size and as many bytes; -1 where they do not lie before ``end``.

    ``least`` is 0, or -1 where there may be none at all.
    """
    # most sizes have one byte or two, and of an even one half is the size
    if at + 1 < end:
        first = np.int64(load8(data, at))
        second = np.int64(load8(data, at + 1))
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


@njit(inline="always")
def _of_two_bytes(data: Any, at: Any, end: Any) -> Any:
    """The number at ``at`` and the position behind it; -1 for that where it does not have two bytes."""
    if at + 1 < end:
        first = np.int64(load8(data, at))
        second = np.int64(load8(data, at + 1))
        if first >= 0x80 and second < 0x80:
            value = second << 7 | first & 0x7F
            return (value >> 1) ^ -(value & 1), at + 2
    return np.int64(0), np.int64(-1)


@njit(nogil=True)
def _headers(data: Any, at: Any, end: Any) -> Any:
    """Whether the headers at ``at`` end where the record does."""
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


@njit(nogil=True)
def _records(data: Any, at: Any, end: Any, count: Any, base_ms: Any) -> Any:
    lowest = TIME_MS_MAX
    highest = -TIME_MS_MAX
    if count > (end - at) // RECORD_BYTES_MIN:
        return BAD_COUNT, lowest, highest
    begin_ms = _bounded(base_ms)
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
        ms = begin_ms + _bounded(delta_ms)
        lowest = min(lowest, ms)
        highest = max(highest, ms)
        at = stop
    if at != end:
        return BAD_COUNT, lowest, highest
    return FINE, lowest, highest


@njit(_judged(_source, _long, _long), nogil=True, cache=True)
def judge(region: Any, start: Any, end: Any) -> Any:
    data = base(region)
    if np.int64(crc32c(data, start + ATTRIBUTES_AT, end)) != big32(data, start + CRC_AT):
        return BAD_CRC, 0, 0
    if big32(data, start + ATTRIBUTES_AT - 2) & CODEC_BITS:
        return FINE, 0, 0
    return _records(
        data, start + BATCH_HEADER_BYTES, end, big32(data, start + COUNT_AT), big64(data, start + BASE_TIME_AT)
    )


@njit(_judged(_source, _long, _long, _long, _long), nogil=True, cache=True)
def judge_records(region: Any, start: Any, end: Any, count: Any, base_ms: Any) -> Any:
    return _records(base(region), start, end, count, base_ms)


@njit(_long(_source, _long, _long), nogil=True, cache=True)
def checksum(region: Any, start: Any, end: Any) -> Any:
    return np.int64(crc32c(base(region), start, end))
