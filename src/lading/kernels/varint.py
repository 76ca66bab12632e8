"""Zigzag varints inside kernels: the numbers of Kafka's records (kafka.md 2.1); sans Numba see ``varint_twin``."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from .memory import load8, store8

njit: Any = numba.njit
_int: Any = np.int64
_long: Any = np.uint64

_7F, _80, _ONE, _SEVEN = np.uint64(0x7F), np.uint64(0x80), np.uint64(1), np.uint64(7)
_32_BITS = np.uint64(0xFFFFFFFF)


@njit(nogil=True)
def _longer(array: Any, at: Any, end: Any, bytes_max: Any) -> Any:
    value = np.uint64(0)
    shift = np.uint64(0)
    stop = min(end, at + bytes_max)
    while at < stop:
        byte = np.uint64(load8(array, at))
        at += 1
        value |= (byte & _7F) << shift
        if byte < _80:
            if bytes_max == 5 and value > _32_BITS:
                return 0, -1
            return _int((value >> _ONE) ^ (~(value & _ONE) + _ONE)), at
        shift += _SEVEN
    return 0, -1


@njit(inline="always")
def varint32(array: Any, at: Any, end: Any) -> Any:
    """The 32-bit number at ``at`` and the position behind it; -1 for that where it is longer than that or cut off."""
    if at < end:
        byte = _int(load8(array, at))
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), at + 1
        if at + 1 < end:
            # two bytes are as frequent: the lengths of payloads, the distances within a batch
            second = _int(load8(array, at + 1))
            if second < 0x80:
                byte = (byte & 0x7F) | (second << 7)
                return (byte >> 1) ^ -(byte & 1), at + 2
    return _longer(array, at, end, 5)


@njit(inline="always")
def varint64(array: Any, at: Any, end: Any) -> Any:
    """The same for a 64-bit number."""
    if at < end:
        byte = _int(load8(array, at))
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), at + 1
        if at + 1 < end:
            second = _int(load8(array, at + 1))
            if second < 0x80:
                byte = (byte & 0x7F) | (second << 7)
                return (byte >> 1) ^ -(byte & 1), at + 2
    return _longer(array, at, end, 10)


@njit(inline="always")
def varint_size(value: Any) -> Any:
    """How many bytes ``store_varint`` writes, 1 to 10."""
    rest = _long((value << 1) ^ (value >> 63))
    size = 1
    while rest >= _80:
        rest >>= _SEVEN
        size += 1
    return size


@njit(inline="always")
def store_varint(array: Any, at: Any, value: Any) -> Any:
    """Write ``value`` at ``at``; the position behind it."""
    rest = _long((value << 1) ^ (value >> 63))
    while rest >= _80:
        store8(array, at, (rest & _7F) | _80)
        rest >>= _SEVEN
        at += 1
    store8(array, at, rest)
    return at + 1
