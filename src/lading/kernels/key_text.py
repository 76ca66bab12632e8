"""Header keys inside kernels: bytes of the wire to the text of names.key_text, and comparing them.

In bounds if the caller has checked ``size`` bytes on each side; if a function says so, 8 bytes after these must be
readable, too.
"""

from __future__ import annotations

from .memory import load8, load64, memcpy, store8, store64
from .signature import Data, inline, routine, uint64
from .text import UTF8_BAD, ascii_only, store_hex, utf8_check

_BACKSLASH, _LOWER_X, _LOWER_K, _COLON, _DIGIT = b"\\xk:0"
_ZERO, _BYTE, _SLASH = uint64(0), uint64(255), uint64(_BACKSLASH)
_HIGH_BITS = uint64(0x8080808080808080)
SHORT_BYTES = 64
"""Keys of up to this many bytes are copied faster in words than by a call."""


@inline
def same(data: Data, at: int, keys: Data, key: int, size: int) -> bool:
    """Whether ``size`` bytes are equal; 8 bytes after them are readable on both sides."""
    step = 0
    while step + 8 <= size:
        if load64(data, at + step) != load64(keys, key + step):
            return False
        step += 8
    rest = size - step
    if rest == 0:
        return True
    equal: bool = (load64(data, at + step) ^ load64(keys, key + step)) << uint64(64 - 8 * rest) == _ZERO
    return equal


@inline
def is_plain(data: Data, at: int, size: int) -> bool:
    """Whether a key is ASCII and does not begin with a backslash; 8 bytes after it are readable."""
    if size < 1 or size > 8:
        plain: bool = ascii_only(data, at, size) and (size == 0 or load8(data, at) != _BACKSLASH)
        return plain
    word = load64(data, at)
    short: bool = (word & _HIGH_BITS) << uint64(64 - 8 * size) == _ZERO and word & _BYTE != _SLASH
    return short


@routine
def odd_text_size(data: Data, at: int, size: int) -> int:
    """Bytes of a key as text: itself, one more, or two for each and two."""
    if utf8_check(data, at, size) == UTF8_BAD:
        return 2 * size + 2
    return size + 1 if size > 0 and load8(data, at) == _BACKSLASH else size


@routine
def copy_odd_text(target: Data, to: int, source: Data, at: int, size: int) -> int:
    """Copy a key as its text, escaped if it is not UTF-8 or begins with a backslash; the size of the text."""
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


@inline
def measure_typed_text(kind: int, size: int) -> int:
    """Bytes of a key of another kind than text as text: kind in decimal and two for each of its bytes."""
    digits = 1 if kind < 10 else 2 if kind < 100 else 3
    return 3 + digits + 2 * size


@routine
def copy_typed_text(target: Data, to: int, source: Data, at: int, size: int, kind: int) -> int:
    """Copy a key of another kind than text as its text; the size of that."""
    end = to + measure_typed_text(kind, size) - 2 * size
    store8(target, to, _BACKSLASH)
    store8(target, to + 1, _LOWER_K)
    store8(target, end - 1, _COLON)
    store_hex(target, end, source, at, size)
    digit = end - 2
    rest = kind
    while digit > to + 1:
        store8(target, digit, _DIGIT + rest % 10)
        rest //= 10
        digit -= 1
    return end - to + 2 * size


@inline
def copy_words(target: Data, to: int, source: Data, at: int, size: int) -> None:
    """Copy in words of 8 bytes: both sides have 8 bytes to spare. Short copies are not worth a call."""
    step = 0
    while step < size:
        store64(target, to + step, load64(source, at + step))
        step += 8


@inline
def copy_bytes(target: Data, to: int, source: Data, at: int, size: int) -> None:
    """Copy any number of bytes, a few in words as ``copy_words`` does it."""
    if size <= SHORT_BYTES:
        copy_words(target, to, source, at, size)
    else:
        memcpy(target, to, source, at, size)
