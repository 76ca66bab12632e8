"""Big-endian numbers at any byte, for Numba kernels; nothing is bounds-checked (see ``memory``)."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from .memory import load8, load16, load32, load64, store16, store32, store64

njit: Any = numba.njit
_16, _32 = np.uint64(16), np.uint64(32)
_BYTES, _PAIRS, _WORDS = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF), np.uint64(0xFFFFFFFF)
_8 = np.uint64(8)


@njit(inline="always")
def swapped64(word: Any) -> Any:
    """The same bytes from the other end; LLVM makes one instruction of it."""
    word = np.uint64(word)
    word = ((word >> _8) & _BYTES) | ((word & _BYTES) << _8)
    word = ((word >> _16) & _PAIRS) | ((word & _PAIRS) << _16)
    return (word >> _32) | (word << _32)


@njit(inline="always")
def big16(data: Any, at: Any) -> Any:
    """A u16 as int64."""
    word = np.int64(load16(data, at))
    return (word >> 8) | ((word & 0xFF) << 8)


@njit(inline="always")
def big32(data: Any, at: Any) -> Any:
    """A u32 as int64."""
    return np.int64(swapped64(np.uint64(load32(data, at))) >> _32)


@njit(inline="always")
def big64(data: Any, at: Any) -> Any:
    """An i64."""
    return np.int64(swapped64(load64(data, at)))


@njit(inline="always")
def put_big16(data: Any, at: Any, value: Any) -> Any:
    """Store the low 16 bits."""
    store16(data, at, ((value & 0xFF) << 8) | ((value >> 8) & 0xFF))


@njit(inline="always")
def put_big32(data: Any, at: Any, value: Any) -> Any:
    """Store the low 32 bits."""
    store32(data, at, swapped64(np.uint64(value)) >> _32)


@njit(inline="always")
def put_big64(data: Any, at: Any, value: Any) -> Any:
    """Store 64 bits."""
    store64(data, at, swapped64(np.uint64(value)))


@njit(inline="always")
def byte(data: Any, at: Any) -> Any:
    """A byte as int64."""
    return np.int64(load8(data, at))
