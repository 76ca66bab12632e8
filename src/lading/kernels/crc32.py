"""CRC-32 (IEEE, as zlib's) inside kernels: by carry-less multiplication where the CPU has it, else slice-by-16.

``crc32(array, start, size)`` is the one to call; the twin that needs no Numba is ``zlib.crc32``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from . import cpu
from .cpu import HAS_PCLMUL
from .memory import load8, load32, load64
from .tables import IEEE, power, slices

carryless_multiply: Any = cpu.carryless_multiply
_TABLE = slices(IEEE)
_FOLD_LOW, _FOLD_HIGH = power(160, IEEE), power(96, IEEE)
_ZERO, _ONES, _BYTE = np.uint64(0), np.uint64(0xFFFFFFFF), np.uint64(255)
_8, _16, _24 = np.uint64(8), np.uint64(16), np.uint64(24)


@njit(inline="always")
def _sixteen(low: Any, high: Any) -> Any:
    """CRC of 16 bytes that already hold the running value in their first four."""
    crc = np.uint32(0)
    for byte in range(8):
        crc ^= _TABLE[15 - byte, low & _BYTE] ^ _TABLE[7 - byte, high & _BYTE]
        low >>= _8
        high >>= _8
    return np.uint64(crc)


@njit(inline="always")
def _tail(array: Any, at: Any, end: Any, crc: Any) -> Any:
    while at + 4 <= end:
        word = np.uint64(load32(array, at)) ^ crc
        at += 4
        crc = np.uint64(
            _TABLE[3, word & _BYTE]
            ^ _TABLE[2, (word >> _8) & _BYTE]
            ^ _TABLE[1, (word >> _16) & _BYTE]
            ^ _TABLE[0, word >> _24]
        )
    while at < end:
        crc = np.uint64(_TABLE[0, (crc ^ np.uint64(load8(array, at))) & _BYTE]) ^ (crc >> _8)
        at += 1
    return np.uint32(crc) ^ np.uint32(0xFFFFFFFF)


@njit(inline="always")
def crc32_folding(array: Any, start: Any, size: Any) -> Any:
    """CRC-32 of ``array[start : start + size]``, 16 bytes a step; only where HAS_PCLMUL."""
    at = np.int64(start)
    end = at + np.int64(size)
    crc = _ONES
    if end - at >= 32:
        low = load64(array, at) ^ _ONES
        high = load64(array, at + 8)
        at += 16
        while at + 16 <= end:
            x = carryless_multiply(low, _FOLD_LOW)
            y = carryless_multiply(high, _FOLD_HIGH)
            low = x[0] ^ y[0] ^ load64(array, at)
            high = x[1] ^ y[1] ^ load64(array, at + 8)
            at += 16
        crc = _sixteen(low, high)
    return _tail(array, at, end, crc)


@njit(inline="always")
def crc32_tables(array: Any, start: Any, size: Any) -> Any:
    """CRC-32 of ``array[start : start + size]`` on any CPU."""
    at = np.int64(start)
    end = at + np.int64(size)
    crc = _ONES
    while at + 16 <= end:
        crc = _sixteen(load64(array, at) ^ crc, load64(array, at + 8))
        at += 16
    return _tail(array, at, end, crc)


crc32 = crc32_folding if HAS_PCLMUL else crc32_tables
