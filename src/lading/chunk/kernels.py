"""Kernels of the chunk: seal, check, walk. The fallbacks in ``fallback.py`` say what they do."""

from __future__ import annotations

from lading.kernels import crc32c as checksum
from lading.kernels.arrays import Bytes, Table
from lading.kernels.memory import load8, load16, load32, load64, store8, store16, store32, store64
from lading.kernels.signature import (
    BOOLEAN,
    BYTES,
    LONG,
    OUT_BYTES,
    OUT_TABLE,
    UINT32,
    int64,
    kernel,
    several,
    uint32,
    uint64,
)
from lading.kernels.tables import CASTAGNOLI_REFLECTED

from ..model import chunk_table
from .layout import (
    BAD_COUNT,
    BAD_CRC,
    BAD_OFFSET,
    BAD_TIME,
    BASE_OFFSET,
    COUNT,
    CRC,
    CUT,
    DIALECT,
    ENVELOPE_BYTES,
    FINE,
    FLAGS,
    LAST_OFFSET_DELTA,
    LENGTH,
    LENGTH_COUNTS_FROM,
    MAGIC,
    MAGIC_AT,
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    NO_MAGIC,
    OTHER_VERSION,
    POSITION_MAX,
    RESERVED,
    RESERVED_BITS,
    SHORT,
    VERSION,
    VERSION_AT,
)

_crc32c = checksum.crc32c
_LAST = uint64(POSITION_MAX)
_CASTAGNOLI = uint32(CASTAGNOLI_REFLECTED)


@kernel(UINT32(BYTES, LONG, LONG))
def crc32c(array: Bytes, start: int, end: int) -> int:
    return _crc32c(array, start, end)


@kernel(BOOLEAN(OUT_BYTES, *[LONG] * 9))
def seal(
    array: Bytes,
    at: int,
    end: int,
    dialect: int,
    flags: int,
    base_offset: int,
    count: int,
    last_offset_delta: int,
    min_timestamp_us: int,
    max_timestamp_us: int,
) -> bool:
    if at < 0 or at > end - ENVELOPE_BYTES or end > array.size or end - at - LENGTH_COUNTS_FROM >= 1 << 32:
        return False
    if dialect < 0 or dialect >= 1 << 8 or flags < 0 or flags >= 1 << 16:
        return False
    if last_offset_delta < 0 or last_offset_delta >= 1 << 32 or count < 0 or count > last_offset_delta + 1:
        return False
    if base_offset < 0 or base_offset > POSITION_MAX - last_offset_delta:
        return False
    if min_timestamp_us < 0 or min_timestamp_us > max_timestamp_us:
        return False
    # in bounds: 0 <= at and at + ENVELOPE_BYTES <= end <= array.size, the first lines have seen to it
    store32(array, at + LENGTH, end - at - LENGTH_COUNTS_FROM)
    store16(array, at + MAGIC_AT, MAGIC)
    store8(array, at + VERSION_AT, VERSION)
    store8(array, at + DIALECT, dialect)
    store16(array, at + FLAGS, flags)
    store16(array, at + RESERVED, 0)
    store64(array, at + BASE_OFFSET, base_offset)
    store32(array, at + COUNT, count)
    store32(array, at + LAST_OFFSET_DELTA, last_offset_delta)
    store64(array, at + MIN_TIMESTAMP, min_timestamp_us)
    store64(array, at + MAX_TIMESTAMP, max_timestamp_us)
    store32(array, at + CRC, _crc32c(array, at + LENGTH_COUNTS_FROM, end))
    return True


@kernel(LONG(BYTES, LONG, LONG, BOOLEAN))
def check(array: Bytes, at: int, end: int, verify: bool) -> int:
    if end - at < ENVELOPE_BYTES:
        return CUT
    # in bounds: an envelope lies before ``end``; callers see to 0 <= at and end <= array.size
    if load16(array, at + MAGIC_AT) != MAGIC:
        return NO_MAGIC
    if load8(array, at + VERSION_AT) != VERSION:
        return OTHER_VERSION
    if load16(array, at + RESERVED) != 0:
        return RESERVED_BITS
    chunk_end = at + LENGTH_COUNTS_FROM + int64(load32(array, at + LENGTH))
    if chunk_end < at + ENVELOPE_BYTES:
        return SHORT
    if chunk_end > end:
        return CUT
    # in bounds: the whole chunk lies before ``end`` from here on
    if verify and _crc32c(array, at + LENGTH_COUNTS_FROM, chunk_end) != load32(array, at + CRC):
        return BAD_CRC
    delta = int64(load32(array, at + LAST_OFFSET_DELTA))
    if int64(load32(array, at + COUNT)) > delta + 1:
        return BAD_COUNT
    base = load64(array, at + BASE_OFFSET)
    if base > _LAST or base > _LAST - uint64(delta):
        return BAD_OFFSET
    low = load64(array, at + MIN_TIMESTAMP)
    high = load64(array, at + MAX_TIMESTAMP)
    if high > _LAST or low > high:
        return BAD_TIME
    return FINE


@kernel(several(3)(BYTES, LONG, LONG, BOOLEAN, OUT_TABLE, OUT_BYTES))
def walk(region: Bytes, start: int, end: int, verify: bool, rows: Table, dialects: Bytes) -> tuple[int, int, int]:
    at = start
    filled = 0
    while at < end and filled < rows.shape[0]:
        reason = check(region, at, end, verify)
        if reason != FINE:
            return filled, at, reason
        # in bounds: ``check`` found the whole chunk before ``end``
        chunk_end = at + LENGTH_COUNTS_FROM + int64(load32(region, at + LENGTH))
        base = int64(load64(region, at + BASE_OFFSET))
        rows[filled, chunk_table.BODY_START] = at + ENVELOPE_BYTES
        rows[filled, chunk_table.BODY_END] = chunk_end
        rows[filled, chunk_table.BASE_OFFSET] = base
        rows[filled, chunk_table.COUNT] = int64(load32(region, at + COUNT))
        rows[filled, chunk_table.LAST_OFFSET] = base + int64(load32(region, at + LAST_OFFSET_DELTA))
        rows[filled, chunk_table.MIN_TIMESTAMP_US] = int64(load64(region, at + MIN_TIMESTAMP))
        rows[filled, chunk_table.MAX_TIMESTAMP_US] = int64(load64(region, at + MAX_TIMESTAMP))
        rows[filled, chunk_table.FLAGS] = int64(load16(region, at + FLAGS))
        dialects[filled] = load8(region, at + DIALECT)
        filled += 1
        at = chunk_end
    return filled, at, FINE


@kernel(LONG(LONG, LONG))
def find_flipped_bit(changed: int, size_bytes: int) -> int:
    wanted = uint32(changed)
    one = uint32(1)
    state = uint32(0x80)
    for _ in range(8):
        state = (state >> one) ^ (_CASTAGNOLI * (state & one))
    for steps in range(8, 8 * size_bytes + 8):
        if state == wanted:
            return 8 * (size_bytes - steps // 8) + 7 - steps % 8
        state = (state >> one) ^ (_CASTAGNOLI * (state & one))
    return -1
