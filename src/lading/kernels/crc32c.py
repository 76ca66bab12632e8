"""CRC-32C (Castagnoli) inside kernels: three lanes of SSE4.2's instruction if the CPU has it, else slice-by-16.

``crc32c(array, start, end)`` is the one to call; the fallback without Numba is ``google_crc32c.value``. In bounds:
words are read up to ``end`` only, which callers keep inside their array.
"""

from __future__ import annotations

from typing import Any

from . import cpu
from .cpu import HAS_PCLMUL, HAS_SSE42
from .memory import load8, load64
from .signature import Data, inline, int64, routine, uint32, uint64
from .tables import CASTAGNOLI, power, slices

carryless_multiply: Any = cpu.carryless_multiply
crc32c_step: Any = cpu.crc32c_step
_TABLE = slices(CASTAGNOLI)
_LANE_BYTES = 256
"""Short enough that memory is read as one stream: with 4096 it takes 1.6 times as long if the cache is cold."""
_JOIN_ONE, _JOIN_TWO = power(8 * _LANE_BYTES - 32, CASTAGNOLI), power(16 * _LANE_BYTES - 32, CASTAGNOLI)
_ZERO, _ONES, _BYTE, _8 = uint64(0), uint64(0xFFFFFFFF), uint64(255), uint64(8)


@inline
def _tail(array: Data, at: int, end: int, crc: int) -> int:
    while at < end:
        crc = uint64(_TABLE[0, (crc ^ uint64(load8(array, at))) & _BYTE]) ^ (crc >> _8)
        at += 1
    return uint32(crc) ^ uint32(0xFFFFFFFF)


@routine
def crc32c_lanes(array: Data, start: int, end: int) -> int:
    """CRC-32C of ``array[start:end]``; only if HAS_SSE42 and HAS_PCLMUL.

    The instruction takes three cycles and one can start in each: three lanes run side by side and are joined
    by carry-less multiplication.
    """
    at = int64(start)
    crc = _ONES
    while at + 3 * _LANE_BYTES <= end:
        second = _ZERO
        third = _ZERO
        for word in range(at, at + _LANE_BYTES, 8):
            crc = crc32c_step(crc, load64(array, word))
            second = crc32c_step(second, load64(array, word + _LANE_BYTES))
            third = crc32c_step(third, load64(array, word + 2 * _LANE_BYTES))
        joined = carryless_multiply(crc, _JOIN_TWO)[0] ^ carryless_multiply(second, _JOIN_ONE)[0]
        crc = crc32c_step(_ZERO, joined) ^ third
        at += 3 * _LANE_BYTES
    while at + 8 <= end:
        crc = crc32c_step(crc, load64(array, at))
        at += 8
    return _tail(array, at, end, crc)


@routine
def crc32c_tables(array: Data, start: int, end: int) -> int:
    """CRC-32C of ``array[start:end]`` on any CPU."""
    at = int64(start)
    crc = _ONES
    while at + 16 <= end:
        low = load64(array, at) ^ crc
        high = load64(array, at + 8)
        word = uint32(0)
        for byte in range(8):
            word ^= _TABLE[15 - byte, low & _BYTE] ^ _TABLE[7 - byte, high & _BYTE]
            low >>= _8
            high >>= _8
        crc = uint64(word)
        at += 16
    return _tail(array, at, end, crc)


crc32c = crc32c_lanes if HAS_SSE42 and HAS_PCLMUL else crc32c_tables
