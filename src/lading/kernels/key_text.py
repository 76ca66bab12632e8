"""Header keys inside kernels: bytes of the wire to the text of names.key_text, and comparing them.

Where a function says so, 8 bytes behind what it looks at must be readable.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from .memory import load8, load64, memcpy, store8, store64
from .text import UTF8_BAD, ascii_only, store_hex, utf8_check

njit: Any = numba.njit

_BACKSLASH, _LOWER_X = 0x5C, 0x78
_ZERO, _BYTE, _SLASH = np.uint64(0), np.uint64(255), np.uint64(_BACKSLASH)
_HIGH_BITS = np.uint64(0x8080808080808080)
_SHORT_BYTES = 64


@njit(inline="always")
def same(data: Any, at: Any, keys: Any, key: Any, size: Any) -> Any:
    """Whether ``size`` bytes are equal; 8 bytes behind them are readable on both sides."""
    step = 0
    while step + 8 <= size:
        if load64(data, at + step) != load64(keys, key + step):
            return False
        step += 8
    rest = size - step
    if rest == 0:
        return True
    return ((load64(data, at + step) ^ load64(keys, key + step)) << np.uint64(64 - 8 * rest)) == _ZERO


@njit(inline="always")
def is_plain(data: Any, at: Any, size: Any) -> Any:
    """Whether a key is ASCII and does not begin with a backslash; 8 bytes behind it are readable."""
    if size < 1 or size > 8:
        return ascii_only(data, at, size) and (size == 0 or load8(data, at) != _BACKSLASH)
    word = load64(data, at)
    return (word & _HIGH_BITS) << np.uint64(64 - 8 * size) == _ZERO and word & _BYTE != _SLASH


@njit(nogil=True)
def odd_text_size(data: Any, at: Any, size: Any) -> Any:
    """Bytes of a key as text: itself, one more, or two for each and two."""
    if utf8_check(data, at, size) == UTF8_BAD:
        return 2 * size + 2
    return size + 1 if size > 0 and load8(data, at) == _BACKSLASH else size


@njit(nogil=True)
def copy_odd_text(target: Any, to: Any, source: Any, at: Any, size: Any) -> Any:
    """Copy a key as its text: escaped where it is no UTF-8 or begins with a backslash; the size of the text."""
    if utf8_check(source, at, size) == UTF8_BAD:
        store8(target, to, _BACKSLASH)
        store8(target, to + 1, _LOWER_X)
        store_hex(target, to + 2, source, at, size)
        return 2 * size + 2
    if size and load8(source, at) == _BACKSLASH:
        store8(target, to, _BACKSLASH)
        memcpy(target, to + 1, source, at, size)
        return size + 1
    memcpy(target, to, source, at, size)
    return size


@njit(inline="always")
def copy_words(target: Any, to: Any, source: Any, at: Any, size: Any) -> Any:
    """Copy in words of 8 bytes: both sides have 8 bytes to spare. Short copies are not worth a call."""
    step = 0
    while step < size:
        store64(target, to + step, load64(source, at + step))
        step += 8


@njit(inline="always")
def copy_bytes(target: Any, to: Any, source: Any, at: Any, size: Any) -> Any:
    """Copy any number of bytes, a few in words as ``copy_words`` does it."""
    if size <= _SHORT_BYTES:
        copy_words(target, to, source, at, size)
    else:
        memcpy(target, to, source, at, size)
