"""CRC-32 (IEEE, as zlib's) inside kernels: by carry-less multiplication if the CPU has it, else slice-by-16.

``crc32(array, start, size)`` is the one to call; the fallback without Numba is ``zlib.crc32``. In bounds: words are
read up to ``start + size`` only, which callers keep inside their array.
"""

from __future__ import annotations

from typing import Any

from . import cpu
from .cpu import HAS_PCLMUL
from .memory import load8, load32, load64
from .signature import Data, inline, int64, uint32, uint64
from .tables import IEEE, power, slices

carryless_multiply: Any = cpu.carryless_multiply
_TABLE = slices(IEEE)
_FOLD_LOW, _FOLD_HIGH = power(160, IEEE), power(96, IEEE)
_ZERO, _ONES, _BYTE = uint64(0), uint64(0xFFFFFFFF), uint64(255)
_8, _16, _24 = uint64(8), uint64(16), uint64(24)


@inline
def _sixteen(low: int, high: int) -> int:
    """CRC of 16 bytes that already hold the running value in their first four."""
    crc = uint32(0)
    for byte in range(8):
        crc ^= _TABLE[15 - byte, low & _BYTE] ^ _TABLE[7 - byte, high & _BYTE]
        low >>= _8
        high >>= _8
    return uint64(crc)


@inline
def _tail(array: Data, at: int, end: int, crc: int) -> int:
    while at + 4 <= end:
        word = uint64(load32(array, at)) ^ crc
        at += 4
        crc = uint64(
            _TABLE[3, word & _BYTE]
            ^ _TABLE[2, (word >> _8) & _BYTE]
            ^ _TABLE[1, (word >> _16) & _BYTE]
            ^ _TABLE[0, word >> _24]
        )
    while at < end:
        crc = uint64(_TABLE[0, (crc ^ uint64(load8(array, at))) & _BYTE]) ^ (crc >> _8)
        at += 1
    return uint32(crc) ^ uint32(0xFFFFFFFF)


@inline
def crc32_folding(array: Data, start: int, size: int) -> int:
    """CRC-32 of ``array[start : start + size]``, 16 bytes a step; only if HAS_PCLMUL."""
    at = int64(start)
    end = at + int64(size)
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


@inline
def crc32_tables(array: Data, start: int, size: int) -> int:
    """CRC-32 of ``array[start : start + size]`` on any CPU."""
    at = int64(start)
    end = at + int64(size)
    crc = _ONES
    while at + 16 <= end:
        crc = _sixteen(load64(array, at) ^ crc, load64(array, at + 8))
        at += 16
    return _tail(array, at, end, crc)


crc32 = crc32_folding if HAS_PCLMUL else crc32_tables
