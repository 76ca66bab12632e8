"""Readable fallbacks of the chunk kernels: same names, same arguments, same results."""

from __future__ import annotations

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from lading.kernels.arrays import Bytes
from lading.kernels.tables import CASTAGNOLI_REFLECTED

from . import layout
from .layout import ENVELOPE, ENVELOPE_BYTES, LENGTH_COUNTS_FROM, POSITION_MAX


def crc32c(array: Bytes, start: int, end: int) -> int:
    """CRC-32C of ``array[start:end]``."""
    return int(google_crc32c.value(array[start:end].tobytes()))


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
    """Write the envelope before the body at ``array[at + 48 : end]``; return False if a value does not fit."""
    fits = (
        0 <= at <= end - ENVELOPE_BYTES
        and end <= array.size
        and end - at - LENGTH_COUNTS_FROM < 1 << 32
        and 0 <= dialect < 1 << 8
        and 0 <= flags < 1 << 16
        and 0 <= last_offset_delta < 1 << 32
        and 0 <= count <= last_offset_delta + 1
        and 0 <= base_offset <= POSITION_MAX - last_offset_delta
        and 0 <= min_timestamp_us <= max_timestamp_us <= POSITION_MAX
    )
    if not fits:
        return False
    length = end - at - LENGTH_COUNTS_FROM
    head = (layout.MAGIC, layout.VERSION, dialect, flags, 0, base_offset, count, last_offset_delta)
    envelope = ENVELOPE.pack(length, 0, *head, min_timestamp_us, max_timestamp_us)
    array[at : at + ENVELOPE_BYTES] = np.frombuffer(envelope, np.uint8)
    crc = crc32c(array, at + LENGTH_COUNTS_FROM, end)
    array[at + layout.CRC : at + LENGTH_COUNTS_FROM] = np.frombuffer(crc.to_bytes(4, "little"), np.uint8)
    return True


def check(array: Bytes, at: int, end: int, verify: bool) -> int:
    """0 if a whole, right chunk begins at ``at`` and does not pass ``end``, else the number of the reason."""
    if end - at < ENVELOPE_BYTES:
        return layout.CUT
    length, crc, magic, version, _, _, reserved, base, count, delta, low, high = ENVELOPE.unpack_from(array.data, at)
    if magic != layout.MAGIC:
        return layout.NO_MAGIC
    if version != layout.VERSION:
        return layout.OTHER_VERSION
    if reserved:
        return layout.RESERVED_BITS
    chunk_end = at + LENGTH_COUNTS_FROM + length
    if chunk_end < at + ENVELOPE_BYTES:
        return layout.SHORT
    if chunk_end > end:
        return layout.CUT
    if verify and crc32c(array, at + LENGTH_COUNTS_FROM, chunk_end) != crc:
        return layout.BAD_CRC
    if count > delta + 1:
        return layout.BAD_COUNT
    if base > POSITION_MAX or base + delta > POSITION_MAX:
        return layout.BAD_OFFSET
    if high > POSITION_MAX or low > high:
        return layout.BAD_TIME
    return layout.FINE


def walk(
    region: Bytes, start: int, end: int, verify: bool, rows: NDArray[np.int64], dialects: NDArray[np.uint8]
) -> tuple[int, int, int]:
    """Fill ``rows`` (columns of Run.chunks) and ``dialects`` with the chunks from ``start``: (count, position, reason).

    Stops at ``end``, when the rows are full, or at the first bad chunk; the position returned is after the last good
    one.
    """
    at = start
    filled = 0
    while at < end and filled < len(rows):
        reason = check(region, at, end, verify)
        if reason:
            return filled, at, reason
        length, _, _, _, dialect, flags, _, base, count, delta, low, high = ENVELOPE.unpack_from(region.data, at)
        chunk_end = at + LENGTH_COUNTS_FROM + length
        rows[filled] = (at + ENVELOPE_BYTES, chunk_end, base, count, base + delta, low, high, flags)
        dialects[filled] = dialect
        filled += 1
        at = chunk_end
    return filled, at, layout.FINE


def find_flipped_bit(changed: int, size_bytes: int) -> int:
    """Return the bit whose flip changes the CRC-32C of ``size_bytes`` bytes by ``changed``, or -1 if none does.

    Bit 0 is the lowest of the first byte.
    """
    # the last byte's highest bit meets eight steps of the division, each bit before it one more
    state = 0x80
    for _ in range(8):
        state = state >> 1 ^ (CASTAGNOLI_REFLECTED if state & 1 else 0)
    for steps in range(8, 8 * size_bytes + 8):
        if state == changed:
            return 8 * (size_bytes - steps // 8) + 7 - steps % 8
        state = state >> 1 ^ (CASTAGNOLI_REFLECTED if state & 1 else 0)
    return -1
