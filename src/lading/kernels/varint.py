"""Zigzag varints inside kernels: the numbers of Kafka's records (kafka.md 2.1); sans Numba see ``varint_fallback``.

In bounds: no byte at or after ``end`` is read, which callers keep inside their array; ``store_varint`` writes 10 bytes
at most, and its caller has made room.
"""

from __future__ import annotations

from .memory import load8, store8
from .signature import Data, inline, int64, routine, uint64

_7F, _80, _ONE, _SEVEN = uint64(0x7F), uint64(0x80), uint64(1), uint64(7)
_32_BITS = uint64(0xFFFFFFFF)


@routine
def _longer(array: Data, at: int, end: int, bytes_max: int) -> tuple[int, int]:
    value = uint64(0)
    shift = uint64(0)
    stop = min(end, at + bytes_max)
    while at < stop:
        byte = uint64(load8(array, at))
        at += 1
        value |= (byte & _7F) << shift
        if byte < _80:
            if bytes_max == 5 and value > _32_BITS:
                return 0, -1
            return int64((value >> _ONE) ^ (~(value & _ONE) + _ONE)), at
        shift += _SEVEN
    return 0, -1


@inline
def varint32(array: Data, at: int, end: int) -> tuple[int, int]:
    """The 32-bit number at ``at`` and the position after it; a position of -1 if it is longer, or cut off."""
    if at < end:
        byte = int64(load8(array, at))
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), at + 1
        if at + 1 < end:
            # two bytes are as frequent: the lengths of payloads, the distances within a batch
            second = int64(load8(array, at + 1))
            if second < 0x80:
                byte = (byte & 0x7F) | (second << 7)
                return (byte >> 1) ^ -(byte & 1), at + 2
    return _longer(array, at, end, 5)


@inline
def varint64(array: Data, at: int, end: int) -> tuple[int, int]:
    """The 64-bit number at ``at`` and the position after it; -1 for that if it is too long or cut off."""
    if at < end:
        byte = int64(load8(array, at))
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), at + 1
        if at + 1 < end:
            second = int64(load8(array, at + 1))
            if second < 0x80:
                byte = (byte & 0x7F) | (second << 7)
                return (byte >> 1) ^ -(byte & 1), at + 2
    return _longer(array, at, end, 10)


@inline
def varint_size(value: int) -> int:
    """Return how many bytes ``store_varint`` writes, 1 to 10."""
    rest = uint64((value << 1) ^ (value >> 63))
    size = 1
    while rest >= _80:
        rest >>= _SEVEN
        size += 1
    return size


@inline
def store_varint(array: Data, at: int, value: int) -> int:
    """Write ``value`` at ``at``; the position after it."""
    rest = uint64((value << 1) ^ (value >> 63))
    while rest >= _80:
        store8(array, at, (rest & _7F) | _80)
        rest >>= _SEVEN
        at += 1
    store8(array, at, rest)
    return at + 1
