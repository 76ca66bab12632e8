"""Big-endian numbers at any byte, for Numba kernels; nothing is bounds-checked (see ``memory``)."""

from __future__ import annotations

from .memory import load8, load16, load32, load64, store16, store32, store64
from .signature import Data, inline, int64, uint64

_16, _32 = uint64(16), uint64(32)
_BYTES, _PAIRS, _WORDS = uint64(0x00FF00FF00FF00FF), uint64(0x0000FFFF0000FFFF), uint64(0xFFFFFFFF)
_8 = uint64(8)


@inline
def swapped64(word: int) -> int:
    """The same bytes from the other end; LLVM makes one instruction of it."""
    word = uint64(word)
    word = ((word >> _8) & _BYTES) | ((word & _BYTES) << _8)
    word = ((word >> _16) & _PAIRS) | ((word & _PAIRS) << _16)
    return (word >> _32) | (word << _32)


@inline
def big16(data: Data, at: int) -> int:
    """A u16 as int64."""
    word = int64(load16(data, at))
    return (word >> 8) | ((word & 0xFF) << 8)


@inline
def big32(data: Data, at: int) -> int:
    """A u32 as int64."""
    return int64(swapped64(uint64(load32(data, at))) >> _32)


@inline
def big64(data: Data, at: int) -> int:
    """An i64."""
    return int64(swapped64(load64(data, at)))


@inline
def put_big16(data: Data, at: int, value: int) -> None:
    """Store the low 16 bits."""
    store16(data, at, ((value & 0xFF) << 8) | ((value >> 8) & 0xFF))


@inline
def put_big32(data: Data, at: int, value: int) -> None:
    """Store the low 32 bits."""
    store32(data, at, swapped64(uint64(value)) >> _32)


@inline
def put_big64(data: Data, at: int, value: int) -> None:
    """Store 64 bits."""
    store64(data, at, swapped64(uint64(value)))


@inline
def byte(data: Data, at: int) -> int:
    """A byte as int64."""
    return int64(load8(data, at))
