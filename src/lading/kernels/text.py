"""UTF-8 inside kernels: is it, and how it is written as hexadecimal digits."""

from __future__ import annotations

from .memory import load8, load64, store8
from .signature import Data, inline, int64, routine, uint64

UTF8_BAD, UTF8_GOOD = 0, 1
_HIGH_BITS = uint64(0x8080808080808080)
_ZERO = uint64(0)


@inline
def ascii_only(array: Data, at: int, size: int) -> bool:
    """Whether ``size`` bytes are all below 128; reads up to 7 bytes past them, which must be there."""
    step = 0
    while step + 8 <= size:
        if load64(array, at + step) & _HIGH_BITS != _ZERO:
            return False
        step += 8
    rest = size - step
    return rest == 0 or (load64(array, at + step) & _HIGH_BITS) << uint64(64 - 8 * rest) == _ZERO


@routine
def utf8_check(array: Data, at: int, size: int) -> int:
    """UTF8_GOOD if ``size`` bytes are well-formed UTF-8 (no surrogates, nothing overlong, up to U+10FFFF)."""
    return UTF8_GOOD if find_bad_utf8(array, at, size) < 0 else UTF8_BAD


@routine
def find_bad_utf8(array: Data, at: int, size: int) -> int:
    """Return the position of the first character that is not well-formed UTF-8, or -1."""
    end = at + size
    while at < end:
        lead = int64(load8(array, at))
        if lead < 0x80:
            at += 1
            continue
        low = 0x80
        high = 0xBF
        if 0xC2 <= lead <= 0xDF:
            more = 1
        elif 0xE0 <= lead <= 0xEF:
            more = 2
            low = 0xA0 if lead == 0xE0 else 0x80
            high = 0x9F if lead == 0xED else 0xBF
        elif 0xF0 <= lead <= 0xF4:
            more = 3
            low = 0x90 if lead == 0xF0 else 0x80
            high = 0x8F if lead == 0xF4 else 0xBF
        else:
            return at
        if at + more >= end:
            return at
        for step in range(1, more + 1):
            byte = int64(load8(array, at + step))
            if byte < low or byte > high:
                return at
            low = 0x80
            high = 0xBF
        at += more + 1
    return -1


@routine
def store_hex(target: Data, to: int, source: Data, at: int, size: int) -> None:
    """Write ``size`` bytes as twice as many lower-case hexadecimal digits."""
    for step in range(size):
        byte = int64(load8(source, at + step))
        high = byte >> 4
        low = byte & 15
        store8(target, to + 2 * step, high + (48 if high < 10 else 87))
        store8(target, to + 2 * step + 1, low + (48 if low < 10 else 87))
