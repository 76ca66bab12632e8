"""Kernels of the chunk: seal, check, walk. The twins in ``fallback.py`` say what they do."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from lading.kernels import crc32c as checksum
from lading.kernels.memory import load8, load16, load32, load64, store8, store16, store32, store64

from . import layout
from .layout import ENVELOPE_BYTES, LENGTH_COUNTS_FROM

njit: Any = numba.njit
types: Any = numba.types

_crc32c = checksum.crc32c
_source = types.Array(types.uint8, 1, "C", readonly=True)
_target = types.uint8[::1]
_i64 = types.int64
_LAST = np.uint64(layout.POSITION_MAX)
_CASTAGNOLI = np.uint32(0x82F63B78)

_MAGIC, _VERSION = layout.MAGIC, layout.VERSION
_FINE, _CUT, _SHORT, _NO_MAGIC, _OTHER_VERSION = range(5)
_RESERVED_BITS, _BAD_CRC, _BAD_COUNT, _BAD_OFFSET, _BAD_TIME = range(5, 10)


@njit(types.uint32(_source, _i64, _i64), nogil=True, cache=True)
def crc32c(array: Any, start: Any, end: Any) -> Any:
    return _crc32c(array, start, end)


@njit(types.boolean(_target, *[_i64] * 9), nogil=True, cache=True)
def seal(
    array: Any,
    at: Any,
    end: Any,
    dialect: Any,
    flags: Any,
    base_offset: Any,
    count: Any,
    last_offset_delta: Any,
    min_timestamp_us: Any,
    max_timestamp_us: Any,
) -> Any:
    if at < 0 or at > end - ENVELOPE_BYTES or end > array.size or end - at - LENGTH_COUNTS_FROM >= 1 << 32:
        return False
    if dialect < 0 or dialect >= 1 << 8 or flags < 0 or flags >= 1 << 16:
        return False
    if last_offset_delta < 0 or last_offset_delta >= 1 << 32 or count < 0 or count > last_offset_delta + 1:
        return False
    if base_offset < 0 or base_offset > layout.POSITION_MAX - last_offset_delta:
        return False
    if min_timestamp_us < 0 or min_timestamp_us > max_timestamp_us:
        return False
    store32(array, at, end - at - LENGTH_COUNTS_FROM)
    store16(array, at + 8, _MAGIC)
    store8(array, at + 10, _VERSION)
    store8(array, at + 11, dialect)
    store16(array, at + 12, flags)
    store16(array, at + 14, 0)
    store64(array, at + 16, base_offset)
    store32(array, at + 24, count)
    store32(array, at + 28, last_offset_delta)
    store64(array, at + 32, min_timestamp_us)
    store64(array, at + 40, max_timestamp_us)
    store32(array, at + 4, _crc32c(array, at + LENGTH_COUNTS_FROM, end))
    return True


@njit(types.int64(_source, _i64, _i64, types.boolean), nogil=True, cache=True)
def check(array: Any, at: Any, end: Any, verify: Any) -> Any:
    if end - at < ENVELOPE_BYTES:
        return _CUT
    if load16(array, at + 8) != _MAGIC:
        return _NO_MAGIC
    if load8(array, at + 10) != _VERSION:
        return _OTHER_VERSION
    if load16(array, at + 14) != 0:
        return _RESERVED_BITS
    chunk_end = at + LENGTH_COUNTS_FROM + np.int64(load32(array, at))
    if chunk_end < at + ENVELOPE_BYTES:
        return _SHORT
    if chunk_end > end:
        return _CUT
    if verify and _crc32c(array, at + LENGTH_COUNTS_FROM, chunk_end) != load32(array, at + 4):
        return _BAD_CRC
    delta = np.int64(load32(array, at + 28))
    if np.int64(load32(array, at + 24)) > delta + 1:
        return _BAD_COUNT
    base = load64(array, at + 16)
    if base > _LAST or base > _LAST - np.uint64(delta):
        return _BAD_OFFSET
    low = load64(array, at + 32)
    high = load64(array, at + 40)
    if high > _LAST or low > high:
        return _BAD_TIME
    return _FINE


@njit(
    types.UniTuple(_i64, 3)(_source, _i64, _i64, types.boolean, types.int64[:, ::1], types.uint8[::1]),
    nogil=True,
    cache=True,
)
def walk(region: Any, start: Any, end: Any, verify: Any, rows: Any, dialects: Any) -> Any:
    at = start
    filled = 0
    while at < end and filled < rows.shape[0]:
        reason = check(region, at, end, verify)
        if reason != 0:
            return filled, at, reason
        chunk_end = at + LENGTH_COUNTS_FROM + np.int64(load32(region, at))
        base = np.int64(load64(region, at + 16))
        rows[filled, 0] = at + ENVELOPE_BYTES
        rows[filled, 1] = chunk_end
        rows[filled, 2] = base
        rows[filled, 3] = np.int64(load32(region, at + 24))
        rows[filled, 4] = base + np.int64(load32(region, at + 28))
        rows[filled, 5] = np.int64(load64(region, at + 32))
        rows[filled, 6] = np.int64(load64(region, at + 40))
        rows[filled, 7] = np.int64(load16(region, at + 12))
        dialects[filled] = load8(region, at + 11)
        filled += 1
        at = chunk_end
    return filled, at, _FINE


@njit(_i64(_i64, _i64), nogil=True, cache=True)
def flipped_bit(changed: Any, size_bytes: Any) -> Any:
    wanted = np.uint32(changed)
    one = np.uint32(1)
    state = np.uint32(0x80)
    for _ in range(8):
        state = (state >> one) ^ (_CASTAGNOLI * (state & one))
    for steps in range(8, 8 * size_bytes + 8):
        if state == wanted:
            return 8 * (size_bytes - steps // 8) + 7 - steps % 8
        state = (state >> one) ^ (_CASTAGNOLI * (state & one))
    return -1
