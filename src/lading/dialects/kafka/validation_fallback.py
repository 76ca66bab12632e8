"""The readable form of ``validation_kernels.py``, function by function: the same arguments, the same results."""

from __future__ import annotations

from typing import Any

import google_crc32c

from lading.kernels.arrays import Bytes
from lading.kernels.varint_fallback import add_wrapping, varint32, varint64

from . import layout
from .layout import ATTRIBUTES_AT, BATCH_HEADER, BATCH_HEADER_BYTES, CODEC_BITS, TIME_MS_MAX


def judge(region: Bytes, start: int, end: int) -> tuple[int, int, int]:
    """Check the batch ``region[start:end]`` against its header: (reason, lowest and highest time in ms).

    Its CRC-32C is checked and, unless it is compressed, each record; the caller has checked its header. Unless the
    reason is FINE and the batch is uncompressed, the times are undefined.
    """
    fields = BATCH_HEADER.unpack_from(region.data, start)
    crc, attributes, base_ms, count = fields[4], fields[5], fields[7], fields[12]
    if checksum(region, start + ATTRIBUTES_AT, end) != crc:
        return layout.BAD_CRC, 0, 0
    if attributes & CODEC_BITS:
        return layout.FINE, 0, 0
    return judge_records(region, start + BATCH_HEADER_BYTES, end, count, base_ms)


def judge_records(region: Bytes, start: int, end: int, count: int, base_ms: int) -> tuple[int, int, int]:
    """Check the records ``region[start:end]`` in the same way: ``count`` of them, with offsets 0, 1, 2, …, that fill
    the bytes.
    """
    data = region.data
    lowest, highest = TIME_MS_MAX, -TIME_MS_MAX
    at = start
    if count > (end - start) // layout.RECORD_BYTES_MIN:
        return layout.BAD_COUNT, lowest, highest
    for record in range(count):
        length, here = varint32(data, at, end)
        if here < 0 or not 0 <= length <= end - here:
            return layout.CUT, lowest, highest
        at = here + length
        reason, delta_ms = _record(data, here, at, record)
        if reason:
            return reason, lowest, highest
        ms = _clamp_ms(add_wrapping(base_ms, delta_ms))
        lowest, highest = min(lowest, ms), max(highest, ms)
    return layout.FINE if at == end else layout.BAD_COUNT, lowest, highest


def _record(data: Any, here: int, stop: int, number: int) -> tuple[int, int]:
    if stop - here < layout.RECORD_BYTES_MIN - 1:
        return layout.BAD_RECORD, 0
    delta_ms, here = varint64(data, here + 1, stop)
    delta, here = varint32(data, here, stop) if here >= 0 else (0, -1)
    if here < 0:
        return layout.BAD_RECORD, 0
    if delta != number:
        return layout.BAD_POSITION, 0
    for _ in range(2):
        here = _pass_sized(data, here, stop, -1)
        if here < 0:
            return layout.BAD_RECORD, 0
    count, here = varint32(data, here, stop)
    if here < 0 or not 0 <= count <= (stop - here) // 2:
        return layout.BAD_HEADERS, 0
    for _ in range(count):
        here = _pass_sized(data, here, stop, 0)
        here = _pass_sized(data, here, stop, -1) if here >= 0 else -1
        if here < 0:
            return layout.BAD_HEADERS, 0
    return (layout.FINE if here == stop else layout.BAD_HEADERS), delta_ms


def _pass_sized(data: Any, at: int, end: int, size_min: int) -> int:
    """Return the position after bytes with their size in front, or -1 if they are cut short.

    The size is at least ``size_min``; a size of -1 is null.
    """
    size, here = varint32(data, at, end)
    if here < 0 or not size_min <= size <= end - here:
        return -1
    return here + max(size, 0)


def find_keyless(region: Bytes, start: int, end: int, count: int) -> int:
    """Return the number of the first record without a key in ``region[start:end]``, or -1 if all have one.

    The ``count`` records there were checked; a record that is invalid anyway counts as without a key.
    """
    data = region.data
    at = start
    for record in range(count):
        length, here = varint32(data, at, end)
        if here < 0 or not 1 <= length <= end - here:
            return record
        at = here + length
        _, here = varint64(data, here + 1, at)
        here = varint32(data, here, at)[1] if here >= 0 else -1
        size, here = varint32(data, here, at) if here >= 0 else (-1, -1)
        if here < 0 or size < 0:
            return record
    return -1


def checksum(region: Bytes, start: int, end: int) -> int:
    """Return the CRC-32C of ``region[start:end]``."""
    return int(google_crc32c.value(bytes(region[start:end])))


def _clamp_ms(ms: int) -> int:
    return min(max(ms, -TIME_MS_MAX), TIME_MS_MAX)
